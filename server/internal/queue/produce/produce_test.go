package produce_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/produce"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

func TestMessagesOfAKeyAreInOnePartitionInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, 8, nil)
	results := b.stored(produce.Request{Messages: messages(200, 20)})
	where := map[string]int{} // message id -> number
	for i, r := range results {
		if _, twice := where[r.MessageID]; twice {
			t.Errorf("two messages have the id %s", r.MessageID)
		}
		where[r.MessageID] = i
	}
	partitionOf, used, total := map[string]int{}, 0, 0
	for p := range 8 {
		newest := map[string]int{}
		entries := b.log(p)
		total += len(entries)
		if len(entries) > 0 {
			used++
		}
		for i := range entries {
			e := &entries[i]
			number, ok := where[e.MessageID]
			if !ok || results[number].Partition != p || e.Key != fmt.Sprint("k", number%20) {
				t.Fatalf("entry %+v, of message %d in partition %d", e, number, p)
			}
			if before, ok := newest[e.Key]; ok && before >= number {
				t.Errorf("key %s: message %d is behind %d", e.Key, number, before)
			}
			newest[e.Key] = number
			if other, ok := partitionOf[e.Key]; ok && other != p {
				t.Errorf("key %s is in the partitions %d and %d", e.Key, other, p)
			}
			partitionOf[e.Key] = p
		}
	}
	if total != 200 || used < 4 {
		t.Errorf("%d messages in %d partitions", total, used)
	}
	ready := b.hints.take()
	if len(ready) != used {
		t.Errorf("hints %v of %d partitions", ready, used)
	}
	for p, n := range ready {
		if n != 1 {
			t.Errorf("%d hints of partition %d", n, p)
		}
	}
}

// Each partition costs a call of the store, so a request without keys goes to one as long as a call
// can take it.
func TestMessagesWithoutAKeyTakeTurnsInRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, 8, nil)
	seen := map[int]int{}
	for range 16 {
		results := b.stored(produce.Request{Messages: messages(50, 0)})
		for _, r := range results {
			if r.Partition != results[0].Partition {
				t.Fatalf("a request went to the partitions %d and %d", r.Partition, results[0].Partition)
			}
		}
		seen[results[0].Partition]++
	}
	for p := range 8 {
		if seen[p] != 2 {
			t.Errorf("16 requests took the turns %v", seen)
			break
		}
	}
	large := make([]produce.Message, 10)
	for i := range large {
		large[i].Payload = bytes.Repeat([]byte{byte(i)}, 256<<10)
	}
	results := b.stored(produce.Request{Messages: large})
	runs := 1
	for i := 1; i < len(results); i++ {
		if results[i].Partition != results[i-1].Partition {
			runs++
		}
	}
	if runs != 4 { // three of 256 KiB each fit, with what their records have beside the payload
		t.Errorf("2.5 MiB went to partitions in %d runs", runs)
	}
}

func TestARepeatIsSplitAsTheFirstAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, nil)
	all := messages(40, 5)
	for i := range 10 { // a part of more than one put
		all = append(all, produce.Message{Key: "k1", Payload: bytes.Repeat([]byte{byte(i)}, 200<<10)})
	}
	all = append(all, messages(10, 0)...)
	all = append(all, produce.Message{Payload: []byte("later"), Delay: time.Hour})
	bad := produce.Message{Headers: map[string]string{"parley-x": "1"}}
	all = slices.Insert(all, 7, bad)
	request := produce.Request{Messages: all, ProducerID: producerID, Sequence: 1}
	first := b.produce(request).Results
	if reason(first[7].Err) != fault.InvalidField {
		t.Errorf("the bad message: %+v", first[7])
	}
	n := b.total()
	if n != 60 {
		t.Fatalf("%d entries", n)
	}
	// Another node, with another turn and under another trace.
	other := b.service(b.store)
	sampled := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	}))
	request.Topic = "orders"
	again, err := other.Produce(sampled, request)
	b.check(err)
	b.repeated(slices.Delete(slices.Clone(first), 7, 8), slices.Delete(again.Results, 7, 8))
	if total := b.total(); total != n {
		t.Errorf("%d entries after the repeat of %d", total, n)
	}
	request.Sequence = 2
	b.produce(request)
	if total := b.total(); total != 2*n {
		t.Errorf("%d entries after the next sequence", total)
	}
	request.Messages = messages(1, 1)
	if r := b.produce(request).Results[0]; reason(r.Err) != fault.IdempotencyKeyReused {
		t.Errorf("another request of the same sequence: %+v", r)
	}
}

func TestARepeatAfterTheTopicGrew(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"the client says by how many", "the node remembers"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 4, nil)
			request := produce.Request{Topic: "orders", Messages: append(messages(100, 50), messages(5, 0)...), ProducerID: producerID, Sequence: 1}
			node := b.Service
			if name == "the client says by how many" {
				request.RoutedBy = b.produce(produce.Request{Messages: messages(1, 0)}).RoutedBy
				if request.RoutedBy != 4 {
					t.Fatalf("requests are routed by %d", request.RoutedBy)
				}
				node = b.service(b.store)
			}
			first := b.stored(request)
			b.update(func(t *qlog.Topic) { t.Partitions = 16 })
			again, err := node.Produce(t.Context(), request)
			b.check(err)
			b.repeated(first, again.Results)
			if again.RoutedBy != 16 {
				t.Errorf("the next request is to be routed by %d", again.RoutedBy)
			}
			request.Sequence, request.RoutedBy = 2, 0
			moved := false
			for _, r := range b.stored(request) {
				moved = moved || r.Partition >= 4
			}
			if !moved {
				t.Error("the new partitions are not used")
			}
		})
	}
}

// A node with old settings of the topic must route as one with the new ones.
func TestARequestThatIsRoutedByMoreThanTheNodeKnows(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, nil)
	b.stored(produce.Request{Messages: messages(1, 0)})
	grown := b.topic()
	grown.Partitions = 16
	b.make(grown, 4)
	b.check(b.store.UpdateTopic(t.Context(), grown))
	moved := false
	for _, r := range b.stored(produce.Request{Messages: messages(50, 50), RoutedBy: 16}) {
		moved = moved || r.Partition >= 4
	}
	if !moved {
		t.Error("the new partitions are not used")
	}
}

func TestResultsOfSingleMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, nil)
	unique := func(u produce.Unique) produce.Message {
		return produce.Message{Key: "u", Payload: []byte(u.Key), Unique: &u}
	}
	b.stored(produce.Request{Messages: []produce.Message{
		{Key: "i", Payload: []byte("a"), IdempotencyKey: "i"}, unique(produce.Unique{Key: "one"}), unique(produce.Unique{Key: "two"}),
	}})
	r := b.produce(produce.Request{Messages: []produce.Message{
		{Payload: []byte("ok")},
		{Key: "a\x00b"},
		{Headers: map[string]string{"Webhook-Id": "1"}},
		{Headers: map[string]string{"a": "1\r\nb: 2"}},
		{Key: "i", Payload: []byte("b"), IdempotencyKey: "i"},
		{Key: "i", Payload: []byte("a"), IdempotencyKey: "i", Headers: map[string]string{"traceparent": "00"}},
		unique(produce.Unique{Key: "one"}),
		unique(produce.Unique{Key: "one", OnConflict: qlog.ConflictKeep}),
		unique(produce.Unique{Key: "two", OnConflict: qlog.ConflictReplace}),
		{Key: "i", At: time.Now().Add(qlog.MaxDelay + time.Hour)},
		{Key: "i", Delay: qlog.MaxDelay + 1},
		{Key: "i", Delay: time.Hour},
		{Headers: map[string]string{"a": strings.Repeat("x", qlog.MaxRecordBytes)}},
	}}).Results
	for i, want := range []struct {
		reason fault.Reason
		field  string
	}{
		{},
		{fault.InvalidField, "key"},
		{fault.InvalidField, `headers["Webhook-Id"]`},
		{fault.InvalidField, `headers["a"]`},
		{fault.IdempotencyKeyReused, "idempotency_key"},
		{},
		{fault.UniqueKeyInUse, "unique.key"},
		{},
		{},
		{fault.InvalidField, "deliver_at"},
		{fault.InvalidField, "delay"},
		{},
		{fault.TooLarge, ""},
	} {
		field := ""
		if f, ok := fault.As(r[i].Err); ok {
			field = f.Field
		}
		if reason(r[i].Err) != want.reason || field != want.field {
			t.Errorf("message %d: %+v, want %+v", i, r[i], want)
		}
	}
	if !r[5].Duplicate || !r[7].Duplicate || r[8].Duplicate || r[11].Due.IsZero() {
		t.Errorf("%+v %+v %+v %+v", r[5], r[7], r[8], r[11])
	}
	if len(b.fate.cancelled) != 1 {
		t.Errorf("cancelled because they were replaced: %v", b.fate.cancelled)
	}
}

func TestFaultsOfARequest(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, nil)
	call := func(r produce.Request, want fault.Reason) {
		t.Helper()
		r.Messages = messages(3, 3)
		if _, err := b.Produce(t.Context(), r); reason(err) != want {
			t.Errorf("%+v: %v, want %s", r, err, want)
		}
	}
	call(produce.Request{Topic: "__own"}, fault.InvalidField)
	call(produce.Request{Topic: "nothing"}, fault.TopicNotFound)
	call(produce.Request{Topic: "orders", ProducerID: []byte("short")}, fault.InvalidField)
	call(produce.Request{Topic: "orders", ProducerID: producerID}, fault.InvalidField)
	call(produce.Request{Topic: "orders", ProducerID: producerID, Sequence: 1 << 53}, fault.InvalidField)
	b.produce(produce.Request{Messages: messages(3, 3), ProducerID: producerID, Sequence: 65})
	r := b.produce(produce.Request{Messages: messages(3, 3), ProducerID: producerID, Sequence: 1})
	for _, r := range r.Results {
		if reason(r.Err) != fault.SequenceTooOld {
			t.Errorf("an old sequence: %+v", r)
		}
	}
	b.update(func(t *qlog.Topic) { t.ProducePaused = true })
	call(produce.Request{Topic: "orders"}, fault.TopicPaused)
	_ = b.client.Close()
	call(produce.Request{Topic: "orders"}, fault.StoreUnavailable)
}

func TestFullPartitions(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, func(t *qlog.Topic) { t.MaxMessages = 10 })
	keyed := func(n int, key string) []produce.Message {
		all := messages(n, 0)
		for i := range all {
			all[i].Key = key
		}
		return all
	}
	//  partition 0 of 2, and "b" in 1.
	if p0, p1 := b.stored(produce.Request{Messages: keyed(1, "c")})[0].Partition, b.stored(produce.Request{Messages: keyed(1, "d")})[0].Partition; p0 == p1 {
		t.Fatalf("the keys are both in partition %d", p0)
	}
	all := append(keyed(12, "c"), keyed(3, "d")...)
	for i, r := range b.produce(produce.Request{Messages: all}).Results {
		want := fault.Reason("")
		if i >= 9 && i < 12 {
			want = fault.TopicFull
		}
		if reason(r.Err) != want {
			t.Errorf("message %d: %+v", i, r)
		}
		if f, ok := fault.As(r.Err); ok && (f.Limit != 10 || f.RetryAfter == 0) {
			t.Errorf("message %d: %+v", i, f)
		}
	}
	// Nothing is stored behind a message of its partition that was refused, also in a later put.
	large := keyed(8, "d")
	for i := range large {
		large[i].Payload = bytes.Repeat([]byte{1}, 256<<10)
	}
	var order strings.Builder
	for _, r := range b.produce(produce.Request{Messages: large}).Results {
		if r.Err == nil {
			order.WriteByte('s')
		} else {
			order.WriteByte('-')
		}
	}
	if order.String() != "ssssss--" {
		t.Errorf("stored: %s", order.String())
	}
	// Settled messages make room, even if retention keeps them.
	b.settle(0)
	b.settle(1)
	b.stored(produce.Request{Messages: append(keyed(5, "c"), keyed(5, "d")...)})
}

// settle moves the group's marks to the end of a partition's log, as its holder would.
func (b *bench) settle(partition int) {
	b.t.Helper()
	ref := qlog.GroupRef{Ref: b.topic().Ref(partition), Group: "work"}
	_, epoch, err := b.store.Lease(b.t.Context(), ref)
	b.check(err)
	state, err := b.store.Acquire(b.t.Context(), ref, "node", epoch)
	b.check(err)
	_, err = b.store.Commit(b.t.Context(), ref, &qlog.Commit{
		Epoch: state.Epoch, Acked: state.Ver, Ver: state.Ver + 1, Cursor: state.Last, Sent: state.Last,
		Add: qlog.Counters{Acked: state.Last.Ord}, GroupsVersion: state.GroupsVersion,
	})
	b.check(err)
}

// A partition whose keys were lost is restored within the call, so that producers see no error.
func TestALostPartitionIsRestored(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, nil)
	request := produce.Request{Messages: messages(40, 40), ProducerID: producerID, Sequence: 1}
	first := b.stored(request)
	for p := range 4 {
		b.check(b.client.Del(t.Context(), fmt.Sprintf("%sstream:topic:{orders:%d}:meta", b.prefix, p)).Err())
	}
	b.repeated(first, b.produce(request).Results)
	if b.topics.healed != 4 {
		t.Errorf("%d partitions were restored", b.topics.healed)
	}
	b.stored(produce.Request{Messages: messages(40, 40)})
	if n := b.total(); n != 80 {
		t.Errorf("%d entries", n)
	}
}

func TestATopicThatWasCreatedAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, nil)
	b.stored(produce.Request{Messages: messages(8, 8)})
	old := b.topic()
	for p := range 4 {
		b.check(b.store.RemovePartition(t.Context(), old, p))
	}
	b.check(b.store.RemoveTopic(t.Context(), old))
	b.create("BBBBBBBBBBBBB", 2, nil)
	for i, r := range b.stored(produce.Request{Messages: messages(8, 8)}) {
		if r.Partition >= 2 {
			t.Errorf("message %d: %+v", i, r)
		}
	}
	if b.topics.healed != 0 {
		t.Errorf("%d partitions of another topic were restored", b.topics.healed)
	}
	old = b.topic()
	for p := range 2 {
		b.check(b.store.RemovePartition(t.Context(), old, p))
	}
	b.check(b.store.RemoveTopic(t.Context(), old))
	if _, err := b.Produce(t.Context(), produce.Request{Topic: "orders", Messages: messages(8, 8)}); reason(err) != fault.TopicNotFound {
		t.Errorf("a topic that was deleted: %v", err)
	}
}

func TestManyProducersAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, 8, nil)
	var calls errgroup.Group
	for c := range 20 {
		calls.Go(func() error {
			id := fmt.Appendf(nil, "producer %07d", c)
			for sequence := range int64(5) {
				request := produce.Request{Topic: "orders", Messages: messages(20, 7), ProducerID: id, Sequence: sequence + 1}
				for range 2 {
					if r, err := b.Produce(t.Context(), request); err != nil || r.Results[0].Err != nil {
						return fmt.Errorf("%w, %w", err, r.Results[0].Err)
					}
				}
			}
			return nil
		})
	}
	b.check(calls.Wait())
	if n := b.total(); n != 20*5*20 {
		t.Errorf("%d entries", n)
	}
}
