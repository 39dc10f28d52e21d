// Package server is Parley's composition root: it connects every adapter. New builds a node. Run
// serves until its context ends, then drains in the order given in ARCHITECTURE.md.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/parleyhq/parley/clients/pages"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/remote"
	"github.com/parleyhq/parley/server/internal/erasure"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/natsbus"
	"github.com/parleyhq/parley/server/internal/page"
	"github.com/parleyhq/parley/server/internal/retention"
	"github.com/parleyhq/parley/server/internal/rpc"
	"github.com/parleyhq/parley/server/internal/rpc/limit"
	"github.com/parleyhq/parley/server/internal/session"
	"github.com/parleyhq/parley/server/internal/store/redisstore"
	"github.com/parleyhq/parley/server/internal/store/redistext"
	"github.com/parleyhq/parley/server/internal/telemetry"
	"github.com/parleyhq/parley/server/internal/unread"
)

// Option changes how New builds a server.
type Option func(*options)

type options struct {
	dev     bool
	devTLS  bool
	version string
	logTo   io.Writer
	spans   sdktrace.SpanExporter
	now     func() time.Time
	// eraseSettle is that of WithErasureSettle, or 0.
	eraseSettle time.Duration
}

// WithDev runs every engine in this process or as its child, with data in Config.DataDir, and
// creates a token.
func WithDev() Option { return func(o *options) { o.dev = true } }

// WithDevTLS is WithDev, and serves https with the certificate of DevCertificate in Config.DataDir,
// instead of a configured one.
func WithDevTLS() Option { return func(o *options) { o.dev, o.devTLS = true, true } }

// WithVersion sets the version shown in traces, metrics and GetServerInfo.
func WithVersion(v string) Option { return func(o *options) { o.version = v } }

// WithLogOutput writes the log to w instead of standard error.
func WithLogOutput(w io.Writer) Option { return func(o *options) { o.logTo = w } }

// WithSpans exports every sampled span to e, in addition to the configured collector. It is for
// tests.
func WithSpans(e sdktrace.SpanExporter) Option { return func(o *options) { o.spans = e } }

// WithClock sets the node's clock for the times of messages, instead of time.Now. It is for tests.
func WithClock(now func() time.Time) Option { return func(o *options) { o.now = now } }

// WithErasureSettle sets how long an erasure waits before it removes the records of former members,
// instead of 75 s. It is for tests.
func WithErasureSettle(d time.Duration) Option { return func(o *options) { o.eraseSettle = d } }

// Server is one node. Run may be called once.
type Server struct {
	services

	cfg   config.Config
	dev   bool
	log   *slog.Logger
	done  lifecycle.Stack
	notes []string
	// unread bounds what waits for clients that do not read.
	unread *unread.Budget
	// failed is closed when the store has failed permanently. It is nil for a store that never does
	// so.
	failed <-chan struct{}
	// endpoint sends and answers calls between nodes.
	endpoint *cluster.Endpoint

	handler *rpc.Handler
	// api and ops serve from the start of Run until its drain.
	api, ops *httpServer
	apiLn    net.Listener
	opsLn    net.Listener
	// besideLn is the API's listener on [::1] beside an apiLn on 127.0.0.1. It is set in dev only,
	// and may be nil.
	besideLn net.Listener
	// draining is set once the drain begins; the server is then not ready.
	draining atomic.Bool
	devToken string
	// eraseSettle is that of WithErasureSettle, or 0.
	eraseSettle time.Duration
}

// ErrCanceled is the error of a New whose context ended before the node was started.
var ErrCanceled = errors.New("the start was canceled")

// New builds and starts a node. When it returns, the node's engines and listeners are open; Run
// serves calls. After an error everything is closed again. ctx bounds the start only: if it ends
// first, New closes everything and returns an error that wraps ErrCanceled, unless closing failed.
// New does not validate cfg.
func New(ctx context.Context, cfg config.Config, opts ...Option) (*Server, error) {
	o := options{now: time.Now}
	for _, opt := range opts {
		opt(&o)
	}
	s := &Server{cfg: cfg, dev: o.dev, eraseSettle: o.eraseSettle}
	if err := s.build(ctx, &o); err != nil {
		// The engines are closed in order even if ctx has ended.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		failed := s.done.Close(closing)
		if ctx.Err() != nil && failed == nil {
			return nil, fmt.Errorf("%w: %w", ErrCanceled, err)
		}
		return nil, errors.Join(err, failed)
	}
	return s, nil
}

const closeTimeout = 10 * time.Second

func (s *Server) build(ctx context.Context, o *options) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.cfg.Log.Level)); err != nil {
		return fmt.Errorf("log.level: %w", err)
	}
	tel, err := telemetry.Setup(ctx, telemetry.Config{
		Version: o.version, OTLPEndpoint: s.cfg.Telemetry.OTLPEndpoint, TraceRatio: s.cfg.Telemetry.TraceRatio,
		Level: level, Text: s.cfg.Log.Format == "text", Output: o.logTo, Spans: o.spans,
	})
	if err != nil {
		return fmt.Errorf("set up telemetry: %w", err)
	}
	s.done.Push("telemetry", tel.Shutdown)
	s.log = tel.Logger

	open := openServe
	if o.dev {
		open = openDev
	}
	b, err := open(ctx, &s.cfg, s.log, &s.done)
	if err != nil {
		return err
	}
	if o.dev {
		// After the store was opened, whose lock guards the whole data directory.
		if err := s.devAuth(o.devTLS); err != nil {
			return err
		}
	}
	s.notes, s.failed = b.notes, b.failed
	s.clock = newStoreClock(b.store, o.now, s.log)
	s.unread = unread.New(int64(s.cfg.Limits.UnreadBytesPerSubject), int64(s.cfg.Limits.UnreadBytes))
	if err := cmp.Or(s.clock.observe(tel.Meters), observeUnread(tel.Meters, s.unread)); err != nil {
		return err
	}
	if err := s.buildPipeline(ctx, b, tel, o.version); err != nil {
		return err
	}
	required := telemetry.Checks{
		"draining": func(context.Context) error {
			if s.draining.Load() {
				return errors.New("the server is shutting down")
			}
			return nil
		},
		"store": b.store.Ping,
	}
	// Without these, messages are still sent and read.
	reported := telemetry.Checks{
		"nats": b.bus.Ping, "jetstream": b.bus.CheckStream, "redis": func(ctx context.Context) error { return b.redis.Ping(ctx).Err() },
	}
	if err := s.listenOps(ctx, tel.OpsHandler(required, reported)); err != nil {
		return err
	}
	return s.start(ctx)
}

// devAuth sets the key for tokens to the data directory's, unless one is configured, and creates
// the dev token. With tls it also sets the certificate to the data directory's. It creates what the
// data directory lacks.
func (s *Server) devAuth(tls bool) error {
	if s.cfg.Auth.HS256Secret == "" {
		secret, err := devSecret(s.cfg.DataDir)
		if err != nil {
			return err
		}
		s.cfg.Auth.HS256Secret = config.Secret(secret)
	}
	var err error
	if tls {
		if s.cfg.TLS.Cert, s.cfg.TLS.Key, err = DevCertificate(s.cfg.DataDir, s.cfg.Listen); err != nil {
			return err
		}
	}
	s.devToken, err = devToken([]byte(s.cfg.Auth.HS256Secret.Reveal()))
	return err
}

// buildPipeline creates the writer, reader, feed, hub, work queues and API of a node on its
// engines. It opens the API's listeners but starts nothing.
func (s *Server) buildPipeline(ctx context.Context, b *backends, tel *telemetry.Telemetry, version string) error {
	life := context.WithoutCancel(ctx) // of the metrics' callbacks, which outlive ctx
	metrics, err := newPipelineMetrics(tel.Meters)
	if err != nil {
		return fmt.Errorf("make metrics: %w", err)
	}
	id := b.store.Identity()
	cache, err := newCache(b.redis, &s.cfg.Redis, tel.Meters.Meter(scope), s.log)
	if err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	log, err := countReads(b.store, tel.Meters)
	if err != nil {
		return err
	}
	reader := message.NewReader(log, cache, id.Epoch, message.ReaderConfig{
		OnList: metrics.onList(life), OnStale: s.refillSession, Logger: s.log,
	})
	s.epoch = newEpochWatcher(b.store, id.Epoch, s.log)

	s.buildCluster(b)
	if err := s.buildFeed(b, cache, tel); err != nil {
		return err
	}
	s.refills = remote.NewRefills(s.endpoint, s.roster, id.Shards, s.builder.Refill, s.log)
	access := channel.NewAccess(channel.AccessConfig{Store: b.channels, RequireChannel: !s.cfg.Channels.CreateOnSend})
	s.hub = fanout.New(fanout.Config{
		Node: s.roster.ID(), Admission: access,
		QueueBytes: s.cfg.Limits.StreamQueueBytes, QueueEvents: s.cfg.Limits.StreamQueueEvents, FrameBytes: s.cfg.Limits.FrameBytes,
		Unread:               s.unread,
		HeartbeatInterval:    s.cfg.Limits.HeartbeatInterval,
		MaxChannelsPerStream: s.cfg.Limits.ChannelsPerStream,
		MaxStreamsPerSubject: s.cfg.Limits.StreamsPerSubject, MaxStreams: s.cfg.Limits.Streams,
		Texts:  redistext.New(b.redis, s.cfg.Redis.KeyPrefix),
		Logger: s.log, Meter: tel.Meters.Meter(scope), OnDeliver: onDeliver(life, tel.Tracers, tel.Propagator),
	}, b.bus, reader, rpc.Encoder{})

	s.writer = message.NewWriter(b.store, id.Shards, message.WriterConfig{
		Now: s.clock.Now, OnInsert: metrics.onInsert(life), Logger: s.log,
	})
	s.forwards = remote.NewWriter(s.endpoint, s.roster, s.writer, message.Buckets, remote.WriterConfig{
		OnForward: metrics.onForward(life), Logger: s.log,
	})
	s.streams = remote.NewStreams(s.endpoint, s.hub, func(ctx context.Context, subject string, add []fanout.Position) error {
		needs := make([]channel.Need, len(add))
		for i, at := range add {
			needs[i] = channel.Need{ChannelID: at.ChannelID, Member: at.Member, Exempt: at.Exempt}
		}
		return access.Check(ctx, subject, needs)
	})
	s.buildSessions(b, reader)
	s.buildPresence(b, tel)
	s.members = channel.NewWatcher(channel.WatcherConfig{
		Store: b.channels, Access: access, Subscriptions: streamsOf{s.hub, s.presence}, Logger: s.log,
	})
	s.changes = remote.NewChanges(s.endpoint, func(c channel.Change) {
		s.members.Hint(c)
		s.presence.MembersChanged(c.ChannelID)
	}, s.log)
	s.changes.OnJoin(s.presence.MembersChanged)
	s.eraser = erasure.New(erasure.Config{
		Store: b.erasures, Log: b.store, Channels: b.channels, Writer: s.forwards, Cache: cache, Owner: s.roster,
		EndSession: s.endSession,
		Notify:     s.changes.Publish, EventsMaxAge: s.cfg.NATS.MaxAge, Settle: s.eraseSettle, Logger: s.log,
	})
	if err := s.buildQueues(ctx, b, tel); err != nil {
		return err
	}
	calls := *tel
	calls.Logger = telemetry.Limit(s.log, s.cfg.Log.CallsPerSecond)
	deps := s.messageDeps(b, reader, access, &calls, version)
	s.queues.addTo(&deps)
	deps.PageSecret = id.Secret
	s.addPresence(&deps, access)
	if err := s.buildTokens(b, tel); err != nil {
		return err
	}
	deps.Revocations, deps.Kicks, deps.APIKeys = s.revoked, s.kicks, s.apiKeys
	return s.buildTransport(ctx, deps)
}

// buildCluster builds what connects this node with the others.
func (s *Server) buildCluster(b *backends) {
	nodes := b.bus.Nodes()
	s.roster = cluster.NewRoster(cluster.RosterConfig{
		Transport: nodes, Store: b.store.Identity().Name(), Logger: s.log,
		Probe: func(ctx context.Context) error { return cmp.Or(b.store.Ping(ctx), b.bus.Ping(ctx)) },
	})
	s.endpoint = cluster.NewEndpoint(s.roster, nodes, s.log)
}

// messageDeps returns the dependencies of the API, except those of queues and presence.
func (s *Server) messageDeps(
	b *backends, reader *message.Reader, access *channel.Access, calls *telemetry.Telemetry, version string,
) rpc.Deps {
	id := b.store.Identity()
	messages := message.NewService(s.forwards, reader, id, access)
	s.channels = channel.NewService(channel.ServiceConfig{
		Store: b.channels, Access: access, Log: reader, Appender: s.forwards, TypingPublisher: b.bus,
		Notify: s.changes.Publish, Joined: s.changes.Joined,
		Secret: id.Secret, Now: s.clock.Now, Logger: s.log,
	})
	s.sessions = session.NewService(session.Config{
		Messages: messages, Channels: s.channels, Generations: s.generations, Peers: s.sessionPeers, Secret: id.Secret,
	})
	rate := limit.Config{PerSecond: s.cfg.Limits.RequestsPerSecond, Burst: s.cfg.Limits.RequestBurst}
	return rpc.Deps{
		Messages: messages, Channels: s.channels, Sessions: s.sessions,
		Erasures: erasure.NewService(b.erasures, s.eraser.Wake),
		Access:   access, Streams: s.streams, Hub: s.hub, Telemetry: calls, Epoch: id.Epoch,
		Limiter: limit.New(rate), Settles: limit.New(rate),
		Unread: s.unread,
		Info: rpc.ServerInfo{
			Version: version, StreamsPerSubject: s.cfg.Limits.StreamsPerSubject,
			ConsumersPerSubject: s.cfg.Queues.ConsumersPerSubject,
		},
	}
}

// buildTransport builds the API's handler and its server. It sets deps.Verifier and deps.Page; the
// caller sets the rest.
func (s *Server) buildTransport(ctx context.Context, deps rpc.Deps) error {
	if err := s.buildVerifier(); err != nil {
		return err
	}
	deps.Verifier = s.verifier
	l := &s.cfg.Limits
	cfg := rpc.Config{
		SendReadBytes: l.SendReadBytes, BatchReadBytes: l.BatchReadBytes, OtherReadBytes: l.OtherReadBytes,
		UnaryTimeout: l.UnaryTimeout, BodyTimeout: l.BodyTimeout, FrameTimeout: l.FrameTimeout,
		HeartbeatInterval: l.HeartbeatInterval, ChannelsPerStream: l.ChannelsPerStream, SessionContentBytes: l.SessionContentBytes,
		WatchedUsers: s.cfg.Presence.WatchedUsers, WatchedChannels: s.cfg.Presence.WatchedChannels, Reflection: s.cfg.HTTP.Reflection,
		CORSOrigins: s.cfg.HTTP.CORSOrigins, HeaderBytes: l.HeaderBytes,
		ConnectionStreams: l.ConnectionStreams, HeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout,
	}
	// The page's policy depends on where the API listens.
	ours, err := s.listenAPI(ctx)
	if err != nil {
		return err
	}
	if s.cfg.HTTP.Page {
		if deps.Page, err = newPage(ours); err != nil {
			return err
		}
	}
	s.handler, err = rpc.NewHandler(cfg, deps)
	if err != nil {
		return err
	}
	api := rpc.NewHTTPServer(&cfg, s.handler, deps.Telemetry.Logger)
	if s.cfg.TLS.Cert != "" {
		if api.TLSConfig, err = serverTLS(s.cfg.TLS, s.log); err != nil {
			return err
		}
	}
	s.api = newHTTPServer(api, s.apiLn, s.besideLn)
	return nil
}

// newPage returns the handler of the chat page. If ours is true, the page may also call names below
// localhost: see clients/pages/src/connection/address.ts.
func newPage(ours bool) (http.Handler, error) {
	var connect []string
	if ours {
		connect = []string{"http://*.localhost:*"}
	}
	return page.New(page.Config{Files: pages.Files(), Connect: connect})
}

// buildFeed builds the feed from the store to the event stream, and from there to the cache and the
// channel rows, and what trims the logs.
func (s *Server) buildFeed(b *backends, cache redisstore.Router, tel *telemetry.Telemetry) error {
	metrics, err := feed.NewMetrics(tel.Meters.Meter(scope))
	if err != nil {
		return fmt.Errorf("make metrics: %w", err)
	}
	tracer := tel.Tracers.Tracer(scope)
	r := &s.cfg.Retention
	s.trimmer, err = retention.New(retention.Config{
		EndLog: func(ctx context.Context, row *channel.Row) (channel.LogEnd, error) {
			return channel.EndLog(ctx, b.channels, s.forwards, row, s.clock.Now())
		},
		Log: b.store, Rows: b.channels, Cache: cache, Shards: b.store.Identity().Shards, Owner: s.roster,
		Default:           channel.Retention{MaxAge: r.MaxAge, MaxMessages: r.MaxMessages, MaxBytes: r.MaxBytes},
		IdempotencyWindow: r.IdempotencyWindow, EventsMaxAge: s.cfg.NATS.MaxAge, Clock: s.clock.Store,
		Meter: tel.Meters.Meter(scope), Logger: s.log,
	})
	if err != nil {
		return fmt.Errorf("make the trimmer: %w", err)
	}
	s.feeder, err = feed.NewFeeder(feed.FeederConfig{
		Store: b.store, Publisher: b.bus, History: b.bus, Owner: s.roster, Metrics: metrics, Tracer: tracer, Logger: s.log,
	})
	if err != nil {
		return fmt.Errorf("make the feeder: %w", err)
	}
	s.builder, err = feed.NewBuilder(feed.BuilderConfig{
		Source: b.bus.Group(cacheGroup, cacheBatch), Cache: cache, Store: b.store, Owner: s.roster,
		Metrics: metrics, Tracer: tracer, Logger: s.log,
	})
	if err != nil {
		return fmt.Errorf("make the cache builder: %w", err)
	}
	s.advancer = feed.NewAdvancer(feed.AdvancerConfig{
		Source: b.bus.Group(channelGroup, channelBatch), Rows: b.channels, Identity: b.store.Identity(), Owner: s.roster,
		OnAdvance: s.trimmer.Advanced, Logger: s.log,
	})
	b.bus.OnReconnect(s.feeder.Republish)
	return nil
}

// refillSession asks for a session's cached messages. Those of a channel come back with its next
// message.
func (s *Server) refillSession(channelID string, seq int64) {
	if ident.IsSession(channelID) {
		s.refills.Hint(channelID, seq)
	}
}

// The durable consumers of the event stream and their batch sizes in events. The consumer that
// updates channel rows writes a row once for all its events of a batch.
const (
	cacheGroup, cacheBatch     = natsbus.CacheGroup, 256
	channelGroup, channelBatch = natsbus.ChannelGroup, 2048
)

func (s *Server) listenOps(ctx context.Context, ops http.Handler) error {
	var lc net.ListenConfig
	var err error
	if s.opsLn, err = lc.Listen(ctx, "tcp", s.cfg.OpsListen); err != nil {
		return fmt.Errorf("ops_listen: %w", err)
	}
	s.done.Push("ops listener", func(context.Context) error { return ignoreClosed(s.opsLn.Close()) })
	s.ops = newHTTPServer(telemetry.NewOpsServer(ops), s.opsLn)
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// URL returns the API's base URL. If the configured port is 0, the URL has the port that the system
// chose.
func (s *Server) URL() string {
	if s.cfg.TLS.Cert != "" {
		return "https://" + s.apiLn.Addr().String()
	}
	return "http://" + s.apiLn.Addr().String()
}

// OpsURL returns the base URL of health, metrics and pprof.
func (s *Server) OpsURL() string { return "http://" + s.opsLn.Addr().String() }

// DevToken returns the token of a server built WithDev, and "" for any other.
func (s *Server) DevToken() string { return s.devToken }

// DevSecret returns the HS256 key that signs the tokens of a server built WithDev.
func (s *Server) DevSecret() []byte { return []byte(s.cfg.Auth.HS256Secret.Reveal()) }
