package queue

import (
	"context"
	"iter"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// CreateGroup makes a consumer group. Over an existing one it is parley.ErrGroupExists.
func (a *Admin) CreateGroup(ctx context.Context, topic, group string, start Start) error {
	_, err := adminCall(ctx, a, "CreateGroup",
		func(ctx context.Context, s *link.Services, r *parleyv1.CreateGroupRequest) (*parleyv1.CreateGroupResponse, error) {
			return s.Admin.CreateGroup(ctx, r)
		}, &parleyv1.CreateGroupRequest{Topic: topic, Group: group, Start: start.wire()}, parley.ErrGroupExists)
	return err
}

// DeleteGroup removes a consumer group with all that waits in it for a retry. confirm must be the group's name.
func (a *Admin) DeleteGroup(ctx context.Context, topic, group, confirm string) error {
	_, err := adminCall(ctx, a, "DeleteGroup",
		func(ctx context.Context, s *link.Services, r *parleyv1.DeleteGroupRequest) (*parleyv1.DeleteGroupResponse, error) {
			return s.Admin.DeleteGroup(ctx, r)
		}, &parleyv1.DeleteGroupRequest{Topic: topic, Group: group, Confirm: confirm}, parley.ErrGroupNotFound)
	return err
}

// SeekGroup moves a consumer group to another place of the topic, where it begins anew. While a consumer is connected it is
// parley.ErrGroupInUse.
func (a *Admin) SeekGroup(ctx context.Context, topic, group string, start Start) error {
	_, err := adminCall(ctx, a, "SeekGroup",
		func(ctx context.Context, s *link.Services, r *parleyv1.SeekGroupRequest) (*parleyv1.SeekGroupResponse, error) {
			return s.Admin.SeekGroup(ctx, r)
		}, &parleyv1.SeekGroupRequest{Topic: topic, Group: group, Start: start.wire()}, nil)
	return err
}

// Partitions gives a topic's partitions, and for a group, unless that is empty, who has each of them.
func (a *Admin) Partitions(ctx context.Context, topic, group string) ([]*PartitionOwner, error) {
	res, err := adminCall(ctx, a, "ListPartitions",
		func(ctx context.Context, s *link.Services, r *parleyv1.ListPartitionsRequest) (*parleyv1.ListPartitionsResponse, error) {
			return s.Admin.ListPartitions(ctx, r)
		}, &parleyv1.ListPartitionsRequest{Topic: topic, Group: group}, nil)
	return res.GetPartitions(), err
}

// Pending iterates over what a group has been delivered and has not settled: the longest idle first, or byAttempts the most often
// tried. An error is the last thing it yields.
func (a *Admin) Pending(ctx context.Context, topic, group string, byAttempts bool) iter.Seq2[*PendingDelivery, error] {
	order := parleyv1.PendingOrder_PENDING_ORDER_IDLE
	if byAttempts {
		order = parleyv1.PendingOrder_PENDING_ORDER_ATTEMPTS
	}
	return link.Pages(func(token string) ([]*PendingDelivery, string, error) {
		res, err := adminCall(ctx, a, "ListPending",
			func(ctx context.Context, s *link.Services, r *parleyv1.ListPendingRequest) (*parleyv1.ListPendingResponse, error) {
				return s.Admin.ListPending(ctx, r)
			}, &parleyv1.ListPendingRequest{Topic: topic, Group: group, Order: order, PageToken: token}, nil)
		return res.GetPending(), res.GetNextPageToken(), err
	})
}

// DeadLetters iterates over a topic's dead letters, the newest first; of one group, unless that is empty. It is parley.ErrGroupNotFound
// if there is no such group, and none of a deleted one. An error is the last thing it yields.
func (a *Admin) DeadLetters(ctx context.Context, topic, group string) iter.Seq2[*DeadMessage, error] {
	return link.Pages(func(token string) ([]*DeadMessage, string, error) {
		res, err := adminCall(ctx, a, "ListDeadLetters",
			func(ctx context.Context, s *link.Services, r *parleyv1.ListDeadLettersRequest) (*parleyv1.ListDeadLettersResponse, error) {
				return s.Admin.ListDeadLetters(ctx, r)
			}, &parleyv1.ListDeadLettersRequest{Topic: topic, Group: group, PageToken: token}, nil)
		return res.GetDeadLetters(), res.GetNextPageToken(), err
	})
}

// Replay says which dead letters ReplayDeadLetters gives back.
type Replay struct {
	// Group bounds it to one group's; empty is all. One that is not there is parley.ErrGroupNotFound.
	Group string
	// IDs are the dead letters', up to 1,000; none is all, up to Limit.
	IDs []string
	// Limit is at most 10,000; 0 is 1,000.
	Limit int
	// Partition is where they go; nil is their own.
	Partition *int
}

// ReplayDeadLetters gives dead letters back to the groups that they are of, each once, however often it is called. It tells how many,
// and whether there may be more. After a lost answer it tells of the rest only.
func (a *Admin) ReplayDeadLetters(ctx context.Context, topic string, r Replay) (replayed int64, more bool, err error) {
	req := &parleyv1.ReplayDeadLettersRequest{
		Topic: topic, Group: r.Group, DeadLetterIds: r.IDs, Limit: int32(min(max(r.Limit, 0), 1<<30)),
	}
	if r.Partition != nil {
		req.Partition = new(int32(min(max(*r.Partition, -1), 1<<30)))
	}
	res, err := adminCall(ctx, a, "ReplayDeadLetters",
		func(ctx context.Context, s *link.Services, r *parleyv1.ReplayDeadLettersRequest) (*parleyv1.ReplayDeadLettersResponse, error) {
			return s.Admin.ReplayDeadLetters(ctx, r)
		}, req, nil)
	return res.GetReplayed(), res.GetMore(), err
}

// PurgeDeadLetters removes the dead letters of ids for good: of a group, unless that is empty; without ids it does nothing. confirm must
// be the topic's name. It tells how many; after a lost answer it tells of the rest only. It is parley.ErrGroupNotFound if there is no
// such group, and none of a deleted one.
func (a *Admin) PurgeDeadLetters(ctx context.Context, topic, group, confirm string, ids ...string) (int64, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	return a.purge(ctx, topic, group, confirm, ids)
}

// PurgeAllDeadLetters removes all dead letters for good, else as PurgeDeadLetters.
func (a *Admin) PurgeAllDeadLetters(ctx context.Context, topic, group, confirm string) (int64, error) {
	return a.purge(ctx, topic, group, confirm, nil)
}

func (a *Admin) purge(ctx context.Context, topic, group, confirm string, ids []string) (int64, error) {
	res, err := adminCall(ctx, a, "PurgeDeadLetters",
		func(ctx context.Context, s *link.Services, r *parleyv1.PurgeDeadLettersRequest) (*parleyv1.PurgeDeadLettersResponse, error) {
			return s.Admin.PurgeDeadLetters(ctx, r)
		}, &parleyv1.PurgeDeadLettersRequest{Topic: topic, Group: group, DeadLetterIds: ids, Confirm: confirm}, parley.ErrGroupNotFound)
	return res.GetPurged(), err
}
