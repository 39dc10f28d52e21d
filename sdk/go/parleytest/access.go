package parleytest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// requiredActions lists, by method, the actions of which a call for one channel requires at least
// one.
var requiredActions = map[string][]string{
	"SendMessage": {"send"}, "EditMessage": {"send"}, "SendTyping": {"send"}, "RecallMessage": {"send", "moderate"},
	"ListMessages": {"history"}, "GetMessage": {"history"}, "MarkRead": {"history"}, "ListMembers": {"history"},
	"GetChannel": {"history"}, "CreateChannel": {"create", "manage"}, "UpdateChannel": {"manage"}, "DeleteChannel": {"manage"},
	"UpdateMember": {"manage"},
	"UpdateWatch":  {"watch"}, "WatchChannel": {"watch"}, "UnwatchChannel": {"watch"}, "GetPresence": {"watch"},
	"AppendSessionMessage": {"append"}, "AppendSessionDelta": {"append"}, "CloseSessionMessage": {"append"},
	"CancelSessionMessage": {"append", "manage"}, "ListSessionMessages": {"history"}, "EditSessionMessage": {"append"},
	"RecallSessionMessage": {"append"}, "MarkSessionRead": {"history"}, "DeleteSession": {"append", "manage"}, "RenameSession": {"append", "manage"},
	"SetBackground": {"connect"}, "Disconnect": {"connect", "watch"}, "ListOnlineUsers": {"list"},
}

// SetActions limits a token to the given actions, which it then has on all channels and sessions.
// The actions are send, history, subscribe, moderate, send_as and manage, append on sessions, and
// connect, watch and list of presence. Without actions, the token has none.
// A token that SetActions was not called for has all of them; because of manage, its user can use
// members-only channels without being a member. SetActions can be called again at any time, and
// concurrently.
func (s *Server) SetActions(token string, actions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actions[token] = slices.Clone(actions)
}

// canLocked reports whether the caller's token has at least one of the actions.
func (s *shared) canLocked(ctx context.Context, actions ...string) bool {
	held, limited := s.actions[tokenOf(ctx)]
	return !limited || slices.ContainsFunc(actions, func(a string) bool { return slices.Contains(held, a) })
}

// checkLocked returns an error if a field of the request is invalid, or if the caller's token lacks
// the action that the method requires.
func (s *shared) checkLocked(ctx context.Context, method string, req proto.Message) error {
	if err := checkForm(req); err != nil {
		return err
	}
	if actions := requiredActions[method]; len(actions) > 0 && !s.canLocked(ctx, actions...) {
		return missing("")
	}
	return nil
}

// missing returns the error for a token that lacks a required action.
func missing(field string) error {
	return errorAt(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING, field, 0)
}

// admitsLocked reports whether the caller may use a channel: it is open, or the caller is a member
// or has manage.
func (s *shared) admitsLocked(ctx context.Context, l *log) bool {
	return l.admits(s.userLocked(ctx)) || s.canLocked(ctx, "manage")
}

// usableLocked returns the channel, or an error if the caller may not use it.
func (s *shared) usableLocked(ctx context.Context, channelID string) (*log, error) {
	l := s.logLocked(channelID)
	switch {
	case l.deleted, isSession(channelID) && !s.hasSessionLocked(ctx, l):
		return nil, refusal(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND, "", nil)
	case !s.admitsLocked(ctx, l):
		return nil, notMember("")
	}
	return l, nil
}

// refusedLocked returns an error with all channels to which the caller may not subscribe, or nil.
// field is the name of the request's field that contains the channels.
func (s *shared) refusedLocked(ctx context.Context, field string, channels []*parleyv1.ChannelPosition) error {
	var refused, deleted []string
	first, firstDeleted := "", ""
	for i, p := range channels {
		at := fmt.Sprintf("%s[%d].channel_id", field, i)
		if !s.canLocked(ctx, "subscribe") {
			return missing(at)
		}
		if l := s.logLocked(p.GetChannelId()); l.deleted || isSession(l.id) && !s.hasSessionLocked(ctx, l) {
			deleted, firstDeleted = append(deleted, l.id), cmp.Or(firstDeleted, at)
			continue
		}
		if !s.admitsLocked(ctx, s.logLocked(p.GetChannelId())) && !slices.Contains(refused, p.GetChannelId()) {
			if refused = append(refused, p.GetChannelId()); first == "" {
				first = at
			}
		}
	}
	switch {
	case len(refused) > 0:
		return notMember(first, refused...)
	case len(deleted) > 0:
		return refusal(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND, firstDeleted, deleted)
	default:
		return nil
	}
}

// notMember returns the error for a caller that is not a member. Its positions list channels, which
// only subscriptions pass.
func notMember(field string, channels ...string) error {
	return refusal(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER, field, channels)
}

// refusal returns an error whose positions list channels.
func refusal(code connect.Code, reason parleyv1.ErrorReason, field string, channels []string) error {
	detail := &parleyv1.ErrorDetail{Reason: reason, Field: field, RequestId: requestID}
	for _, id := range channels {
		detail.Positions = append(detail.Positions, &parleyv1.LastPosition{ChannelId: id})
	}
	return ErrorDetail(code, detail)
}
