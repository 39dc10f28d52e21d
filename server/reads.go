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

	reads                                     metric.Int64Counter
	head, entries, messages, changes, message metric.MeasurementOption
}

func countReads(log message.LogReader, meters metric.MeterProvider) (*countedLog, error) {
	reads, err := meters.Meter(scope).Int64Counter("parley.store.reads",
		metric.WithDescription("Reads of the message store for lists, replays and single messages, by what was read: where "+
			"a log ends (head), entries of a log, messages by their places (messages) or by id (message), and what was changed of "+
			"messages (changes)."),
		metric.WithUnit("{read}"))
	if err != nil {
		return nil, fmt.Errorf("count reads: %w", err)
	}
	option := func(operation string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String("operation", operation)))
	}
	c := &countedLog{
		LogReader: log, reads: reads, head: option("head"), entries: option("entries"), messages: option("messages"),
		changes: option("changes"), message: option("message"),
	}
	for _, of := range []metric.MeasurementOption{c.head, c.entries, c.messages, c.changes, c.message} {
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

// Messages implements message.LogReader.
func (c *countedLog) Messages(ctx context.Context, channelID string, seqs []int64) ([]message.Entry, error) {
	c.reads.Add(ctx, 1, c.messages)
	return c.LogReader.Messages(ctx, channelID, seqs)
}

// Changes implements message.LogReader.
func (c *countedLog) Changes(ctx context.Context, channelID string, targets []int64) ([]message.Entry, error) {
	c.reads.Add(ctx, 1, c.changes)
	return c.LogReader.Changes(ctx, channelID, targets)
}

// Message implements message.LogReader.
func (c *countedLog) Message(ctx context.Context, channelID, msgID string) (message.Entry, bool, error) {
	c.reads.Add(ctx, 1, c.message)
	return c.LogReader.Message(ctx, channelID, msgID)
}
