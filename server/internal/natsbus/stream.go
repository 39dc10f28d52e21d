package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// dedupeWindow is how long JetStream remembers message ids. A later repeat is stored twice, which
// is harmless: consumers identify entries by their seq.
const dedupeWindow = 2 * time.Minute

// storeKey is the key of the store's name in the stream's metadata.
const storeKey = "parley-store"

// errForeignStream reports that the stream belongs to a fleet with another store.
var errForeignStream = errors.New("stream " + streamName + " holds the events of another store: give each fleet a NATS " +
	"account of its own, or remove the stream if its store is gone")

// ensureStream creates the JetStream stream, or updates it if it differs from the configuration. It
// returns errForeignStream if the stream is of another store.
func (b *Bus) ensureStream(ctx context.Context) error {
	if !b.nc.IsConnected() {
		return fmt.Errorf("create stream %s: %w", streamName, nats.ErrDisconnected)
	}
	b.making.Lock()
	defer b.making.Unlock()
	ctx, cancel := context.WithTimeout(ctx, apiWait)
	defer cancel()
	want := jetstream.StreamConfig{
		Name:       streamName,
		Subjects:   []string{allSubjects()},
		Storage:    jetstream.FileStorage,
		Retention:  jetstream.LimitsPolicy,
		Discard:    jetstream.DiscardOld,
		MaxAge:     b.config.MaxAge,
		MaxBytes:   b.config.MaxBytes,
		Duplicates: min(dedupeWindow, b.config.MaxAge),
		Replicas:   b.config.Replicas,
	}
	if b.config.Store != "" {
		want.Metadata = map[string]string{storeKey: b.config.Store}
	}
	// Read the stream first: even an update that changes nothing is risky, because nats-server
	// 2.15.2 has a data race between it and the creation of a consumer.
	if stream, err := b.js.Stream(ctx, streamName); err == nil {
		is := stream.CachedInfo().Config
		if owner := is.Metadata[storeKey]; owner != "" && b.config.Store != "" && owner != b.config.Store {
			return errForeignStream
		}
		if is.Metadata[storeKey] == want.Metadata[storeKey] && slices.Equal(is.Subjects, want.Subjects) &&
			is.MaxAge == want.MaxAge && is.MaxBytes == want.MaxBytes && is.Duplicates == want.Duplicates &&
			is.Replicas == want.Replicas {
			return nil
		}
	}
	if _, err := b.js.CreateOrUpdateStream(ctx, want); err != nil {
		return fmt.Errorf("create stream %s: %w", streamName, err)
	}
	return nil
}

// ensureConsumer creates a shard's durable consumer, or updates it to the configuration.
func (g *Group) ensureConsumer(ctx context.Context, shard int) (jetstream.Consumer, error) {
	g.bus.making.Lock()
	defer g.bus.making.Unlock()
	ctx, cancel := context.WithTimeout(ctx, apiWait)
	defer cancel()
	consumer, err := g.bus.js.CreateOrUpdateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable:       g.consumerName(shard),
		FilterSubject: shardSubjects(shard),
		DeliverPolicy: jetstream.DeliverAllPolicy,
		// Each event is acknowledged individually. If an ack covered all earlier events, a second
		// consumer that has pulled later events would acknowledge what the first one has not yet
		// handled.
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       g.bus.config.AckWait,
		MaxAckPending: 4 * g.batch,
		MaxDeliver:    -1,
	})
	if err != nil {
		return nil, fmt.Errorf("create consumer %s: %w", g.consumerName(shard), err)
	}
	return consumer, nil
}

// streamMissing reports whether err can mean that the stream does not exist.
func streamMissing(err error) bool {
	return errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, nats.ErrNoResponders)
}
