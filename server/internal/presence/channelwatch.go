package presence

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// The limits of watched channels. A stream watches up to Config.MaxChannels of them.
const (
	// maxChannelMembers is the maximum number of members of a watched channel.
	maxChannelMembers = 100_000
	// maxAllMembers bounds the members of all channels that the streams of a node watch, each
	// channel counted once. A member takes about 0.5 KB.
	maxAllMembers = 1 << 20
	// memberPage is the number of members that are read at a time.
	memberPage = 1000
	// countInterval is the minimum time between two states of a channel that is only counted.
	countInterval = 100 * time.Millisecond
	// memberInterval is the minimum time between two reads of a channel's members; memberLife is the
	// maximum, because the bus may lose changes. memberRetry is the time after a read that failed.
	memberInterval = time.Second
	memberLife     = time.Minute
	memberRetry    = 5 * time.Second
	// listInterval is the minimum time from the moment when a counted channel is listed again, which
	// costs each stream a copy of all members that are online, to the next read of its members. It
	// bounds the copies of a channel whose number of members varies around Config.ChannelMembers.
	listInterval = 10 * time.Second
)

// channelWatch is a channel that streams of this node watch. Its members are in the table like
// watched users. All streams share it.
type channelWatch struct {
	v  *view
	id string
	// refs counts the streams that have it or wait for it. view.channelMu guards it.
	refs int
	// began is when a stream first asked for the channel.
	began time.Time
	// read is closed once the members were read for the first time, and ready once their states were
	// too, or a second after began. err is the error of that read.
	read, ready chan struct{}
	err         error

	// edit is held while members are added or removed. It is locked before a shard's mu.
	edit sync.Mutex
	// closed is set when nobody has the channel any more, or once its streams lose it: the members
	// are not read again. loaded is when they were last read, and listed when a counted channel was
	// last listed again. cancel cancels a read that is running. edit guards the five.
	closed         bool
	loaded, listed time.Time
	load           loadState
	cancel         context.CancelFunc

	// mu guards the fields below. It is locked after a shard's mu, and before Stream.mu.
	mu      sync.Mutex
	members map[string]memberState
	online  int
	// unknown counts the members whose states are not known. Until there are none, the channel has
	// no state with which a stream can begin: a client would show these members offline.
	unknown int
	// counted is set while there are more than Config.ChannelMembers members, so that only their
	// number is sent. delivered is when it was sent last.
	counted   bool
	delivered time.Time
	shards    shardSet
	streams   map[*Stream]struct{}
	// unwatchable is why no stream can watch the channel any more; nil while streams can.
	unwatchable *fault.Error
}

// loadState is whether the members of a channel are being read.
//
//	loadIdle ---a read begins---> loadRunning
//
//	loadRunning ---another one is due---> loadOutdated
//	loadRunning, loadOutdated ---the read ends---> loadIdle
type loadState uint8

const (
	loadIdle loadState = iota
	loadRunning
	// loadOutdated: the members may have changed since the read began, so another one follows.
	loadOutdated
)

type memberState struct {
	state    State
	revision int64
	known    bool
}

// watchChannel makes a stream watch the members of a channel, and returns who of them is online. If
// the stream watches the channel already, it returns the current state. It waits for the members
// until ctx ends, and up to 1 s for their states. If some are not known by then, it returns nil and
// the state follows. The newest ch.Exempt counts.
//
// It changes nothing if it fails. It returns the errors of Members, LIMIT_EXCEEDED above
// Config.MaxChannels or 100,000 members, and NODE_FULL if the channels of the node have too many
// members. It returns STREAM_NOT_FOUND if the stream has ended, and SHUTTING_DOWN if it is
// draining.
func (v *view) watchChannel(ctx context.Context, s *Stream, ch ChannelRef) (*ChannelState, error) {
	if v.cfg.Members == nil {
		return nil, fault.New(fault.Unimplemented, fault.UnimplementedCall, "this server cannot watch channels")
	}
	c, err := v.loaded(ctx, s, ch.ID)
	if err != nil {
		return nil, err
	}
	s.edit.Lock()
	defer s.edit.Unlock()
	if err := v.channelRefusalLocked(s, ch.ID); err != nil {
		v.leave(c)
		return nil, err
	}
	state, attached, err := c.attach(s, ch.Exempt)
	if !attached {
		v.leave(c) // the stream has a reference already, or gets none
	}
	v.enlist(s)
	return state, err
}

// channelRefusal returns why a stream may not watch a channel; nil if it may.
func (v *view) channelRefusal(s *Stream, channelID string) error {
	s.edit.Lock()
	defer s.edit.Unlock()
	return v.channelRefusalLocked(s, channelID)
}

// channelRefusalLocked is channelRefusal for a caller that holds s.edit.
func (v *view) channelRefusalLocked(s *Stream, channelID string) error {
	if err := s.refusal(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, lost := s.lost[channelID]
	if limit := v.cfg.MaxChannels; s.channels[channelID] == nil && !lost && len(s.channels)+len(s.lost) >= limit {
		return tooManyChannels(limit, "channel_id")
	}
	return nil
}

// tooManyChannels returns the fault of a field that would make a stream watch too many channels.
func tooManyChannels(limit int, field string) *fault.Error {
	f := fault.OverLimit(int64(limit), "a stream may watch at most %d channels")
	f.Field = field
	return f
}

// unwatchChannel makes a stream not watch a channel. It does nothing if the stream does not.
func (v *view) unwatchChannel(s *Stream, channelID string) {
	s.edit.Lock()
	defer s.edit.Unlock()
	s.mu.Lock()
	sub := s.channels[channelID]
	s.mu.Unlock()
	if sub != nil {
		v.detach(s, sub.watch, "")
		v.enlist(s)
	}
}

// leave releases a reference. The last one ends the watch.
func (v *view) leave(c *channelWatch) {
	v.channelMu.Lock()
	c.refs--
	last := c.refs == 0
	if last {
		v.stats.channels.Add(-1)
		if v.channels[c.id] == c {
			delete(v.channels, c.id)
		}
	}
	v.channelMu.Unlock()
	if last {
		c.close()
	}
}

// close removes the members from the table.
func (c *channelWatch) close() {
	c.edit.Lock()
	defer c.edit.Unlock()
	c.closed = true
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Lock()
	members := make([]string, 0, len(c.members))
	for userID := range c.members {
		members = append(members, userID)
	}
	c.mu.Unlock()
	for _, userID := range members {
		c.removeMember(userID)
	}
	c.v.releaseMembers(len(members))
	c.v.memberLoads.drop(c)
	c.v.counts.drop(c)
}

// attach adds a stream and returns the current state; nil if the stream waits for it. attached is
// false if the stream was added before, and if attach fails because the channel can no longer be
// watched.
func (c *channelWatch) attach(s *Stream, exempt bool) (state *ChannelState, attached bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unwatchable != nil {
		return nil, false, c.unwatchable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels[c.id] == nil {
		s.channels[c.id] = &channelSub{watch: c}
		c.streams[s] = struct{}{}
		attached = true
	}
	sub := s.channels[c.id]
	sub.exempt = exempt
	delete(s.lost, c.id)
	if attached {
		sub.online, sub.members, sub.waits = c.online, len(c.members), c.unknown > 0
	}
	if sub.waits {
		return nil, attached, nil
	}
	state = &ChannelState{
		ChannelID: c.id, Online: c.online, Members: len(c.members), Complete: !c.counted,
		Revision: c.v.channelRevision.Add(1),
	}
	if !c.counted {
		state.Users = c.onlineMembers()
	}
	return state, attached, nil
}

// detach removes a stream, which watches the channel. If lost is not empty and the stream is live,
// it sends a last state with this reason. The caller holds s.edit.
func (v *view) detach(s *Stream, c *channelWatch, lost fault.Reason) {
	c.mu.Lock()
	delete(c.streams, s)
	s.mu.Lock()
	delete(s.channels, c.id)
	delete(s.changed, c.id)
	if lost != "" && !s.core.Ended() {
		if s.lost == nil {
			s.lost = map[string]lostChannel{}
		}
		s.lost[c.id] = lostChannel{v.channelRevision.Add(1), lost}
		s.core.Wake()
	}
	s.mu.Unlock()
	c.mu.Unlock()
	v.leave(c)
}

// onlineMembers returns the members that are online. The caller holds c.mu.
func (c *channelWatch) onlineMembers() []UserState {
	users := make([]UserState, 0, c.online)
	for userID, m := range c.members {
		if m.state.Online() {
			users = append(users, UserState{UserID: userID, State: m.state, Revision: m.revision})
		}
	}
	return users
}

func (c *channelWatch) inAny(shards *shardSet) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shards.intersects(shards)
}

// set sets the state of a member, and delivers it to the streams. The caller holds the shard's mu.
func (c *channelWatch) set(u UserState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.members[u.UserID]
	c.members[u.UserID] = memberState{u.State, u.Revision, true}
	c.changed(u, old.state)
	if !old.known {
		c.learned()
	}
}

// learned records that the state of one more member is known, or that a member whose state is not
// known has left. After the last one the streams that wait for the state of the channel begin with
// it. The caller holds c.mu.
func (c *channelWatch) learned() {
	if c.unknown--; c.unknown > 0 {
		return
	}
	for s := range c.streams {
		s.beginChannel(c)
	}
}

// changed delivers the change of a member's state. The caller holds c.mu.
func (c *channelWatch) changed(u UserState, old State) {
	if old == u.State {
		return
	}
	if old.Online() {
		c.online--
	}
	if u.State.Online() {
		c.online++
	}
	if c.counted {
		if old.Online() != u.State.Online() {
			c.deliverCount()
		}
		return
	}
	for s := range c.streams {
		s.deliverMember(c, u, old)
	}
}

// deliverCount delivers the number of members soon. The caller holds c.mu.
func (c *channelWatch) deliverCount() {
	if len(c.streams) > 0 {
		c.v.counts.set(c, c.delivered.Add(countInterval))
	}
}

// deliverCounts delivers the numbers of members of channels to their streams.
func (v *view) deliverCounts(_ context.Context, due []*channelWatch) {
	for _, c := range due {
		c.mu.Lock()
		c.delivered = time.Now()
		for s := range c.streams {
			s.deliverCount(c)
		}
		c.mu.Unlock()
	}
}

// addMember adds a member.
func (c *channelWatch) addMember(userID string) {
	s := &c.v.shards[ShardOf(userID)]
	s.mu.Lock()
	defer s.mu.Unlock()
	w := c.v.pin(s, userID)
	w.channels[c] = struct{}{}
	s.revision++
	u := UserState{UserID: userID, State: w.state, Revision: s.revision}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shards.add(s.num)
	c.members[userID] = memberState{u.State, u.Revision, w.known}
	if !w.known {
		c.unknown++
	}
	c.changed(u, 0)
}

// removeMember removes a member, who is delivered as offline.
func (c *channelWatch) removeMember(userID string) {
	s := &c.v.shards[ShardOf(userID)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.watched[userID]; w != nil {
		delete(w.channels, c)
		c.v.unpin(s, userID, w)
	}
	s.revision++
	c.mu.Lock()
	defer c.mu.Unlock()
	old, ok := c.members[userID]
	delete(c.members, userID)
	c.changed(UserState{UserID: userID, Revision: s.revision}, old.state)
	if ok && !old.known {
		c.learned()
	}
}

// membersChanged makes the view read the members of a channel again, if a stream watches it.
// Changes within memberInterval cause one read, and so do changes within listInterval after the
// channel was listed again.
func (v *view) membersChanged(channelID string) {
	v.channelMu.Lock()
	c := v.channels[channelID]
	v.channelMu.Unlock()
	if c == nil {
		return
	}
	c.edit.Lock()
	defer c.edit.Unlock()
	c.requestAfter(c.loaded)
}

// requestAfter makes the members be read soon after a read that began at the time began. The caller
// holds c.edit.
func (c *channelWatch) requestAfter(began time.Time) {
	at, listed := began.Add(memberInterval), c.listed.Add(listInterval)
	if listed.After(at) {
		at = listed
	}
	c.request(at)
}

// request makes the members be read at the time at. The caller holds c.edit.
func (c *channelWatch) request(at time.Time) {
	if !c.closed {
		c.v.memberLoads.set(c, at)
	}
}

// reloadChannels makes the view read the members of all channels again.
func (v *view) reloadChannels(now time.Time) {
	v.channelMu.Lock()
	channels := make([]*channelWatch, 0, len(v.channels))
	for c := range maps.Values(v.channels) {
		channels = append(channels, c)
	}
	v.channelMu.Unlock()
	for _, c := range channels {
		c.edit.Lock()
		c.request(now)
		c.edit.Unlock()
	}
}
