// Package parleytest provides a Parley server in memory, for tests of programs that use the SDK and
// of the SDK itself. It implements the contracts of parley.v1.MessageService (dense logs,
// idempotent calls, replay, positions) and of PresenceService, with the login policy that allows
// all devices. It also implements QueueService, and of AdminService the parts that programs
// use: AddTopic creates a topic, a nacked message without a delay is delivered again at once, and
// topics keep their messages until TrimTopic.
//
// It fails on request: calls that are refused or whose answers are lost, streams that break, fall
// silent, repeat or skip frames, tokens that expire, a server that is killed and restarted, or that
// freezes without closing its connections. StartFleet starts several nodes that share their
// channels.
//
// It is for tests only: nothing is durable. Every token is accepted unless SetTokens restricts
// them. It belongs to the user `tester`, unless SetUser sets another one, and has every capability,
// unless SetActions limits it. Users that are not members cannot use members-only channels, unless
// their token has the action manage.
//
// The tests in servicetest compare its behaviour with that of the real server. Unsupported lists
// the calls that it does not implement.
package parleytest

import (
	"context"
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

// Fault describes how a call fails.
type Fault struct {
	// Err is returned to the client instead of the answer, unless Drop is set.
	Err error
	// Drop resets the HTTP stream instead of answering.
	Drop bool
	// Applied executes the call before it fails, so that only its answer is lost. It has no effect on
	// the opening of a stream.
	Applied bool
}

// Server is a Parley server in memory: a single one, or a node of a fleet. All methods are safe for
// concurrent use.
type Server struct {
	*shared

	tb   testing.TB
	addr string
	gate *gate

	// The fields below are guarded by shared.mu.

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

// shared is the common state of the nodes of a fleet: their stores and streams.
type shared struct {
	mu       sync.Mutex // guards the fields below, and those of the nodes
	channels map[string]*log
	// streams are the live Subscribe and Connect streams, by id.
	streams map[string]*stream
	// absent are the platforms of users whose streams ended less than offlineAfter ago.
	absent       map[device]absence
	offlineAfter time.Duration
	// logins maps login tokens to their users, and kicked those of ended logins to what ended them.
	logins map[string]string
	kicked map[string]*parleyv1.Kick
	// strangers contains the users whom a user may not watch.
	strangers map[string][]string
	// lagging is what SetLagging set.
	lagging bool
	// topics are the queues' topics. sessions are the sessions of their groups' consumers by id, and
	// ended are those that have ended.
	topics          map[string]*topic
	sessions, ended map[string]*session
	tokens          map[string]bool
	// revoked are the tokens whose users have signed out.
	revoked map[string]bool
	users   map[string]string
	// actions contains the actions of limited tokens, by token. Other tokens have all actions.
	actions map[string][]string
	changed chan struct{}
	minted  int
}

// Start starts a server on a free port of the loopback interface. The server ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	return StartFleet(tb, 1)[0]
}

// StartFleet starts n servers that share channels, members, tokens and streams, like the nodes of a
// fleet. Faults, silence and the death of one server do not affect the other servers. Addrs returns
// their addresses.
func StartFleet(tb testing.TB, n int) []*Server {
	tb.Helper()
	common := &shared{
		channels: make(map[string]*log), streams: make(map[string]*stream), users: make(map[string]string),
		actions: make(map[string][]string), offlineAfter: time.Second,
		absent: make(map[device]absence), logins: make(map[string]string), kicked: make(map[string]*parleyv1.Kick),
		strangers: make(map[string][]string),
		topics:    make(map[string]*topic), sessions: make(map[string]*session), ended: make(map[string]*session),
		changed: make(chan struct{}),
	}
	fleet := make([]*Server, n)
	for i := range fleet {
		fleet[i] = start(tb, common)
	}
	return fleet
}

// Addrs returns the addresses of several servers, separated by commas, for parley.New.
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

// Addr returns the server's host and port. Kill and Restart do not change it.
func (s *Server) Addr() string { return s.addr }

func (s *Server) serve(listener net.Listener) {
	mux := http.NewServeMux()
	mux.Handle(parleyv1connect.NewMessageServiceHandler(handler{s: s}, connect.WithInterceptors(s.interceptor())))
	mux.Handle(parleyv1connect.NewQueueServiceHandler(queueHandler{s: s}, connect.WithInterceptors(s.interceptor())))
	mux.Handle(parleyv1connect.NewAdminServiceHandler(adminHandler{s: s}, connect.WithInterceptors(s.interceptor())))
	mux.Handle(parleyv1connect.NewPresenceServiceHandler(presenceHandler{s: s}, connect.WithInterceptors(s.interceptor())))
	mux.Handle(parleyv1connect.NewServerServiceHandler(serverHandler{s: s}, connect.WithInterceptors(s.interceptor())))
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

// Kill closes all connections of this server and stops listening. Messages and all other data are
// kept for Restart.
func (s *Server) Kill() {
	s.mu.Lock()
	server, served := s.http, s.served
	for _, one := range s.streams {
		if one.node == s {
			s.dropLocked(one)
		}
	}
	s.mu.Unlock()
	_ = server.Close()
	<-served
}

// Freeze stops the server without closing anything, like SIGSTOP or a cut cable: connections stay
// open and new ones are accepted, but nothing is read or written until Thaw.
func (s *Server) Freeze() { s.gate.close() }

// Thaw ends Freeze.
func (s *Server) Thaw() { s.gate.open() }

// Restart makes a killed server listen again, on the same port. It fails the test if the port stays
// taken.
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

// SetUser sets the user that a token belongs to.
func (s *Server) SetUser(token, userID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[token] = userID
}

// SetPageSize limits the pages of this server's lists of members and channels to n. 0 means no
// limit.
func (s *Server) SetPageSize(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pageSize = n
}

// Fault sets the function that decides which calls fail. Without a function, and when it returns
// nil, calls succeed. method is the name of the call, for example SendMessage. For each item of a
// batch the function is called again, with SendMessages/<client_msg_id> or Produce/<payload>. It
// must not call methods of the Server, which is locked meanwhile.
func (s *Server) Fault(f func(method string, req proto.Message) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// FaultTimes makes the next n calls of a method fail with fault. It replaces the function that
// Fault set.
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

// SetTokens sets the accepted tokens. Calls with other tokens fail with TOKEN_EXPIRED, and live
// streams with other tokens end with it. Without arguments every token is accepted.
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
	for _, one := range s.streams {
		if s.tokens != nil && !s.tokens[one.token] {
			one.end = &end{err: Error(connect.CodeUnauthenticated, parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED)}
		}
	}
	for _, one := range s.sessions {
		if one.stream != nil && s.tokens != nil && !s.tokens[one.stream.token] {
			one.stream.end = &end{err: Error(connect.CodeUnauthenticated, parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED)}
		}
	}
	s.wakeLocked()
}

// SetHeartbeat sets the heartbeat interval of new streams of this server. The default is 15 s. For
// streams of queues it is at most a quarter of the group's resume grace.
func (s *Server) SetHeartbeat(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heartbeat = d
}

// SetSilent makes streams of this server send nothing, not even heartbeats, without ending, until
// it is called with false.
func (s *Server) SetSilent(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = on
	s.wakeLocked()
}

// SetRepeat makes Subscribe and Connect streams of this server send each frame of events and of
// presence twice.
func (s *Server) SetRepeat(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repeat = on
}

// EndStreams ends all live Subscribe and Connect streams of this server with err, or resets them if
// err is nil.
func (s *Server) EndStreams(err error) {
	s.endStreams(end{err: err, drop: err == nil})
}

// Advise ends all live Subscribe and Connect streams of this server with the advice to reconnect
// within a time.
func (s *Server) Advise(within time.Duration) {
	s.endStreams(end{advice: &parleyv1.Reconnect{Within: durationpb.New(within)}})
}

func (s *Server) endStreams(e end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.streams {
		if one.node == s {
			one.end = &e
		}
	}
	s.wakeLocked()
}

// Streams returns the number of live Subscribe streams on this server.
func (s *Server) Streams() int { return s.count(func(one *stream) bool { return !one.connect }) }

// PresenceStreams returns the number of live Connect streams on this server, and of Subscribe
// streams with presence.
func (s *Server) PresenceStreams() int {
	return s.count(func(one *stream) bool { return one.presence != nil })
}

// LiveStreams returns the number of live Subscribe and Connect streams on this server.
func (s *Server) LiveStreams() int { return s.count(func(*stream) bool { return true }) }

func (s *Server) count(counts func(one *stream) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.streams {
		if one.node == s && counts(one) {
			n++
		}
	}
	return n
}

// Connections returns the number of connections that the server has accepted since Start.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// Requests returns copies of all requests that this server has received, in order, including those
// that it refused. Calls of Unsupported methods are left out.
func (s *Server) Requests() []proto.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]proto.Message(nil), s.requests...)
}

// RequestsOf returns those of the server's Requests that are of type T.
func RequestsOf[T proto.Message](s *Server) []T {
	var all []T
	for _, r := range s.Requests() {
		if one, ok := r.(T); ok {
			all = append(all, one)
		}
	}
	return all
}

// Tokens returns the token of each request, in the order of Requests.
func (s *Server) Tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.auths...)
}

// wakeLocked wakes all streams, which then check for work.
func (s *shared) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// begin records a call. It returns the call's fault, or nil. If the token is not accepted, it
// returns the error for that.
func (s *Server) begin(method, token string, req proto.Message) (*Fault, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, proto.Clone(req))
	s.auths = append(s.auths, token)
	if s.revoked[token] {
		return nil, errRevoked()
	}
	if s.tokens != nil && !s.tokens[token] {
		return nil, Error(connect.CodeUnauthenticated, parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED)
	}
	var fault *Fault // none
	if s.fault != nil {
		fault = s.fault(method, req)
	}
	return fault, nil
}

// Error returns an error like Parley's own, with a detail that contains the reason and whether it
// is retryable.
func Error(code connect.Code, reason parleyv1.ErrorReason) *connect.Error {
	return ErrorDetail(code, &parleyv1.ErrorDetail{Reason: reason, Retryable: reason >= 100, RequestId: requestID})
}

// ErrorDetail returns an error with a detail.
func ErrorDetail(code connect.Code, detail *parleyv1.ErrorDetail) *connect.Error {
	err := connect.NewError(code, nil)
	if d, derr := connect.NewErrorDetail(detail); derr == nil {
		err.AddDetail(d)
	}
	return err
}

// invalidField returns the error for an invalid field.
func invalidField(field string, limit int64) error {
	return errorAt(connect.CodeInvalidArgument, parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD, field, limit)
}

// errorAt returns an error whose detail names a field of the request and its limit. A limit of 0
// means none.
func errorAt(code connect.Code, reason parleyv1.ErrorReason, field string, limit int64) *connect.Error {
	return ErrorDetail(code, &parleyv1.ErrorDetail{
		Reason: reason, Retryable: reason >= 100, Field: field, Limit: limit, RequestId: requestID,
	})
}

// requestID is the request id in the details of all errors that the server makes itself.
const requestID = "test-request"

type tokenKey struct{}

// userLocked returns the user of a call.
func (s *shared) userLocked(ctx context.Context) string {
	if user := s.users[tokenOf(ctx)]; user != "" {
		return user
	}
	return defaultUser
}

// defaultUser is the user of a token without SetUser.
const defaultUser = "tester"

func tokenOf(ctx context.Context) string {
	token, _ := ctx.Value(tokenKey{}).(string)
	return token
}
