package rpc

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/presence"
)

// fakePresenceStream is a PresenceStream whose frames and end the test sends.
type fakePresenceStream struct {
	id, connection string
	login          presence.Login
	wake           chan struct{}

	mu     sync.Mutex // guards the fields below
	frames []presence.Frame
	end    error
	closed bool
}

func newFakePresenceStream(r *presence.OpenRequest) *fakePresenceStream {
	s := &fakePresenceStream{id: "PRESENCE", wake: make(chan struct{}, 1)}
	if r.Rides != nil {
		s.id = r.Rides.ID
	}
	if !r.Invisible {
		s.connection, s.login = "C1", presence.Login{Device: r.Device, Generation: 77}
	}
	return s
}

func (s *fakePresenceStream) ID() string            { return s.id }
func (s *fakePresenceStream) ConnectionID() string  { return s.connection }
func (s *fakePresenceStream) Login() presence.Login { return s.login }

func (s *fakePresenceStream) Wakeup() <-chan struct{} { return s.wake }

func (s *fakePresenceStream) Poll(time.Time) (f presence.Frame, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.frames) > 0:
		f, s.frames = s.frames[0], s.frames[1:]
		return f, true, nil
	default:
		return f, false, s.end
	}
}

func (s *fakePresenceStream) Next(ctx context.Context) (presence.Frame, error) {
	for {
		if f, ok, err := s.Poll(time.Now()); ok || err != nil {
			return f, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return presence.Frame{}, ctx.Err()
		}
	}
}

func (s *fakePresenceStream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *fakePresenceStream) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *fakePresenceStream) send(frames ...presence.Frame) {
	s.mu.Lock()
	s.frames = append(s.frames, frames...)
	s.mu.Unlock()
	s.awake()
}

func (s *fakePresenceStream) fail(err error) {
	s.mu.Lock()
	s.end = err
	s.mu.Unlock()
	s.awake()
}

func (s *fakePresenceStream) awake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// fakePresence is a Presence, PresenceCalls and Acquaintances that records its calls. Its functions
// may be replaced by the test. Users of whom ada is a stranger begin with `x`.
type fakePresence struct {
	mu      sync.Mutex // guards the fields below
	opened  []*presence.OpenRequest
	streams []*fakePresenceStream
	calls   []string
	first   presence.Update
	// fail is the error of every call; checked is called by Open.
	fail    error
	checked func()
	list    func(after presence.ListPosition, limit int) ([]presence.UserState, presence.ListPosition, error)
	channel *presence.ChannelState
}

func (f *fakePresence) Open(_ context.Context, r *presence.OpenRequest) (PresenceStream, *presence.Update, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = append(f.opened, r)
	if f.fail != nil {
		return nil, nil, f.fail
	}
	if f.checked != nil {
		f.checked()
	}
	s := newFakePresenceStream(r)
	f.streams = append(f.streams, s)
	first := f.first
	return s, &first, nil
}

// stream returns the stream that was opened last.
func (f *fakePresence) stream() *fakePresenceStream {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.streams[len(f.streams)-1]
}

// request returns the last request to Open.
func (f *fakePresence) request() *presence.OpenRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.opened) == 0 {
		return nil
	}
	return f.opened[len(f.opened)-1]
}

func (f *fakePresence) set(change func(f *fakePresence)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// onWeb is the state of every user that fakePresence is asked for.
var onWeb = presence.State(0).With(presence.IOS, false).With(presence.Web, true)

func statesOf(users []string) []presence.UserState {
	states := make([]presence.UserState, len(users))
	for i, id := range users {
		states[i] = presence.UserState{UserID: id, State: onWeb}
	}
	return states
}

func (f *fakePresence) call(parts ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, strings.Join(parts, " "))
	return f.fail
}

// taken returns the recorded calls since the last call of taken.
func (f *fakePresence) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fakePresence) Get(_ context.Context, users []string) ([]presence.UserState, error) {
	return statesOf(users), f.call("get", strings.Join(users, "+"))
}

func (f *fakePresence) List(_ context.Context, after presence.ListPosition, limit int) ([]presence.UserState, presence.ListPosition, error) {
	f.mu.Lock()
	list := f.list
	f.mu.Unlock()
	return list(after, limit)
}

func (f *fakePresence) UpdateWatch(_ context.Context, id, subject string, add, remove []string) ([]presence.UserState, error) {
	return statesOf(add), f.call("watch", id, subject, strings.Join(add, "+"), strings.Join(remove, "-"))
}

func (f *fakePresence) WatchChannel(_ context.Context, id, subject string, ch presence.ChannelRef) (*presence.ChannelState, error) {
	call := "channel"
	if ch.Exempt {
		call = "any channel"
	}
	err := f.call(call, id, subject, ch.ID)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.channel, err
}

func (f *fakePresence) UnwatchChannel(_ context.Context, id, subject, channelID string) error {
	return f.call("unwatch", id, subject, channelID)
}

func (f *fakePresence) SetBackground(_ context.Context, id, subject string, background bool) error {
	return f.call("background", id, subject, map[bool]string{true: "on", false: "off"}[background])
}

func (f *fakePresence) Disconnect(_ context.Context, id, subject string) error {
	return f.call("disconnect", id, subject)
}

func (f *fakePresence) Strangers(_ context.Context, subject string, users []string) ([]string, error) {
	return slices.DeleteFunc(slices.Clone(users), func(id string) bool { return id == subject || !strings.HasPrefix(id, "x") }), nil
}

// present returns a principal with these actions of presence, who may use all channels that begin
// with `room`.
func present(subject string, actions ...ident.Action) *ident.Principal {
	return &ident.Principal{
		Subject: subject, Presence: actions,
		Channels: []ident.Capability{{Pattern: "room*", Actions: []ident.Action{ident.Subscribe}}},
	}
}

func (b *bundle) presenceClient(protocol int, token string) parleyv1connect.PresenceServiceClient {
	hc, url, opts := b.over(protocol, token)
	return parleyv1connect.NewPresenceServiceClient(hc, url, opts...)
}

// eachPresence runs a subtest for every protocol, with a client that may connect and watch.
func (b *bundle) eachPresence(f func(t *testing.T, c parleyv1connect.PresenceServiceClient)) {
	token := b.mintAs(present("ada", ident.Connect, ident.Watch))
	for i, p := range protocols {
		b.t.Run(p.name, func(t *testing.T) { f(t, b.presenceClient(i, token)) })
	}
}
