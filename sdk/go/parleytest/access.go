package parleytest

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// requiredActions holds the actions of which a call about one channel requires any.
var requiredActions = map[string][]string{
	"SendMessage": {"send"}, "EditMessage": {"send"}, "SendTyping": {"send"}, "RecallMessage": {"send", "moderate"},
	"ListMessages": {"history"}, "GetMessage": {"history"}, "MarkRead": {"history"}, "ListMembers": {"history"},
	"CreateChannel": {"manage"},
}

// SetActions limits a token to actions on channels: send, history, subscribe, moderate, send_as and
// manage. A token for which the test has set none has all of them, and its holder can use
// members-only channels without being a member, as any holder of manage can.
func (s *Server) SetActions(token string, actions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actions[token] = slices.Clone(actions)
}

// canLocked reports whether the caller's token has one of the actions.
func (s *shared) canLocked(ctx context.Context, actions ...string) bool {
	held, limited := s.actions[tokenOf(ctx)]
	return !limited || slices.ContainsFunc(actions, func(a string) bool { return slices.Contains(held, a) })
}

// checkLocked checks a request's fields and the capabilities of the caller's token.
func (s *shared) checkLocked(ctx context.Context, method string, req proto.Message) error {
	if err := checkForm(req); err != nil {
		return err
	}
	if actions := requiredActions[method]; len(actions) > 0 && !s.canLocked(ctx, actions...) {
		return missing("")
	}
	return nil
}

// missing returns the error of a token without the action that a call requires.
func missing(field string) error {
	return errorAt(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING, field, 0)
}

// admitsLocked reports whether the caller may use a channel.
func (s *shared) admitsLocked(ctx context.Context, l *log) bool {
	return l.admits(s.userLocked(ctx)) || s.canLocked(ctx, "manage")
}

// usableLocked returns a channel that the caller may use.
func (s *shared) usableLocked(ctx context.Context, channelID string) (*log, error) {
	l := s.logLocked(channelID)
	if !s.admitsLocked(ctx, l) {
		return nil, notMember("")
	}
	return l, nil
}

// refusedLocked returns the error for channels to which the caller may not subscribe, or nil. field
// is the one that lists them.
func (s *shared) refusedLocked(ctx context.Context, field string, channels []*parleyv1.ChannelPosition) error {
	var refused []string
	first := ""
	for i, p := range channels {
		at := fmt.Sprintf("%s[%d].channel_id", field, i)
		if !s.canLocked(ctx, "subscribe") {
			return missing(at)
		}
		if !s.admitsLocked(ctx, s.logLocked(p.GetChannelId())) && !slices.Contains(refused, p.GetChannelId()) {
			if refused = append(refused, p.GetChannelId()); first == "" {
				first = at
			}
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return notMember(first, refused...)
}

// notMember returns the error for users that are not members. positions lists the channels of a
// Subscribe.
func notMember(field string, channels ...string) error {
	detail := &parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER, Field: field, RequestId: requestID}
	for _, id := range channels {
		detail.Positions = append(detail.Positions, &parleyv1.LastPosition{ChannelId: id})
	}
	return ErrorDetail(connect.CodePermissionDenied, detail)
}
