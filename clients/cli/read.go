package cli

import (
	"context"
	"fmt"

	parley "github.com/parleyhq/parley/sdk/go"
)

type readCommand struct {
	Channel string `arg:"" help:"The channel."`
	Seq     int64  `arg:"" help:"The highest sequence number that you have read."`
}

// cursorJSON is the JSON form of a read cursor.
type cursorJSON struct {
	ChannelID string `json:"channel_id"`
	ReadSeq   int64  `json:"read_seq"`
	Unread    int64  `json:"unread"`
	Epoch     string `json:"epoch"`
}

// Run moves the user's read cursor.
func (c *readCommand) Run(s *session) error {
	if c.Seq < 1 {
		return usagef("SEQ must be positive")
	}
	return s.with(func(ctx context.Context, client *parley.Client) error {
		cursor, err := client.MarkRead(ctx, c.Channel, c.Seq)
		if err != nil {
			return explain("read", err)
		}
		return s.printer().print(cursorJSON{ChannelID: c.Channel, ReadSeq: cursor.Seq, Unread: cursor.Unread, Epoch: cursor.Epoch},
			fmt.Sprintf("%s: read up to %d, %d unread", c.Channel, cursor.Seq, cursor.Unread))
	})
}

type typingCommand struct {
	Channel string `arg:"" help:"The channel."`
}

// Run sends one typing event.
func (c *typingCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		if err := client.Typing(ctx, c.Channel); err != nil {
			return explain("typing", err)
		}
		return nil
	})
}
