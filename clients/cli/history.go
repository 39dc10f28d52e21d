package cli

import (
	"bufio"
	"fmt"
	"slices"

	parley "github.com/parleyhq/parley/sdk/go"
)

type historyCommand struct {
	Channel string `arg:"" help:"Channel to read."`
	After   *int64 `help:"Only messages after this sequence number." placeholder:"SEQ"`
	Before  int64  `help:"Only messages before this sequence number." placeholder:"SEQ"`
	Limit   int    `help:"Maximum number of messages: the newest, or the oldest with --after." default:"50"`
	All     bool   `help:"All messages of the range, without a limit."`
}

// Run writes a channel's messages, oldest first.
func (c *historyCommand) Run(s *session) error {
	if c.Limit < 1 || c.Before < 0 || (c.After != nil && *c.After < 0) {
		return usagef("--limit must be positive; --after and --before must not be negative")
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	var opts []parley.HistoryOption
	if c.Before > 0 {
		opts = append(opts, parley.BeforeSeq(c.Before))
	}
	ascending := c.After != nil || c.All
	switch {
	case c.After != nil:
		opts = append(opts, parley.AfterSeq(*c.After))
	case c.All:
		opts = append(opts, parley.AfterSeq(0))
	}
	if c.All {
		opts = append(opts, parley.PageSize(1000))
	} else {
		opts = append(opts, parley.Limit(c.Limit))
	}
	out := bufio.NewWriter(s.stdout)
	p := printer{w: out, stderr: s.stderr, json: s.flags.JSON}
	if err := c.write(s, client, p, ascending, opts); err != nil {
		_ = out.Flush()
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func (c *historyCommand) write(
	s *session, client *parley.Client, p printer, ascending bool, opts []parley.HistoryOption,
) error {
	var newestFirst []*parley.Message
	for m, err := range client.History(s.ctx, c.Channel, opts...) {
		if err != nil {
			return explain("history", err)
		}
		if !ascending {
			newestFirst = append(newestFirst, m)
			continue
		}
		if err := p.message(m); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	for _, m := range slices.Backward(newestFirst) {
		if err := p.message(m); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}
