package queue

import (
	"context"
	"iter"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// CreateGroup creates a consumer group. The zero Start means the beginning. If the group exists, it
// returns parley.ErrGroupExists and changes nothing.
func (a *Admin) CreateGroup(ctx context.Context, topic, group string, start Start) error {
	_, err := adminCall(ctx, a, "CreateGroup",
		func(ctx context.Context, s *link.Services, r *parleyv1.CreateGroupRequest) (*parleyv1.CreateGroupResponse, error) {
			return s.Admin.CreateGroup(ctx, r)
		}, &parleyv1.CreateGroupRequest{Topic: topic, Group: group, Start: start.wire}, parley.ErrGroupExists)
	return err
}

// DeleteGroup deletes a consumer group and its pending retries. Its dead letters stay. It returns
// parley.ErrConfirmationRequired if confirm is not the group's name.
func (a *Admin) DeleteGroup(ctx context.Context, topic, group, confirm string) error {
	_, err := adminCall(ctx, a, "DeleteGroup",
		func(ctx context.Context, s *link.Services, r *parleyv1.DeleteGroupRequest) (*parleyv1.DeleteGroupResponse, error) {
			return s.Admin.DeleteGroup(ctx, r)
		}, &parleyv1.DeleteGroupRequest{Topic: topic, Group: group, Confirm: confirm}, parley.ErrGroupNotFound)
	return err
}

// SeekGroup moves a consumer group to another position of the topic. Its deliveries in flight,
// waiting messages and retries are dropped. It returns parley.ErrGroupInUse while a consumer is
// connected, and parley.ErrInvalidField for the zero Start.
func (a *Admin) SeekGroup(ctx context.Context, topic, group string, start Start) error {
	_, err := adminCall(ctx, a, "SeekGroup",
		func(ctx context.Context, s *link.Services, r *parleyv1.SeekGroupRequest) (*parleyv1.SeekGroupResponse, error) {
			return s.Admin.SeekGroup(ctx, r)
		}, &parleyv1.SeekGroupRequest{Topic: topic, Group: group, Start: start.wire}, nil)
	return err
}

// Partitions returns a topic's partitions and, unless group is empty, the owner of each in that
// group.
func (a *Admin) Partitions(ctx context.Context, topic, group string) ([]*PartitionOwner, error) {
	res, err := adminCall(ctx, a, "ListPartitions",
		func(ctx context.Context, s *link.Services, r *parleyv1.ListPartitionsRequest) (*parleyv1.ListPartitionsResponse, error) {
			return s.Admin.ListPartitions(ctx, r)
		}, &parleyv1.ListPartitionsRequest{Topic: topic, Group: group}, nil)
	return res.GetPartitions(), err
}

// PendingOrder is the order in which Pending yields deliveries.
type PendingOrder = parleyv1.PendingOrder

// The orders of Pending.
const (
	// ByIdle yields first the delivery that was delivered the longest time ago.
	ByIdle PendingOrder = parleyv1.PendingOrder_PENDING_ORDER_IDLE
	// ByAttempts yields the delivery with the most attempts first.
	ByAttempts PendingOrder = parleyv1.PendingOrder_PENDING_ORDER_ATTEMPTS
)

// Pending iterates over a group's unsettled deliveries, in the given order. Each page is a call. If
// a call fails, the iteration ends with its error.
func (a *Admin) Pending(ctx context.Context, topic, group string, order PendingOrder) iter.Seq2[*PendingDelivery, error] {
	return link.Pages(func(token string) ([]*PendingDelivery, string, error) {
		res, err := adminCall(ctx, a, "ListPending",
			func(ctx context.Context, s *link.Services, r *parleyv1.ListPendingRequest) (*parleyv1.ListPendingResponse, error) {
				return s.Admin.ListPending(ctx, r)
			}, &parleyv1.ListPendingRequest{Topic: topic, Group: group, Order: order, PageToken: token}, nil)
		return res.GetPending(), res.GetNextPageToken(), err
	})
}

// DeadLetters iterates over the dead letters of a group, newest first. An empty group means all
// groups. It fails with parley.ErrGroupNotFound for a group that does not exist and left no dead
// letters. Each page is a call. If a call fails, the iteration ends with its error.
func (a *Admin) DeadLetters(ctx context.Context, topic, group string) iter.Seq2[*DeadMessage, error] {
	return link.Pages(func(token string) ([]*DeadMessage, string, error) {
		res, err := adminCall(ctx, a, "ListDeadLetters",
			func(ctx context.Context, s *link.Services, r *parleyv1.ListDeadLettersRequest) (*parleyv1.ListDeadLettersResponse, error) {
				return s.Admin.ListDeadLetters(ctx, r)
			}, &parleyv1.ListDeadLettersRequest{Topic: topic, Group: group, PageToken: token}, nil)
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

// ReplayOption sets a property of a replay.
type ReplayOption func(*parleyv1.ReplayDeadLettersRequest)

// WithLimit sets how many dead letters one call replays at most: 1 to 10,000. The default is 1,000.
func WithLimit(n int) ReplayOption {
	return func(r *parleyv1.ReplayDeadLettersRequest) { r.Limit = int32(min(max(n, -1), 1<<30)) }
}

// WithPartition sets the partition to replay to. The default is the dead letter's own. In another
// partition the order of keys does not hold.
func WithPartition(partition int) ReplayOption {
	return func(r *parleyv1.ReplayDeadLettersRequest) { r.Partition = new(int32(min(max(partition, -1), 1<<30))) }
}

// ReplayDeadLetters returns dead letters to their groups, the oldest of each partition first. Each
// is replayed once, however often the call is repeated. It returns how many it replayed, and
// whether there may be more. If an answer was lost, the number counts only the last attempt. It
// returns parley.ErrGroupNotFound for a group that does not exist, even if it left dead letters.
func (a *Admin) ReplayDeadLetters(
	ctx context.Context, topic string, letters Selection, opts ...ReplayOption,
) (replayed int64, more bool, err error) {
	req := &parleyv1.ReplayDeadLettersRequest{Topic: topic, Selection: letters.wire}
	for _, opt := range opts {
		opt(req)
	}
	res, err := adminCall(ctx, a, "ReplayDeadLetters",
		func(ctx context.Context, s *link.Services, r *parleyv1.ReplayDeadLettersRequest) (*parleyv1.ReplayDeadLettersResponse, error) {
			return s.Admin.ReplayDeadLetters(ctx, r)
		}, req, nil)
	return res.GetReplayed(), res.GetMore(), err
}

// PurgeDeadLetters deletes dead letters and returns how many. If an answer was lost, the number
// counts only the last attempt. It returns parley.ErrConfirmationRequired if confirm is not the
// topic's name, and parley.ErrGroupNotFound for a group that does not exist and left no dead
// letters.
func (a *Admin) PurgeDeadLetters(ctx context.Context, topic string, letters Selection, confirm string) (int64, error) {
	res, err := adminCall(ctx, a, "PurgeDeadLetters",
		func(ctx context.Context, s *link.Services, r *parleyv1.PurgeDeadLettersRequest) (*parleyv1.PurgeDeadLettersResponse, error) {
			return s.Admin.PurgeDeadLetters(ctx, r)
		}, &parleyv1.PurgeDeadLettersRequest{Topic: topic, Selection: letters.wire, Confirm: confirm}, parley.ErrGroupNotFound)
	return res.GetPurged(), err
}
