package produce

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// maxPuts is how many partitions one call writes to at the same time.
	maxPuts = 16
	// repeats is how often a put that may be repeated is, while its outcome is not known.
	repeats = 2
	// repeatWait is about how long before that.
	repeatWait = 50 * time.Millisecond
)

// batch is one request on its way into partitions.
type batch struct {
	s       *Service
	request *Request
	// producer is the producer's ID as the store takes it; empty for none.
	producer string
	// drafts and sizes are those of the valid messages, by their index in the request.
	drafts  []qlog.Draft
	sizes   []int
	valid   []int
	results []Result
}

// newBatch checks and encodes the messages of a request.
func newBatch(ctx context.Context, s *Service, r *Request) *batch {
	n := len(r.Messages)
	b := &batch{
		s: s, request: r, producer: r.producer(), drafts: make([]qlog.Draft, n), sizes: make([]int, n),
		valid: make([]int, 0, n), results: make([]Result, n),
	}
	trace := tracing(ctx)
	for i := range r.Messages {
		m := &r.Messages[i]
		if err := m.check(); err != nil {
			b.results[i].Err = err
			continue
		}
		body, content := m.encode(trace)
		b.sizes[i] = content + optionsSize
		if b.sizes[i] > qlog.MaxRecordBytes {
			b.results[i].Err = tooLarge()
			continue
		}
		b.drafts[i] = m.draft(body, content, b.producer != "")
		b.valid = append(b.valid, i)
	}
	return b
}

// route returns the number of partitions that the request is routed by.
func (b *batch) route(t *qlog.Topic) int {
	switch {
	case b.request.RoutedBy > 0:
		return min(b.request.RoutedBy, t.Partitions)
	case b.producer != "":
		return b.s.routes.by(t.UID+b.producer, b.request.Sequence, t.Partitions)
	default:
		return t.Partitions
	}
}

// run puts items, those of different partitions at the same time. Items that found another topic of
// the name have ErrNoTopic in their result.
func (b *batch) run(ctx context.Context, t *qlog.Topic, n int, items []int) {
	parts := b.assign(t, n, items)
	if len(parts) == 1 {
		b.runPart(ctx, t, &parts[0])
		return
	}
	var puts errgroup.Group
	puts.SetLimit(maxPuts)
	for i := range parts {
		puts.Go(func() error {
			b.runPart(ctx, t, &parts[i])
			return nil
		})
	}
	_ = puts.Wait() // each failure is in its results
}

// runPart puts what one partition gets. A put is not made if one before it failed, or found the
// partition full, because messages of one key must be stored in order.
func (b *batch) runPart(ctx context.Context, t *qlog.Topic, p *part) {
	for i := range p.puts {
		err := b.runPut(ctx, t, p.partition, &p.puts[i])
		if err == nil {
			continue
		}
		for _, later := range p.puts[i+1:] {
			if !errors.Is(err, qlog.ErrNoTopic) {
				b.s.cfg.Metrics.produced(t.Name, p.partition, len(later.items), resultRefused)
			}
			for _, item := range later.items {
				b.results[item] = Result{Partition: p.partition, Err: behind(err)}
			}
		}
		return
	}
}

// runPut puts what one call of the store takes. The error says why nothing may be put behind it.
func (b *batch) runPut(ctx context.Context, t *qlog.Topic, partition int, p *put) error {
	request := qlog.Put{Drafts: make([]qlog.Draft, len(p.items)), ProducerID: p.producer, Sequence: b.request.Sequence}
	repeatable := true
	for i, item := range p.items {
		request.Drafts[i] = b.drafts[item]
		repeatable = repeatable && (p.producer != "" || b.drafts[item].IdempotencyKey != "")
	}
	stored, err := b.put(ctx, &t, partition, request)
	for n := 0; n < repeats && repeatable && errors.Is(err, qlog.ErrUnknownOutcome); n++ {
		if lifecycle.Pause(ctx, repeatWait/2+rand.N(repeatWait)) != nil {
			break
		}
		stored, err = b.put(ctx, &t, partition, request)
	}
	if errors.Is(err, qlog.ErrNoTopic) {
		b.fail(p.items, qlog.ErrNoTopic)
		return err
	}
	if err != nil {
		if err = undone(err); fault.Is(err, fault.OutcomeUnknown) || fault.Is(err, fault.DeadlinePassed) {
			b.hint(t, partition) // in case it was done
		}
		b.s.cfg.Metrics.produced(t.Name, partition, len(p.items), resultOf(err))
		for _, item := range p.items {
			b.results[item] = Result{Partition: partition, Err: err}
		}
		return err
	}
	return b.take(ctx, t, partition, p.items, stored)
}

// put calls the store. If the partition is lost it is restored first, and *t becomes the newest
// settings. ErrNoTopic if the topic is another one now.
func (b *batch) put(ctx context.Context, t **qlog.Topic, partition int, request qlog.Put) (stored []qlog.PutResult, err error) {
	err = b.s.healed(ctx, t, partition, func(t *qlog.Topic) (err error) {
		stored, err = b.s.cfg.Store.Put(ctx, t.Ref(partition), t.Bounds, request)
		return err
	})
	if err == nil && len(stored) != len(request.Drafts) {
		err = errors.New("the store returned another number of results than of messages")
	}
	return stored, err
}

// healed calls fn, and once more after restoring the partition if fn fails with ErrNoTopic although
// the topic exists. It sets *t to the newest settings then. ErrNoTopic means that the topic is
// another one now, or has no such partition.
func (s *Service) healed(ctx context.Context, t **qlog.Topic, partition int, fn func(t *qlog.Topic) error) error {
	err := fn(*t)
	if !errors.Is(err, qlog.ErrNoTopic) {
		return err
	}
	now, err := s.newest(ctx, (*t).Name)
	if err != nil {
		return unread(err)
	}
	if now.UID != (*t).UID || partition >= now.Partitions {
		return qlog.ErrNoTopic
	}
	*t = now
	if err := s.cfg.Topics.Heal(ctx, now, partition); err != nil {
		return unhealed(err)
	}
	if err = fn(now); errors.Is(err, qlog.ErrNoTopic) {
		return unhealed(err)
	}
	return err
}

// take records what became of the items of a put, tells consumers, and has replaced messages
// cancelled. The error is that of the first item that found the partition full.
func (b *batch) take(ctx context.Context, t *qlog.Topic, partition int, items []int, stored []qlog.PutResult) (full error) {
	var replaced []qlog.ID
	counts := [len(results)]int{}
	inLog := false
	for i, item := range items {
		r := &stored[i]
		if r.Err != nil {
			err := refused(t, &b.request.Messages[item], r.Err)
			if errors.Is(r.Err, qlog.ErrFull) && full == nil {
				full = err
			}
			b.results[item] = Result{Partition: partition, Err: err}
			counts[resultRefused]++
			continue
		}
		b.results[item] = Result{MessageID: r.MessageID, Partition: partition, Duplicate: r.Duplicate, Due: r.Due}
		if r.Replaced != 0 {
			replaced = append(replaced, r.Replaced)
		}
		// The first attempt of a duplicate may have had no answer, so that nobody was told.
		inLog = inLog || r.Due.IsZero()
		switch {
		case r.Duplicate:
			counts[resultDuplicate]++
		case r.Due.IsZero():
			counts[resultStored]++
		default:
			counts[resultScheduled]++
		}
	}
	for result, n := range counts {
		b.s.cfg.Metrics.produced(t.Name, partition, n, outcome(result))
	}
	if inLog {
		b.hint(t, partition)
	}
	if len(replaced) > 0 {
		b.s.cancelReplaced(ctx, t, partition, replaced)
	}
	return full
}

func (b *batch) hint(t *qlog.Topic, partition int) {
	if b.s.cfg.Hints != nil {
		b.s.cfg.Hints.Ready(t.Name, partition)
	}
}

// cancelReplaced cancels messages in the log whose unique key a new message took. Without success
// both are delivered: the new one was stored before.
func (s *Service) cancelReplaced(ctx context.Context, t *qlog.Topic, partition int, ids []qlog.ID) {
	if s.cfg.Canceller == nil {
		return
	}
	errs, err := s.cfg.Canceller.Cancel(ctx, t, partition, ids)
	if err = errors.Join(append(errs, err)...); err != nil {
		s.cfg.Logger.DebugContext(ctx, "a message that was replaced is delivered all the same",
			slog.String("topic", t.Name), slog.Int("partition", partition), slog.Any("error", err))
	}
}

// homeless returns those of the items that found no topic.
func (b *batch) homeless(items []int) []int {
	var none []int
	for _, i := range items {
		if errors.Is(b.results[i].Err, qlog.ErrNoTopic) {
			none = append(none, i)
		}
	}
	return none
}

// fail sets the error of items.
func (b *batch) fail(items []int, err error) {
	for _, i := range items {
		b.results[i] = Result{Err: err}
	}
}
