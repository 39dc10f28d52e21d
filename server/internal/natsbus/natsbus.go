// Package natsbus connects the change feed, the cache builder, live subscribers and the nodes
// through NATS.
//
// One JetStream stream, message_change_events, holds every entry of every log for a day. The feeder
// publishes to it (Publish). Consumers that must see every event pull from one durable consumer per
// shard (Group). Nodes with live subscribers listen to the same subjects without JetStream
// (Subscribe). The store, not NATS, is the source of truth. So every publish may be repeated, every
// delivery may be a duplicate, and a consumer that must not miss an event compares its position
// with the store.
//
// Traffic between nodes (Nodes) and typing notices use subjects of their own. They are delivered
// at most once and not stored.
package natsbus

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Config configures a Bus.
type Config struct {
	// URL is the address of the NATS servers, comma-separated. It is ignored if Server is set.
	URL string
	// CredentialsFile is the path of a NATS credentials file. Empty means none.
	CredentialsFile string
	// Certificate returns the client's certificate, and Roots the trusted certificates, for the next
	// connection. If either is set, connections use TLS. Without Certificate the client has none.
	// Without Roots the system's roots are trusted. Both may be called concurrently.
	Certificate func() (tls.Certificate, error)
	Roots       func() (*x509.CertPool, error)
	// Server is a started NATS server in this process, used instead of URL. Nil means URL.
	Server *Embedded
	// Shards is the number of shards of the store, at least 1.
	Shards int
	// Store identifies the store whose events these are. The stream of another store is not
	// changed: Connect returns an error, and operations that find it later fail. If empty, it is
	// not compared.
	Store string
	// Replicas is the number of replicas of the stream, 1 to 5. Default 1.
	Replicas int
	// MaxAge is how long the stream keeps an event. Default 24 h. It bounds how long the stream
	// keeps the text of a recalled message.
	MaxAge time.Duration
	// MaxBytes is the size of the stream, from which on the oldest events are removed. JetStream
	// reserves it on each replica. A consumer that has missed events reads the store. Default 1 GiB.
	MaxBytes int64
	// AckWait is the time after which JetStream redelivers an event that a consumer neither
	// acknowledged nor extended. Default 3 s, because a list of channels may be that far behind
	// after a node was killed.
	AckWait time.Duration
	// ConnectWait is how long Connect waits for NATS before it returns without it. Default 2 s.
	ConnectWait time.Duration
	// Logger receives the logs. Nil means slog.Default.
	Logger *slog.Logger
}

const (
	// apiWait bounds a request to create or read the stream or a consumer. A server that has just
	// started may leave a request unanswered.
	apiWait      = 1500 * time.Millisecond
	publishWait  = 5 * time.Second // for an acknowledgement by JetStream
	requestWait  = 5 * time.Second // for LastPublished and Ping
	drainWait    = 5 * time.Second
	pingInterval = 5 * time.Second
	maxPending   = 1 << 16 // unacknowledged publishes of all shards together

	// minPayload is the payload that NATS must accept: the largest event, whose text has 128 KiB and
	// may need six bytes for each in JSON, like the 16 values of its metadata, with 256 bytes each.
	minPayload = 832 << 10
)

// errSmallPayload reports that NATS does not accept the largest event.
var errSmallPayload = errors.New("the max_payload of NATS is too small")

// Bus is one connection to NATS. Safe for concurrent use. While NATS is away, calls fail at once
// and nothing is buffered: a buffered event would be published with a text that may have been
// recalled since.
type Bus struct {
	config Config
	log    *slog.Logger
	nc     *nats.Conn
	js     jetstream.JetStream
	closed chan struct{} // closed when the connection has ended permanently

	making sync.Mutex // serializes the creation of the JetStream stream and its consumers

	mu             sync.Mutex    // guards the fields below
	joined         chan struct{} // closed and replaced at each connect
	onPossibleLoss []func()
}

// Connect connects to NATS and creates the stream if needed. If NATS does not answer within
// Config.ConnectWait, it still returns a Bus, which keeps trying forever: a node must start and
// accept messages without NATS. An error means that the configuration can't work, or that ctx has
// ended.
func Connect(ctx context.Context, config Config) (*Bus, error) {
	if config.Shards < 1 {
		return nil, errors.New("connect to NATS: Config.Shards must be at least 1")
	}
	config.Replicas = cmp.Or(config.Replicas, 1)
	config.MaxAge = cmp.Or(config.MaxAge, 24*time.Hour)
	config.MaxBytes = cmp.Or(config.MaxBytes, 1<<30)
	config.AckWait = cmp.Or(config.AckWait, 3*time.Second)
	config.ConnectWait = cmp.Or(config.ConnectWait, 2*time.Second)
	b := &Bus{
		config: config, log: cmp.Or(config.Logger, slog.Default()), closed: make(chan struct{}), joined: make(chan struct{}),
	}
	nc, err := nats.Connect(config.URL, b.options()...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	b.nc = nc
	b.js, err = jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(maxPending),
		jetstream.WithPublishAsyncTimeout(publishWait), jetstream.WithDefaultTimeout(apiWait))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	err = b.createStream(ctx)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil && nc.MaxPayload() < minPayload {
		err = fmt.Errorf("%w: it is %d bytes, and at least %d are required", errSmallPayload, nc.MaxPayload(), minPayload)
	}
	if errors.Is(err, errForeignStream) || errors.Is(err, errSmallPayload) || ctx.Err() != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if err != nil {
		b.log.WarnContext(ctx, "no stream of events in NATS, retrying", "error", err)
	}
	return b, nil
}

func (b *Bus) options() []nats.Option {
	options := []nats.Option{
		nats.Name("parleyd"),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(200 * time.Millisecond),
		nats.ReconnectJitter(300*time.Millisecond, time.Second),
		nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(),
		// A link that died silently keeps what was written to it. Two missed pings end it, within
		// 15 s.
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.DrainTimeout(drainWait),
		nats.ConnectHandler(func(*nats.Conn) { b.signalConnect() }),
		nats.ReconnectHandler(func(*nats.Conn) {
			b.log.Info("reconnected to NATS")
			b.signalConnect()
		}),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() && !nc.IsDraining() {
				b.log.Warn("disconnected from NATS", "error", err)
			}
		}),
		nats.ErrorHandler(b.handleAsyncError),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
	}
	if b.config.CredentialsFile != "" {
		options = append(options, nats.UserCredentials(b.config.CredentialsFile))
	}
	if b.config.Certificate != nil || b.config.Roots != nil {
		options = append(options, nats.ClientTLSConfig(b.config.Certificate, b.config.Roots))
	}
	if b.config.Server != nil {
		options = append(options, nats.InProcessServer(b.config.Server.server))
	}
	return options
}

// createStream creates the stream. It retries until ConnectWait has passed, and then returns the
// last error.
func (b *Bus) createStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.config.ConnectWait)
	defer cancel()
	for {
		joined := b.nextConnect()
		err := b.ensureStream(ctx)
		if err == nil || errors.Is(err, errForeignStream) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-joined:
		case <-time.After(100 * time.Millisecond): // JetStream may start later than its server
		}
	}
}

// nextConnect returns a channel that is closed when NATS is connected the next time after this
// call.
func (b *Bus) nextConnect() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.joined
}

func (b *Bus) signalConnect() {
	b.mu.Lock()
	close(b.joined)
	b.joined = make(chan struct{})
	b.mu.Unlock()
	b.signalPossibleLoss()
}

// signalPossibleLoss calls the functions registered by OnReconnect, one after another.
func (b *Bus) signalPossibleLoss() {
	b.mu.Lock()
	fns := slices.Clip(b.onPossibleLoss)
	b.mu.Unlock()
	for _, fn := range fns {
		fn()
	}
}

func (b *Bus) handleAsyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	b.log.Error("NATS connection error", "subject", subject, "error", err)
	if errors.Is(err, nats.ErrSlowConsumer) {
		b.signalPossibleLoss()
	}
}

// OnReconnect registers fn to be called after every connect, and after events were dropped because
// a subscription was too slow. In both cases subscribers may have missed events and should compare
// their positions with the store. fn must not block.
func (b *Bus) OnReconnect(fn func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onPossibleLoss = append(b.onPossibleLoss, fn)
}

// Ping waits for an answer from NATS, for at most 5 s.
func (b *Bus) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	if !b.nc.IsConnected() {
		return fmt.Errorf("ping NATS: %w", nats.ErrDisconnected)
	}
	if err := b.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("ping NATS: %w", err)
	}
	return nil
}

// CheckStream returns an error if the JetStream stream does not exist, or its state is not known
// within 5 s. Without it no event is published, although Ping succeeds. A publication that fails
// because there is none creates it.
func (b *Bus) CheckStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	if !b.nc.IsConnected() {
		return fmt.Errorf("look for stream %s: %w", streamName, nats.ErrDisconnected)
	}
	if _, err := b.js.Stream(ctx, streamName); err != nil {
		return fmt.Errorf("look for stream %s: %w", streamName, err)
	}
	return nil
}

// Close delivers the messages that have arrived, ends the connection, and waits for both, at most 6
// s. While NATS is away it closes at once. Further calls do nothing.
func (b *Bus) Close() error {
	err := b.nc.Drain()
	switch {
	case errors.Is(err, nats.ErrConnectionClosed):
		return nil
	case err != nil:
		b.nc.Close() // nothing to drain while NATS is away
	}
	select {
	case <-b.closed:
	case <-time.After(drainWait + time.Second):
		b.nc.Close()
	}
	return nil
}
