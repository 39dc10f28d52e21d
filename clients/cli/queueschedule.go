package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/queue"
)

// dueFlags are the flags about when a message appears.
type dueFlags struct {
	Delay span   `help:"It appears so much later, up to 366d." placeholder:"DURATION" xor:"due"`
	At    moment `help:"It appears at this time by the server's clock, up to 366 days ahead, as 2026-01-31T12:00:00Z." placeholder:"TIME" xor:"due"`
}

func (c *dueFlags) check() error {
	if ahead := time.Until(c.At.t); ahead > maxAhead+day { // a day for clocks that differ; the server looks closer
		return usagef("--at %s: want at most %s ahead", c.At.t.Format(time.RFC3339), spell(maxAhead))
	}
	return checkSpan("--delay", c.Delay, 0, maxAhead)
}

// call produces messages, now or later.
func (c *dueFlags) call(ctx context.Context, p *queue.Producer, messages []queue.Message) ([]queue.Result, error) {
	switch {
	case c.Delay.given:
		return p.Schedule(ctx, c.Delay.d, messages...)
	case !c.At.t.IsZero():
		return p.ScheduleAt(ctx, c.At.t, messages...)
	default:
		return p.Produce(ctx, messages...)
	}
}

// scheduledArgs are the arguments of what is about scheduled messages.
type scheduledArgs struct {
	topicArg

	IDs []string `arg:"" name:"message-ids" help:"The scheduled messages' ids, as produce told them."`
}

func (a *scheduledArgs) check() error {
	return firstOf(a.topicArg.check(), checkIDs("<message-ids>", a.IDs, queueMessageIDForm, "3-1767225600000-0d"))
}

// each does one thing with each message, and goes on after one that failed: the others are to be cancelled, or late, all the same.
func (a *scheduledArgs) each(
	s *session, p patience, what string, work func(ctx context.Context, p *queue.Producer, id string) error,
) error {
	return p.with(s, func(ctx context.Context, client *parley.Client) error {
		producer := queue.NewProducer(client, a.Topic)
		var failures []error
		for _, id := range a.IDs {
			if err := work(ctx, producer, id); err != nil {
				failures = append(failures, explainQueue(what+" "+id, err))
			}
		}
		return errors.Join(failures...)
	})
}

type queueCancelCommand struct {
	patience
	scheduledArgs
}

// scheduledJSON is what became of a scheduled message, for programs.
type scheduledJSON struct {
	Event     string `json:"event"`
	Topic     string `json:"topic"`
	MessageID string `json:"message_id"`
	DeliverAt string `json:"deliver_at,omitempty"`
}

// Run takes scheduled messages back.
func (c *queueCancelCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.each(s, c.patience, "cancel", func(ctx context.Context, p *queue.Producer, id string) error {
		if err := p.Cancel(ctx, id); err != nil {
			return err
		}
		return s.printer().print(scheduledJSON{Event: "cancelled", Topic: c.Topic, MessageID: id},
			fmt.Sprintf("%s: %s is cancelled", c.Topic, id))
	})
}

type queueRescheduleCommand struct {
	patience
	scheduledArgs
	dueFlags
}

// Run gives scheduled messages another time.
func (c *queueRescheduleCommand) Run(s *session) error {
	if err := firstOf(c.scheduledArgs.check(), c.dueFlags.check()); err != nil {
		return err
	}
	if !c.Delay.given && c.At.t.IsZero() {
		return usagef("reschedule: want --delay or --at")
	}
	return c.each(s, c.patience, "reschedule", func(ctx context.Context, p *queue.Producer, id string) error {
		var due time.Time
		var err error
		if c.Delay.given {
			due, err = p.Reschedule(ctx, id, c.Delay.d)
		} else {
			due, err = p.RescheduleAt(ctx, id, c.At.t)
		}
		if err != nil {
			return err
		}
		return s.printer().print(
			scheduledJSON{Event: "rescheduled", Topic: c.Topic, MessageID: id, DeliverAt: due.UTC().Format(timeFormat)},
			fmt.Sprintf("%s: %s is due %s", c.Topic, id, due.Local().Format(time.DateTime)))
	})
}
