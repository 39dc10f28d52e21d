package cli

import (
	"context"
	"fmt"

	"github.com/parleyhq/parley/sdk/go/queue"
)

type queueTrimCommand struct {
	patience
	topicArg

	Keep      *int64 `help:"The newest so many messages of each partition stay, 0 to 1000000000." placeholder:"N" xor:"keep"`
	OlderThan span   `help:"Messages younger than this stay, up to 366d." placeholder:"DURATION" xor:"keep"`
	Force     bool   `help:"Remove also what groups have not settled: it is lost to them."`
}

// trimmedJSON is what a trim did, for programs.
type trimmedJSON struct {
	Event   string `json:"event"`
	Topic   string `json:"topic"`
	Removed int64  `json:"removed"`
	Lost    int64  `json:"lost"`
}

// Run removes the oldest messages.
func (c *queueTrimCommand) Run(s *session) error {
	err := firstOf(c.check(), checkOptional("--keep", c.Keep, 0, maxMessages), checkSpan("--older-than", c.OlderThan, 0, maxAhead))
	if err == nil && c.Keep == nil && !c.OlderThan.given {
		err = usagef("trim: want --keep or --older-than")
	}
	if err != nil {
		return err
	}
	keep := int64(-1) // by age
	if c.Keep != nil {
		keep = *c.Keep
	}
	return c.administer(s, func(ctx context.Context, admin *queue.Admin) error {
		removed, lost, err := admin.Trim(ctx, c.Topic, keep, c.OlderThan.d, c.Force)
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
