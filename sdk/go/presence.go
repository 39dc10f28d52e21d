package parley

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Platform is the kind of system that a device runs.
type Platform = parleyv1.Platform

// The platforms.
const (
	PlatformIOS           = parleyv1.Platform_PLATFORM_IOS
	PlatformAndroid       = parleyv1.Platform_PLATFORM_ANDROID
	PlatformIPadOS        = parleyv1.Platform_PLATFORM_IPADOS
	PlatformAndroidTablet = parleyv1.Platform_PLATFORM_ANDROID_TABLET
	PlatformWindows       = parleyv1.Platform_PLATFORM_WINDOWS
	PlatformMacOS         = parleyv1.Platform_PLATFORM_MACOS
	PlatformLinux         = parleyv1.Platform_PLATFORM_LINUX
	PlatformWeb           = parleyv1.Platform_PLATFORM_WEB
	PlatformOther         = parleyv1.Platform_PLATFORM_OTHER
)

// UserPresence is the presence of a user: the platforms on which they are online, in ascending
// order, or none if they are offline. The proto file describes the fields. Its revision is always
// 0: states are returned in order.
type UserPresence = parleyv1.UserPresence

// ChannelPresence is which members of a channel are online. The proto file describes the fields. It
// is always the whole state: Complete is true and Online has every member that is online, ordered
// by user id, unless the channel has more than 1,000 members. Then Complete is false and Online is
// empty. Changed and Revision are not used.
type ChannelPresence = parleyv1.ChannelPresence

// Kick describes what ended a login or a stream. The proto file describes the fields.
type Kick = parleyv1.Kick

// KickCause is why a login or a stream ended. A server may send other causes than these.
type KickCause = parleyv1.KickCause

// The causes.
const (
	// KickLogin means that a newer login of the user won under the server's login policy.
	KickLogin = parleyv1.KickCause_KICK_CAUSE_LOGIN
	// KickReplaced means that the same login has a newer connection.
	KickReplaced = parleyv1.KickCause_KICK_CAUSE_REPLACED
	// KickAdmin means that an operator ended the stream. Kick.Reason says why.
	KickAdmin = parleyv1.KickCause_KICK_CAUSE_ADMIN
)

// PresenceEventKind is the kind of a PresenceEvent.
type PresenceEventKind int

// The kinds.
const (
	// PresenceOfUser is the state of a watched user.
	PresenceOfUser PresenceEventKind = iota + 1
	// PresenceOfChannel is the state of a watched channel.
	PresenceOfChannel
	// PresenceChannelLost means that a channel is no longer watched: the caller is no longer a member,
	// the channel has too many members, or the server refused the channel when a stream began. The
	// presence continues without it. To watch it again, call WatchChannel.
	PresenceChannelLost
	// PresenceUserLost means that the server refused a watched user when the presence reconnected,
	// because the caller no longer shares a channel with them. The presence continues without the
	// user. To watch them again, call Watch.
	PresenceUserLost
	// PresenceLagging means that the states may be older than 5 s, because the server cannot read
	// them, or that they are current again.
	PresenceLagging
)

// String returns the kind's name in lower case.
func (k PresenceEventKind) String() string {
	switch k {
	case PresenceOfUser:
		return "user"
	case PresenceOfChannel:
		return "channel"
	case PresenceChannelLost:
		return "channel_lost"
	case PresenceUserLost:
		return "user_lost"
	case PresenceLagging:
		return "lagging"
	default:
		return "unknown"
	}
}

// PresenceEvent is a state that has changed. Its contents must not be modified.
type PresenceEvent struct {
	Kind PresenceEventKind
	// User is set for PresenceOfUser. For PresenceUserLost it has only the id.
	User *UserPresence
	// Channel is set for PresenceOfChannel. For PresenceChannelLost it has only the id.
	Channel *ChannelPresence
	// Lagging is, for PresenceLagging, whether the states may be old.
	Lagging bool
	// Err is, for PresenceChannelLost and PresenceUserLost, the *Error with which the server refused
	// the channel or the user: for example ErrNotMember, or ErrLimitExceeded for more channels than
	// the server allows. While a stream is live, it is ErrLimitExceeded or ErrNodeFull if the members
	// of a channel have become too many, and nil if the membership ended.
	Err error
}

// Device identifies a device of the client's user.
type Device struct {
	Platform Platform
	// ID identifies the device or the installation of the program: 1 to 64 of A-Z a-z 0-9 _ -
	ID string
}

// PresenceOption sets a property of a Presence.
type PresenceOption interface{ applyToPresence(p *Presence) }

type presenceFunc func(p *Presence)

func (f presenceFunc) applyToPresence(p *Presence) { f(p) }

// WatchUsers watches users from the start. By default a server allows 1,000 users; more end the
// presence with ErrLimitExceeded.
func WatchUsers(userIDs ...string) PresenceOption {
	return presenceFunc(func(p *Presence) { p.addUsers(userIDs) })
}

// WatchChannels watches the members of members-only channels from the start. By default a server
// allows 20 channels; those beyond its limit are lost (see PresenceChannelLost).
func WatchChannels(channelIDs ...string) PresenceOption {
	return presenceFunc(func(p *Presence) { p.addChannels(channelIDs) })
}

// WithLoginToken continues an earlier login: that of the Presence whose LoginToken was stored, for
// example before the program was restarted. By default, and with an empty token, the login is a new
// one. A new login is an act of the user: under the server's login policy it can end others. Two
// devices must not use the same token: under that policy, each would end the other's stream.
func WithLoginToken(token string) PresenceOption {
	return presenceFunc(func(p *Presence) { p.login = token })
}

// InBackground sets that the device is in the background from the start. See SetBackground.
func InBackground() PresenceOption {
	return presenceFunc(func(p *Presence) { p.background = true })
}

// Invisible watches without being online. The device may be the zero Device.
func Invisible() PresenceOption {
	return presenceFunc(func(p *Presence) { p.invisible = true })
}

// disconnectTimeout bounds the call that ends a presence.
const disconnectTimeout = 2 * time.Second

// Presence makes a device of the client's user online, and receives the states of watched users and
// channels. It outlives its connections: it reconnects with the same login, and delivers the states
// that have changed meanwhile.
//
// Next and Events must be called by one goroutine at a time. All other methods are safe for
// concurrent use. Close it after use.
type Presence struct {
	client    *Client
	device    Device
	invisible bool
	onState   func(StateChange)
	cancel    context.CancelFunc
	// stopOnce protects stop. cancel is called when it has finished.
	stopOnce sync.Once
	done     chan struct{}
	// changed wakes Next.
	changed chan struct{}
	// changeLock is held during a change of what the stream watches, so that changes reach the server
	// in order.
	changeLock chan struct{}
	work       sync.WaitGroup
	// stateLock is held while onState is called, so that it is called with the states in order.
	stateLock sync.Mutex

	mu         sync.Mutex // guards the fields below
	background bool
	login      string
	connection string
	users      map[string]*watchedUser
	channels   map[string]*watchedChannel
	// queue has the states that were received but not taken, in the order in which they changed
	// first.
	queue []watchKey
	// refusals has the errors of the losses in the queue that have one.
	refusals map[watchKey]error
	// lagging is the newest value, takenLagging the last one that was taken.
	lagging, takenLagging bool
	stream                *presenceStream
	state                 State
	// wasLive is true once any stream has been live. stopping is true once the presence has begun to
	// end on purpose, closed once Close was called.
	wasLive, stopping, closed bool
	// bare is true if the next stream begins without the channels, because the server has refused a
	// stream with them. They are added one by one when it is live.
	bare bool
	err  error
}

// Presence makes a device online and watches users and channels:
//
//	device := parley.Device{Platform: parley.PlatformWeb, ID: "browser-7"}
//	client.Presence(ctx, device, parley.WatchUsers("ann"))
//
// It returns at once and connects in the background. The presence ends with ctx or Close; then the
// user is offline at once. WithCallTimeout does not apply. While the client has a Subscription,
// both share one stream: the subscription opens its stream again for this, without losing events.
//
// After a retryable failure it opens a new stream, after a wait or on another node. The login stays
// the same. Any other failure ends the presence, and Next returns it. ErrKicked is such a failure:
// another login replaced this one, or an operator ended the stream; the error's Kick says which. It
// ends the Subscription on the same stream, too. Do not connect again until the user acts.
//
// A stream is read only as fast as the program takes the events of its Subscription. If the program
// does not take them for too long, the server ends the stream, and the user is offline until the
// program takes events again. Read a Subscription in a goroutine of its own, or use one Client for
// the Presence and another one for the Subscription.
func (c *Client) Presence(ctx context.Context, device Device, opts ...PresenceOption) *Presence {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &Presence{
		client: c, device: device, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}, 1),
		changeLock: make(chan struct{}, 1), users: make(map[string]*watchedUser), channels: make(map[string]*watchedChannel),
		refusals: make(map[watchKey]error),
	}
	for _, opt := range opts {
		opt.applyToPresence(p)
	}
	err := checkText("device_id", device.ID, "login_token", p.login)
	for id := range p.users {
		err = errors.Join(err, checkText("watch", id))
	}
	for id := range p.channels {
		err = errors.Join(err, checkText("watch_channels", id))
	}
	go p.run(ctx, life, err)
	return p
}

// run keeps the presence until it is stopped or a failure is final. If err is not nil, the presence
// ends at once with it. life ends after ctx, when the server was told to disconnect.
func (p *Presence) run(ctx, life context.Context, err error) {
	defer close(p.done)
	stopAfter := context.AfterFunc(ctx, p.stop)
	defer stopAfter()
	if err == nil {
		err = p.keepOpen(life)
	}
	p.cancel()
	p.work.Wait()
	p.mu.Lock()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = ctx.Err()
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Code == connect.CodeUnimplemented {
		err = &Error{Code: e.Code, Reason: e.Reason, Message: "the server has no PresenceService", RequestID: e.RequestID, cause: err}
	}
	if p.closed {
		err = ErrClosed
	}
	p.err, p.stream = err, nil
	if errors.Is(err, ErrKicked) {
		p.login = ""
	}
	p.mu.Unlock()
	p.setState(StateChange{State: StateEnded, Err: err})
}

// stop ends the presence on purpose. A live stream is first disconnected, so that the user is
// offline at once.
func (p *Presence) stop() {
	p.stopOnce.Do(func() {
		defer p.cancel()
		p.mu.Lock()
		p.stopping = true
		current := p.stream
		var id string
		if current != nil {
			id = current.id
		}
		p.mu.Unlock()
		if id == "" {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), disconnectTimeout) //nolint:forbidigo // the presence's context may have ended
		defer cancel()
		_, err := p.client.try(ctx, disconnectTimeout, func(ctx context.Context, n *endpoint) error {
			_, err := n.Presence.Disconnect(ctx, &parleyv1.DisconnectRequest{StreamId: id})
			return err
		})
		if err != nil {
			p.client.log.WarnContext(ctx, "disconnecting", "error", err)
			return
		}
		p.mu.Lock()
		current.disconnected = true
		p.mu.Unlock()
	})
}

// Next blocks until a state has changed and returns it: the newest one, if it has changed several
// times. States that the program has already are not returned again. If ctx ends first, Next
// returns the error of ctx, and the presence continues. When the presence has ended, it returns
// ErrClosed, the error of the presence's own context, or the *Error that ended it.
func (p *Presence) Next(ctx context.Context) (PresenceEvent, error) {
	for {
		event, found, err := p.take()
		if found || err != nil {
			return event, err
		}
		select {
		case <-ctx.Done():
			return PresenceEvent{}, ctx.Err()
		case <-p.changed:
		case <-p.done:
			// States that arrived last come before the end.
			if event, found, err := p.take(); found || err != nil {
				return event, err
			}
			return PresenceEvent{}, p.Err()
		}
	}
}

// Events iterates over the changed states until the presence ends. Unless Close ended it, the last
// element is its error. Leaving the loop does not close the presence.
func (p *Presence) Events() iter.Seq2[PresenceEvent, error] {
	return func(yield func(PresenceEvent, error) bool) {
		for {
			e, err := p.Next(context.Background()) //nolint:forbidigo // it ends with the presence
			if errors.Is(err, ErrClosed) {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// User returns the newest state of a watched user. It returns false for a user that is not watched,
// and for one whose state is not known yet. The state must not be modified. While there is no
// stream, it is the last one that arrived.
func (p *Presence) User(userID string) (*UserPresence, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.users[userID]
	if u == nil || u.state == nil {
		return nil, false
	}
	return u.state, true
}

// Channel returns the newest state of a watched channel. It returns false like User.
func (p *Presence) Channel(channelID string) (*ChannelPresence, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ch := p.channels[channelID]
	if ch == nil || !ch.known {
		return nil, false
	}
	return ch.current(), true
}

// LoginToken returns the proof of this login. Store it, and pass it to WithLoginToken when the
// program starts again and its user has not signed out meanwhile. It is empty before the first
// stream is live, unless WithLoginToken was used, and for an invisible presence. It may change with
// each stream: the StateChange of each StateLive has it. After ErrKicked it is empty, because the
// login is over: delete the stored one.
func (p *Presence) LoginToken() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.login
}

// ConnectionID identifies the last stream in the Kick of another one. It is empty before the first
// stream is live, and for an invisible presence.
func (p *Presence) ConnectionID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connection
}

// Lagging reports whether the states may be older than 5 s, because the server cannot read them.
func (p *Presence) Lagging() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lagging
}

// State returns the state of the presence's stream.
func (p *Presence) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Err returns the error that ended the presence, or nil if it has not ended.
func (p *Presence) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	return p.err
}

// Close ends the presence, so that the user is offline at once, and waits until its goroutines have
// ended: at most 2 s if the server does not answer. It may be called more than once.
func (p *Presence) Close() {
	p.mu.Lock()
	if p.state != StateEnded {
		p.closed = true
	}
	p.mu.Unlock()
	p.stop()
	<-p.done
}

// setState records a new state and calls the OnState function, if there is one.
// After StateEnded it does nothing.
func (p *Presence) setState(change StateChange) {
	p.stateLock.Lock()
	defer p.stateLock.Unlock()
	p.mu.Lock()
	ended := p.state == StateEnded
	if !ended {
		p.state = change.State
	}
	p.mu.Unlock()
	if ended {
		return
	}
	if p.onState != nil {
		p.onState(change)
	}
}

// request returns the request for a stream, with everything that current is asked for. The caller
// holds the lock.
func (p *Presence) request(current *presenceStream) *parleyv1.ConnectRequest {
	return &parleyv1.ConnectRequest{
		Platform: p.device.Platform, DeviceId: p.device.ID, Background: p.background, Invisible: p.invisible, LoginToken: p.login,
		Watch: slices.Sorted(maps.Keys(current.users)), WatchChannels: slices.Sorted(maps.Keys(current.channels)),
	}
}
