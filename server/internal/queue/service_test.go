package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/parleyhq/parley/server/internal/fault"
)

// inputStub is a store that takes everything, unless fail says otherwise for a partition.
type inputStub struct {
	InputStore

	mu    sync.Mutex
	calls []inputCall
	// fail is called with the number of the call, from 0, and may change what it answers.
	fail func(call int, t *Topic, partition int, taken []Taken) ([]Taken, error)
}

type inputCall struct {
	uid       string
	partition int
	drafts    []Draft
}

func (s *inputStub) Produce(_ context.Context, t *Topic, partition int, drafts []Draft) ([]Taken, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := len(s.calls)
	s.calls = append(s.calls, inputCall{t.UID, partition, drafts})
	taken := make([]Taken, len(drafts))
	for i := range drafts {
		taken[i].MessageID = fmt.Sprintf("%d-%d-%d", partition, call, i)
	}
	if s.fail != nil {
		return s.fail(call, t, partition, taken)
	}
	return taken, nil
}

func (s *inputStub) Schedule(ctx context.Context, t *Topic, partition int, drafts []Draft) ([]Taken, error) {
	return s.Produce(ctx, t, partition, drafts)
}

// hintsStub counts what is ready.
type hintsStub struct {
	Hints

	mu    sync.Mutex
	ready map[place]int
}

func (h *hintsStub) Ready(topic string, partition int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready == nil {
		h.ready = make(map[place]int)
	}
	h.ready[place{topic, partition}]++
}

func (h *hintsStub) count(topic string, partition int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready[place{topic, partition}]
}

type serviceRig struct {
	*Service

	input  *inputStub
	topics *topicsStub
	hints  *hintsStub
}

func newServiceRig() *serviceRig {
	r := &serviceRig{input: &inputStub{}, topics: &topicsStub{topic: hasVersion(1)}, hints: &hintsStub{}}
	r.Service = NewService(ServiceConfig{Store: r.input, Catalog: NewCatalog(r.topics), Hints: r.hints})
	return r
}

func keyed(keys ...string) []Draft {
	drafts := make([]Draft, len(keys))
	for i, k := range keys {
		drafts[i].Key, drafts[i].Payload = k, []byte(k)
	}
	return drafts
}

func TestProduceAnswersInOrderAcrossPartitions(t *testing.T) {
	t.Parallel()
	r := newServiceRig()
	var keys []string
	for i := range 50 {
		keys = append(keys, fmt.Sprint("k", i%10))
	}
	outcomes, err := r.Produce(t.Context(), "t", keyed(keys...))
	if err != nil || len(outcomes) != len(keys) {
		t.Fatalf("%d outcomes, %v", len(outcomes), err)
	}
	seen := map[string]string{}
	for _, c := range r.input.calls {
		for i, d := range c.drafts {
			if want := Hash.partitionOf(d.Key, 4); c.partition != want {
				t.Errorf("%s is in partition %d, want %d", d.Key, c.partition, want)
			}
			seen[fmt.Sprintf("%d-%s", c.partition, d.Key)] += fmt.Sprint(i, " ")
		}
		if r.hints.count("t", c.partition) != 1 {
			t.Errorf("partition %d was hinted %d times", c.partition, r.hints.count("t", c.partition))
		}
	}
	last := map[string]int{}
	for i, o := range outcomes {
		var partition, call, place int
		if _, err := fmt.Sscanf(o.MessageID, "%d-%d-%d", &partition, &call, &place); err != nil || o.Err != nil {
			t.Fatalf("outcome %d: %+v", i, o)
		}
		if d := r.input.calls[call].drafts[place]; d.Key != keys[i] || o.Partition != partition {
			t.Fatalf("outcome %d is of %s: %+v", i, d.Key, o)
		}
		if before, ok := last[keys[i]]; ok && place <= before {
			t.Fatalf("draft %d of %s came before an earlier one", i, keys[i])
		}
		last[keys[i]] = place
	}
}

func TestProduceRefusesWhatTheProtoCannotSay(t *testing.T) {
	t.Parallel()
	r := newServiceRig()
	_, err := r.Produce(t.Context(), "__dlq", keyed("a"))
	if f, ok := fault.As(err); !ok || f.Reason != fault.InvalidField || f.Field != "topic" {
		t.Fatalf("got %v", err)
	}
	drafts := keyed("ok", "a\x00b", "a\xffb", "h", "h", "h", "d", "d", "h", "h")
	drafts[3].Headers = map[string]string{"Webhook-signature": "x"}
	drafts[4].Headers = map[string]string{"parley-id": "x"}
	drafts[5].Headers = map[string]string{"fine": "a\x00"}
	drafts[6].Delay = MaxDelay + 1
	drafts[7].At = time.Now().Add(MaxDelay + time.Hour)
	drafts[8].Headers = map[string]string{"cr": "a\rb"}
	drafts[9].Headers = map[string]string{"lf": "a\n"}
	outcomes, err := r.Schedule(t.Context(), "t", drafts)
	if err != nil {
		t.Fatal(err)
	}
	for i, field := range []string{"", "key", "key", `headers["Webhook-signature"]`, `headers["parley-id"]`, `headers["fine"]`, "delay", "due_time", `headers["cr"]`, `headers["lf"]`} {
		f, _ := fault.As(outcomes[i].Err)
		switch {
		case field == "" && outcomes[i].Err != nil:
			t.Errorf("outcome %d: %v", i, outcomes[i].Err)
		case field != "" && (f == nil || f.Reason != fault.InvalidField || f.Field != field):
			t.Errorf("outcome %d: %+v, want %s", i, outcomes[i].Err, field)
		}
	}
	if len(r.input.calls) != 1 || len(r.input.calls[0].drafts) != 1 {
		t.Fatalf("the store got %v", r.input.calls)
	}
}

func TestProduceLooksATopicUpAgainThatIsAnotherNow(t *testing.T) {
	t.Parallel()
	r := newServiceRig()
	if _, err := r.Produce(t.Context(), "t", keyed("a")); err != nil {
		t.Fatal(err)
	}
	// The topic was removed and made anew, with other partitions.
	r.topics.answer(func(context.Context, string) (*Topic, error) {
		return &Topic{Name: "t", UID: "V", Partitions: 64, Partitioner: Hash}, nil
	})
	r.input.fail = func(_ int, topic *Topic, _ int, taken []Taken) ([]Taken, error) {
		if topic.UID != "V" {
			return nil, ErrNoTopic
		}
		return taken, nil
	}
	outcomes, err := r.Produce(t.Context(), "t", keyed("a", "b", "c"))
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"a", "b", "c"} {
		if outcomes[i].Err != nil || outcomes[i].Partition != Hash.partitionOf(key, 64) {
			t.Errorf("%s: %+v", key, outcomes[i])
		}
	}

	// Now it is gone for good. It is asked about once more, and no more.
	r.topics.answer(func(context.Context, string) (*Topic, error) { return nil, ErrNoTopic })
	r.input.fail = func(int, *Topic, int, []Taken) ([]Taken, error) { return nil, ErrNoTopic }
	before := r.topics.count()
	_, err = r.Produce(t.Context(), "t", keyed("a", "b", "c"))
	wantReason(t, err, fault.TopicNotFound)
	if n := r.topics.count() - before; n != 1 {
		t.Errorf("%d look-ups", n)
	}
}

func TestProduceFailsItemsOfThePartitionThatFails(t *testing.T) {
	t.Parallel()
	r := newServiceRig()
	bad := Hash.partitionOf("k0", 4)
	r.topics.answer(func(context.Context, string) (*Topic, error) {
		return &Topic{Name: "t", UID: "U", Partitions: 4, Partitioner: Hash, MaxMessages: 7}, nil
	})
	keys := []string{"k0", "k1", "k2", "k3", "k4", "k5"}
	for name, c := range map[string]struct {
		err    error
		reason fault.Reason
	}{
		"away":    {fault.New(fault.Unavailable, fault.StoreUnavailable, "x"), fault.StoreUnavailable},
		"unknown": {ErrUnknownOutcome, fault.OutcomeUnknown},
		"paused":  {fmt.Errorf("x: %w", ErrPaused), fault.TopicPaused},
		"bug":     {errors.New("bug"), ""},
	} {
		r.input.fail = func(_ int, _ *Topic, partition int, taken []Taken) ([]Taken, error) {
			if partition == bad {
				return nil, c.err
			}
			return taken, nil
		}
		outcomes, err := r.Produce(t.Context(), "t", keyed(keys...))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, key := range keys {
			err := outcomes[i].Err
			switch failed := Hash.partitionOf(key, 4) == bad; {
			case !failed && err != nil, failed && err == nil:
				t.Errorf("%s: %s: %v", name, key, err)
			case failed && c.reason != "":
				wantReason(t, err, c.reason)
			}
		}
		// All of them alike: it is the call that fails.
		if c.reason != "" {
			_, err = r.Produce(t.Context(), "t", keyed("k0", "k0"))
			wantReason(t, err, c.reason)
		}
	}

	r.input.fail = func(_ int, _ *Topic, _ int, taken []Taken) ([]Taken, error) {
		taken[1], taken[2], taken[3] = Taken{Err: ErrFull}, Taken{Err: ErrKeyReused}, Taken{MessageID: "id", Duplicate: true}
		return taken, nil
	}
	outcomes, err := r.Produce(t.Context(), "t", keyed("k0", "k0", "k0", "k0"))
	if err != nil {
		t.Fatal(err)
	}
	full, _ := fault.As(outcomes[1].Err)
	if full == nil || full.Reason != fault.TopicFull || full.Kind != fault.ResourceExhausted || full.Limit != 7 || full.RetryAfter != time.Second {
		t.Errorf("full: %+v", full)
	}
	wantReason(t, outcomes[2].Err, fault.IdempotencyKeyReused)
	if !outcomes[3].Duplicate || outcomes[3].MessageID != "id" {
		t.Errorf("duplicate: %+v", outcomes[3])
	}
}

func TestProduceRepeatsOnlyWhatCannotBeStoredTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newServiceRig()
		r.input.fail = func(call int, _ *Topic, _ int, taken []Taken) ([]Taken, error) {
			if call == 0 {
				return nil, ErrUnknownOutcome
			}
			return taken, nil
		}
		drafts := keyed("a", "a")
		drafts[0].IdempotencyKey = "1"
		_, err := r.Produce(t.Context(), "t", drafts)
		wantReason(t, err, fault.OutcomeUnknown)
		if len(r.input.calls) != 1 {
			t.Fatalf("a draft without idempotency key was sent %d times", len(r.input.calls))
		}
		r.input.calls = nil
		drafts[1].IdempotencyKey = "2"
		if _, err := r.Produce(t.Context(), "t", drafts); err != nil {
			t.Fatal(err)
		}
		if len(r.input.calls) != 2 {
			t.Fatalf("%d calls", len(r.input.calls))
		}
		r.input.calls = nil
		r.input.fail = func(int, *Topic, int, []Taken) ([]Taken, error) { return nil, ErrUnknownOutcome }
		_, err = r.Produce(t.Context(), "t", drafts)
		wantReason(t, err, fault.OutcomeUnknown)
		if len(r.input.calls) != 1+repeats {
			t.Fatalf("%d calls", len(r.input.calls))
		}
	})
}

// A round-robin topic, too, finds a repeat under an idempotency key in the partition of the first.
func TestARepeatFindsItsPartition(t *testing.T) {
	t.Parallel()
	for _, partitioner := range []Partitioner{Hash, ConsistentHash, RoundRobin} {
		r := newServiceRig()
		r.topics.answer(func(context.Context, string) (*Topic, error) {
			return &Topic{Name: "t", UID: "U", Partitions: 32, Partitioner: partitioner}, nil
		})
		for range 5 {
			if _, err := r.Produce(t.Context(), "t", []Draft{{IdempotencyKey: "once"}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range r.input.calls {
			if c.partition != r.input.calls[0].partition {
				t.Fatalf("partitioner %d: partitions %d and %d", partitioner, r.input.calls[0].partition, c.partition)
			}
		}
	}
}

func TestProduceCarriesTheTrace(t *testing.T) {
	t.Parallel()
	r := newServiceRig()
	id := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), id)
	drafts := []Draft{{}, {Message: Message{Headers: map[string]string{"traceparent": "own"}}}, {Message: Message{Headers: map[string]string{"a": "b"}}}}
	if _, err := r.Produce(ctx, "t", drafts); err != nil {
		t.Fatal(err)
	}
	state, err := trace.ParseTraceState("a=b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Produce(trace.ContextWithSpanContext(ctx, id.WithTraceState(state)), "t", drafts[:1]); err != nil {
		t.Fatal(err)
	}
	if with := r.input.calls[1].drafts[0].Headers; with["tracestate"] != "a=b" || with["traceparent"] == "" {
		t.Errorf("headers %v", with)
	}
	got := r.input.calls[0].drafts
	want := "00-" + id.TraceID().String() + "-" + id.SpanID().String() + "-01"
	if got[0].Traceparent != want || got[1].Headers["traceparent"] != "own" ||
		got[2].Headers["traceparent"] != want || got[2].Headers["a"] != "b" {
		t.Errorf("headers %v", got)
	}
	if drafts[0].Headers != nil || len(drafts[2].Headers) != 1 {
		t.Error("the caller's headers were changed")
	}
}

func TestProduceCarriesNoTraceThatIsNotSampled(t *testing.T) {
	t.Parallel()
	r := newServiceRig()
	id := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	if _, err := r.Produce(trace.ContextWithSpanContext(t.Context(), id), "t", []Draft{{}}); err != nil {
		t.Fatal(err)
	}
	if got := r.input.calls[0].drafts[0].Headers; got != nil {
		t.Errorf("headers %v", got)
	}
}

func TestCancelOfWhatIsNoneOfTheTopic(t *testing.T) {
	t.Parallel()
	r := newServiceRig()
	for _, id := range []string{"4-1700000000000-0d", "255-1700000000000-0d", "x", "", "-1-5-0", strings.Repeat("9", 30) + "-1-1"} {
		wantReason(t, r.Cancel(t.Context(), "t", id), fault.ScheduledNotFound)
		_, err := r.Reschedule(t.Context(), "t", id, 0, time.Time{})
		wantReason(t, err, fault.ScheduledNotFound)
	}
	_, err := r.Reschedule(t.Context(), "t", "1-1-1", -1, time.Time{})
	wantReason(t, err, fault.InvalidField)
}
