package natsbus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/parleyhq/parley/server/internal/message"
)

// Publish stores events in the stream, in order, and returns once JetStream has acknowledged all of
// them. After an error each event may be stored or not, and the caller must publish all again, with
// their texts as of then. JetStream drops repeats within 2 minutes, consumers drop the rest.
func (b *Bus) Publish(ctx context.Context, events []message.Event) error {
	err := b.publish(ctx, events)
	if err == nil {
		return nil
	}
	if streamMissing(err) {
		if ensureErr := b.ensureStream(ctx); ensureErr != nil {
			return fmt.Errorf("%w; %w", err, ensureErr)
		}
	}
	return err
}

func (b *Bus) publish(ctx context.Context, events []message.Event) error {
	acks := make([]jetstream.PubAckFuture, len(events))
	for i := range events {
		msg, err := b.encode(&events[i])
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		// The library's retries are off: they would send these bytes later, when the text may have
		// been recalled.
		acks[i], err = b.js.PublishMsgAsync(msg, jetstream.WithMsgID(messageID(&events[i])),
			jetstream.WithExpectStream(streamName), jetstream.WithRetryAttempts(0))
		if err != nil {
			return fmt.Errorf("publish to %s: %w", msg.Subject, err)
		}
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return fmt.Errorf("publish to %s: %w", ack.Msg().Subject, err)
		case <-ctx.Done():
			return fmt.Errorf("publish to %s: %w", ack.Msg().Subject, context.Cause(ctx))
		}
	}
	return nil
}

func (b *Bus) encode(e *message.Event) (*nats.Msg, error) {
	subject, err := b.subjectOf(e.Message.ChannelID)
	if err != nil {
		return nil, err
	}
	data, err := e.MarshalJSON() // encoding/json would validate and copy it again
	if err != nil {
		return nil, fmt.Errorf("encode entry %d of %s: %w", e.Seq, e.Message.ChannelID, err)
	}
	msg := nats.NewMsg(subject)
	msg.Data = data
	if e.Traceparent != "" {
		msg.Header.Set("traceparent", e.Traceparent)
	}
	return msg, nil
}

// decode decodes an event encoded by encode.
func decode(subject string, data []byte) (message.Event, error) {
	var e message.Event
	if err := e.UnmarshalJSON(data); err != nil {
		return e, fmt.Errorf("decode an event of %s: %w", subject, err)
	}
	if e.Message.ChannelID != channelOf(subject) {
		return e, fmt.Errorf("event of channel %q received on subject %s", e.Message.ChannelID, subject)
	}
	return e, nil
}
