// Package parleytest has a Parley server in memory, for tests of programs that use the SDK and of the SDK itself. It
// keeps to the contract of parley.v1.MessageService (dense logs, idempotent sends, replay, positions), and of QueueService
// as far as programs see it (AddTopic makes a topic; a message given back comes again at once), and fails on
// request: calls that are refused or whose answers are lost, streams that break, fall silent, repeat or skip frames,
// tokens that expire, a server that is killed and comes back, or stops without a word. StartFleet starts several nodes
// that share their channels.
//
// It is no server for use: nothing is durable, nothing is validated beyond what tests need, and any token will do unless
// the test says which. Every token is the user `tester`, unless SetUser says otherwise, and may do everything; who is not
// a member is kept out of members-only channels all the same.
package parleytest

import (
	"context"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// Fault is what becomes of a call.
type Fault struct {
	// Err is what the client gets instead of the answer.
	Err error
	// Drop breaks the connection's stream instead of answering.
	Drop bool
	// Applied lets the call do its work first: the answer is what gets lost.
	Applied bool
}

// Server is a Parley server in memory: one alone, or a node of a fleet. All methods are safe for concurrent use.
type Server struct {
	*shared

	tb   testing.TB
	addr string
	gate *gate

	// What follows is guarded by the lock of shared.

	http     *http.Server
	served   chan struct{}
	fault    func(method string, req proto.Message) *Fault
	requests []proto.Message
	auths    []string

	heartbeat time.Duration
	silent    bool
	repeat    bool
	perFrame  int
	pageSize  int
	conns     int
}

// shared is what the nodes of a fleet have in common: their stores, and their knowledge of each other's streams.
type shared struct {
	mu       sync.Mutex // guards what follows, and the nodes
	channels map[string]*log
	sessions map[string]*session
	// topics are the queues', and consumers the streams of their groups.
	topics    map[string]*topic
	consumers map[string]*consumer
	tokens    map[string]bool
	users     map[string]string
	changed   chan struct{}
	minted    int
}

// Start starts a server on a free port of the loopback interface. It ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	return StartFleet(tb, 1)[0]
}

// StartFleet starts n servers that share channels, members, tokens and sessions, as the nodes of a fleet do. What a test
// asks of one (faults, silence, its death) concerns that one only. Addrs gives their addresses.
func StartFleet(tb testing.TB, n int) []*Server {
	tb.Helper()
	common := &shared{
		channels: make(map[string]*log), sessions: make(map[string]*session), users: make(map[string]string),
		topics: make(map[string]*topic), consumers: make(map[string]*consumer), changed: make(chan struct{}),
	}
	fleet := make([]*Server, n)
	for i := range fleet {
		fleet[i] = start(tb, common)
	}
	return fleet
}

// Addrs gives the addresses of several servers as one, with commas, which is what parley.New takes.
func Addrs(fleet ...*Server) string {
	addrs := make([]string, len(fleet))
	for i, s := range fleet {
		addrs[i] = s.addr
	}
	return strings.Join(addrs, ",")
}

func start(tb testing.TB, common *shared) *Server {
	tb.Helper()
	s := &Server{shared: common, tb: tb, gate: newGate(), heartbeat: 15 * time.Second, perFrame: 3}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	s.addr = listener.Addr().String()
	s.serve(listener)
	tb.Cleanup(s.Kill)
	return s
}

// Addr is the server's host and port. It stays the same through Kill and Restart.
func (s *Server) Addr() string { return s.addr }

func (s *Server) serve(listener net.Listener) {
	mux := http.NewServeMux()
	mux.Handle(parleyv1connect.NewMessageServiceHandler(handler{s: s}, connect.WithInterceptors(s.interceptor())))
	mux.Handle(parleyv1connect.NewQueueServiceHandler(queueHandler{s: s}, connect.WithInterceptors(s.interceptor())))
	mux.Handle(parleyv1connect.NewAdminServiceHandler(adminHandler{s: s}, connect.WithInterceptors(s.interceptor())))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: 5 * time.Second}
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.conns++
		}
	}
	served := make(chan struct{})
	s.mu.Lock()
	s.http, s.served = server, served
	s.mu.Unlock()
	go func() {
		defer close(served)
		_ = server.Serve(gatedListener{listener, s.gate})
	}()
}

// Kill cuts all connections and stops listening. What was acknowledged is kept.
func (s *Server) Kill() {
	s.mu.Lock()
	server, served := s.http, s.served
	maps.DeleteFunc(s.sessions, func(_ string, one *session) bool { return one.node == s })
	maps.DeleteFunc(s.consumers, func(_ string, one *consumer) bool { return one.node == s })
	s.mu.Unlock()
	_ = server.Close()
	<-served
}

// Freeze stops the server without a word, as SIGSTOP or a cut cable does: connections stay, and new ones are taken, but
// nothing that comes in is read and nothing goes out, until Thaw.
func (s *Server) Freeze() { s.gate.close() }

// Thaw ends Freeze.
func (s *Server) Thaw() { s.gate.open() }

// Restart makes a killed server listen again, on the same port.
func (s *Server) Restart() {
	s.tb.Helper()
	var listener net.Listener
	var err error
	for range 50 {
		if listener, err = net.Listen("tcp", s.addr); err == nil {
			s.serve(listener)
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	s.tb.Fatalf("listen again: %v", err)
}

// SetUser says which user a token is of.
func (s *Server) SetUser(token, userID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[token] = userID
}

// SetPageSize bounds the pages of this server's lists of members and channels.
func (s *Server) SetPageSize(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pageSize = n
}

// Fault sets what decides each call's fate; nil, and a function that gives nil, let calls pass. The method is the bare
// name, as SendMessage; for each item of a batch the function is asked again, with SendMessages/<client_msg_id>. It must
// not call the server.
func (s *Server) Fault(f func(method string, req proto.Message) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// FaultTimes makes the next n calls of a method fail.
func (s *Server) FaultTimes(n int, method string, fault Fault) {
	var mu sync.Mutex
	s.Fault(func(m string, _ proto.Message) *Fault {
		mu.Lock()
		defer mu.Unlock()
		if m != method || n == 0 {
			return nil
		}
		n--
		return &fault
	})
}

// SetTokens sets which tokens are good; others are refused as expired. Live streams of others end. None means that all
// are good.
func (s *Server) SetTokens(tokens ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = nil
	if len(tokens) > 0 {
		s.tokens = make(map[string]bool)
	}
	for _, t := range tokens {
		s.tokens[t] = true
	}
	for _, one := range s.sessions {
		if s.tokens != nil && !s.tokens[one.token] {
			one.end = &end{err: Error(connect.CodeUnauthenticated, parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED)}
		}
	}
	s.wakeLocked()
}

// SetHeartbeat sets the interval that streams begun from now on are told.
func (s *Server) SetHeartbeat(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heartbeat = d
}

// SetSilent makes streams send nothing more, heartbeats included, without ending.
func (s *Server) SetSilent(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = on
	s.wakeLocked()
}

// SetRepeat makes streams send each frame twice.
func (s *Server) SetRepeat(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repeat = on
}

// EndStreams ends all live streams of this server: with err, or broken off where that is nil.
func (s *Server) EndStreams(err error) {
	s.endStreams(end{err: err, drop: err == nil})
}

// Advise ends all live streams of this server with the advice to reconnect.
func (s *Server) Advise(within time.Duration) {
	s.endStreams(end{advice: &parleyv1.Reconnect{Within: durationpb.New(within)}})
}

func (s *Server) endStreams(e end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessions {
		if one.node == s {
			one.end = &e
		}
	}
	s.wakeLocked()
}

// Streams is how many streams are live on this server.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.sessions {
		if one.node == s {
			n++
		}
	}
	return n
}

// Connections is how many connections were ever made.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// Requests gives a copy of all requests that have come in, in order.
func (s *Server) Requests() []proto.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]proto.Message(nil), s.requests...)
}

// RequestsOf gives those of the server's Requests that are of one type.
func RequestsOf[T proto.Message](s *Server) []T {
	var all []T
	for _, r := range s.Requests() {
		if one, ok := r.(T); ok {
			all = append(all, one)
		}
	}
	return all
}

// Tokens gives the token of each request, in the order of Requests.
func (s *Server) Tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.auths...)
}

// wakeLocked tells all streams to look again.
func (s *shared) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// begin records a call and decides its fate.
func (s *Server) begin(method, token string, req proto.Message) (*Fault, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, proto.Clone(req))
	s.auths = append(s.auths, token)
	if s.tokens != nil && !s.tokens[token] {
		return nil, Error(connect.CodeUnauthenticated, parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED)
	}
	var fault *Fault // none
	if s.fault != nil {
		fault = s.fault(method, req)
	}
	return fault, nil
}

// Error makes an error as Parley's: with a detail that holds the reason.
func Error(code connect.Code, reason parleyv1.ErrorReason) *connect.Error {
	return ErrorDetail(code, &parleyv1.ErrorDetail{Reason: reason, Retryable: reason >= 100, RequestId: "test-request"})
}

// ErrorDetail makes an error with a detail.
func ErrorDetail(code connect.Code, detail *parleyv1.ErrorDetail) *connect.Error {
	err := connect.NewError(code, nil)
	if d, derr := connect.NewErrorDetail(detail); derr == nil {
		err.AddDetail(d)
	}
	return err
}

type tokenKey struct{}

// userLocked is who makes a call.
func (s *shared) userLocked(ctx context.Context) string {
	if user := s.users[tokenOf(ctx)]; user != "" {
		return user
	}
	return defaultUser
}

// defaultUser is who a token is of where the test does not say.
const defaultUser = "tester"

func tokenOf(ctx context.Context) string {
	token, _ := ctx.Value(tokenKey{}).(string)
	return token
}
