package parleytest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// The roles that matter here.
const (
	follower = parleyv1.MemberRole_MEMBER_ROLE_FOLLOWER
	isMember = parleyv1.MemberRole_MEMBER_ROLE_MEMBER
	owner    = parleyv1.MemberRole_MEMBER_ROLE_OWNER
)

// member is the membership of one user of a channel, or a follower.
type member struct {
	role   parleyv1.MemberRole
	joined time.Time
	read   int64
}

// create marks the channel as existing, unless it exists already.
func (l *log) create(createdBy string, membersOnly bool) {
	if l.made {
		return
	}
	l.made, l.deleted, l.membersOnly, l.createdBy, l.createTime = true, false, membersOnly, createdBy, time.Now()
}

// admits reports whether the user may use the channel.
func (l *log) admits(user string) bool {
	return !l.membersOnly || rank(l.roleOf(user)) >= rank(isMember)
}

// rank returns the place of a role in the order of rights; 0 if there is none.
func rank(role parleyv1.MemberRole) int {
	switch role {
	case parleyv1.MemberRole_MEMBER_ROLE_UNSPECIFIED:
		return 0
	case follower:
		return 1
	default:
		return int(role) + 1
	}
}

// roleOf returns a user's role; 0 if the user is neither member nor follower.
func (l *log) roleOf(user string) parleyv1.MemberRole {
	if m := l.members[user]; m != nil {
		return m.role
	}
	return 0
}

// join sets the role of the user, unless the user has a higher one.
func (l *log) join(user string, role parleyv1.MemberRole) {
	has := l.roleOf(user)
	if rank(has) >= rank(role) {
		return
	}
	if has == 0 {
		l.members[user] = &member{}
	}
	m := l.members[user]
	if m.role = role; rank(has) < rank(isMember) {
		m.joined = time.Now()
	}
}

// read moves a user's cursor forward. If join is set, a user who is not a member becomes a
// follower; otherwise the cursor of such a user does not change.
func (l *log) read(user string, seq int64, join bool) {
	if join {
		l.join(user, follower)
	}
	if m := l.members[user]; m != nil {
		m.read = max(m.read, seq)
	}
}

// unread returns the number of messages after seq.
func (l *log) unread(seq int64) int64 {
	var n int64
	for _, m := range l.messages {
		if m.GetSeq() > seq {
			n++
		}
	}
	return n
}

// lostEvent returns the event that ends the channel on a stream. barred is true if the stream's
// token lacks subscribe.
func (l *log) lostEvent(barred bool) *parleyv1.ChannelEvent {
	lost := &parleyv1.ChannelLost{Reason: parleyv1.LostReason_LOST_REASON_NOT_MEMBER}
	switch {
	case l.deleted:
		lost.Reason = parleyv1.LostReason_LOST_REASON_DELETED
	case barred:
		lost.Reason = parleyv1.LostReason_LOST_REASON_CAPABILITY_MISSING
	}
	return &parleyv1.ChannelEvent{ChannelId: l.id, Event: &parleyv1.ChannelEvent_Lost{Lost: lost}}
}

// CreateChannel implements the service.
func (h handler) CreateChannel(
	ctx context.Context, req *parleyv1.CreateChannelRequest,
) (*parleyv1.CreateChannelResponse, error) {
	return do(ctx, h.s, "CreateChannel", req, func() (*parleyv1.CreateChannelResponse, error) {
		l, user := h.s.logLocked(req.GetChannelId()), h.s.userLocked(ctx)
		if l.made {
			if err := l.repeats(user, req); err != nil {
				return nil, err
			}
			return &parleyv1.CreateChannelResponse{Channel: l.info(), Duplicate: true}, nil
		}
		if key := req.GetIdempotencyKey(); l.deleted && key != "" && key == l.created.GetIdempotencyKey() && user == l.createdBy {
			return nil, errNoChannel()
		}
		l.create(user, req.GetMembersOnly())
		l.created = proto.CloneOf(req)
		l.retention = proto.CloneOf(req.GetRetention())
		for _, id := range append([]string{user}, userIDs(req.GetMembers())...) {
			l.join(id, isMember)
		}
		l.join(user, owner)
		h.s.wakeLocked()
		return &parleyv1.CreateChannelResponse{Channel: l.info()}, nil
	})
}

// repeats returns nil if a request repeats the one that created the channel, else the error to
// answer it with.
func (l *log) repeats(user string, req *parleyv1.CreateChannelRequest) error {
	key := req.GetIdempotencyKey()
	members := func(r *parleyv1.CreateChannelRequest) []string {
		return slices.Compact(slices.Sorted(slices.Values(append(userIDs(r.GetMembers()), user))))
	}
	switch {
	case key == "" || key != l.created.GetIdempotencyKey() || user != l.createdBy:
		return errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_EXISTS, "channel_id", 0)
	case req.GetMembersOnly() != l.membersOnly || !slices.Equal(members(req), members(l.created)) ||
		!proto.Equal(req.GetRetention(), l.created.GetRetention()):
		return errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED, "idempotency_key", 0)
	default:
		return nil
	}
}

func userIDs(members []*parleyv1.ChannelMember) []string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.GetUserId()
	}
	return ids
}

func (l *log) info() *parleyv1.ChannelInfo {
	return &parleyv1.ChannelInfo{
		ChannelId: l.id, MembersOnly: l.membersOnly, CreatedBy: l.createdBy, CreateTime: timestamppb.New(l.createTime),
		HeadSeq: l.head(), Count: l.count, OldestSeq: l.oldestSeq(), ExpiredCount: l.expired(), Epoch: l.epoch,
		Etag: fmt.Sprintf("%d-%t-%d", l.createTime.UnixMilli(), l.membersOnly, l.settingsRev), Retention: proto.CloneOf(l.retention),
	}
}

// madeLocked returns the channel, or an error if neither a send nor CreateChannel has created it.
func (s *shared) madeLocked(channelID string) (*log, error) {
	if l := s.logLocked(channelID); l.made {
		return l, nil
	}
	return nil, errNoChannel()
}

func errNoChannel() error {
	return errorAt(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND, "channel_id", 0)
}

// GetChannel implements the service.
func (h handler) GetChannel(ctx context.Context, req *parleyv1.GetChannelRequest) (*parleyv1.GetChannelResponse, error) {
	return do(ctx, h.s, "GetChannel", req, func() (*parleyv1.GetChannelResponse, error) {
		if _, err := h.s.usableLocked(ctx, req.GetChannelId()); err != nil {
			return nil, err
		}
		l, err := h.s.madeLocked(req.GetChannelId())
		if err != nil {
			return nil, err
		}
		return &parleyv1.GetChannelResponse{Channel: l.info()}, nil
	})
}

// UpdateChannel implements the service. No message expires because of a retention: see Trim.
func (h handler) UpdateChannel(
	ctx context.Context, req *parleyv1.UpdateChannelRequest,
) (*parleyv1.UpdateChannelResponse, error) {
	return do(ctx, h.s, "UpdateChannel", req, func() (*parleyv1.UpdateChannelResponse, error) {
		paths := req.GetUpdateMask().GetPaths()
		unknown := func(p string) bool { return p != "retention" && p != "members_only" }
		mode := slices.Contains(paths, "members_only")
		if len(paths) == 0 || slices.ContainsFunc(paths, unknown) || !mode && req.MembersOnly != nil {
			return nil, invalidField("update_mask", 0)
		}
		if mode && req.MembersOnly == nil {
			return nil, invalidField("members_only", 0)
		}
		l, err := h.s.madeLocked(req.GetChannelId())
		if err != nil {
			return nil, err
		}
		retention, membersOnly := l.retention, l.membersOnly
		if slices.Contains(paths, "retention") {
			retention = proto.CloneOf(req.GetRetention())
		}
		if mode {
			membersOnly = req.GetMembersOnly()
		}
		switch {
		case membersOnly == l.membersOnly && proto.Equal(retention, l.retention) && (retention == nil) == (l.retention == nil):
		case req.GetEtag() != "" && req.GetEtag() != l.info().GetEtag():
			return nil, errorAt(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH, "etag", 0)
		default:
			l.retention, l.membersOnly = retention, membersOnly
			l.settingsRev++
			h.s.wakeLocked()
		}
		return &parleyv1.UpdateChannelResponse{Channel: l.info()}, nil
	})
}

// DeleteChannel implements the service. The channel can be created again at once.
func (h handler) DeleteChannel(
	ctx context.Context, req *parleyv1.DeleteChannelRequest,
) (*parleyv1.DeleteChannelResponse, error) {
	return do(ctx, h.s, "DeleteChannel", req, func() (*parleyv1.DeleteChannelResponse, error) {
		l := h.s.logLocked(req.GetChannelId())
		switch {
		case l.deleted:
		case !l.made:
			return nil, errNoChannel()
		case req.GetEtag() != "" && req.GetEtag() != l.info().GetEtag():
			return nil, errorAt(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH, "etag", 0)
		default:
			l.delete()
			h.s.wakeLocked()
		}
		return &parleyv1.DeleteChannelResponse{}, nil
	})
}

// delete deletes the channel. Its log goes on after an entry that has no event.
func (l *log) delete() {
	l.entries = append(l.entries, entry{kind: "access", at: time.Now()})
	l.oldest, l.made, l.deleted = l.head()+1, false, true
	clear(l.messages)
	clear(l.byClient)
	clear(l.members)
	l.title = ""
	l.settingsRev++
}

// AddMembers implements the service.
func (h handler) AddMembers(ctx context.Context, req *parleyv1.AddMembersRequest) (*parleyv1.AddMembersResponse, error) {
	return do(ctx, h.s, "AddMembers", req, func() (*parleyv1.AddMembersResponse, error) {
		ids := userIDs(req.GetMembers())
		if err := h.s.managesLocked(ctx, ids, "subscribe"); err != nil {
			return nil, err
		}
		l, err := h.s.madeLocked(req.GetChannelId())
		if err != nil {
			return nil, err
		}
		if _, err := h.s.usableLocked(ctx, req.GetChannelId()); err != nil {
			return nil, err
		}
		for _, id := range ids {
			l.join(id, isMember)
		}
		h.s.wakeLocked()
		return &parleyv1.AddMembersResponse{}, nil
	})
}

// managesLocked returns an error if the caller may not add or remove the users. That requires
// manage. If the caller is the only user, the given action is enough; an empty action requires
// none.
func (s *shared) managesLocked(ctx context.Context, userIDs []string, action string) error {
	self := len(slices.Compact(slices.Sorted(slices.Values(userIDs)))) == 1 && userIDs[0] == s.userLocked(ctx)
	if s.canLocked(ctx, "manage") || self && (action == "" || s.canLocked(ctx, action)) {
		return nil
	}
	return missing("")
}

// UpdateMember implements the service.
func (h handler) UpdateMember(
	ctx context.Context, req *parleyv1.UpdateMemberRequest,
) (*parleyv1.UpdateMemberResponse, error) {
	return do(ctx, h.s, "UpdateMember", req, func() (*parleyv1.UpdateMemberResponse, error) {
		if req.GetRole() < isMember || req.GetRole() > owner {
			return nil, invalidField("role", 0)
		}
		l, err := h.s.madeLocked(req.GetChannelId())
		if err != nil {
			return nil, err
		}
		l.join(req.GetUserId(), isMember)
		l.members[req.GetUserId()].role = req.GetRole()
		h.s.wakeLocked()
		return &parleyv1.UpdateMemberResponse{}, nil
	})
}

// RemoveMembers implements the service.
func (h handler) RemoveMembers(
	ctx context.Context, req *parleyv1.RemoveMembersRequest,
) (*parleyv1.RemoveMembersResponse, error) {
	return do(ctx, h.s, "RemoveMembers", req, func() (*parleyv1.RemoveMembersResponse, error) {
		if err := h.s.managesLocked(ctx, req.GetUserIds(), ""); err != nil {
			return nil, err
		}
		l := h.s.logLocked(req.GetChannelId())
		// Callers without manage must not learn whether the channel exists.
		if !l.made && h.s.canLocked(ctx, "manage") { // or it was deleted
			return nil, errNoChannel()
		}
		for _, id := range req.GetUserIds() {
			delete(l.members, id)
		}
		h.s.wakeLocked()
		return &parleyv1.RemoveMembersResponse{}, nil
	})
}

// pageLocked returns the page of the sorted ids that follows token, and the token of the next page,
// or "" if there is none. A size of 0 means preset; more than most means most.
func (s *Server) pageLocked(
	ctx context.Context, ids []string, query, token string, size, preset, most int32,
) (page []string, next string, err error) {
	last, err := s.openLocked(ctx, token, query, "")
	if err != nil {
		return nil, "", err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return id <= last })
	n := min(int(cmp.Or(size, preset)), int(most))
	if s.pageSize > 0 {
		n = min(n, s.pageSize)
	}
	if len(ids) <= n {
		return ids, "", nil
	}
	return ids[:n], s.sealLocked(ctx, query, "", ids[n-1]), nil
}

// ListMembers implements the service. A page token contains the last id of the previous page.
func (h handler) ListMembers(ctx context.Context, req *parleyv1.ListMembersRequest) (*parleyv1.ListMembersResponse, error) {
	return do(ctx, h.s, "ListMembers", req, func() (*parleyv1.ListMembersResponse, error) {
		l, err := h.s.usableLocked(ctx, req.GetChannelId())
		if err != nil {
			return nil, err
		}
		all, query := slices.Sorted(maps.Keys(l.members)), "members "+req.GetChannelId()
		ids, next, err := h.s.pageLocked(ctx, all, query, req.GetPageToken(), req.GetPageSize(), 100, 1000)
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ListMembersResponse{NextPageToken: next, Epoch: l.epoch}
		for _, id := range ids {
			m := l.members[id]
			res.Members = append(res.Members, &parleyv1.ChannelMember{
				UserId: id, Role: m.role, JoinTime: timestamppb.New(m.joined), ReadSeq: m.read,
			})
		}
		return res, nil
	})
}

// ListChannels implements the service. A page token contains the last id of the previous page.
func (h handler) ListChannels(ctx context.Context, req *parleyv1.ListChannelsRequest) (*parleyv1.ListChannelsResponse, error) {
	return do(ctx, h.s, "ListChannels", req, func() (*parleyv1.ListChannelsResponse, error) {
		user := h.s.userLocked(ctx)
		var mine []string
		for id, l := range h.s.channels {
			if !isSession(id) && l.members[user] != nil && l.admits(user) {
				mine = append(mine, id)
			}
		}
		slices.Sort(mine)
		ids, next, err := h.s.pageLocked(ctx, mine, "channels", req.GetPageToken(), req.GetPageSize(), 50, 200)
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ListChannelsResponse{NextPageToken: next}
		for _, id := range ids {
			l := h.s.channels[id]
			read := l.members[user].read
			res.Channels = append(res.Channels, &parleyv1.UserChannel{
				Channel: l.info(), ReadSeq: read, Unread: l.unread(read), LastMessage: l.lastMessage(),
			})
		}
		return res, nil
	})
}

func (l *log) lastMessage() *parleyv1.ChannelMessage {
	for _, e := range slices.Backward(l.entries) {
		if e.kind == "sent" && l.messages[e.msgID] != nil {
			return proto.CloneOf(l.messages[e.msgID])
		}
	}
	return nil
}

// MarkRead implements the service.
func (h handler) MarkRead(ctx context.Context, req *parleyv1.MarkReadRequest) (*parleyv1.MarkReadResponse, error) {
	return do(ctx, h.s, "MarkRead", req, func() (*parleyv1.MarkReadResponse, error) { return h.s.markReadLocked(ctx, req) })
}

func (s *shared) markReadLocked(ctx context.Context, req *parleyv1.MarkReadRequest) (*parleyv1.MarkReadResponse, error) {
	l, err := s.usableLocked(ctx, req.GetChannelId())
	if err != nil {
		return nil, err
	}
	user := s.userLocked(ctx)
	switch {
	case req.GetSeq() > l.head():
		return nil, outOfRange("seq", l.head())
	case !l.admits(user): // a holder of manage that is not a member has no read cursor
		return nil, notMember("")
	}
	l.read(user, req.GetSeq(), true)
	read := l.members[user].read
	return &parleyv1.MarkReadResponse{ReadSeq: read, Unread: l.unread(read), Epoch: l.epoch}, nil
}

// SendTyping implements the service. The live streams of all nodes receive the event, including the
// caller's.
func (h handler) SendTyping(ctx context.Context, req *parleyv1.SendTypingRequest) (*parleyv1.SendTypingResponse, error) {
	return do(ctx, h.s, "SendTyping", req, func() (*parleyv1.SendTypingResponse, error) {
		if _, err := h.s.usableLocked(ctx, req.GetChannelId()); err != nil {
			return nil, err
		}
		event := &parleyv1.ChannelEvent{
			ChannelId: req.GetChannelId(),
			Event:     &parleyv1.ChannelEvent_Typing{Typing: &parleyv1.Typing{UserId: h.s.userLocked(ctx)}},
		}
		for _, one := range h.s.streams {
			if p := one.places[req.GetChannelId()]; p != nil && p.begun {
				one.typing = append(one.typing, event)
			}
		}
		h.s.wakeLocked()
		return &parleyv1.SendTypingResponse{}, nil
	})
}
