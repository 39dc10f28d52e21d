package presence

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/stream"
)

// The limits of an Update.
const (
	maxUpdateUsers  = 500
	maxUpdateStates = 1000
)

// ridingHeartbeat is the heartbeat interval of streams that send no heartbeats: their timer fires
// so often at most.
const ridingHeartbeat = 24 * time.Hour

// Stream is the presence part of a client's stream: the states of the users and channels that it
// watches. States that wait for the reader are merged, so a slow reader is never ended. One
// goroutine may call Next or Poll; the other methods may be called concurrently.
type Stream struct {
	connectionID string
	login        Login
	conn         *conn // nil if the stream is invisible
	// rides is set for the presence of a stream of another kind, which sends heartbeats itself.
	rides bool

	// edit is held while the set of watched users or channels changes. It is locked before any other
	// lock.
	edit sync.Mutex
	// forgotten is set once nothing may be watched any more. edit guards it.
	forgotten bool

	// mu guards the fields below.
	mu   sync.Mutex
	core stream.Core
	// reconnectWithin is the time in the advice to reconnect that a draining stream sends.
	// reconnectSent is set once the advice was returned.
	reconnectWithin time.Duration
	reconnectSent   bool
	// users holds the watched users and the state that was sent last, with the bit sent; 0 if none
	// was.
	users map[string]State
	// pending holds the states of watched users that wait for the reader; nil if there are none.
	pending map[string]pendingState
	// channels holds the watched channels, and changed those of them that have something to send.
	channels map[string]*channelSub
	changed  map[string]struct{}
	// lost holds the last states of channels that the stream has lost, until they are sent. Together
	// with channels it has up to Config.MaxChannels.
	lost map[string]lostChannel
	// shards are those of the watched users.
	shards shardSet
	// lagging is whether the states may be old, laggingSent what the client knows of it.
	lagging, laggingSent bool
}

// sent is a bit of a State that has no meaning there.
const sent State = 1

type pendingState struct {
	state    State
	revision int64
}

// Frame is the next item of a stream. Exactly one field is set.
type Frame struct {
	// Update is a change of what is watched.
	Update *Update
	// Heartbeat is set if no frame was sent for Config.HeartbeatInterval.
	Heartbeat bool
	// Reconnect advises the client to connect again after a random time of up to Reconnect. It is set
	// only on the last frame of a draining stream.
	Reconnect time.Duration
}

// Update is states that have changed. It has up to 500 users, and up to 1,000 users of channels
// unless one channel has more.
type Update struct {
	Users    []UserState
	Channels []ChannelState
	// Lagging reports whether the states that were sent may be older than 5 s; nil if that has not
	// changed.
	Lagging *bool
}

// newStream returns a stream that watches nothing. heartbeat is the maximum time without a frame; a
// stream that rides sends no heartbeats.
func newStream(id stream.Identity, heartbeat time.Duration, rides bool) *Stream {
	if rides {
		heartbeat = ridingHeartbeat
	}
	s := &Stream{rides: rides, users: map[string]State{}, channels: map[string]*channelSub{}}
	s.core = stream.NewCore(id, heartbeat, &s.mu, nil)
	return s
}

// ID returns the stream's id; see stream.Identity.
func (s *Stream) ID() string { return s.core.ID }

// ConnectionID returns the id of the stream's connection; empty if the stream is invisible.
func (s *Stream) ConnectionID() string { return s.connectionID }

// Login returns the login of the stream's connection; zero if the stream is invisible.
func (s *Stream) Login() Login { return s.login }

// Next waits for the next frame. At the end of the stream the error is io.EOF after Disconnect, or
// a fault: SHUTTING_DOWN, TOKEN_EXPIRED or KICKED, or STREAM_NOT_FOUND after Close. If ctx ends,
// Next returns ctx's error and may be called again.
func (s *Stream) Next(ctx context.Context) (Frame, error) {
	for {
		if f, ok, err := s.Poll(time.Now()); ok || err != nil {
			return f, err
		}
		select {
		case <-s.core.Wakeup():
		case <-ctx.Done():
			return Frame{}, ctx.Err()
		}
	}
}

// Poll returns the next frame like Next, but does not block: ok is false if there is none yet. Then
// Wakeup becomes ready when Poll is to be called again.
func (s *Stream) Poll(now time.Time) (f Frame, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Expired(now) {
		s.core.End(stream.TokenExpired())
	}
	switch {
	case s.core.Ended():
		return Frame{}, false, s.endError()
	case len(s.pending) > 0 || len(s.changed) > 0 || len(s.lost) > 0 || s.lagging != s.laggingSent:
		f = Frame{Update: s.take()}
	case s.core.State() == stream.Draining && s.reconnectSent:
		s.core.End(s.core.Cause())
		return Frame{}, false, s.endError()
	case s.core.State() == stream.Draining:
		s.reconnectSent = true
		f = Frame{Reconnect: s.reconnectWithin}
	case !s.rides && s.core.HeartbeatDue(now):
		f = Frame{Heartbeat: true}
	default:
		s.core.Await(now)
		return Frame{}, false, nil
	}
	s.core.Sent(now)
	return f, true, nil
}

// Wakeup returns the channel that becomes ready when Poll is to be called again. It may be ready
// although there is nothing to do.
func (s *Stream) Wakeup() <-chan struct{} { return s.core.Wakeup() }

// take removes pending states and returns them. The caller holds s.mu.
func (s *Stream) take() *Update {
	u := &Update{}
	if s.lagging != s.laggingSent {
		lagging := s.lagging
		u.Lagging, s.laggingSent = &lagging, lagging
	}
	if n := min(len(s.pending), maxUpdateUsers); n > 0 {
		u.Users = make([]UserState, 0, n)
	}
	for userID, p := range s.pending {
		if len(u.Users) == maxUpdateUsers {
			break
		}
		delete(s.pending, userID)
		s.users[userID] = p.state | sent
		u.Users = append(u.Users, UserState{UserID: userID, State: p.state, Revision: p.revision})
	}
	if len(s.pending) == 0 {
		s.pending = nil // it has the capacity of the largest burst
	}
	s.takeChannels(u)
	return u
}

// deliver queues the state of a watched user, in the place of an older one.
func (s *Stream) deliver(u UserState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.users[u.UserID]
	if !ok || s.core.Ended() {
		return
	}
	if last == u.State|sent {
		delete(s.pending, u.UserID)
		return
	}
	if s.pending == nil {
		s.pending = map[string]pendingState{}
	}
	s.pending[u.UserID] = pendingState{u.State, u.Revision}
	s.core.Wake()
}

// answered records that an answer has the state of a user, so that the stream does not send it as
// well.
func (s *Stream) answered(u UserState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.users[u.UserID]; !ok {
		return
	}
	s.users[u.UserID] = u.State | sent
	delete(s.pending, u.UserID)
}

// setLagging sets whether the stream's states may be older than 5 s.
func (s *Stream) setLagging(lagging bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lagging != lagging {
		s.lagging = lagging
		s.core.Wake()
	}
}

// drain lets Next return the pending states and the advice to reconnect, and then ends the stream.
// It reports false if the stream was not live.
func (s *Stream) drain(within time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.State() != stream.Live {
		return false
	}
	s.core.Drain(stream.ShuttingDown())
	s.reconnectWithin = within
	s.core.Wake()
	return true
}

// end ends the stream. It reports false if the stream had ended before.
func (s *Stream) end(cause *fault.Error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.End(cause)
}

// ended reports whether the stream has ended, even if Next has not returned the end yet.
func (s *Stream) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Ended()
}

// failure returns why the stream has ended; nil if it has not, or on purpose.
func (s *Stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cause := s.core.Cause(); s.core.Ended() && cause != nil {
		return cause
	}
	return nil
}

// endError returns the error of a stream that has ended: its cause, or io.EOF after Disconnect. The
// caller holds s.mu.
func (s *Stream) endError() error {
	if cause := s.core.Cause(); cause != nil {
		return cause
	}
	return io.EOF
}

// refusal returns why the stream may not watch more; nil if it may. The caller holds s.edit.
func (s *Stream) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.forgotten || s.core.Ended():
		return stream.NotFound()
	case s.core.State() == stream.Draining:
		return stream.ShuttingDown()
	default:
		return nil
	}
}
