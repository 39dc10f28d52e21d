package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	parley "github.com/parleyhq/parley/sdk/go"
)

type tailCommand struct {
	Channels  []string `arg:"" help:"Channels to follow."`
	After     *int64   `help:"Start after this sequence number in each channel." placeholder:"SEQ" xor:"begin"`
	FromStart bool     `help:"Start with the first message of each channel." xor:"begin"`
	Count     int      `help:"Exit after this number of messages." placeholder:"N"`
}

// Run follows channels until it is interrupted, which is not an error, or has written --count
// messages. Edits and recalls count as messages.
func (c *tailCommand) Run(s *session) error {
	if c.Count < 0 || (c.After != nil && *c.After < 0) {
		return usagef("--count and --after must not be negative")
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	report := &connectionReport{w: s.stderr, live: "following " + strings.Join(c.Channels, ", ")}
	opts := []parley.SubscribeOption{parley.OnState(report.changed)}
	for _, id := range c.Channels {
		switch {
		case c.FromStart:
			opts = append(opts, parley.FromStart(id))
		case c.After != nil:
			opts = append(opts, parley.After(parley.Position{ChannelID: id, Seq: *c.After}))
		default:
			opts = append(opts, parley.Live(id))
		}
	}
	sub := client.Subscribe(s.ctx, opts...)
	defer sub.Close()
	written, following := 0, make(map[string]bool)
	for _, id := range c.Channels {
		following[id] = true
	}
	for e, err := range sub.Events() {
		if err != nil {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return explain("tail", err)
		}
		if err := s.printer().event(e); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if e.Kind == parley.EventLost {
			if delete(following, e.ChannelID); len(following) == 0 {
				return errors.New("tail: lost all channels")
			}
		}
		if e.Message == nil {
			continue
		}
		if written++; written == c.Count {
			return nil
		}
	}
	return nil
}
