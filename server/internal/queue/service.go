package queue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// maxWrites is how many partitions one call writes at once.
	maxWrites = 16
	// repeats is how often a write with idempotency keys throughout is repeated when its outcome is not known.
	repeats = 2
	// repeatWait is about how long before that.
	repeatWait = 50 * time.Millisecond
	// fullWait is what a producer is told to wait when a partition is full.
	fullWait = time.Second
)

// ServiceConfig sets up a Service. Store and Catalog must be set.
type ServiceConfig struct {
	Store   InputStore
	Catalog *Catalog
	// Hints tells consumers that there is something; nil tells nobody, and they find it by polling.
	Hints Hints
	// Metrics may be nil.
	Metrics *Metrics
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Service takes messages in. The transport has checked the fields' own rules and who may call. Safe for concurrent use.
type Service struct {
	cfg   ServiceConfig
	turns turns
}

// Outcome is what became of a Draft.
type Outcome struct {
	MessageID string
	Partition int
	// Duplicate is true if an earlier call with the idempotency key stored it.
	Duplicate bool
	// Due is when a scheduled message appears, by Redis' clock.
	Due time.Time
	// Err is a fault if it was not stored, or may not have been (OUTCOME_UNKNOWN).
	Err error
}

// NewService makes a service.
func NewService(c ServiceConfig) *Service {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return &Service{cfg: c}
}

// Produce appends drafts to the topic, those of one partition in their order, and gives one Outcome each. The error is of the
// whole call: TOPIC_NOT_FOUND, TOPIC_PAUSED, STORE_UNAVAILABLE, or OUTCOME_UNKNOWN. A message without a trace context takes
// that of ctx along, if that is sampled.
func (s *Service) Produce(ctx context.Context, topic string, drafts []Draft) ([]Outcome, error) {
	return s.take(ctx, topic, drafts, s.cfg.Store.Produce, ResultStored)
}

// Schedule keeps drafts until they are due. As Produce otherwise.
func (s *Service) Schedule(ctx context.Context, topic string, drafts []Draft) ([]Outcome, error) {
	return s.take(ctx, topic, drafts, s.cfg.Store.Schedule, ResultScheduled)
}

// Cancel takes a scheduled message back; SCHEDULED_NOT_FOUND if there is none, or it has appeared in the topic. After
// OUTCOME_UNKNOWN a repeat may find that it was done.
func (s *Service) Cancel(ctx context.Context, topic, messageID string) error {
	return s.scheduled(ctx, topic, messageID, func(ref Ref) error { return s.cfg.Store.Cancel(ctx, ref, messageID) })
}

// Reschedule gives a scheduled message another time, `at` unless that is zero, and tells it; errors as Cancel.
func (s *Service) Reschedule(
	ctx context.Context, topic, messageID string, delay time.Duration, at time.Time,
) (due time.Time, err error) {
	if err := checkDue(delay, at, time.Now()); err != nil {
		return time.Time{}, err
	}
	err = s.scheduled(ctx, topic, messageID, func(ref Ref) (err error) {
		due, err = s.cfg.Store.Reschedule(ctx, ref, messageID, delay, at)
		return err
	})
	return due, err
}

// scheduled does something to the partition of a scheduled message.
func (s *Service) scheduled(ctx context.Context, topic, messageID string, fn func(Ref) error) error {
	if err := checkTopicName(topic); err != nil {
		return err
	}
	t, err := s.cfg.Catalog.Topic(ctx, topic)
	if err != nil {
		return err
	}
	missing := fault.New(fault.NotFound, fault.ScheduledNotFound, "no scheduled message has this id, or it has appeared in the topic")
	missing.Field = "message_id"
	for again := false; ; again = true {
		p, err := PartitionOf(messageID)
		if err != nil || p >= t.Partitions {
			// A partition that was added a moment ago is known once the topic was read again.
			if err != nil || again {
				return missing
			}
			err = ErrNoTopic
		} else {
			err = fn(t.Ref(p))
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrNoScheduled):
			return missing
		case errors.Is(err, ErrNoTopic) && !again:
			if t, err = s.cfg.Catalog.Reload(ctx, topic); err != nil {
				return err
			}
		default:
			return undone(err)
		}
	}
}

// write is a Store's Produce or Schedule.
type write func(ctx context.Context, t *Topic, partition int, drafts []Draft) ([]Taken, error)

func (s *Service) take(ctx context.Context, topic string, drafts []Draft, fn write, result string) ([]Outcome, error) {
	if err := checkTopicName(topic); err != nil {
		return nil, err
	}
	t, err := s.cfg.Catalog.Topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	drafts = traced(ctx, drafts)
	outcomes := make([]Outcome, len(drafts))
	which, now := make([]int, 0, len(drafts)), time.Now()
	for i := range drafts {
		if outcomes[i].Err = drafts[i].check(now); outcomes[i].Err == nil {
			which = append(which, i)
		}
	}
	b := &batch{s: s, drafts: drafts, outcomes: outcomes, write: fn, result: result}
	b.run(ctx, t, which)
	if which = b.homeless(which); len(which) > 0 {
		// The topic is another one now, or was, when it was looked up; its partitions may be others too.
		t, err := s.cfg.Catalog.Reload(ctx, topic)
		if err != nil {
			for _, i := range which {
				outcomes[i].Err = err
			}
		} else {
			b.run(ctx, t, which)
			for _, i := range b.homeless(which) {
				outcomes[i].Err = noTopic()
			}
		}
	}
	return outcomes, whole(outcomes)
}

// whole gives the fault that all outcomes share, if it is one of the call rather than of its items.
func whole(outcomes []Outcome) error {
	var reason fault.Reason
	for i := range outcomes {
		f, ok := fault.As(outcomes[i].Err)
		if !ok || i > 0 && f.Reason != reason {
			return nil
		}
		reason = f.Reason
	}
	switch reason {
	case fault.TopicNotFound, fault.TopicPaused, fault.StoreUnavailable, fault.OutcomeUnknown, fault.DeadlinePassed:
		return outcomes[0].Err
	default:
		return nil
	}
}

// batch is one call's drafts on their way into partitions.
type batch struct {
	s        *Service
	drafts   []Draft
	outcomes []Outcome
	write    write
	result   string
}

// run writes the drafts at the places of which, partitions side by side. What finds no topic has ErrNoTopic in its outcome.
func (b *batch) run(ctx context.Context, t *Topic, which []int) {
	byPartition := b.s.turns.assign(t, b.drafts, which)
	if len(byPartition) == 1 {
		for p, places := range byPartition {
			b.runPartition(ctx, t, p, places)
		}
		return
	}
	var writes errgroup.Group
	writes.SetLimit(maxWrites)
	for p, places := range byPartition {
		writes.Go(func() error {
			b.runPartition(ctx, t, p, places)
			return nil
		})
	}
	_ = writes.Wait() // each failure is in its outcomes
}

func (b *batch) runPartition(ctx context.Context, t *Topic, partition int, places []int) {
	drafts := make([]Draft, len(places))
	repeatable := true
	for i, place := range places {
		drafts[i] = b.drafts[place]
		repeatable = repeatable && drafts[i].IdempotencyKey != ""
	}
	taken, err := b.write(ctx, t, partition, drafts)
	for n := 0; n < repeats && repeatable && errors.Is(err, ErrUnknownOutcome); n++ {
		if lifecycle.Pause(ctx, repeatWait/2+rand.N(repeatWait)) != nil {
			break
		}
		taken, err = b.write(ctx, t, partition, drafts)
	}
	if err != nil {
		err = refused(err)
		if !errors.Is(err, ErrNoTopic) { // which is tried again, and counted then
			b.s.cfg.Metrics.Produced(t.Name, partition, len(places), resultOf(err))
		}
		for _, place := range places {
			b.outcomes[place] = Outcome{Partition: partition, Err: err}
		}
		return
	}
	var stored, duplicates, rejected int
	for i, place := range places {
		o := Outcome{MessageID: taken[i].MessageID, Partition: partition, Duplicate: taken[i].Duplicate, Due: taken[i].Due}
		switch {
		case taken[i].Err != nil:
			o = Outcome{Partition: partition, Err: rejectedBy(t, taken[i].Err)}
			rejected++
		case o.Duplicate:
			duplicates++
		default:
			stored++
		}
		b.outcomes[place] = o
	}
	b.s.cfg.Metrics.Produced(t.Name, partition, stored, b.result)
	b.s.cfg.Metrics.Produced(t.Name, partition, duplicates, ResultDuplicate)
	b.s.cfg.Metrics.Produced(t.Name, partition, rejected, ResultRefused)
	// What is scheduled is told of when it is due.
	if stored > 0 && b.s.cfg.Hints != nil && b.result == ResultStored {
		b.s.cfg.Hints.Ready(t.Name, partition)
	}
}

// homeless gives those of the places whose drafts found no topic.
func (b *batch) homeless(places []int) []int {
	var none []int
	for _, i := range places {
		if errors.Is(b.outcomes[i].Err, ErrNoTopic) {
			none = append(none, i)
		}
	}
	return none
}

// refused is a partition's refusal of all that it was given; ErrNoTopic stays what it is.
func refused(err error) error {
	switch {
	case errors.Is(err, ErrNoTopic):
		return ErrNoTopic
	case errors.Is(err, ErrPaused):
		return fault.New(fault.FailedPrecondition, fault.TopicPaused, "the topic is paused")
	}
	return undone(err)
}

// rejectedBy is the fault of one draft.
func rejectedBy(t *Topic, err error) error {
	switch {
	case errors.Is(err, ErrFull):
		f := fault.New(fault.ResourceExhausted, fault.TopicFull, "the partition holds as many messages as the topic allows, %d", t.MaxMessages)
		f.Limit, f.RetryAfter = t.MaxMessages, fullWait
		return f
	case errors.Is(err, ErrKeyReused):
		f := fault.New(fault.AlreadyExists, fault.IdempotencyKeyReused, "the idempotency key was used with another payload")
		f.Field = "idempotency_key"
		return f
	}
	return undone(err)
}

// resultOf tells a refusal, after which nothing was stored, from a failure.
func resultOf(err error) string {
	if fault.Is(err, fault.TopicPaused) {
		return ResultRefused
	}
	return ResultFailed
}

// traced gives drafts that carry the trace of ctx, as W3C's headers say, where the producer gave none. One that is not sampled is
// recorded nowhere, so there is nothing to join.
func traced(ctx context.Context, drafts []Draft) []Draft {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return drafts
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	with := make([]Draft, len(drafts))
	for i, d := range drafts {
		if len(d.Headers) == 0 && carrier["tracestate"] == "" {
			d.Traceparent = carrier["traceparent"]
		} else if _, ok := d.Headers["traceparent"]; !ok {
			headers := make(map[string]string, len(d.Headers)+len(carrier))
			maps.Copy(headers, d.Headers)
			maps.Copy(headers, carrier)
			d.Headers = headers
		}
		with[i] = d
	}
	return with
}
