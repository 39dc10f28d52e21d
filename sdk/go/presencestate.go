package parley

import (
	"maps"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// maxListed is the number of members of a channel above which the server sends only numbers.
const maxListed = 1000

// maxEarly is the maximum number of members in the changes of a channel that are kept until its
// first state arrives.
const maxEarly = 2000

// noRevision is lower than every revision.
const noRevision = -1

// watchKey identifies an element of a Presence's queue. The id is empty for PresenceLagging.
type watchKey struct {
	kind PresenceEventKind
	id   string
}

// watchedUser is a user whose presence is watched. Revisions hold for one stream.
type watchedUser struct {
	revision int64
	// state is the newest state, taken the one that the program has. Both are nil if there is none.
	state, taken *UserPresence
	queued       bool
}

// watchedChannel is a channel whose members are watched. Revisions hold for one stream.
type watchedChannel struct {
	id       string
	revision int64
	// early are the states that arrived before the channel's first complete one. It can be in the
	// response of WatchChannel, which later frames of the stream can overtake.
	early []*ChannelPresence
	// known is true once a state has arrived.
	known          bool
	online         map[string]*UserPresence
	count, members int32
	// taken is the state that the program has, or nil.
	taken  *ChannelPresence
	queued bool
}

// current returns the channel's whole state.
func (ch *watchedChannel) current() *ChannelPresence {
	state := &ChannelPresence{
		ChannelId: ch.id, OnlineCount: ch.count, MemberCount: ch.members, Complete: ch.members <= maxListed,
	}
	for _, id := range slices.Sorted(maps.Keys(ch.online)) {
		state.Online = append(state.Online, ch.online[id])
	}
	return state
}

// begin records that a new stream begins, whose revisions are not those of the last one.
func (ch *watchedChannel) begin() { ch.revision, ch.early = noRevision, nil }

// hold keeps a change that arrived before the channel's first state on this stream. It reports
// whether it did. followed is true if the stream follows the channel as far as the client knows.
func (ch *watchedChannel) hold(state *ChannelPresence, followed bool) bool {
	change := !state.GetComplete() && state.GetMemberCount() <= maxListed
	if state.GetLost() {
		// It may be about an earlier watch of the channel, which the program has replaced.
		change = !followed
	}
	if change = change && ch.revision == noRevision; change {
		ch.early = append(ch.early, state)
	}
	return change
}

// overfull reports whether too many changes arrived before the channel's first state.
func (ch *watchedChannel) overfull() bool {
	n := len(ch.early)
	for _, state := range ch.early {
		n += len(state.GetChanged())
	}
	return n > maxEarly
}

// apply applies a state from the server. It reports whether it is new.
func (ch *watchedChannel) apply(state *ChannelPresence) bool {
	if state.GetRevision() <= ch.revision {
		return false
	}
	ch.revision, ch.known = state.GetRevision(), true
	ch.count, ch.members = state.GetOnlineCount(), state.GetMemberCount()
	if ch.online == nil || state.GetComplete() || ch.members > maxListed {
		ch.online = make(map[string]*UserPresence)
	}
	for _, user := range slices.Concat(state.GetOnline(), state.GetChanged()) {
		if len(user.GetPlatforms()) == 0 {
			delete(ch.online, user.GetUserId())
		} else {
			ch.online[user.GetUserId()] = withoutRevision(user)
		}
	}
	return true
}

// withoutRevision returns a state that is not ordered.
func withoutRevision(user *UserPresence) *UserPresence {
	return &UserPresence{UserId: user.GetUserId(), Platforms: user.GetPlatforms()}
}

// addUsers watches users and returns those that were not watched. The caller holds the lock.
func (p *Presence) addUsers(ids []string) (added []string) {
	for _, id := range ids {
		if p.users[id] == nil {
			p.users[id] = &watchedUser{revision: noRevision}
			added = append(added, id)
		}
	}
	return added
}

// addChannels watches channels and returns those that were not watched. The caller holds the lock.
func (p *Presence) addChannels(ids []string) (added []string) {
	for _, id := range ids {
		if p.channels[id] == nil {
			p.channels[id] = &watchedChannel{id: id, revision: noRevision}
			added = append(added, id)
		}
	}
	return added
}

// removeUsers stops watching users, and removes their states from the queue. The caller holds the
// lock.
func (p *Presence) removeUsers(ids []string) {
	removed := make(map[string]bool)
	for _, id := range ids {
		removed[id] = true
		delete(p.users, id)
	}
	p.queue = slices.DeleteFunc(p.queue, func(k watchKey) bool { return k.kind == PresenceOfUser && removed[k.id] })
}

// removeChannels stops watching channels, and removes their states from the queue. The caller holds
// the lock.
func (p *Presence) removeChannels(ids []string) {
	for _, id := range ids {
		delete(p.channels, id)
	}
	p.queue = slices.DeleteFunc(p.queue, func(k watchKey) bool { return k.kind == PresenceOfChannel && slices.Contains(ids, k.id) })
}

// regain removes the losses of users or channels that are watched again from the queue. kind is
// that of the losses.
func (p *Presence) regain(kind PresenceEventKind, ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = slices.DeleteFunc(p.queue, func(k watchKey) bool {
		watched := p.users[k.id] != nil
		if kind == PresenceChannelLost {
			watched = p.channels[k.id] != nil
		}
		watched = watched && k.kind == kind && slices.Contains(ids, k.id)
		if watched {
			delete(p.refusals, k)
		}
		return watched
	})
}

// apply records the states of an update from a stream. It ignores a stream that is not the current
// one.
func (p *Presence) apply(from *presenceStream, update *parleyv1.PresenceUpdate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream != from {
		return
	}
	for _, user := range update.GetUsers() {
		u := p.users[user.GetUserId()]
		if u == nil || user.GetRevision() <= u.revision {
			continue
		}
		u.revision, u.state = user.GetRevision(), withoutRevision(user)
		if !u.queued {
			u.queued = true
			p.queue = append(p.queue, watchKey{PresenceOfUser, user.GetUserId()})
		}
	}
	for _, state := range update.GetChannels() {
		p.applyChannel(from, state)
	}
	if update.GetLagging() != p.lagging && update.Lagging != nil {
		p.setLagging(update.GetLagging())
	}
	p.wake()
}

// applyChannel records a state of a channel from the current stream. The caller holds the lock.
func (p *Presence) applyChannel(from *presenceStream, state *ChannelPresence) {
	ch := p.channels[state.GetChannelId()]
	switch {
	case ch == nil:
	case ch.hold(state, from.channels[ch.id]):
		if ch.overfull() {
			from.cancel(errRewatch)
		}
	case state.GetLost():
		if state.GetRevision() > ch.revision {
			p.loseChannel(from, state)
		}
	case ch.apply(state):
		if !ch.queued {
			ch.queued = true
			p.queue = append(p.queue, watchKey{PresenceOfChannel, ch.id})
		}
		p.applyEarly(from, ch)
	}
}

// applyEarly records the states of a channel that arrived before its first one. The caller holds
// the lock.
func (p *Presence) applyEarly(from *presenceStream, ch *watchedChannel) {
	early := ch.early
	ch.early = nil
	for _, state := range early {
		p.applyChannel(from, state)
	}
}

// loseChannel stops watching a channel that the server has stopped following on the current stream,
// and queues its loss. last is the channel's last state. The caller holds the lock.
func (p *Presence) loseChannel(from *presenceStream, last *ChannelPresence) {
	delete(from.channels, last.GetChannelId())
	p.lose(watchKey{PresenceChannelLost, last.GetChannelId()}, lossOf(last))
}

// lossOf returns why the server has stopped following a channel; nil if the membership ended.
func lossOf(last *ChannelPresence) error {
	switch reason := last.GetLostReason(); reason {
	case parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED, parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER:
		return nil
	default:
		code := connect.CodeResourceExhausted
		if reason == parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND {
			code = connect.CodeNotFound
		}
		return &Error{
			Code: code, Reason: reason, Retryable: reason >= firstRetryable,
			Message: "the presence of the channel is no longer followed",
		}
	}
}

// lose stops watching a user or a channel and queues the loss. refusal is the server's error, or
// nil. The caller holds the lock.
func (p *Presence) lose(key watchKey, refusal error) {
	if key.kind == PresenceUserLost {
		p.removeUsers([]string{key.id})
	} else {
		p.removeChannels([]string{key.id})
	}
	delete(p.refusals, key)
	if refusal != nil {
		p.refusals[key] = refusal
	}
	p.enqueueOnce(key)
}

// setLagging records whether the states may be old. The caller holds the lock.
func (p *Presence) setLagging(lagging bool) {
	p.lagging = lagging
	p.enqueueOnce(watchKey{kind: PresenceLagging})
}

// enqueueOnce adds an element to the queue unless the queue has it. The caller holds the lock.
func (p *Presence) enqueueOnce(key watchKey) {
	if !slices.Contains(p.queue, key) {
		p.queue = append(p.queue, key)
	}
	p.wake()
}

// wake makes Next look at the queue.
func (p *Presence) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// loseChannels stops watching channels that the server refused, and queues their losses. It returns
// the number of those that were watched. It does nothing before the first stream was live: the
// program then receives the refusal.
func (p *Presence) loseChannels(e *Error) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, at := range e.Positions {
		if p.wasLive && p.channels[at.ChannelID] != nil {
			p.lose(watchKey{PresenceChannelLost, at.ChannelID}, e)
			n++
		}
	}
	return n
}

// loseUsers stops watching users that the server refused, as loseChannels does.
func (p *Presence) loseUsers(e *Error) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, id := range e.UserIDs {
		if p.wasLive && p.users[id] != nil {
			p.lose(watchKey{PresenceUserLost, id}, e)
			n++
		}
	}
	return n
}

// take removes the first element of the queue that the program does not have yet, and returns it.
// found is false if there is none. After Close it returns ErrClosed.
func (p *Presence) take() (event PresenceEvent, found bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return PresenceEvent{}, false, ErrClosed
	}
	for len(p.queue) > 0 {
		key := p.queue[0]
		p.queue = p.queue[1:]
		if event, found := p.takeOne(key); found {
			return event, true, nil
		}
	}
	return PresenceEvent{}, false, nil
}

// takeOne marks the newest state of a key as taken. It returns false if the program has that state
// already. The caller holds the lock.
func (p *Presence) takeOne(key watchKey) (PresenceEvent, bool) {
	event := PresenceEvent{Kind: key.kind}
	switch key.kind {
	case PresenceOfUser:
		u := p.users[key.id]
		u.queued = false
		if u.taken != nil && proto.Equal(u.taken, u.state) {
			return event, false
		}
		u.taken, event.User = u.state, u.state
	case PresenceOfChannel:
		ch := p.channels[key.id]
		ch.queued = false
		state := ch.current()
		if ch.taken != nil && proto.Equal(ch.taken, state) {
			return event, false
		}
		ch.taken, event.Channel = state, state
	case PresenceLagging:
		if p.lagging == p.takenLagging {
			return event, false
		}
		p.takenLagging, event.Lagging = p.lagging, p.lagging
	case PresenceChannelLost:
		event.Channel = &ChannelPresence{ChannelId: key.id}
	case PresenceUserLost:
		event.User = &UserPresence{UserId: key.id}
	}
	event.Err = p.refusals[key]
	delete(p.refusals, key)
	return event, true
}
