package produce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/produce"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redislog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// flaky is a store whose puts a script can let fail after or before they are done.
type flaky struct {
	*redislog.Store

	mu   sync.Mutex
	puts int
	// before and after return the error of put number n, from 1 on, before and after it is done.
	before, after func(n int) error
}

func (f *flaky) Put(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, put qlog.Put) ([]qlog.PutResult, error) {
	f.mu.Lock()
	f.puts++
	n := f.puts
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(n); err != nil {
			return nil, err
		}
	}
	results, err := f.Store.Put(ctx, ref, bounds, put)
	if err == nil && f.after != nil {
		err = f.after(n)
	}
	if err != nil {
		return nil, err
	}
	return results, nil
}

// failFirst fails the first n calls with an error.
func failFirst(n int, err error) func(int) error {
	return func(call int) error {
		if call <= n {
			return err
		}
		return nil
	}
}

func TestAPutWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	numbered := produce.Request{Topic: "orders", Messages: messages(3, 1), ProducerID: producerID, Sequence: 1}
	keyed := produce.Request{Topic: "orders", Messages: []produce.Message{{IdempotencyKey: "a"}, {IdempotencyKey: "a", Payload: []byte("b")}}}
	for _, c := range []struct {
		name      string
		r         produce.Request
		lost      int
		puts      int
		unknown   bool
		duplicate bool
	}{
		{"numbered", numbered, 2, 3, false, true},
		{"with idempotency keys", keyed, 1, 2, false, true},
		{"numbered, too often", numbered, 3, 3, true, false},
		{"neither", produce.Request{Topic: "orders", Messages: messages(3, 1)}, 1, 1, true, false},
		{"a single one without a key", produce.Request{Topic: "orders", Messages: []produce.Message{{IdempotencyKey: "a", Key: "k"}, {Key: "k"}}}, 1, 1, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1, nil)
			store := &flaky{Store: b.store, after: failFirst(c.lost, fmt.Errorf("lost: %w", qlog.ErrUnknownOutcome))}
			r, err := b.service(store).Produce(t.Context(), c.r)
			if c.unknown != (reason(err) == fault.OutcomeUnknown) || !c.unknown && err != nil || store.puts != c.puts {
				t.Fatalf("%+v, %v after %d puts", r, err, store.puts)
			}
			if !c.unknown && (r.Results[0].Err != nil || r.Results[0].Duplicate != c.duplicate) {
				t.Errorf("%+v", r.Results[0])
			}
			// The messages may be stored, so consumers must look.
			if n := b.hints.take()[0]; n != 1 {
				t.Errorf("%d hints", n)
			}
		})
	}
}

// What comes behind a message that may not be stored must not be stored, or else messages of a key
// would be out of order.
func TestNothingIsPutBehindAFailure(t *testing.T) {
	t.Parallel()
	large := make([]produce.Message, 8)
	for i := range large {
		large[i] = produce.Message{Key: "k", Payload: bytes.Repeat([]byte{byte(i)}, 256<<10)}
	}
	for _, c := range []struct {
		err         error
		first, then fault.Reason
	}{
		{qlog.ErrUnknownOutcome, fault.OutcomeUnknown, fault.BatchAborted},
		{context.Canceled, fault.DeadlinePassed, fault.BatchAborted},
		{fault.New(fault.Unavailable, fault.StoreUnavailable, "away"), fault.StoreUnavailable, fault.StoreUnavailable},
		{qlog.ErrPaused, fault.TopicPaused, fault.TopicPaused},
		{qlog.ErrNoMemory, fault.StoreUnavailable, fault.StoreUnavailable},
	} {
		b := newBench(t, 1, nil)
		store := &flaky{Store: b.store, before: func(n int) error {
			if n == 2 {
				return c.err
			}
			return nil
		}}
		r, err := b.service(store).Produce(t.Context(), produce.Request{Topic: "orders", Messages: large})
		b.check(err)
		for i, r := range r.Results {
			want := fault.Reason("")
			switch {
			case i >= 6:
				want = c.then
			case i >= 3:
				want = c.first
			}
			if reason(r.Err) != want {
				t.Errorf("%v: message %d: %v, want %s", c.err, i, r.Err, want)
			}
		}
		if store.puts != 2 {
			t.Errorf("%v: %d puts", c.err, store.puts)
		}
	}
}

// fullOnce is a store whose first put finds no room for its last message, and whose others would.
type fullOnce struct {
	*redislog.Store

	puts int
}

func (f *fullOnce) Put(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, put qlog.Put) ([]qlog.PutResult, error) {
	results, err := f.Store.Put(ctx, ref, bounds, put)
	if f.puts++; f.puts == 1 && err == nil {
		results[len(results)-1] = qlog.PutResult{Err: qlog.ErrFull}
	}
	return results, err
}

func TestNothingIsPutBehindAFullPartition(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, nil)
	large := make([]produce.Message, 8)
	for i := range large {
		large[i].Payload = bytes.Repeat([]byte{byte(i)}, 256<<10)
	}
	store := &fullOnce{Store: b.store}
	r, err := b.service(store).Produce(t.Context(), produce.Request{Topic: "orders", Messages: large})
	b.check(err)
	for i, r := range r.Results {
		if full := reason(r.Err) == fault.TopicFull; full != (i >= 2) {
			t.Errorf("message %d: %+v", i, r)
		}
	}
	if store.puts != 1 {
		t.Errorf("%d puts", store.puts)
	}
}

func TestATopicThatCannotBeReadOrRestored(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, nil)
	always := failFirst(100, qlog.ErrNoTopic)
	service := b.service(&flaky{Store: b.store, before: always})
	request := produce.Request{Topic: "orders", Messages: messages(1, 0)}
	if _, err := service.Produce(t.Context(), request); reason(err) != fault.StoreUnavailable {
		t.Errorf("a partition that stays lost: %v", err)
	}
	b.topics.err = errors.New("away")
	if _, err := service.Produce(t.Context(), request); reason(err) != fault.StoreUnavailable {
		t.Errorf("a topic that cannot be read: %v", err)
	}
}

// busy is a store whose puts wait.
type busy struct {
	*redislog.Store

	mu      sync.Mutex
	now     int
	most    int
	release chan struct{}
}

func (s *busy) Put(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, put qlog.Put) ([]qlog.PutResult, error) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	<-s.release
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	return s.Store.Put(ctx, ref, bounds, put)
}

func TestPartitionsArePutAtTheSameTimeWithinABound(t *testing.T) {
	t.Parallel()
	b := newBench(t, 64, nil)
	store := &busy{Store: b.store, release: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		_, err := b.service(store).Produce(context.Background(), produce.Request{Topic: "orders", Messages: messages(500, 500)})
		done <- err
	}()
	testkit.Eventually(t, 10*time.Second, func() error {
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.now < 16 {
			return fmt.Errorf("%d puts at the same time", store.now)
		}
		return nil
	})
	close(store.release)
	b.check(<-done)
	if store.most != 16 {
		t.Errorf("%d puts at the same time", store.most)
	}
}

// away is a store of which one partition does not answer.
type away struct {
	*redislog.Store

	partition int
}

func (a away) Put(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, put qlog.Put) ([]qlog.PutResult, error) {
	if ref.Partition == a.partition {
		return nil, fault.New(fault.Unavailable, fault.StoreUnavailable, "away")
	}
	return a.Store.Put(ctx, ref, bounds, put)
}

// One partition's failure is not the request's, whichever message is the first.
func TestAPartitionThatFailsAlone(t *testing.T) {
	t.Parallel()
	for partition := range 2 {
		b := newBench(t, 2, nil)
		all := []produce.Message{{Key: "c"}, {Key: "d"}} // in the partitions 0 and 1
		r, err := b.service(away{b.store, partition}).Produce(t.Context(), produce.Request{Topic: "orders", Messages: all})
		b.check(err)
		for i, r := range r.Results {
			if failed := reason(r.Err) == fault.StoreUnavailable; r.Partition != i || failed != (i == partition) {
				t.Errorf("partition %d fails: message %d: %+v", partition, i, r)
			}
		}
	}
}
