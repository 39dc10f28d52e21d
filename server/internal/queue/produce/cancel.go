package produce

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Cancelled is what became of a message that was to be cancelled or rescheduled.
type Cancelled struct {
	// Due is the new due time of a message that was rescheduled.
	Due time.Time
	// Err is nil or a fault: MESSAGE_NOT_FOUND of Cancel, SCHEDULED_NOT_FOUND of Reschedule, and
	// those of the Canceller.
	Err error
}

// target is a message of a Cancel or a Reschedule.
type target struct {
	item      int // its index in the request
	messageID string
	id        qlog.ID
	scheduled bool
}

// Cancel cancels up to qlog.MaxBatch messages of a topic, and returns one result for each. It
// removes those that are scheduled from the store. Those that are in the log are cancelled by the
// Canceller. After OUTCOME_UNKNOWN a repeat may find that a message does not exist because it was
// cancelled. The error is of the whole call.
func (s *Service) Cancel(ctx context.Context, topic string, messageIDs []string) ([]Cancelled, error) {
	return s.change(ctx, topic, messageIDs, messageMissing, s.cancel)
}

// Reschedule changes the due times of up to qlog.MaxBatch scheduled messages: to at, unless it is
// zero, else to delay from now. It returns one result for each.
func (s *Service) Reschedule(
	ctx context.Context, topic string, messageIDs []string, delay time.Duration, at time.Time,
) ([]Cancelled, error) {
	if at.IsZero() && (delay < 0 || delay > qlog.MaxDelay) {
		return nil, tooFar("delay")
	}
	return s.change(ctx, topic, messageIDs, scheduledMissing,
		func(ctx context.Context, t *qlog.Topic, p int, targets []target, out []Cancelled) error {
			return s.reschedule(ctx, t, p, targets, out, delay, at)
		})
}

func messageMissing() error {
	f := fault.New(fault.NotFound, fault.MessageNotFound, "no message has this id")
	f.Field = "message_id"
	return f
}

func scheduledMissing() error {
	f := fault.New(fault.NotFound, fault.ScheduledNotFound, "no scheduled message has this id; it may be due already, or cancelled")
	f.Field = "message_id"
	return f
}

// change calls fn with the targets of each partition, several at the same time. fn writes their
// results. If it fails, the error is the result of all of them.
func (s *Service) change(
	ctx context.Context, topic string, messageIDs []string, missing func() error,
	fn func(ctx context.Context, t *qlog.Topic, partition int, targets []target, out []Cancelled) error,
) ([]Cancelled, error) {
	if strings.HasPrefix(topic, reserved) {
		return nil, reservedTopic()
	}
	if len(messageIDs) > qlog.MaxBatch {
		return nil, fault.Invalid("message_ids", qlog.MaxBatch, "message_ids: must be at most %d", qlog.MaxBatch)
	}
	t, err := s.cfg.Topics.Topic(ctx, topic)
	if err != nil {
		return nil, unread(err)
	}
	out := make([]Cancelled, len(messageIDs))
	byPartition := make(map[int][]target)
	looked := false
	for i, messageID := range messageIDs {
		p, id, scheduled, ok := qlog.ParseMessageID(messageID)
		if ok && p >= t.Partitions && !looked {
			// A partition that was added a moment ago is known once the topic was read again.
			looked = true
			if now, err := s.newest(ctx, topic); err == nil {
				t = now
			}
		}
		if !ok || p >= t.Partitions {
			out[i].Err = missing()
			continue
		}
		byPartition[p] = append(byPartition[p], target{i, messageID, id, scheduled})
	}
	var calls errgroup.Group
	calls.SetLimit(maxPuts)
	for p, targets := range byPartition {
		calls.Go(func() error {
			current := t
			err := s.healed(ctx, &current, p, func(t *qlog.Topic) error { return fn(ctx, t, p, targets, out) })
			if err == nil {
				return nil
			}
			if err = undone(err); errors.Is(err, qlog.ErrNoTopic) {
				err = missing() // the topic is another one now
			}
			for _, target := range targets {
				out[target.item] = Cancelled{Err: err}
			}
			return nil
		})
	}
	_ = calls.Wait() // each failure is in its results
	return out, wholeChange(out)
}

// newest reads a topic of which a newer state is known to exist.
func (s *Service) newest(ctx context.Context, topic string) (*qlog.Topic, error) {
	s.cfg.Topics.Forget(topic)
	return s.cfg.Topics.Topic(ctx, topic)
}

// cancel cancels messages of one partition.
func (s *Service) cancel(ctx context.Context, t *qlog.Topic, partition int, targets []target, out []Cancelled) error {
	var waiting []target
	var ids []string
	inLog := make([]target, 0, len(targets))
	for _, target := range targets {
		if !target.scheduled {
			inLog = append(inLog, target)
			continue
		}
		waiting, ids = append(waiting, target), append(ids, target.messageID)
	}
	if len(ids) > 0 {
		results, err := s.cfg.Store.Cancel(ctx, t.Ref(partition), ids)
		if err != nil {
			return err
		}
		for i, r := range results {
			target := waiting[i]
			switch {
			case r.Moved != 0:
				target.id = r.Moved
				inLog = append(inLog, target)
			case r.Err != nil:
				out[target.item] = Cancelled{Err: messageMissing()}
			default:
				out[target.item] = Cancelled{}
			}
		}
	}
	s.cancelInLog(ctx, t, partition, inLog, out)
	return nil
}

// cancelInLog cancels messages in the log. A failure does not concern those that were scheduled.
func (s *Service) cancelInLog(ctx context.Context, t *qlog.Topic, partition int, targets []target, out []Cancelled) {
	if len(targets) == 0 {
		return
	}
	ids := make([]qlog.ID, len(targets))
	for i := range targets {
		ids[i] = targets[i].id
	}
	var errs []error
	err := error(fault.New(fault.Unimplemented, fault.UnimplementedCall, "this node cannot cancel messages that are not scheduled"))
	if s.cfg.Canceller != nil {
		errs, err = s.cfg.Canceller.Cancel(ctx, t, partition, ids)
	}
	for i := range targets {
		c := Cancelled{Err: err}
		if err == nil {
			c.Err = errs[i]
		}
		if c.Err != nil {
			c.Err = undone(c.Err)
		}
		out[targets[i].item] = c
	}
}

// reschedule changes the due times of messages of one partition.
func (s *Service) reschedule(
	ctx context.Context, t *qlog.Topic, partition int, targets []target, out []Cancelled, delay time.Duration, at time.Time,
) error {
	changes := make([]qlog.Reschedule, 0, len(targets))
	waiting := make([]target, 0, len(targets))
	for _, target := range targets {
		if !target.scheduled {
			out[target.item] = Cancelled{Err: scheduledMissing()}
			continue
		}
		changes = append(changes, qlog.Reschedule{MessageID: target.messageID, Delay: delay, At: at})
		waiting = append(waiting, target)
	}
	if len(changes) == 0 {
		return nil
	}
	results, err := s.cfg.Store.Reschedule(ctx, t.Ref(partition), changes)
	if err != nil {
		return err
	}
	for i, r := range results {
		c := Cancelled{Due: r.Due}
		switch {
		case errors.Is(r.Err, qlog.ErrTooFar) && at.IsZero():
			c = Cancelled{Err: tooFar("delay")}
		case errors.Is(r.Err, qlog.ErrTooFar):
			c = Cancelled{Err: tooFar("deliver_at")}
		case r.Err != nil, r.Moved != 0:
			c = Cancelled{Err: scheduledMissing()}
		}
		out[waiting[i].item] = c
	}
	return nil
}

// wholeChange returns the fault that all results share, if it is one of the call.
func wholeChange(out []Cancelled) error {
	results := make([]Result, len(out))
	for i := range out {
		results[i].Err = out[i].Err
	}
	return whole(results)
}
