package cli

import (
	"context"
	"time"

	"github.com/parleyhq/parley/clients/cli/irclog"
	parley "github.com/parleyhq/parley/sdk/go"
)

// The limits of --speed. With the minimum, the duration of a year's log still fits into a
// time.Duration.
const (
	minSpeed = 0.01
	maxSpeed = 1e6
)

// replayFiles replays the messages of each file at the pace at which they were written, times the
// speed. It does not pause between files.
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

// replay sends the messages of one file in order, each when it is due. Messages that became due
// meanwhile are sent together in one request, so that a replay that fell behind, because the server
// was unavailable, catches up.
//
// Up to the first message that no earlier run stored, it sends the messages one by one and without
// waiting: only the server's answer shows where that run ended.
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

// sleepUntil waits until t. If ctx ends first, it returns the error of ctx.
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
