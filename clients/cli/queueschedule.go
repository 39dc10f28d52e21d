package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/queue"
)

// dueFlags are the flags that set when a message is due.
type dueFlags struct {
	Delay durationFlag `help:"Delay until the message is due, up to 366d." placeholder:"DURATION" xor:"due"`
	At    timeFlag     `help:"The message is due at this time by the server's clock, up to 366 days ahead, for example 2026-01-31T12:00:00Z." placeholder:"TIME" xor:"due"`
}

func (c *dueFlags) check() error {
	if ahead := time.Until(c.At.t); ahead > maxDelay+day { // a day for clocks that differ; the server checks exactly
		return usagef("--at %s: must be at most %s ahead", c.At.t.Format(time.RFC3339), formatDuration(maxDelay))
	}
	return checkDurationFlag("--delay", c.Delay, 0, maxDelay)
}

// call produces messages, or schedules them with --delay or --at.
func (c *dueFlags) call(ctx context.Context, p *queue.Producer, messages []queue.Message) ([]queue.Result, error) {
	switch {
	case c.Delay.set:
		return p.Schedule(ctx, c.Delay.d, messages...)
	case !c.At.t.IsZero():
		return p.ScheduleAt(ctx, c.At.t, messages...)
	default:
		return p.Produce(ctx, messages...)
	}
}

// scheduledArgs are the arguments of a command for scheduled messages.
type scheduledArgs struct {
	topicArg

	IDs []string `arg:"" name:"message-ids" help:"The scheduled messages' ids, as printed by 'produce'."`
}

func (a *scheduledArgs) check() error {
	return firstError(a.topicArg.check(), checkIDs("<message-ids>", a.IDs, queueMessageIDForm, "3-1767225600000-0d"))
}

// each calls work for each message and returns all failures. It continues after a failure, unless
// the deadline of a call ended: then the server does not answer.
func (a *scheduledArgs) each(s *session, what string, work func(ctx context.Context, p *queue.Producer, id string) error) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		producer := queue.NewProducer(client, a.Topic)
		var failures []error
		for _, id := range a.IDs {
			if err := work(ctx, producer, id); err != nil {
				failures = append(failures, explainQueue(what+" "+id, err))
				if errors.Is(err, context.DeadlineExceeded) {
					break
				}
			}
		}
		return errors.Join(failures...)
	})
}

type queueCancelCommand struct{ scheduledArgs }

// scheduledJSON is the JSON form of a change of a scheduled message.
type scheduledJSON struct {
	Event     string `json:"event"`
	Topic     string `json:"topic"`
	MessageID string `json:"message_id"`
	DueTime   string `json:"due_time,omitempty"`
}

// Run cancels scheduled messages.
func (c *queueCancelCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.each(s, "cancel", func(ctx context.Context, p *queue.Producer, id string) error {
		if err := p.Cancel(ctx, id); err != nil {
			return err
		}
		return s.printer().print(scheduledJSON{Event: "cancelled", Topic: c.Topic, MessageID: id},
			fmt.Sprintf("%s: %s is cancelled", c.Topic, id))
	})
}

type queueRescheduleCommand struct {
	scheduledArgs
	dueFlags
}

// Run changes when scheduled messages are due.
func (c *queueRescheduleCommand) Run(s *session) error {
	if err := firstError(c.scheduledArgs.check(), c.dueFlags.check()); err != nil {
		return err
	}
	if !c.Delay.set && c.At.t.IsZero() {
		return usagef("reschedule: requires --delay or --at")
	}
	return c.each(s, "reschedule", func(ctx context.Context, p *queue.Producer, id string) error {
		var due time.Time
		var err error
		if c.Delay.set {
			due, err = p.Reschedule(ctx, id, c.Delay.d)
		} else {
			due, err = p.RescheduleAt(ctx, id, c.At.t)
		}
		if err != nil {
			return err
		}
		return s.printer().print(
			scheduledJSON{Event: "rescheduled", Topic: c.Topic, MessageID: id, DueTime: due.UTC().Format(timeFormat)},
			fmt.Sprintf("%s: %s is due %s", c.Topic, id, due.Local().Format(time.DateTime)))
	})
}
