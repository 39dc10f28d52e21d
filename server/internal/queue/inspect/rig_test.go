package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redislog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// prefixes numbers the prefixes of the tests' keys.
var prefixes atomic.Int64

// rig is a topic of some partitions with the groups g1 and g2, and what nodes would know of it.
type rig struct {
	tb    testing.TB
	c     redis.UniversalClient
	store *redislog.Store
	topic *qlog.Topic
	s     *Service

	mu       sync.Mutex
	sessions map[string][]qlog.SessionInfo
	missing  []string
	failing  bool
	asked    int
	retried  map[qlog.GroupRef][]qlog.ID
	produced map[string][]KeyedLetter
	// refuse makes the producer fail after it stored a batch.
	refuse bool
	hints  map[int]int
	// counted are the bytes of the replies of the store that have records.
}

func newRig(tb testing.TB, partitions int, change func(*qlog.Topic)) *rig {
	tb.Helper()
	return rigOn(tb, testkit.Redis(tb).Client(tb), partitions, change)
}

func rigOn(tb testing.TB, c redis.UniversalClient, partitions int, change func(*qlog.Topic)) *rig {
	tb.Helper()
	r := &rig{
		tb: tb, c: c, store: redislog.NewStore(c, redislog.StoreConfig{Prefix: fmt.Sprintf("inspect%d:", prefixes.Add(1))}),
		topic: &qlog.Topic{
			Name: "jobs", UID: "AAAAAAAAAAAAA", Version: 1, Partitions: partitions, Bounds: qlog.Bounds{Window: time.Minute},
			Groups: []qlog.Group{{Name: "g1"}, {Name: "g2"}},
		},
		sessions: map[string][]qlog.SessionInfo{}, retried: map[qlog.GroupRef][]qlog.ID{}, produced: map[string][]KeyedLetter{},
		hints: map[int]int{},
	}
	if change != nil {
		change(r.topic)
	}
	for p := range partitions {
		r.check(r.store.MakePartition(tb.Context(), r.topic, p))
	}
	r.s = New(Config{
		Store: r.store, Topics: r, Consumers: r, Producer: r, Hints: r, Digest: func(session string) string { return "digest of " + session },
		Local: func() []string { return nil },
	})
	return r
}

func (r *rig) check(err error) {
	r.tb.Helper()
	if err != nil {
		r.tb.Fatal(err)
	}
}

// Topic implements Topics.
func (r *rig) Topic(_ context.Context, name string) (*qlog.Topic, error) {
	if name != r.topic.Name {
		if name == "other" {
			return &qlog.Topic{Name: name, UID: "BBBBBBBBBBBBB", Partitions: 1}, nil
		}
		return nil, qlog.ErrNoTopic
	}
	return r.topic, nil
}

// Sessions implements Consumers.
func (r *rig) Sessions(_ context.Context, _, group string) ([]qlog.SessionInfo, []string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.failing {
		return nil, nil, errors.New("nobody answers")
	}
	return slices.Clone(r.sessions[group]), slices.Clone(r.missing), nil
}

// Retry implements Consumers.
func (r *rig) Retry(_ context.Context, ref qlog.GroupRef, ids []qlog.ID) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retried[ref] = append(r.retried[ref], ids...)
	return len(ids), nil
}

// ProduceLetters implements Producer.
func (r *rig) ProduceLetters(_ context.Context, topic string, letters []KeyedLetter) ([]error, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range letters {
		if !slices.ContainsFunc(r.produced[topic], func(other KeyedLetter) bool { return other.Key == l.Key }) {
			r.produced[topic] = append(r.produced[topic], l)
		}
	}
	if r.refuse {
		r.refuse = false
		return nil, qlog.ErrUnknownOutcome
	}
	return make([]error, len(letters)), nil
}

// Ready implements Hints.
func (r *rig) Ready(_ string, partition int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hints[partition]++
}

// draft encodes a message.
func (r *rig) draft(key string, size int) qlog.Draft {
	r.tb.Helper()
	body, err := proto.Marshal(&parleyv1.Delivery{Key: key, Payload: []byte(strings.Repeat("x", size))})
	r.check(err)
	return qlog.Draft{Body: body, Digest: key}
}

// put puts n messages of a size to a partition, with the keys k0, k1 and so on, and returns their
// IDs.
func (r *rig) put(partition, n, size int, change func(*qlog.Draft)) (ids []string) {
	r.tb.Helper()
	for len(ids) < n {
		d := r.draft(fmt.Sprint("k", len(ids)), size)
		if change != nil {
			change(&d)
		}
		results, err := r.store.Put(r.tb.Context(), r.topic.Ref(partition), qlog.Bounds{Window: time.Minute}, qlog.Put{Drafts: []qlog.Draft{d}})
		r.check(err)
		r.check(results[0].Err)
		ids = append(ids, results[0].MessageID)
	}
	return ids
}

func (r *rig) group(partition int, name string) qlog.GroupRef {
	return qlog.GroupRef{Ref: r.topic.Ref(partition), Group: name}
}

// fates say what becomes of the entries that a group was not sent, in order: 'a'cked, 'd'ead,
// 'o'pen without a row, 'w'aiting, 's'ent, 'b'egun, 'l'oose, 'r'etrying, s'u'spect.
func (r *rig) settle(partition int, group, fates string) (at []qlog.Pos) {
	r.tb.Helper()
	ctx, ref := r.tb.Context(), r.group(partition, group)
	_, epoch, err := r.store.Lease(ctx, ref)
	r.check(err)
	state, err := r.store.Acquire(ctx, ref, "n1", epoch)
	r.check(err)
	open, cursor := []int64{}, state.Sent
	for len(fates) > 0 {
		entries, err := r.store.Read(ctx, ref.Ref, state.Sent.ID, min(3, len(fates)))
		r.check(err)
		c := &qlog.Commit{
			Epoch: state.Epoch, Acked: state.Ver, Ver: state.Ver + 1, GroupsVersion: state.GroupsVersion, Open: map[int64]string{},
			Rows: map[qlog.ID]qlog.Row{},
		}
		for i := range entries {
			e := &entries[i]
			at = append(at, e.Pos)
			c.Sent = e.Pos
			switch fates[i] {
			case 'a':
				c.Add.Acked++
			case 'd':
				c.Add.Dead++
				c.Dead = append(c.Dead, qlog.DeadLetter{
					Pos: e.Pos, MessageID: e.MessageID, Attempts: 3, Reason: "it failed", Code: "bad", Key: e.Key, PayloadBytes: e.PayloadBytes,
				})
			default:
				if len(open) == 0 {
					cursor = qlog.Pos{ID: e.ID - 1, Ord: e.Ord - 1}
				}
				open = append(open, e.Ord)
				if row := rowOf(fates[i]); row.State != 0 {
					c.Rows[e.ID] = row
				}
			}
		}
		if fates = fates[len(entries):]; len(open) == 0 {
			cursor = c.Sent
		}
		c.Cursor = cursor
		c.Open[0] = qlog.FormatRanges(open)
		_, err = r.store.Commit(ctx, ref, c)
		r.check(err)
		state.Ver, state.Sent = c.Ver, c.Sent
	}
	return at
}

// dueAt is when rows are due.
var dueAt = time.UnixMilli(1_700_000_000_000)

func rowOf(fate byte) qlog.Row {
	row := qlog.Row{Gen: 2, Attempts: 1, Since: dueAt.Add(-time.Hour)}
	switch fate {
	case 'w':
		row.State = qlog.RowWaiting
	case 's':
		row.State, row.Session = qlog.RowSent, "s1"
	case 'b':
		row.State, row.Session = qlog.RowBegun, "s1"
	case 'l':
		row.State, row.Session = qlog.RowLoose, "nonce"
	case 'r':
		row.State, row.Due, row.Code, row.Reason = qlog.RowRetrying, dueAt, "bad", "it failed"
	case 'u':
		row.State, row.Due, row.Code = qlog.RowSuspect, dueAt, "lost"
	default:
	}
	return row
}
