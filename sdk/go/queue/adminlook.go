package queue

import (
	"context"
	"iter"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

type (
	// TopicStats counts the messages of a topic.
	TopicStats = parleyv1.TopicStats
	// PartitionStats counts the messages of one partition.
	PartitionStats = parleyv1.PartitionStats
	// GroupStats counts the messages of a consumer group.
	GroupStats = parleyv1.GroupStats
	// DeadMessage is a dead letter: a message without attempts left.
	DeadMessage = parleyv1.DeadLetter
)

// Stats returns the number of messages of a topic by state: in total, and for each partition in
// order.
func (a *Admin) Stats(ctx context.Context, topic string) (total *TopicStats, partitions []*PartitionStats, err error) {
	res, err := adminCall(ctx, a, "GetTopicStats",
		func(s *link.Services) func(context.Context, *parleyv1.GetTopicStatsRequest) (*parleyv1.GetTopicStatsResponse, error) {
			return s.Admin.GetTopicStats
		}, &parleyv1.GetTopicStatsRequest{Topic: topic})
	return res.GetTotal(), res.GetPartitions(), err
}

// DeadLetters iterates over the dead letters of a group with their payloads and headers, newest
// first. An empty group means all groups. It fails with parley.ErrGroupNotFound for a group that
// does not exist and left no dead letters. Each page is a call. If a call fails, the iteration ends
// with its error.
func (a *Admin) DeadLetters(ctx context.Context, topic, group string) iter.Seq2[*DeadMessage, error] {
	return link.Pages(func(token string) ([]*DeadMessage, string, error) {
		res, err := adminCall(ctx, a, "ListDeadLetters",
			func(s *link.Services) func(context.Context, *parleyv1.ListDeadLettersRequest) (*parleyv1.ListDeadLettersResponse, error) {
				return s.Admin.ListDeadLetters
			}, &parleyv1.ListDeadLettersRequest{Topic: topic, Group: group, PageToken: token, Full: true})
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

// ReplayDeadLetters returns dead letters to their groups, the oldest of each partition first, up to
// 1,000 in one call. Each is replayed once, however often the call is repeated. It returns how many
// it replayed, and whether there may be more. If an answer was lost, the number counts only the
// last attempt. It returns parley.ErrGroupNotFound for a group that does not exist, even if it left
// dead letters.
func (a *Admin) ReplayDeadLetters(ctx context.Context, topic string, letters Selection) (replayed int64, more bool, err error) {
	res, err := adminCall(ctx, a, "ReplayDeadLetters",
		func(s *link.Services) func(context.Context, *parleyv1.ReplayDeadLettersRequest) (*parleyv1.ReplayDeadLettersResponse, error) {
			return s.Admin.ReplayDeadLetters
		}, &parleyv1.ReplayDeadLettersRequest{Topic: topic, Selection: letters.wire})
	return res.GetReplayed(), res.GetMore(), err
}
