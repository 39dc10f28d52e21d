package parleytest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// The server's limits of presence.
const (
	maxWatch         = 1000
	maxWatchChannels = 20
	// maxListed is the number of members above which only the numbers of a channel are sent.
	maxListed = 1000
)

// presence is the presence of a stream: the device that it makes online, and what it watches. It is
// guarded by the server's lock.
type presence struct {
	platform              parleyv1.Platform
	background, invisible bool
	// connection and login are empty if the stream is invisible.
	connection, login string
	// users contains the watched users, with the states that were sent last.
	users map[string]*parleyv1.UserPresence
	// channels contains the watched channels.
	channels map[string]*watchedChannel
	// revision is the revision of the last state. lagging is what was sent last.
	revision int64
	lagging  bool
}

// watchedChannel is what a stream has sent of a channel. sent is nil before the first state.
type watchedChannel struct {
	sent   *parleyv1.ChannelPresence
	online map[string]*parleyv1.UserPresence
}

// device identifies the platform of a user.
type device struct {
	user     string
	platform parleyv1.Platform
}

// SetOfflineAfter sets how long a user stays online on a platform after the last stream of it has
// ended, on all nodes. The default is 1 s. 0 or less means that the user is offline at once.
func (s *Server) SetOfflineAfter(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offlineAfter = d
}

// SetLagging makes live and new streams with presence report that their states may be old, until it
// is called with false. The states themselves stay current.
func (s *Server) SetLagging(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lagging = on
	s.wakeLocked()
}

// Kick ends the logins of a user's live streams, as a login policy does: the streams end with
// KICKED, the user is offline, and a stream with one of their login tokens is refused. kick
// describes the winner. Invisible streams stay. It returns the number of streams.
func (s *Server) Kick(userID string, kick *parleyv1.Kick) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.streams {
		if p := one.presence; p != nil && !p.invisible && one.user == userID {
			s.kicked[p.login] = kick
			one.presence, one.end = nil, &end{err: errKicked(kick)}
			n++
		}
	}
	s.wakeLocked()
	return n
}

func errKicked(kick *parleyv1.Kick) error {
	return ErrorDetail(connect.CodeFailedPrecondition, &parleyv1.ErrorDetail{
		Reason: parleyv1.ErrorReason_ERROR_REASON_KICKED, Kick: kick, RequestId: requestID,
	})
}

func errNoStream() error {
	return Error(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_STREAM_NOT_FOUND)
}

func limitExceeded(field string, limit int64) error {
	return errorAt(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, field, limit)
}

// SetStrangers makes the server refuse that a user watches the given users, with NO_SHARED_CHANNEL,
// until it is called again. Users that live streams watch already stay watched.
func (s *Server) SetStrangers(userID string, strangers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strangers[userID] = slices.Clone(strangers)
}

// maxRefusedUsers is the maximum number of users that a NO_SHARED_CHANNEL error names.
const maxRefusedUsers = 50

// checkUsersLocked returns an error if the caller may not watch one of the users. list is the name
// of the request's field.
func (s *shared) checkUsersLocked(ctx context.Context, list string, userIDs []string) error {
	user := s.userLocked(ctx)
	var refused []string
	for _, id := range userIDs {
		if slices.Contains(s.strangers[user], id) {
			refused = append(refused, id)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return ErrorDetail(connect.CodePermissionDenied, &parleyv1.ErrorDetail{
		Reason: parleyv1.ErrorReason_ERROR_REASON_NO_SHARED_CHANNEL, RequestId: requestID,
		Field:   fmt.Sprintf("%s[%d]", list, slices.Index(userIDs, refused[0])),
		UserIds: refused[:min(len(refused), maxRefusedUsers)],
	})
}

// checkConnectLocked returns the error for a request that the server refuses. prefix is put before
// the names of its fields.
func (s *shared) checkConnectLocked(ctx context.Context, prefix string, req *parleyv1.ConnectRequest) error {
	watches := len(req.GetWatch())+len(req.GetWatchChannels()) > 0
	if !req.GetInvisible() && !s.canLocked(ctx, "connect") || (watches || req.GetInvisible()) && !s.canLocked(ctx, "watch") {
		return missing(strings.TrimSuffix(prefix, "."))
	}
	switch kick := s.kicked[req.GetLoginToken()]; {
	case !req.GetInvisible() && req.GetPlatform() == parleyv1.Platform_PLATFORM_UNSPECIFIED:
		return invalidField(prefix+"platform", 0)
	case !req.GetInvisible() && req.GetDeviceId() == "":
		return invalidField(prefix+"device_id", 0)
	case len(unique(req.GetWatch())) > maxWatch:
		return limitExceeded(prefix+"watch", maxWatch)
	case len(unique(req.GetWatchChannels())) > maxWatchChannels:
		return limitExceeded(prefix+"watch_channels", maxWatchChannels)
	case kick != nil && !req.GetInvisible():
		return errKicked(kick)
	}
	if err := s.checkUsersLocked(ctx, prefix+"watch", req.GetWatch()); err != nil {
		return err
	}
	return s.checkChannelsLocked(ctx, prefix+"watch_channels[%d]", req.GetWatchChannels())
}

// checkChannelsLocked returns an error unless the caller may watch the members of the channels. It
// names all that the caller may not use for lack of a membership. field is the format of the name
// of the request's field, with the index.
func (s *shared) checkChannelsLocked(ctx context.Context, field string, channelIDs []string) error {
	var refused []string
	first := ""
	for i, id := range channelIDs {
		at := strings.Replace(field, "%d", fmt.Sprint(i), 1)
		l := s.logLocked(id)
		switch {
		case !s.canLocked(ctx, "subscribe"):
			return missing(at)
		case !l.membersOnly:
			return errorAt(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_OPEN, at, 0)
		case !s.admitsLocked(ctx, l) && !slices.Contains(refused, id):
			if refused = append(refused, id); first == "" {
				first = at
			}
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return notMember(first, refused...)
}

// connectLocked begins the presence of a stream.
func (s *shared) connectLocked(one *stream, req *parleyv1.ConnectRequest) {
	p := &presence{
		platform: req.GetPlatform(), background: req.GetBackground(), invisible: req.GetInvisible(),
		users: make(map[string]*parleyv1.UserPresence), channels: make(map[string]*watchedChannel),
	}
	for _, id := range req.GetWatch() {
		p.users[id] = nil
	}
	for _, id := range req.GetWatchChannels() {
		p.channels[id] = new(watchedChannel)
	}
	if !p.invisible {
		s.minted++
		p.connection, p.login = fmt.Sprintf("connection-%d", s.minted), req.GetLoginToken()
		if s.logins[p.login] != one.user {
			p.login = fmt.Sprintf("login-%d", s.minted)
			s.logins[p.login] = one.user
		}
		delete(s.absent, device{one.user, p.platform})
	}
	one.presence = p
	s.wakeLocked()
}

// presenceInfoLocked returns the description of a stream's presence when it begins.
func (s *shared) presenceInfoLocked(one *stream) *parleyv1.PresenceInfo {
	info := &parleyv1.PresenceInfo{ConnectionId: one.presence.connection, LoginToken: one.presence.login}
	if info.Presence = s.presenceUpdateLocked(one); info.GetPresence() == nil {
		info.Presence = new(parleyv1.PresenceUpdate)
	}
	return info
}

// lingerLocked ends the presence of a stream. If the stream was the last one of a platform, the
// user stays online on it for a while.
func (s *shared) lingerLocked(one *stream) {
	p := one.presence
	one.presence = nil
	defer s.wakeLocked()
	if p == nil || p.invisible || s.offlineAfter <= 0 {
		return
	}
	for _, other := range s.streams {
		if q := other.presence; q != nil && !q.invisible && other.user == one.user && q.platform == p.platform {
			return
		}
	}
	key := device{one.user, p.platform}
	until := time.Now().Add(s.offlineAfter)
	s.absent[key] = absence{until: until, background: p.background}
	time.AfterFunc(s.offlineAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.absent[key].until.Equal(until) {
			delete(s.absent, key)
			s.wakeLocked()
		}
	})
}

// absence is how a user whose last stream of a platform has ended is shown, and until when.
type absence struct {
	until      time.Time
	background bool
}

// stateLocked returns a user's presence, without a revision.
func (s *shared) stateLocked(user string) *parleyv1.UserPresence {
	background := make(map[parleyv1.Platform]bool)
	add := func(platform parleyv1.Platform, value bool) {
		known, has := background[platform]
		background[platform] = value && (known || !has)
	}
	for _, one := range s.streams {
		if p := one.presence; p != nil && !p.invisible && one.user == user {
			add(p.platform, p.background)
		}
	}
	for key, gone := range s.absent {
		if key.user == user {
			add(key.platform, gone.background)
		}
	}
	state := &parleyv1.UserPresence{UserId: user}
	for _, platform := range slices.Sorted(maps.Keys(background)) {
		state.Platforms = append(state.Platforms, &parleyv1.PlatformPresence{Platform: platform, Background: background[platform]})
	}
	return state
}

// onlineLocked returns the ids of all users that are online, in order.
func (s *shared) onlineLocked() []string {
	users := make(map[string]bool)
	for _, one := range s.streams {
		if one.presence != nil && !one.presence.invisible {
			users[one.user] = true
		}
	}
	for key := range s.absent {
		users[key.user] = true
	}
	return slices.Sorted(maps.Keys(users))
}

// presenceUpdateLocked returns the states that have changed since the stream sent them last, or nil
// if none has.
func (s *shared) presenceUpdateLocked(one *stream) *parleyv1.PresenceUpdate {
	p := one.presence
	if p == nil {
		return nil
	}
	update := new(parleyv1.PresenceUpdate)
	for _, id := range slices.Sorted(maps.Keys(p.users)) {
		if state := s.stateLocked(id); !samePlatforms(state, p.users[id]) {
			update.Users = append(update.Users, p.sending(state))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.channels)) {
		l := s.logLocked(id)
		if !one.manages && !l.admits(one.user) {
			delete(p.channels, id)
			p.revision++
			update.Channels = append(update.Channels, &parleyv1.ChannelPresence{ChannelId: id, Lost: true, Revision: p.revision})
			continue
		}
		if state := s.channelLocked(l, p.channels[id]); state != nil {
			p.revision++
			state.Revision = p.revision
			update.Channels = append(update.Channels, state)
		}
	}
	if p.lagging != s.lagging {
		p.lagging = s.lagging
		update.Lagging = new(p.lagging)
	}
	if len(update.GetUsers())+len(update.GetChannels()) == 0 && update.Lagging == nil {
		return nil
	}
	return update
}

// sending records that the stream sends the state of a watched user, and sets its revision.
func (p *presence) sending(state *parleyv1.UserPresence) *parleyv1.UserPresence {
	p.revision++
	state.Revision = p.revision
	p.users[state.GetUserId()] = state
	return state
}

// samePlatforms reports whether two states differ at most in their revisions. A nil state differs
// from any other.
func samePlatforms(a, b *parleyv1.UserPresence) bool {
	return b != nil && slices.EqualFunc(a.GetPlatforms(), b.GetPlatforms(), func(x, y *parleyv1.PlatformPresence) bool {
		return proto.Equal(x, y)
	})
}

// channelLocked returns the state of a channel that the stream sends next and records it, or
// returns nil if nothing has changed. The state has no revision.
func (s *shared) channelLocked(l *log, seen *watchedChannel) *parleyv1.ChannelPresence {
	online := make(map[string]*parleyv1.UserPresence)
	for id := range l.members {
		if state := s.stateLocked(id); len(state.GetPlatforms()) > 0 {
			online[id] = state
		}
	}
	before := seen.sent
	state := &parleyv1.ChannelPresence{ChannelId: l.id, OnlineCount: int32(len(online)), MemberCount: int32(len(l.members))}
	listed := state.GetMemberCount() <= maxListed
	state.Complete = listed && (before == nil || before.GetMemberCount() > maxListed)
	for _, id := range slices.Sorted(maps.Keys(online)) {
		switch {
		case !listed:
		case state.GetComplete():
			state.Online = append(state.Online, online[id])
		case !samePlatforms(online[id], seen.online[id]):
			state.Changed = append(state.Changed, online[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen.online)) {
		if listed && !state.GetComplete() && online[id] == nil {
			state.Changed = append(state.Changed, &parleyv1.UserPresence{UserId: id})
		}
	}
	if before != nil && !state.GetComplete() && len(state.GetChanged()) == 0 &&
		state.GetOnlineCount() == before.GetOnlineCount() && state.GetMemberCount() == before.GetMemberCount() {
		return nil
	}
	seen.sent, seen.online = state, online
	return state
}

// unique returns the distinct items in the order of their first occurrence.
func unique(items []string) []string {
	seen := make(map[string]bool)
	return slices.DeleteFunc(slices.Clone(items), func(item string) bool {
		repeated := seen[item]
		seen[item] = true
		return repeated
	})
}
