package queue

import (
	"context"
	"iter"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// DeadMessage is a dead letter: a message that is no longer retried.
type DeadMessage = parleyv1.DeadLetter

// DeadLetterOption sets which dead letters DeadLetters lists.
type DeadLetterOption func(*parleyv1.ListDeadLettersRequest)

// WithCode lists only dead letters with this failure code.
func WithCode(code string) DeadLetterOption {
	return func(r *parleyv1.ListDeadLettersRequest) { r.Code = code }
}

// DeadLetters iterates over the dead letters of a group with their payloads and headers, newest
// first. An empty group means all groups. It fails with parley.ErrGroupNotFound for a group that
// does not exist and left no dead letters. Each page is a call. If a call fails, the iteration ends
// with its error.
func (a *Admin) DeadLetters(ctx context.Context, topic, group string, opts ...DeadLetterOption) iter.Seq2[*DeadMessage, error] {
	return link.Pages(func(token string) ([]*DeadMessage, string, error) {
		req := &parleyv1.ListDeadLettersRequest{Topic: topic, Group: group, PageToken: token, Full: true}
		for _, opt := range opts {
			opt(req)
		}
		res, err := adminCall(ctx, a, "ListDeadLetters",
			func(s *link.Services) func(context.Context, *parleyv1.ListDeadLettersRequest) (*parleyv1.ListDeadLettersResponse, error) {
				return s.Admin.ListDeadLetters
			}, req)
		return res.GetDeadLetters(), res.GetNextPageToken(), err
	})
}

// Selection selects dead letters of a topic: DeadLetterIDs, DeadLettersOf or AllDeadLetters. The
// zero value selects nothing, for which calls return parley.ErrInvalidField.
type Selection struct{ wire *parleyv1.DeadLetterSelection }

// DeadLetterIDs selects dead letters by their ids, 1 to 1,000. Without ids, calls return
// parley.ErrInvalidField.
func DeadLetterIDs(ids ...string) Selection {
	return Selection{&parleyv1.DeadLetterSelection{
		Selection: &parleyv1.DeadLetterSelection_Ids{Ids: &parleyv1.DeadLetterIds{DeadLetterIds: ids}},
	}}
}

// DeadLettersOf selects all dead letters of one group.
func DeadLettersOf(group string) Selection {
	return Selection{&parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_Group{Group: group}}}
}

// AllDeadLetters selects all dead letters of the topic.
func AllDeadLetters() Selection {
	return Selection{&parleyv1.DeadLetterSelection{
		Selection: &parleyv1.DeadLetterSelection_All{All: &parleyv1.AllDeadLetters{}},
	}}
}

// ReplayOption sets a property of ReplayDeadLetters.
type ReplayOption func(*parleyv1.ReplayDeadLettersRequest)

// WithLimit sets how many dead letters one call replays at most: 1 to 10,000. The default is 1,000.
func WithLimit(n int) ReplayOption {
	return func(r *parleyv1.ReplayDeadLettersRequest) { r.Limit = int32(min(max(n, 1), 10_000)) }
}

// ToTopic produces the dead letters as new messages of another topic, for all of its groups, and
// deletes them.
func ToTopic(topic string) ReplayOption {
	return func(r *parleyv1.ReplayDeadLettersRequest) { r.ToTopic = topic }
}

// ReplayDeadLetters delivers dead letters to their groups again, or moves them to another topic
// (see ToTopic), the oldest of each partition first, up to the limit in one call. Each is replayed
// once, however often the call is repeated. It returns how many it replayed, and whether there may
// be more. If an answer was lost, the number counts only the last attempt. It returns
// parley.ErrGroupNotFound for a group that does not exist, even if it left dead letters.
func (a *Admin) ReplayDeadLetters(
	ctx context.Context, topic string, letters Selection, opts ...ReplayOption,
) (replayed int64, more bool, err error) {
	req := &parleyv1.ReplayDeadLettersRequest{Topic: topic, Selection: letters.wire}
	for _, opt := range opts {
		opt(req)
	}
	res, err := adminCall(ctx, a, "ReplayDeadLetters",
		func(s *link.Services) func(context.Context, *parleyv1.ReplayDeadLettersRequest) (*parleyv1.ReplayDeadLettersResponse, error) {
			return s.Admin.ReplayDeadLetters
		}, req)
	return res.GetReplayed(), res.GetMore(), err
}
