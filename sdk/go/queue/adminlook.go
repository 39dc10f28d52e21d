package queue

import (
	"context"
	"iter"
	"slices"

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
	// Job is a message and what each group did with it.
	Job = parleyv1.JobInfo
	// JobInGroup is the state of a message in one group.
	JobInGroup = parleyv1.JobInGroup
	// JobState is the state of a message in a group.
	JobState = parleyv1.JobState
	// ConsumerInfo is one session of a group, and what it works on.
	ConsumerInfo = parleyv1.ConsumerInfo
	// PartitionLease says which node dispatches a partition to a group.
	PartitionLease = parleyv1.PartitionLease
)

// The values of JobState. AnyState selects the messages of all states but Settled and Dead.
const (
	AnyState  JobState = parleyv1.JobState_JOB_STATE_UNSPECIFIED
	Scheduled JobState = parleyv1.JobState_JOB_STATE_SCHEDULED
	Waiting   JobState = parleyv1.JobState_JOB_STATE_WAITING
	Sent      JobState = parleyv1.JobState_JOB_STATE_SENT
	Running   JobState = parleyv1.JobState_JOB_STATE_RUNNING
	Retrying  JobState = parleyv1.JobState_JOB_STATE_RETRYING
	Settled   JobState = parleyv1.JobState_JOB_STATE_SETTLED
	Dead      JobState = parleyv1.JobState_JOB_STATE_DEAD
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

// Job returns one message with its payload, and its state in each group. It returns
// parley.ErrMessageNotFound if the message does not exist or is no longer stored.
func (a *Admin) Job(ctx context.Context, topic, messageID string) (*Job, error) {
	res, err := adminCall(ctx, a, "GetJob",
		func(s *link.Services) func(context.Context, *parleyv1.GetJobRequest) (*parleyv1.GetJobResponse, error) {
			return s.Admin.GetJob
		}, &parleyv1.GetJobRequest{Topic: topic, MessageId: messageID})
	return res.GetJob(), err
}

// JobQuery says which messages Jobs lists.
type JobQuery struct {
	// Group is the group whose view is listed. Required unless State is Scheduled.
	Group string
	// State is any state but Settled and Dead.
	State JobState
	// Key, if set, selects the messages with this key.
	Key string
	// Full also lists payloads and headers.
	Full bool
}

// Jobs iterates over the messages of a group in one state or in all: one partition after the other,
// in each the oldest first. Each page is a call. If a call fails, the iteration ends with its
// error.
func (a *Admin) Jobs(ctx context.Context, topic string, q JobQuery) iter.Seq2[*Job, error] {
	return link.Pages(func(token string) ([]*Job, string, error) {
		res, err := adminCall(ctx, a, "ListJobs",
			func(s *link.Services) func(context.Context, *parleyv1.ListJobsRequest) (*parleyv1.ListJobsResponse, error) {
				return s.Admin.ListJobs
			}, &parleyv1.ListJobsRequest{Topic: topic, Group: q.Group, State: q.State, Key: q.Key, Full: q.Full, PageToken: token})
		return res.GetJobs(), res.GetNextPageToken(), err
	})
}

// RetryJobs makes messages that wait for a retry due now: up to 1,000. It returns how many; the
// others did not wait for a retry.
func (a *Admin) RetryJobs(ctx context.Context, topic, group string, messageIDs ...string) (retried int64, err error) {
	res, err := adminCall(ctx, a, "RetryJobs",
		func(s *link.Services) func(context.Context, *parleyv1.RetryJobsRequest) (*parleyv1.RetryJobsResponse, error) {
			return s.Admin.RetryJobs
		}, &parleyv1.RetryJobsRequest{Topic: topic, Group: group, MessageIds: messageIDs})
	return res.GetRetried(), err
}

// Consumers returns the sessions of a group, and the nodes that did not answer, whose sessions are
// missing.
func (a *Admin) Consumers(ctx context.Context, topic, group string) (consumers []*ConsumerInfo, missingNodes []string, err error) {
	pages := link.Pages(func(token string) ([]*ConsumerInfo, string, error) {
		res, err := adminCall(ctx, a, "ListConsumers",
			func(s *link.Services) func(context.Context, *parleyv1.ListConsumersRequest) (*parleyv1.ListConsumersResponse, error) {
				return s.Admin.ListConsumers
			}, &parleyv1.ListConsumersRequest{Topic: topic, Group: group, PageToken: token})
		for _, node := range res.GetMissingNodes() {
			if !slices.Contains(missingNodes, node) {
				missingNodes = append(missingNodes, node)
			}
		}
		return res.GetConsumers(), res.GetNextPageToken(), err
	})
	for c, err := range pages {
		if err != nil {
			return nil, nil, err
		}
		consumers = append(consumers, c)
	}
	return consumers, missingNodes, nil
}

// Partitions returns the partitions of a topic in order and, unless group is empty, the node that
// dispatches each to the group.
func (a *Admin) Partitions(ctx context.Context, topic, group string) ([]*PartitionLease, error) {
	res, err := adminCall(ctx, a, "ListPartitions",
		func(s *link.Services) func(context.Context, *parleyv1.ListPartitionsRequest) (*parleyv1.ListPartitionsResponse, error) {
			return s.Admin.ListPartitions
		}, &parleyv1.ListPartitionsRequest{Topic: topic, Group: group})
	return res.GetPartitions(), err
}
