package cli

import (
	"context"
	"fmt"

	queue "github.com/parleyhq/parley/sdk/go/queue"
)

type queueTrimCommand struct {
	topicArg

	Keep      *int64       `help:"Keep the newest N messages of each partition, 0 to 1000000000." placeholder:"N" xor:"keep"`
	OlderThan durationFlag `help:"Keep messages younger than this, up to 366d." placeholder:"DURATION" xor:"keep"`
	Force     bool         `help:"Also remove messages that groups have not settled: the groups lose them."`
}

// trimmedJSON is the JSON form of a trim's result.
type trimmedJSON struct {
	Event   string `json:"event"`
	Topic   string `json:"topic"`
	Removed int64  `json:"removed"`
	Lost    int64  `json:"lost"`
}

// Run removes the oldest messages.
func (c *queueTrimCommand) Run(s *session) error {
	err := firstError(c.check(), checkOptional("--keep", c.Keep, 0, maxMessages), checkDurationFlag("--older-than", c.OlderThan, 0, maxDelay))
	if err == nil && c.Keep == nil && !c.OlderThan.set {
		err = usagef("trim: requires --keep or --older-than")
	}
	if err != nil {
		return err
	}
	keep := queue.KeepYoungerThan(c.OlderThan.d)
	if c.Keep != nil {
		keep = queue.KeepNewest(*c.Keep)
	}
	var opts []queue.TrimOption
	if c.Force {
		opts = append(opts, queue.WithUnsettled())
	}
	return s.withAdmin(func(ctx context.Context, admin *queue.Admin) error {
		removed, lost, err := admin.Trim(ctx, c.Topic, keep, opts...)
		if err != nil {
			return explainQueue("trim", err)
		}
		text := fmt.Sprintf("%s: %s removed", c.Topic, count(removed, "message", "messages"))
		if lost > 0 {
			text += fmt.Sprintf("; groups lost %d that they had not settled", lost)
		}
		return s.printer().print(trimmedJSON{Event: "trimmed", Topic: c.Topic, Removed: removed, Lost: lost}, text)
	})
}
