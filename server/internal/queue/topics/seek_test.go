package topics

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// hold acquires the lease of a partition.
func (f *fleet) hold(ref qlog.GroupRef, node string) (qlog.State, error) {
	_, epoch, err := f.store.Lease(f.t.Context(), ref)
	if err != nil {
		return qlog.State{}, err
	}
	return f.store.Acquire(f.t.Context(), ref, node, epoch)
}

// settleAll commits as a holder that has settled everything.
func (f *fleet) settleAll(ref qlog.GroupRef, s qlog.State) error {
	_, err := f.store.Commit(f.t.Context(), ref, &qlog.Commit{
		Epoch: s.Epoch, Acked: s.Ver, Ver: s.Ver + 1, Cursor: s.Last, Sent: s.Last, Add: qlog.Counters{Acked: s.Last.Ord - s.Sent.Ord},
	})
	return err
}

func TestSeekTakesTheLease(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	topic := f.create(qlog.Topic{Name: "jobs", Partitions: 2}, "work")
	ref := qlog.GroupRef{Ref: topic.Ref(1), Group: "work"}
	f.put(topic, 1, 3)
	first, err := f.hold(ref, "n1")
	f.must(err)
	f.must(f.settleAll(ref, first))
	first.Ver++
	f.must(f.SeekGroup(ctx, "jobs", "work", qlog.Start{}))
	if err := f.settleAll(ref, first); !errors.Is(err, qlog.ErrFenced) {
		t.Errorf("the holder's commit: %v", err)
	}
	holder, _, err := f.store.Lease(ctx, ref)
	f.must(err)
	second, err := f.hold(ref, "n2")
	f.must(err)
	if holder != "" || second.Last.Ord-second.Sent.Ord != 3 || second.Counters != (qlog.Counters{}) {
		t.Errorf("holder %q, state %+v", holder, second)
	}
	f.must(f.settleAll(ref, second))
	if err := f.settleAll(ref, first); !errors.Is(err, qlog.ErrFenced) {
		t.Errorf("the first holder's commit: %v", err)
	}

	// By time, and to the end.
	all, err := f.store.Read(ctx, topic.Ref(1), 0, 10)
	f.must(err)
	f.must(f.SeekGroup(ctx, "jobs", "work", qlog.Start{Time: all[1].ID.Time()}))
	if n := f.unsent(topic, 1, "work"); n != 2 {
		t.Errorf("%d messages from the second on", n)
	}
	f.must(f.SeekGroup(ctx, "jobs", "work", qlog.Start{End: true, Time: time.Unix(1, 0)}))
	if n := f.unsent(topic, 1, "work"); n != 0 {
		t.Errorf("%d messages at the end", n)
	}
	f.want(f.SeekGroup(ctx, "jobs", "work", qlog.Start{Time: time.Unix(1, 0)}), fault.InvalidField)
	f.want(f.SeekGroup(ctx, "jobs", "none", qlog.Start{}), fault.GroupNotFound)
	f.want(f.SeekGroup(ctx, "none", "work", qlog.Start{}), fault.TopicNotFound)
}

// A seek that ends between its two steps leaves the lease to any node, but does not say that sessions
// hold nothing.
func TestASeekThatIsBrokenOffLeavesTheLease(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	topic := f.create(qlog.Topic{Name: "jobs", Partitions: 1}, "work")
	ref := qlog.GroupRef{Ref: topic.Ref(0), Group: "work"}
	f.put(topic, 0, 3)
	first, err := f.hold(ref, "n1")
	f.must(err)
	admin, _ := f.node(&failing{Store: f.store, at: 2})
	if err := admin.SeekGroup(t.Context(), "jobs", "work", qlog.Start{}); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if holder, _, err := f.store.Lease(t.Context(), ref); err != nil || holder == "" || validName(holder) {
		t.Errorf("the holder is %q: %v", holder, err)
	}
	if err := f.settleAll(ref, first); !errors.Is(err, qlog.ErrFenced) {
		t.Errorf("the holder's commit: %v", err)
	}
}

// Two nodes keep acquiring the lease and committing. A seek succeeds, and no commit of an epoch
// before it does after it.
func TestSeekAgainstTwoHolders(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	topic := f.create(qlog.Topic{Name: "jobs", Partitions: 1}, "work")
	ref := qlog.GroupRef{Ref: topic.Ref(0), Group: "work"}
	f.put(topic, 0, 3)
	stop := make(chan struct{})
	var holders sync.WaitGroup
	var mu sync.Mutex
	var held []qlog.State
	for _, node := range []string{"n1", "n2"} {
		holders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, err := f.hold(ref, node)
				if errors.Is(err, qlog.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if err := f.settleAll(ref, s); err != nil && !errors.Is(err, qlog.ErrFenced) {
					t.Error(err)
					return
				}
				mu.Lock()
				held = append(held, s)
				mu.Unlock()
			}
		})
	}
	f.eventually(func() bool { mu.Lock(); defer mu.Unlock(); return len(held) > 20 })
	for range 5 {
		f.must(f.SeekGroup(t.Context(), "jobs", "work", qlog.Start{}))
	}
	close(stop)
	holders.Wait()
	f.must(f.SeekGroup(t.Context(), "jobs", "work", qlog.Start{}))
	for _, s := range held {
		if err := f.settleAll(ref, s); !errors.Is(err, qlog.ErrFenced) {
			t.Errorf("a commit with the epoch %d: %v", s.Epoch, err)
		}
	}
	if n := f.unsent(topic, 0, "work"); n != 3 {
		t.Errorf("%d messages of 3", n)
	}
}

// A partition that lacks the group gets it, and is moved.
func TestSeekHeals(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	topic := f.create(qlog.Topic{Name: "jobs", Partitions: 3}, "work")
	f.put(topic, 2, 3)
	f.lose("stream:topic:{jobs:1}*")
	f.lose("stream:topic:{jobs:2}:g:work")
	f.must(f.SeekGroup(t.Context(), "jobs", "work", qlog.Start{End: true}))
	if n := f.unsent(f.whole("jobs", 3, "work"), 2, "work"); n != 0 {
		t.Errorf("%d messages at the end", n)
	}
}
