package parley

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// presenceStream is one stream of a Presence: a Connect stream, or a Subscribe stream that it
// shares. Its fields are guarded by the lock of the Presence.
type presenceStream struct {
	cancel context.CancelCauseFunc
	// ended is closed when the stream ends.
	ended <-chan struct{}
	// answered is closed when the PresenceInfo has arrived.
	answered chan struct{}
	// id is the stream's id, and node its node. They are empty until the PresenceInfo has arrived.
	id   string
	node *endpoint
	// users, channels and background are what the server has been asked for.
	users, channels map[string]bool
	background      bool
	// disconnected is true once the server has ended the presence of the stream on request.
	disconnected bool
}

// loop returns the callbacks of the Connect streams.
func (p *Presence) loop(life context.Context) *streamLoop {
	return &streamLoop{
		name:       "presence",
		connecting: func() { p.setState(StateChange{State: StateConnecting}) },
		follow:     func(ctx context.Context, call *streamCall) error { return p.follow(life, ctx, call) },
		reopenNow:  p.loseRefused,
		waiting: func(end *streamEnd, wait time.Duration) {
			p.setState(StateChange{State: StateWaiting, Err: end.err, Wait: wait, Addr: end.node.name()})
		},
	}
}

// follow opens one Connect stream and handles its frames until it ends.
func (p *Presence) follow(life, ctx context.Context, call *streamCall) error {
	current, req := p.begin(ctx, call.cancel)
	if current == nil {
		return p.awaitStop(life, call)
	}
	incoming, err := call.node.Presence.Connect(ctx, req)
	if err != nil {
		return err
	}
	// The context must end before Close, which would otherwise wait for the server to end the stream.
	defer func() {
		call.cancel(nil)
		_ = incoming.Close()
	}()
	for incoming.Receive() {
		call.Busy()
		frame := incoming.Msg()
		if info := frame.GetInfo(); info != nil && call.liveSince.IsZero() {
			call.Live(info.GetStream().GetHeartbeatInterval().AsDuration())
			p.live(ctx, current, call.node, info.GetStream().GetStreamId(), info.GetPresence())
		}
		if update := frame.GetPresence(); update != nil {
			p.apply(current, update)
		}
		if advice := frame.GetReconnect(); advice != nil {
			call.advice = new(advice.GetWithin().AsDuration())
			return nil
		}
		call.Idle()
	}
	if p.isStopping() {
		return p.awaitStop(life, call)
	}
	return incoming.Err()
}

// awaitStop blocks until the presence has stopped. A stream that ends meanwhile must not be opened
// again, nor count as a failure of its node.
func (*Presence) awaitStop(life context.Context, call *streamCall) error {
	call.Busy()
	<-life.Done()
	return life.Err()
}

func (p *Presence) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}

// begin makes a new stream the current one and returns its request, with everything that is
// watched, or without the channels after a refusal. It returns nil if the presence is stopping. ctx
// ends with the stream.
func (p *Presence) begin(ctx context.Context, cancel context.CancelCauseFunc) (*presenceStream, *parleyv1.ConnectRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return nil, nil
	}
	current := &presenceStream{
		cancel: cancel, ended: ctx.Done(), answered: make(chan struct{}),
		users: make(map[string]bool), channels: make(map[string]bool), background: p.background,
	}
	for id, u := range p.users {
		u.revision, current.users[id] = noRevision, true
	}
	for id, ch := range p.channels {
		ch.begin()
		if !p.bare {
			current.channels[id] = true
		}
	}
	p.stream = current
	return current, p.request(current)
}

// live records that a stream's presence has begun, and asks the server for the changes since the
// stream's request.
func (p *Presence) live(
	ctx context.Context, current *presenceStream, node *endpoint, streamID string, info *parleyv1.PresenceInfo,
) {
	p.mu.Lock()
	if p.stream != current {
		p.mu.Unlock()
		return
	}
	current.id, current.node, p.wasLive, p.connection, p.bare = streamID, node, true, info.GetConnectionId(), false
	if token := info.GetLoginToken(); token != "" {
		p.login = token
	}
	if !isClosed(current.answered) {
		close(current.answered)
	}
	if p.lagging {
		p.setLagging(false)
	}
	late, login := p.nextChange(current) != nil, p.login
	p.mu.Unlock()
	p.apply(current, info.GetPresence())
	p.setState(StateChange{State: StateLive, Addr: node.addr, LoginToken: login})
	if !late {
		return
	}
	p.work.Go(func() {
		err := p.lockChanges(ctx)
		if err == nil {
			err = p.sync(ctx, current, "")
			p.unlockChanges()
		}
		if err != nil {
			current.cancel(err)
		}
	})
}

// loseRefused stops watching the channels for which the server refused a stream because the caller
// is not a member, or the users with whom the caller shares no channel. After another refusal of
// channels it has the next stream begin without channels. It reports whether to open the next
// stream at once. Each time there are fewer users or channels, so this ends.
func (p *Presence) loseRefused(ctx context.Context, end *streamEnd) bool {
	e, ok := errors.AsType[*Error](end.err)
	if !ok {
		return false
	}
	var channels, users int
	switch {
	case errors.Is(e, ErrNotMember):
		channels = p.loseChannels(e)
	case errors.Is(e, ErrNoSharedChannel):
		users = p.loseUsers(e)
	}
	if channels+users == 0 && p.leaveOutChannels(e) {
		p.client.log.WarnContext(ctx, "presence is refused with its channels", "error", e, "addr", end.node.name())
		return true
	}
	if channels+users > 0 {
		p.client.log.WarnContext(ctx, "presence is refused", "channels", channels, "users", users, "addr", end.node.name())
	}
	return channels+users > 0
}

// leaveOutChannels has the next stream begin without channels if e refused a stream because of
// them. It reports whether to open that stream at once: after NODE_FULL it is opened as after any
// such error. Before the first stream was live, only the limits of the server count: the program
// receives any other refusal.
func (p *Presence) leaveOutChannels(e *Error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream == nil || p.stream.id != "" || len(p.stream.channels) == 0 {
		return false
	}
	if errors.Is(e, ErrNodeFull) {
		p.bare = true
		return false
	}
	about := strings.HasPrefix(strings.TrimPrefix(e.Field, "presence."), "watch_channels")
	if !about || e.Retryable || !p.wasLive && !errors.Is(e, ErrLimitExceeded) {
		return false
	}
	p.bare = true
	return true
}

// presenceChange is a change that the server has not been asked for. One of its parts is set.
type presenceChange struct {
	add, remove    []string
	watch, unwatch string
	background     bool
}

// The limits of one UpdateWatch request.
const (
	maxAddUsers    = 500
	maxRemoveUsers = 1000
)

// nextChange returns the next change that the stream needs, or nil. The caller holds the lock.
func (p *Presence) nextChange(current *presenceStream) *presenceChange {
	c := new(presenceChange)
	for id := range p.users {
		if !current.users[id] {
			c.add = append(c.add, id)
		}
	}
	for id := range current.users {
		if p.users[id] == nil {
			c.remove = append(c.remove, id)
		}
	}
	if len(c.add)+len(c.remove) > 0 {
		slices.Sort(c.add)
		slices.Sort(c.remove)
		c.add, c.remove = c.add[:min(len(c.add), maxAddUsers)], c.remove[:min(len(c.remove), maxRemoveUsers)]
		return c
	}
	for _, id := range slices.Sorted(maps.Keys(current.channels)) {
		if p.channels[id] == nil {
			return &presenceChange{unwatch: id}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.channels)) {
		if !current.channels[id] {
			return &presenceChange{watch: id}
		}
	}
	if current.background != p.background && !p.invisible {
		return &presenceChange{background: true}
	}
	return nil
}

// sync asks the server for all changes that the stream needs. A change that the server did not make
// and may make later is repeated while the stream lives. If it is unknown whether a change arrived,
// or the stream has ended, sync makes the presence open a new stream with everything, and returns
// nil. It returns the error of a change that the server refuses, and that of ctx or of the presence
// if one of them ends before the change was made. But channels that the server refuses are lost,
// except for the channel asked, which a call is about to watch. The caller holds the change lock.
func (p *Presence) sync(ctx context.Context, current *presenceStream, asked string) error {
	for {
		p.mu.Lock()
		var change *presenceChange
		if current != nil && p.stream == current && current.id != "" {
			change = p.nextChange(current)
		}
		p.mu.Unlock()
		if change == nil {
			return nil
		}
		err := p.ask(ctx, current, change)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			// The stream may have been left because it is unknown whether the change arrived.
			if !errors.Is(err, ctx.Err()) {
				err = ctx.Err()
			}
			return err
		case isClosed(current.ended):
			return p.endOfStop(ctx)
		case errors.Is(err, ErrStreamNotFound):
			current.cancel(errRewatch)
			return nil
		case change.watch == "":
			return err
		case change.watch != asked:
			p.mu.Lock()
			p.lose(watchKey{PresenceChannelLost, change.watch}, err)
			p.mu.Unlock()
		case errors.Is(err, ErrNodeFull) && p.client.endpoints.hasSpare(current.node):
			// The next stream begins on another node, with the channel.
			current.cancel(err)
			return nil
		default:
			return err
		}
	}
}

// endOfStop returns nil, or the error of the presence if it was closed or its context has ended.
func (p *Presence) endOfStop(ctx context.Context) error {
	if !p.isStopping() {
		return nil
	}
	select {
	case <-p.done:
		return p.Err()
	case <-ctx.Done(): // of a change that run waits for
		return ctx.Err()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// uncertain reports whether a change that failed may have been made.
func uncertain(err error) bool {
	e, ok := errors.AsType[*Error](toError(err))
	if !ok || e.unanswered {
		return true
	}
	switch e.Reason {
	case parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED, parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN,
		parleyv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED, parleyv1.ErrorReason_ERROR_REASON_INTERNAL:
		return e.Retryable
	default:
		return false
	}
}

// errRewatch is the reason for which a presence leaves a stream on its own.
var errRewatch = &Error{Code: connect.CodeAborted, Retryable: true, Message: "a change of watched users may not have arrived"}
