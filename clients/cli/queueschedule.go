package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
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

// messageArgs are the arguments of a command for messages of a topic.
type messageArgs struct {
	topicArg

	IDs []string `arg:"" name:"message-ids" help:"The messages' ids, as printed by 'produce' and 'jobs'."`
}

func (a *messageArgs) check() error {
	return firstError(a.topicArg.check(), checkIDs("<message-ids>", a.IDs))
}

// changedJSON is the JSON form of a change of a message.
type changedJSON struct {
	Event     string `json:"event"`
	Topic     string `json:"topic"`
	MessageID string `json:"message_id"`
	DueTime   string `json:"due_time,omitempty"`
}

// report writes what became of each message with write, and returns all failures. callErr is the
// error of the call as a whole.
func (a *messageArgs) report(what string, callErr error, failure func(i int) error, write func(i int) error) error {
	var failures []error
	for i, id := range a.IDs {
		err := failure(i)
		if err == nil {
			if err := write(i); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		} else if callErr == nil {
			failures = append(failures, explainQueue(what+" "+id, err))
		}
	}
	if callErr != nil {
		return explainQueue(what, callErr)
	}
	if more := len(failures) - maxReportedErrors; more > 0 {
		failures = append(failures[:maxReportedErrors], fmt.Errorf("and %d more", more))
	}
	return errors.Join(failures...)
}

type queueCancelCommand struct{ messageArgs }

// Run cancels messages.
func (c *queueCancelCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.with(func(ctx context.Context, client *parley.Client) error {
		results, err := queue.NewProducer(client, c.Topic).Cancel(ctx, c.IDs...)
		return c.report("cancel", err, func(i int) error { return results[i] }, func(i int) error {
			return s.printer().print(changedJSON{Event: "cancelled", Topic: c.Topic, MessageID: c.IDs[i]},
				fmt.Sprintf("%s: %s is cancelled", c.Topic, c.IDs[i]))
		})
	})
}

type queueRescheduleCommand struct {
	messageArgs
	dueFlags
}

// Run changes when scheduled messages are due.
func (c *queueRescheduleCommand) Run(s *session) error {
	if err := firstError(c.messageArgs.check(), c.dueFlags.check()); err != nil {
		return err
	}
	if !c.Delay.set && c.At.t.IsZero() {
		return usagef("reschedule: requires --delay or --at")
	}
	return s.with(func(ctx context.Context, client *parley.Client) error {
		var results []queue.Rescheduled
		var err error
		if producer := queue.NewProducer(client, c.Topic); c.Delay.set {
			results, err = producer.Reschedule(ctx, c.Delay.d, c.IDs...)
		} else {
			results, err = producer.RescheduleAt(ctx, c.At.t, c.IDs...)
		}
		return c.report("reschedule", err, func(i int) error { return results[i].Err }, func(i int) error {
			due := results[i].DueTime
			return s.printer().print(
				changedJSON{Event: "rescheduled", Topic: c.Topic, MessageID: c.IDs[i], DueTime: due.UTC().Format(timeFormat)},
				fmt.Sprintf("%s: %s is due %s", c.Topic, c.IDs[i], due.Local().Format(time.DateTime)))
		})
	})
}
