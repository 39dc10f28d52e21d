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

// dedupeWindow is how long JetStream remembers message ids. A repeat after that is stored twice, which does no harm:
// consumers know entries by their seq.
const dedupeWindow = 2 * time.Minute

// storeKey is where the stream's metadata name the store.
const storeKey = "parley-store"

// errForeignStream says that another fleet uses this NATS.
var errForeignStream = errors.New("stream " + streamName + " holds the events of another store: give each fleet a NATS " +
	"account of its own, or remove the stream if its store is gone")

// ensureStream makes the stream, or makes it what the configuration says.
func (b *Bus) ensureStream(ctx context.Context) error {
	if !b.nc.IsConnected() {
		return fmt.Errorf("make stream %s: %w", streamName, nats.ErrDisconnected)
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
		Duplicates: min(dedupeWindow, b.config.MaxAge),
		Replicas:   b.config.Replicas,
	}
	if b.config.Store != "" {
		want.Metadata = map[string]string{storeKey: b.config.Store}
	}
	// It is looked at first: an update that changes nothing is no small thing to a server, which in 2.15.2 has a data race
	// between it and the making of a consumer.
	if stream, err := b.js.Stream(ctx, streamName); err == nil {
		is := stream.CachedInfo().Config
		if owner := is.Metadata[storeKey]; owner != "" && b.config.Store != "" && owner != b.config.Store {
			return errForeignStream
		}
		if is.Metadata[storeKey] == want.Metadata[storeKey] && slices.Equal(is.Subjects, want.Subjects) &&
			is.MaxAge == want.MaxAge && is.Duplicates == want.Duplicates &&
			is.Replicas == want.Replicas {
			return nil
		}
	}
	if _, err := b.js.CreateOrUpdateStream(ctx, want); err != nil {
		return fmt.Errorf("make stream %s: %w", streamName, err)
	}
	return nil
}

// ensureConsumer makes a bucket's consumer, or makes it what the configuration says.
func (g *Group) ensureConsumer(ctx context.Context, bucket int) (jetstream.Consumer, error) {
	g.bus.making.Lock()
	defer g.bus.making.Unlock()
	ctx, cancel := context.WithTimeout(ctx, apiWait)
	defer cancel()
	consumer, err := g.bus.js.CreateOrUpdateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable:       g.consumerName(bucket),
		FilterSubject: bucketSubjects(bucket),
		DeliverPolicy: jetstream.DeliverAllPolicy,
		// Each event is confirmed by itself. With one for all before it, a second consumer, which has pulled later events,
		// would confirm what the first one has not yet done.
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       g.bus.config.AckWait,
		MaxAckPending: 4 * g.batch,
		MaxDeliver:    -1,
	})
	if err != nil {
		return nil, fmt.Errorf("make consumer %s: %w", g.consumerName(bucket), err)
	}
	return consumer, nil
}

// streamMissing reports whether err can mean that the stream is not there.
func streamMissing(err error) bool {
	return errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, nats.ErrNoResponders)
}
