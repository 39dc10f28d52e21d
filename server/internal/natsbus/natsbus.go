// Package natsbus joins the change feed, the cache's builder, the live subscribers and the nodes by NATS.
//
// One JetStream stream, message_change_events, holds every entry of every log for a day. The feeder publishes to it
// (Publish), whoever must see every event pulls from one durable consumer per bucket (Group), and nodes with live
// subscribers listen to the very same subjects without JetStream (Subscribe). Nothing here is the truth: the store is. So
// every publish may be repeated, every delivery may be one, and whoever needs certainty compares positions with the store.
//
// What nodes say to each other (Nodes), and who types, goes over subjects of its own, at most once, and is kept nowhere.
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

// Config says how a Bus is made.
type Config struct {
	// URL is the address of the NATS servers, comma-separated. It is not used if Server is set.
	URL string
	// CredentialsFile is a NATS credentials file; empty for none.
	CredentialsFile string
	// Certificate returns the client's certificate, and Roots the certificates to trust, for the next connection. If
	// either is set, connections use TLS. Without Certificate the client has none, without Roots those of the system are
	// trusted.
	Certificate func() (tls.Certificate, error)
	Roots       func() (*x509.CertPool, error)
	// Server is a server in this process, to be used instead of URL.
	Server *Embedded
	// Buckets is the store's number of buckets, at least 1.
	Buckets int
	// Store names the store whose events these are. A stream of another store's is not touched: Connect refuses it, and
	// what finds it later fails. Empty is not compared.
	Store string
	// Replicas of the stream: 1 to 5, 1 if 0.
	Replicas int
	// MaxAge is how long the stream keeps an event: 24 h if 0. It bounds how long a recalled text stays in it.
	MaxAge time.Duration
	// AckWait is after what time an event that a consumer got and neither confirmed nor asked time for is delivered again:
	// 3 s if 0, for that is how far a list of channels may be behind after a node was killed.
	AckWait time.Duration
	// ConnectWait is how long Connect waits for NATS before it returns without: 2 s if 0.
	ConnectWait time.Duration
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

const (
	// apiWait is for an answer of JetStream's API. A server that has just started may leave a request unanswered.
	apiWait      = 1500 * time.Millisecond
	publishWait  = 5 * time.Second // for an acknowledgement by JetStream
	requestWait  = 5 * time.Second // for an answer of JetStream's API
	drainWait    = 5 * time.Second
	pingInterval = 5 * time.Second
	maxPending   = 1 << 16 // unacknowledged publishes, of all buckets together
)

// Bus is one connection to NATS. It is safe for concurrent use. While NATS is away it fails at once and keeps nothing
// for later: what waited in a buffer would be published with a text that may have been recalled since.
type Bus struct {
	config Config
	log    *slog.Logger
	nc     *nats.Conn
	js     jetstream.JetStream
	closed chan struct{} // closed when the connection has ended for good

	making sync.Mutex // one at a time makes the stream or a consumer

	mu      sync.Mutex    // guards what follows
	joined  chan struct{} // closed, and replaced, at each reconnect
	onMayBe []func()
}

// Connect connects to NATS and sees to it that the stream is there. If NATS does not answer within Config.ConnectWait it
// returns a Bus all the same, which goes on trying for ever: a node must start and take messages without NATS. An error
// means that the configuration cannot work.
func Connect(ctx context.Context, config Config) (*Bus, error) {
	if config.Buckets < 1 {
		return nil, errors.New("connect to NATS: the number of buckets is missing")
	}
	config.Replicas = cmp.Or(config.Replicas, 1)
	config.MaxAge = cmp.Or(config.MaxAge, 24*time.Hour)
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
	err = b.firstStream(ctx)
	if errors.Is(err, errForeignStream) {
		nc.Close()
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if err != nil {
		b.log.WarnContext(ctx, "NATS is away; going on without until it is back", "error", err)
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
		// A link that died in silence keeps what was written to it. Two missed pings end it, within 15 s.
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.DrainTimeout(drainWait),
		nats.ConnectHandler(func(*nats.Conn) { b.rejoined() }),
		nats.ReconnectHandler(func(*nats.Conn) {
			b.log.Info("connected to NATS again")
			b.rejoined()
		}),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() && !nc.IsDraining() {
				b.log.Warn("lost NATS", "error", err)
			}
		}),
		nats.ErrorHandler(b.asyncError),
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

// firstStream makes the stream, or gives up after ConnectWait.
func (b *Bus) firstStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.config.ConnectWait)
	defer cancel()
	for {
		joined := b.nextJoin()
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

// nextJoin gives a channel that is closed at the next reconnect.
func (b *Bus) nextJoin() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.joined
}

func (b *Bus) rejoined() {
	b.mu.Lock()
	close(b.joined)
	b.joined = make(chan struct{})
	b.mu.Unlock()
	b.mayHaveMissed()
}

// mayHaveMissed tells those who asked by OnReconnect.
func (b *Bus) mayHaveMissed() {
	b.mu.Lock()
	fns := slices.Clip(b.onMayBe)
	b.mu.Unlock()
	for _, fn := range fns {
		fn()
	}
}

func (b *Bus) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	b.log.Error("NATS", "subject", subject, "error", err)
	if errors.Is(err, nats.ErrSlowConsumer) {
		b.mayHaveMissed()
	}
}

// OnReconnect has fn called after every reconnect, and after a subscription was so slow that events were dropped: in
// both cases subscribers may have missed events, and should compare their positions with the store. fn must not block.
func (b *Bus) OnReconnect(fn func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onMayBe = append(b.onMayBe, fn)
}

// Connected reports whether there is a connection, as far as is known.
func (b *Bus) Connected() bool { return b.nc.IsConnected() }

// Ping asks NATS for an answer. A ctx without a deadline is given one of 5 s.
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

// Close hands out what has arrived, ends the connection, and waits for both, 5 s at most. A second call does nothing.
func (b *Bus) Close() error {
	err := b.nc.Drain()
	switch {
	case errors.Is(err, nats.ErrConnectionClosed):
		return nil
	case err != nil:
		b.nc.Close() // there is nothing to drain while NATS is away
	}
	select {
	case <-b.closed:
	case <-time.After(drainWait + time.Second):
		b.nc.Close()
	}
	return nil
}
