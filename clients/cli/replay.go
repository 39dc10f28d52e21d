package cli

import (
	"context"
	"time"

	"github.com/parleyhq/parley/clients/cli/irclog"
	parley "github.com/parleyhq/parley/sdk/go"
)

// The bounds of --speed. The least keeps a log of a year within what a time.Duration holds.
const (
	minSpeed = 0.01
	maxSpeed = 1e6
)

// replayFiles sends the messages of each file at the pace at which they were written, times the speed, and file after file
// without a pause between.
func (c *importCommand) replayFiles(
	ctx context.Context, client *parley.Client, files []string, count *importCount, progress func(int),
) error {
	for _, path := range files {
		lines, err := irclog.Read(path)
		if err != nil {
			return err
		}
		var messages []irclog.Line
		for _, l := range lines {
			if l.IsMessage() {
				messages = append(messages, l)
			}
		}
		if err := c.replay(ctx, client, path, messages, count, progress); err != nil {
			return err
		}
	}
	return nil
}

// replay sends each message of one file when it is due, in order. What became due while the one before was sent goes in one
// request with it, so that a replay that fell behind, because the server was away, catches up.
//
// Nothing is waited for until the first message that was not there already: what an earlier run of the command stored is
// passed over one by one, as only the server's answer tells where it ended.
func (c *importCommand) replay(
	ctx context.Context, client *parley.Client, path string, messages []irclog.Line, count *importCount, progress func(int),
) error {
	offsets := irclog.Offsets(messages)
	due := func(i int) time.Duration { return time.Duration(float64(offsets[i]) / c.Speed) }
	start := time.Now()
	for next := 0; next < len(messages); {
		if count.Sent == 0 {
			start = time.Now().Add(-due(next))
		}
		if err := sleepUntil(ctx, start.Add(due(next))); err != nil {
			return err
		}
		batch := []parley.Outgoing{c.outgoing(path, messages[next])}
		for next++; count.Sent > 0 && next < len(messages) && len(batch) < importBatch && due(next) <= time.Since(start); next++ {
			batch = append(batch, c.outgoing(path, messages[next]))
		}
		if err := c.sendBatch(ctx, client, batch, count); err != nil {
			return err
		}
		progress(len(batch))
	}
	return nil
}

// sleepUntil waits until t, or gives the error of ctx if that ends first.
func sleepUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
