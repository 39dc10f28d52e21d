package presence

import "github.com/parleyhq/parley/server/internal/fault"

// channelSub is a stream's watch of a channel. Stream.mu guards it.
type channelSub struct {
	watch *channelWatch
	// exempt is ChannelRef.Exempt of the last request to watch the channel.
	exempt bool
	// waits is set until the states of all members were known once. Nothing is sent before.
	waits bool
	// online and members are the numbers that the client has.
	online, members int
	pending         *pendingChannel // nil if nothing waits for the reader
}

// pendingChannel is what has changed in a channel since the client's state.
type pendingChannel struct {
	online, members int
	// complete is set if users are all members that are online, and not changes.
	complete bool
	users    map[string]pendingMember
}

// pendingMember is a member's state, and the state that the client has.
type pendingMember struct {
	UserState
	before State
}

// lostChannel is the last state of a channel that a stream has lost.
type lostChannel struct {
	revision int64
	reason   fault.Reason // as ChannelState.Lost
}

// pend returns what has changed in a channel, with the current numbers; nil if the stream does not
// watch the channel. The caller holds c.mu and s.mu.
func (s *Stream) pend(c *channelWatch) *pendingChannel {
	sub := s.channels[c.id]
	if sub == nil || sub.waits || s.core.Ended() {
		return nil
	}
	if sub.pending == nil {
		sub.pending = &pendingChannel{}
		if s.changed == nil {
			s.changed = map[string]struct{}{}
		}
		s.changed[c.id] = struct{}{}
	}
	sub.pending.online, sub.pending.members = c.online, len(c.members)
	return sub.pending
}

// settlePending drops what has changed in a channel if the client has it, and wakes the reader
// otherwise.
func (s *Stream) settlePending(c *channelWatch) {
	sub := s.channels[c.id]
	p := sub.pending
	if !p.complete && len(p.users) == 0 && p.online == sub.online && p.members == sub.members {
		sub.pending = nil
		delete(s.changed, c.id)
		return
	}
	s.core.Wake()
}

// deliverMember queues the change of a member's state. The caller holds c.mu.
func (s *Stream) deliverMember(c *channelWatch, u UserState, old State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pend(c)
	if p == nil {
		return
	}
	if p.users == nil {
		p.users = map[string]pendingMember{}
	}
	m, ok := p.users[u.UserID]
	if !ok {
		m.before = old
	}
	m.UserState = u
	if m.State == m.before && !p.complete || m.State == 0 && p.complete {
		delete(p.users, u.UserID)
	} else {
		p.users[u.UserID] = m
	}
	s.settlePending(c)
}

// deliverCount queues the numbers of members. The caller holds c.mu.
func (s *Stream) deliverCount(c *channelWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pend(c)
	if p == nil {
		return
	}
	if c.counted {
		p.complete, p.users = false, nil
	}
	s.settlePending(c)
}

// beginChannel queues the first state of a channel for a stream that waits for it. The caller holds
// c.mu.
func (s *Stream) beginChannel(c *channelWatch) {
	s.mu.Lock()
	sub := s.channels[c.id]
	waits := sub != nil && sub.waits
	if waits {
		sub.waits, sub.online, sub.members = false, -1, -1
	}
	s.mu.Unlock()
	switch {
	case !waits:
	case c.counted:
		s.deliverCount(c)
	default:
		s.deliverComplete(c)
	}
}

// deliverComplete queues all members that are online. The caller holds c.mu.
func (s *Stream) deliverComplete(c *channelWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pend(c)
	if p == nil {
		return
	}
	p.complete, p.users = true, make(map[string]pendingMember, c.online)
	for _, u := range c.onlineMembers() {
		p.users[u.UserID] = pendingMember{UserState: u}
	}
	s.settlePending(c)
}

// takeChannels moves the changes of channels to u, up to its limits. The caller holds s.mu.
func (s *Stream) takeChannels(u *Update) {
	room := maxUpdateStates
	for channelID, last := range s.lost {
		u.Channels = append(u.Channels, ChannelState{ChannelID: channelID, Lost: last.reason, Revision: last.revision})
	}
	s.lost = nil
	for channelID := range s.changed {
		sub := s.channels[channelID]
		p := sub.pending
		if p.complete && len(p.users) > room && room < maxUpdateStates {
			continue // it has the next frame for itself
		}
		state := ChannelState{
			ChannelID: channelID, Online: p.online, Members: p.members, Complete: p.complete,
			Revision: sub.watch.v.channelRevision.Add(1),
		}
		for userID, m := range p.users {
			if len(state.Users) >= room && !p.complete {
				break
			}
			delete(p.users, userID)
			state.Users = append(state.Users, m.UserState)
		}
		room -= len(state.Users)
		sub.online, sub.members = p.online, p.members
		u.Channels = append(u.Channels, state)
		if len(p.users) == 0 {
			sub.pending = nil
			delete(s.changed, channelID)
		}
		if room <= 0 {
			break
		}
	}
	if len(s.changed) == 0 {
		s.changed = nil
	}
}
