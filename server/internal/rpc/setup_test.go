package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/apikey/apikeytest"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/revocation/revocationtest"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
	"github.com/parleyhq/parley/server/internal/rpc/limit"
	"github.com/parleyhq/parley/server/internal/session"
	"github.com/parleyhq/parley/server/internal/telemetry"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/internal/unread"
)

func TestMain(m *testing.M) {
	// net/http keeps a connection for half a second after it has refused the rest of a request's body.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

var secret = []byte("0123456789abcdef0123456789abcdef")

// fakeMessages is a Messages whose methods call the functions that the test sets. A nil function
// panics; the panic must not reach a client.
type fakeMessages struct {
	send   func(context.Context, message.SendRequest) (message.Receipt, error)
	batch  func(context.Context, []message.SendRequest) []message.SendOutcome
	list   func(context.Context, message.ListQuery) (message.Page, error)
	get    func(ctx context.Context, channelID, msgID string) (message.Message, error)
	edit   func(context.Context, message.EditRequest) (message.Receipt, message.Message, error)
	recall func(context.Context, message.RecallRequest) (message.Receipt, message.Message, error)
}

func (f *fakeMessages) Send(ctx context.Context, r message.SendRequest) (message.Receipt, error) {
	return f.send(ctx, r)
}

func (f *fakeMessages) SendBatch(ctx context.Context, rs []message.SendRequest) []message.SendOutcome {
	return f.batch(ctx, rs)
}

func (f *fakeMessages) List(ctx context.Context, q message.ListQuery) (message.Page, error) {
	return f.list(ctx, q)
}

func (f *fakeMessages) Get(ctx context.Context, channelID, msgID string) (message.Message, error) {
	return f.get(ctx, channelID, msgID)
}

func (f *fakeMessages) Edit(ctx context.Context, r message.EditRequest) (message.Receipt, message.Message, error) {
	return f.edit(ctx, r)
}

func (f *fakeMessages) Recall(ctx context.Context, r message.RecallRequest) (message.Receipt, message.Message, error) {
	return f.recall(ctx, r)
}

func (f *fakeMessages) Close(context.Context, message.CloseRequest) (message.Receipt, message.Message, error) {
	panic("unexpected call of Close")
}

func (f *fakeMessages) Cancel(context.Context, message.CloseRequest) (message.Receipt, message.Message, error) {
	panic("unexpected call of Cancel")
}

func (f *fakeMessages) CancelTarget(context.Context, string, string) (message.Message, error) {
	panic("unexpected call of CancelTarget")
}

// fakeChannels is a Channels whose methods call the functions that the test sets, like
// fakeMessages.
type fakeChannels struct {
	create   func(context.Context, channel.CreateRequest) (channel.Row, bool, error)
	add      func(ctx context.Context, channelID string, userIDs []string) error
	setRole  func(ctx context.Context, channelID, userID string, role channel.Role) error
	remove   func(ctx context.Context, channelID string, userIDs []string) error
	get      func(ctx context.Context, channelID string) (channel.Row, error)
	update   func(context.Context, channel.UpdateRequest) (channel.Row, error)
	del      func(ctx context.Context, channelID, etag string) error
	members  func(ctx context.Context, channelID string, pageSize int, pageToken string) (channel.MemberPage, error)
	mine     func(ctx context.Context, pageSize int, pageToken string) (channel.UserChannelPage, error)
	markRead func(ctx context.Context, channelID string, seq int64) (channel.Cursor, int64, error)
	typing   func(ctx context.Context, channelID string) error
}

func (f *fakeChannels) Create(ctx context.Context, r channel.CreateRequest) (channel.Row, bool, error) {
	return f.create(ctx, r)
}

func (f *fakeChannels) DeleteSession(context.Context, string) error {
	panic("unexpected call of DeleteSession")
}

func (f *fakeChannels) RenameSession(context.Context, string, string) error {
	panic("unexpected call of RenameSession")
}

func (f *fakeChannels) EverySession(context.Context, int, string) (channel.UserChannelPage, error) {
	panic("unexpected call of EverySession")
}

func (f *fakeChannels) UserSessions(context.Context, string, int, string) (channel.UserChannelPage, error) {
	panic("unexpected call of UserSessions")
}

func (f *fakeChannels) OpenSession(context.Context, string, string, string) error { return nil }

func (f *fakeChannels) Get(ctx context.Context, channelID string) (channel.Row, error) {
	return f.get(ctx, channelID)
}

func (f *fakeChannels) Update(ctx context.Context, r channel.UpdateRequest) (channel.Row, error) {
	return f.update(ctx, r)
}

func (f *fakeChannels) Delete(ctx context.Context, channelID, etag string) error {
	return f.del(ctx, channelID, etag)
}

func (f *fakeChannels) AddMembers(ctx context.Context, channelID string, userIDs []string) error {
	return f.add(ctx, channelID, userIDs)
}

func (f *fakeChannels) UpdateMember(ctx context.Context, channelID, userID string, role channel.Role) error {
	return f.setRole(ctx, channelID, userID, role)
}

func (f *fakeChannels) RemoveMembers(ctx context.Context, channelID string, userIDs []string) error {
	return f.remove(ctx, channelID, userIDs)
}

func (f *fakeChannels) Members(
	ctx context.Context, channelID string, pageSize int, pageToken string,
) (channel.MemberPage, error) {
	return f.members(ctx, channelID, pageSize, pageToken)
}

func (f *fakeChannels) UserChannels(ctx context.Context, pageSize int, pageToken string) (channel.UserChannelPage, error) {
	return f.mine(ctx, pageSize, pageToken)
}

func (f *fakeChannels) MarkRead(ctx context.Context, channelID string, seq int64) (channel.Cursor, int64, error) {
	return f.markRead(ctx, channelID, seq)
}

func (f *fakeChannels) Typing(ctx context.Context, channelID string) error {
	return f.typing(ctx, channelID)
}

// fakeAccess is an Access that lets everybody read everything unless the test sets another
// function.
type fakeAccess struct {
	mu       sync.Mutex
	readable func(p *ident.Principal, channelIDs []string) ([]string, error)
}

func (f *fakeAccess) set(readable func(p *ident.Principal, channelIDs []string) ([]string, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readable = readable
}

func (f *fakeAccess) ForSubscribe(_ context.Context, p *ident.Principal, channelIDs []string) error {
	f.mu.Lock()
	readable := f.readable
	f.mu.Unlock()
	if readable == nil {
		return nil
	}
	refused, err := readable(p, distinct(slices.Clone(channelIDs)))
	if err != nil || len(refused) == 0 {
		return err
	}
	return fault.NotMemberOf(refused...)
}

// fakeStreams is a Streams with one hub. It returns the failure that the test sets, if any.
type fakeStreams struct {
	hub  *fanout.Hub
	fail atomic.Pointer[fault.Error]
}

func (f *fakeStreams) Update(_ context.Context, id, subject string, c fanout.Change) error {
	if failure := f.fail.Load(); failure != nil {
		return failure
	}
	return f.hub.Update(id, subject, c)
}

// fakeLog is an in-memory log and event bus for the channels of a hub.
type fakeLog struct {
	mu     sync.Mutex
	events map[string][]message.Event
	subs   map[string]map[int]func(message.Event)
	typers map[string]func(userID string)
	next   int
}

func newFakeLog() *fakeLog {
	return &fakeLog{
		events: map[string][]message.Event{}, subs: map[string]map[int]func(message.Event){},
		typers: map[string]func(string){},
	}
}

// typing sends a typing notification to the channel's latest subscriber.
func (l *fakeLog) typing(channel, userID string) {
	l.mu.Lock()
	typing := l.typers[channel]
	l.mu.Unlock()
	typing(userID)
}

func (l *fakeLog) append(channel string, change func(*message.Event)) {
	l.mu.Lock()
	e := someEvent(message.KindSend, channel, int64(len(l.events[channel])+1))
	if change != nil {
		change(e)
	}
	l.events[channel] = append(l.events[channel], *e)
	var fns []func(message.Event)
	for _, fn := range l.subs[channel] {
		fns = append(fns, fn)
	}
	l.mu.Unlock()
	for _, fn := range fns {
		fn(*e)
	}
}

func (l *fakeLog) Subscribe(channel string, fn func(message.Event), typing func(string)) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.typers[channel] = typing
	if l.subs[channel] == nil {
		l.subs[channel] = map[int]func(message.Event){}
	}
	l.next++
	id := l.next
	l.subs[channel][id] = fn
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subs[channel], id)
	}, nil
}

func (l *fakeLog) SubscribeDeltas(string, func(message.Delta)) (func(), error) {
	panic("unexpected call of SubscribeDeltas")
}

func (l *fakeLog) OnReconnect(func()) {}

func (l *fakeLog) States(_ context.Context, channels []string) (map[string]message.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	states := make(map[string]message.State)
	for _, channel := range channels {
		n := int64(len(l.events[channel]))
		states[channel] = message.State{Epoch: "e1", Oldest: 1, Head: n, Count: n}
	}
	return states, nil
}

func (l *fakeLog) Replay(_ context.Context, channel string, after, _ int64, limit, _ int, _ bool) ([]message.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.events[channel][after:]
	return append([]message.Event(nil), all[:min(limit, len(all))]...), nil
}

// logBuffer is a writer that collects log lines. It is safe for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// lines returns the lines logged since its last call, decoded. It fails the test on a line that is
// not a JSON object.
func (b *logBuffer) lines(t *testing.T) []map[string]any {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []map[string]any
	for line := range strings.Lines(b.buf.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Errorf("log line %q: %v", line, err)
			continue
		}
		out = append(out, m)
	}
	b.buf.Reset()
	return out
}

// oneLine waits for a log line and returns it. It fails the test if there are more. The line of a
// failed call is sometimes written just after the response.
func (b *logBuffer) oneLine(t *testing.T) map[string]any {
	t.Helper()
	var all []map[string]any
	testkit.Eventually(t, 5*time.Second, func() error {
		if all = append(all, b.lines(t)...); len(all) == 0 {
			return errors.New("nothing was logged")
		}
		return nil
	})
	if len(all) != 1 {
		t.Errorf("logged %d lines: %v", len(all), all)
	}
	return all[0]
}

// bundle is a complete server of the API on a loopback address, with fakes behind it.
type bundle struct {
	t         *testing.T
	cfg       Config
	messages  *fakeMessages
	channels  *fakeChannels
	access    *fakeAccess
	streams   *fakeStreams
	topics    *fakeTopics
	inspector *fakeInspector
	presence  *fakePresence
	log       *fakeLog
	hub       *fanout.Hub
	revoked   *revocation.List
	revoking  revocationtest.Store // of revoked
	kicks     fakeKicks
	keys      apikeytest.Store
	health    *Health
	logged    *logBuffer
	spans     *tracetest.InMemoryExporter
	server    *http.Server
	addr      string
	token     string
	h2, h1    *http.Client
}

type settings struct {
	cfg   Config
	hub   fanout.Config
	limit limit.Config
	tweak func(*http.Server)
	// A test of queues sets all of these, or none.
	consumers Consumers
	topics    Topics
	producers Producers
	inspector Inspector
}

// testConfig returns limits like those of an empty configuration file.
func testConfig() Config {
	return Config{
		SendReadBytes: 512 << 10, BatchReadBytes: 2 << 20, OtherReadBytes: 64 << 10,
		UnaryTimeout: 30 * time.Second, BodyTimeout: 10 * time.Second, FrameTimeout: 60 * time.Second,
		HeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		HeartbeatInterval: 15 * time.Second, Reflection: true, ChannelsPerStream: 500, HeaderBytes: 16 << 10, ConnectionStreams: 250,
		WatchedUsers: 1000, WatchedChannels: 20,
	}
}

func setup(t *testing.T, change func(*settings)) *bundle {
	t.Helper()
	s := settings{cfg: testConfig(), limit: limit.Config{PerSecond: 1e6, Burst: 1e6}}
	if change != nil {
		change(&s)
	}
	b := &bundle{
		t: t, cfg: s.cfg, messages: &fakeMessages{}, channels: &fakeChannels{}, access: &fakeAccess{}, log: newFakeLog(),
		topics: &fakeTopics{}, inspector: &fakeInspector{}, presence: &fakePresence{},
		logged: &logBuffer{}, spans: tracetest.NewInMemoryExporter(),
	}
	if s.consumers == nil {
		s.consumers, s.topics, s.producers, s.inspector = struct{ Consumers }{}, b.topics, struct{ Producers }{}, b.inspector
	}
	tel, err := telemetry.Setup(t.Context(), telemetry.Config{Output: b.logged, TraceRatio: 1, Spans: b.spans, Level: slog.LevelDebug})
	if err != nil {
		t.Fatal(err)
	}
	s.hub.HeartbeatInterval = s.cfg.HeartbeatInterval
	b.hub = fanout.New(s.hub, b.log, b.log, Encoder{})
	if err := b.hub.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.streams = &fakeStreams{hub: b.hub}
	keys := apikey.New(apikey.Config{Store: &b.keys, Secret: secret})
	verifier, err := authn.New(authn.Config{Secrets: []authn.Secret{{Value: secret}}, Keys: keys, Logger: tel.Logger})
	if err != nil {
		t.Fatal(err)
	}
	if b.revoked, err = revocation.New(revocation.Config{Store: &b.revoking}); err != nil {
		t.Fatal(err)
	}
	lifecycletest.Start(t, b.revoked)
	h, err := NewHandler(s.cfg, Deps{
		Messages: b.messages, Channels: b.channels, Sessions: session.NewService(session.Config{
			Messages: b.messages, Channels: b.channels, Generations: session.NewGenerations(session.GenerationsConfig{}), Secret: secret,
		}), Access: b.access, Hub: b.hub, Streams: b.streams,
		Consumers: s.consumers, Topics: s.topics, Producers: s.producers, Inspector: s.inspector,
		Erasures: fakeErasures{}, APIKeys: keys, PageSecret: secret,
		Presence: b.presence, PresenceCalls: b.presence, Acquaintances: b.presence,
		Epoch: "e1", Info: ServerInfo{Version: "1.2.3", StreamsPerSubject: 11, ConsumersPerSubject: 12},
		Verifier: verifier, Revocations: b.revoked, Kicks: &b.kicks, Limiter: limit.New(s.limit), Settles: limit.New(s.limit), Unread: unread.New(64<<20, 512<<20), Telemetry: tel,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.health = h.Health
	b.server = NewHTTPServer(&s.cfg, h, tel.Logger)
	if s.tweak != nil {
		s.tweak(b.server)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.addr = listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- b.server.Serve(listener) }()
	b.h2, b.h1 = newClient(true), newClient(false)
	b.token = b.mint("ada", everything)
	t.Cleanup(func() {
		lifecycletest.Stop(t, b.hub)
		b.h2.CloseIdleConnections()
		b.h1.CloseIdleConnections()
		if err := b.server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		if err := tel.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return b
}

var everything = []ident.Capability{{
	Pattern: "*", Actions: []ident.Action{ident.Send, ident.History, ident.Subscribe, ident.Moderate, ident.SendAs},
}}

func (b *bundle) mint(subject string, capabilities []ident.Capability) string {
	b.t.Helper()
	token, err := authn.Mint(secret, &ident.Principal{Subject: subject, Channels: capabilities}, time.Hour)
	if err != nil {
		b.t.Fatal(err)
	}
	return token
}

func newClient(h2 bool) *http.Client {
	var p http.Protocols
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	return &http.Client{Transport: &http.Transport{Protocols: &p}}
}

// protocols are the four protocols of clients, each over its usual version of HTTP.
var protocols = []struct {
	name string
	h2   bool
	opts []connect.ClientOption
}{
	{"connect-json", false, []connect.ClientOption{connect.WithProtoJSON()}},
	{"connect-proto", true, nil},
	{"grpc", true, []connect.ClientOption{connect.WithGRPC()}},
	{"grpc-web", false, []connect.ClientOption{connect.WithGRPCWeb()}},
}

func (b *bundle) client(protocol int, token string, more ...connect.ClientOption) parleyv1connect.MessageServiceClient {
	p := protocols[protocol]
	hc := b.h1
	if p.h2 {
		hc = b.h2
	}
	opts := append(append([]connect.ClientOption{}, p.opts...), more...)
	if token != "" {
		opts = append(opts, connect.WithInterceptors(bearer{token}))
	}
	return parleyv1connect.NewMessageServiceClient(hc, b.url(), opts...)
}

func (b *bundle) url() string { return "http://" + b.addr }

// each runs a subtest for every protocol, with a client of it.
func (b *bundle) each(f func(t *testing.T, c parleyv1connect.MessageServiceClient)) {
	for i, p := range protocols {
		b.t.Run(p.name, func(t *testing.T) { f(t, b.client(i, b.token)) })
	}
}

// bearer is a client interceptor that adds a bearer token to calls.
type bearer struct{ token string }

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("Authorization", "Bearer "+b.token)
		return next(ctx, req)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", "Bearer "+b.token)
		return conn
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
