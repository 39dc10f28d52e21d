package server

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/parleyhq/parley/server/internal/message"
)

// countedLog counts reads of the message store for lists, replays, log heads and single messages.
// The counts show how many reads the cache saves.
type countedLog struct {
	message.LogReader

	reads                            metric.Int64Counter
	head, entries, messages, message metric.MeasurementOption
	pending, changed                 metric.MeasurementOption
}

func countReads(log message.LogReader, meters metric.MeterProvider) (*countedLog, error) {
	reads, err := meters.Meter(scope).Int64Counter("parley.store.reads",
		metric.WithDescription("Reads of the message store for lists, replays and single messages, by what was read: where "+
			"a log ends (head), entries of a log, messages by their places (messages) or by id (message), "+
			"edits and recalls that are not applied yet (pending), and messages by their last change (changed)."),
		metric.WithUnit("{read}"))
	if err != nil {
		return nil, fmt.Errorf("count reads: %w", err)
	}
	option := func(operation string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String("operation", operation)))
	}
	c := &countedLog{
		LogReader: log, reads: reads, head: option("head"), entries: option("entries"), messages: option("messages"),
		message: option("message"), pending: option("pending"), changed: option("changed"),
	}
	for _, of := range []metric.MeasurementOption{c.head, c.entries, c.messages, c.message, c.pending, c.changed} {
		reads.Add(context.Background(), 0, of) //nolint:forbidigo // outside any call: unread operations show as 0
	}
	return c, nil
}

// Head implements message.LogReader.
func (c *countedLog) Head(ctx context.Context, channelID string) (message.Head, error) {
	c.reads.Add(ctx, 1, c.head)
	return c.LogReader.Head(ctx, channelID)
}

// Entries implements message.LogReader.
func (c *countedLog) Entries(ctx context.Context, channelID string, r message.Range) ([]message.Entry, error) {
	c.reads.Add(ctx, 1, c.entries)
	return c.LogReader.Entries(ctx, channelID, r)
}

// Heads implements message.LogReader.
func (c *countedLog) Heads(ctx context.Context, channelIDs []string) (map[string]message.Head, error) {
	c.reads.Add(ctx, 1, c.head)
	return c.LogReader.Heads(ctx, channelIDs)
}

// Messages implements message.LogReader.
func (c *countedLog) Messages(ctx context.Context, places []message.Place) ([]message.Entry, error) {
	c.reads.Add(ctx, 1, c.messages)
	return c.LogReader.Messages(ctx, places)
}

// Pending implements message.LogReader.
func (c *countedLog) Pending(ctx context.Context, channelIDs ...string) ([]message.Entry, error) {
	c.reads.Add(ctx, 1, c.pending)
	return c.LogReader.Pending(ctx, channelIDs...)
}

// Changed implements message.LogReader.
func (c *countedLog) Changed(
	ctx context.Context, channelID string, after, before int64, limit, maxBytes int,
) ([]message.Entry, error) {
	c.reads.Add(ctx, 1, c.changed)
	return c.LogReader.Changed(ctx, channelID, after, before, limit, maxBytes)
}

// Message implements message.LogReader.
func (c *countedLog) Message(ctx context.Context, channelID, msgID string) (message.Entry, bool, error) {
	c.reads.Add(ctx, 1, c.message)
	return c.LogReader.Message(ctx, channelID, msgID)
}
