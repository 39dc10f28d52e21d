package natsbus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/parleyhq/parley/server/internal/message"
)

// LastPublished returns the event that was last published to a shard. ok is false if the stream
// holds none, also because it was lost or created again. An event that can't be decoded counts as
// none, because it would fail again the next time.
func (b *Bus) LastPublished(ctx context.Context, shard int) (e message.Event, ok bool, err error) {
	if !b.nc.IsConnected() {
		return e, false, fmt.Errorf("read the stream's last event: %w", nats.ErrDisconnected)
	}
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	stream, err := b.js.Stream(ctx, streamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return e, false, nil
	}
	if err != nil {
		return e, false, fmt.Errorf("read the stream's last event: %w", err)
	}
	last, err := stream.GetLastMsgForSubject(ctx, shardSubjects(shard))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return e, false, nil
	}
	if err != nil {
		return e, false, fmt.Errorf("read the stream's last event: %w", err)
	}
	if e, err = decode(last.Subject, last.Data); err != nil {
		b.log.ErrorContext(ctx, "last event ignored: decode failed", "shard", shard, "error", err)
		return message.Event{}, false, nil
	}
	return e, true, nil
}
