package parleytest

import (
	"context"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// stats returns the counts of one partition of a group.
func (g *group) stats(partition int32, now time.Time) *parleyv1.GroupStats {
	one := &parleyv1.GroupStats{Group: g.settings.GetName(), OldestAge: durationpb.New(0), DispatchedPartitions: 1}
	if known := g.counted[partition]; known != nil {
		proto.Merge(one, known)
	}
	oldest := time.Duration(0)
	for _, j := range g.jobs {
		if j.message.partition != partition {
			continue
		}
		oldest = max(oldest, now.Sub(j.message.at))
		sent := j.holder != nil && !j.begun && g.settings.GetMode() == parleyv1.GroupMode_GROUP_MODE_EXCLUSIVE
		switch {
		case j.holder != nil && !sent && !j.holder.loose:
			one.Running++
		case j.holder == nil && (j.attempts > 0 || j.retry.After(now)):
			one.Retrying++
		default:
			one.Waiting++
		}
	}
	one.OldestAge = durationpb.New(oldest)
	return one
}

// total returns the sums of the group's totals, and nothing that is current.
func (g *group) total() *parleyv1.GroupStats {
	sum := &parleyv1.GroupStats{}
	for _, one := range g.counted {
		addStats(sum, one)
	}
	return sum
}

// addStats adds the counts of a partition.
func addStats(to, from *parleyv1.GroupStats) {
	to.Waiting += from.GetWaiting()
	to.Running += from.GetRunning()
	to.Retrying += from.GetRetrying()
	to.Acked += from.GetAcked()
	to.Dead += from.GetDead()
	to.Cancelled += from.GetCancelled()
	to.Expired += from.GetExpired()
	to.Trimmed += from.GetTrimmed()
	to.Elsewhere += from.GetElsewhere()
	to.Retried += from.GetRetried()
	to.Redelivered += from.GetRedelivered()
	to.Replayed += from.GetReplayed()
	to.DispatchedPartitions += from.GetDispatchedPartitions()
	if from.GetOldestAge().AsDuration() > to.GetOldestAge().AsDuration() {
		to.OldestAge = from.GetOldestAge()
	}
}

// GetTopicStats implements the service, without a history.
func (h adminHandler) GetTopicStats(
	ctx context.Context, req *parleyv1.GetTopicStatsRequest,
) (*parleyv1.GetTopicStatsResponse, error) {
	return do(ctx, h.s, "GetTopicStats", req, func() (*parleyv1.GetTopicStatsResponse, error) {
		now := time.Now()
		h.s.tickLocked(now)
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		total := &parleyv1.TopicStats{}
		res := &parleyv1.GetTopicStatsResponse{Total: total}
		for _, name := range slices.Sorted(maps.Keys(t.groups)) {
			total.Groups = append(total.Groups, &parleyv1.GroupStats{
				Group: name, OldestAge: durationpb.New(0), Sessions: int32(len(h.s.sessionsLocked(req.GetTopic(), name))),
			})
		}
		for p := range t.settings.GetPartitions() {
			one := t.stats(p, now)
			res.Partitions = append(res.Partitions, one)
			total.Length += one.GetLength()
			total.Scheduled += one.GetScheduled()
			total.Produced += one.GetProduced()
			total.Cancelled += one.GetCancelled()
			total.DeadLetters += one.GetDeadLetters()
			for i, g := range one.GetGroups() {
				addStats(total.GetGroups()[i], g)
			}
		}
		if n := len(t.log); n > 0 {
			total.FirstId, total.LastId = t.log[0].id, t.log[n-1].id
		}
		return res, nil
	})
}

// stats returns the counts of a partition.
func (t *topic) stats(partition int32, now time.Time) *parleyv1.PartitionStats {
	counts := t.count(partition)
	one := &parleyv1.PartitionStats{Partition: partition, Produced: counts.produced, Cancelled: counts.cancelled}
	for _, m := range t.log {
		if m.partition != partition {
			continue
		}
		if one.Length++; one.GetFirstId() == "" {
			one.FirstId = m.id
		}
		one.LastId = m.id
	}
	for _, m := range t.later {
		if m.partition == partition {
			one.Scheduled++
		}
	}
	for _, d := range t.dead {
		if d.GetPartition() == partition {
			one.DeadLetters++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.groups)) {
		one.Groups = append(one.Groups, t.groups[name].stats(partition, now))
	}
	return one
}

// wire returns a message without the groups' states.
func (m *message) job(full bool) *parleyv1.JobInfo {
	j := &parleyv1.JobInfo{
		MessageId: m.id, Partition: m.partition, Key: m.wire.GetKey(), PayloadBytes: int32(len(m.wire.GetPayload())),
		ProduceTime: timestamppb.New(m.at),
	}
	if full {
		j.Payload, j.Headers = m.wire.GetPayload(), m.wire.GetHeaders()
	}
	if !m.due.IsZero() {
		j.DueTime = timestamppb.New(m.due)
	}
	return j
}

// state returns the state of a message in a group.
func (g *group) state(m *message, now time.Time) *parleyv1.JobInGroup {
	in := &parleyv1.JobInGroup{Group: g.settings.GetName(), State: parleyv1.JobState_JOB_STATE_SETTLED}
	for _, j := range g.jobs {
		if j.message != m {
			continue
		}
		in.State, in.Attempts, in.Deliveries, in.Reason, in.Code = parleyv1.JobState_JOB_STATE_WAITING, j.attempts, j.deliveries, j.reason, j.code
		in.SinceTime = timestamppb.New(j.since)
		switch {
		case j.begun:
			in.State = parleyv1.JobState_JOB_STATE_RUNNING
		case j.holder != nil:
			in.State = parleyv1.JobState_JOB_STATE_SENT
		case j.retry.After(now):
			in.State, in.RetryTime = parleyv1.JobState_JOB_STATE_RETRYING, timestamppb.New(j.retry)
		default:
		}
		if j.holder != nil && !j.holder.loose {
			in.Consumer, in.Session, in.NodeId = j.holder.name, "digest-"+j.holder.id, j.holder.node()
		}
		return in
	}
	for _, d := range g.topic.dead {
		if d.message == m && d.GetGroup() == g.settings.GetName() {
			in.State, in.Attempts, in.Reason, in.Code = parleyv1.JobState_JOB_STATE_DEAD, d.GetAttempts(), d.GetReason(), d.GetCode()
		}
	}
	return in
}

// node returns the address of the server that has the session's stream, or "".
func (one *session) node() string {
	if one.stream == nil {
		return ""
	}
	return one.stream.node.addr
}

// GetJob implements the service.
func (h adminHandler) GetJob(ctx context.Context, req *parleyv1.GetJobRequest) (*parleyv1.GetJobResponse, error) {
	return do(ctx, h.s, "GetJob", req, func() (*parleyv1.GetJobResponse, error) {
		now := time.Now()
		h.s.tickLocked(now)
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		for i, m := range append(slices.Clone(t.log), t.later...) {
			if m.id != req.GetMessageId() {
				continue
			}
			job := m.job(true)
			for _, name := range slices.Sorted(maps.Keys(t.groups)) {
				in := t.groups[name].state(m, now)
				if i >= len(t.log) {
					in.State = parleyv1.JobState_JOB_STATE_SCHEDULED
				}
				job.Groups = append(job.Groups, in)
			}
			return &parleyv1.GetJobResponse{Job: job}, nil
		}
		return nil, errorAt(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND, "message_id", 0)
	})
}

// ListJobs implements the service. It returns all messages on one page.
func (h adminHandler) ListJobs(ctx context.Context, req *parleyv1.ListJobsRequest) (*parleyv1.ListJobsResponse, error) {
	return do(ctx, h.s, "ListJobs", req, func() (*parleyv1.ListJobsResponse, error) {
		now := time.Now()
		h.s.tickLocked(now)
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		g := t.groups[req.GetGroup()]
		scheduled := req.GetState() == parleyv1.JobState_JOB_STATE_SCHEDULED
		switch {
		case req.GetState() >= parleyv1.JobState_JOB_STATE_SETTLED:
			return nil, invalidField("state", 0)
		case req.GetGroup() == "" && !scheduled:
			return nil, invalidField("group", 0)
		case g == nil && req.GetGroup() != "":
			return nil, noGroup("group")
		default:
		}
		res := &parleyv1.ListJobsResponse{}
		add := func(m *message, in *parleyv1.JobInGroup) {
			all := req.GetState() == parleyv1.JobState_JOB_STATE_UNSPECIFIED
			if req.GetKey() != "" && req.GetKey() != m.wire.GetKey() || !all && in.GetState() != req.GetState() {
				return
			}
			job := m.job(req.GetFull())
			if g != nil {
				job.Groups = append(job.Groups, in)
			}
			res.Jobs = append(res.Jobs, job)
		}
		for p := range t.settings.GetPartitions() {
			for _, j := range g.jobsOf(p) {
				add(j.message, g.state(j.message, now))
			}
			for _, m := range t.later {
				if m.partition == p {
					add(m, &parleyv1.JobInGroup{Group: req.GetGroup(), State: parleyv1.JobState_JOB_STATE_SCHEDULED})
				}
			}
		}
		return res, nil
	})
}

// jobsOf returns the jobs of a partition. g may be nil.
func (g *group) jobsOf(partition int32) (jobs []*job) {
	if g == nil {
		return nil
	}
	for _, j := range g.jobs {
		if j.message.partition == partition {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// RetryJobs implements the service.
func (h adminHandler) RetryJobs(ctx context.Context, req *parleyv1.RetryJobsRequest) (*parleyv1.RetryJobsResponse, error) {
	return do(ctx, h.s, "RetryJobs", req, func() (*parleyv1.RetryJobsResponse, error) {
		now := time.Now()
		h.s.tickLocked(now)
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		if err != nil {
			return nil, err
		}
		res := &parleyv1.RetryJobsResponse{}
		for _, j := range g.jobs {
			if j.retry.After(now) && slices.Contains(req.GetMessageIds(), j.message.id) {
				j.retry = now
				res.Retried++
			}
		}
		h.s.wakeLocked()
		return res, nil
	})
}

// ListConsumers implements the service. It returns all sessions on one page.
func (h adminHandler) ListConsumers(ctx context.Context, req *parleyv1.ListConsumersRequest) (*parleyv1.ListConsumersResponse, error) {
	return do(ctx, h.s, "ListConsumers", req, func() (*parleyv1.ListConsumersResponse, error) {
		h.s.tickLocked(time.Now())
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ListConsumersResponse{}
		for _, one := range h.s.sessionsLocked(req.GetTopic(), req.GetGroup()) {
			res.Consumers = append(res.Consumers, one.info(g))
		}
		return res, nil
	})
}

// info describes a session and what it holds of a group's topic.
func (one *session) info(g *group) *parleyv1.ConsumerInfo {
	info := &parleyv1.ConsumerInfo{
		Consumer: one.name, Session: "digest-" + one.id, NodeId: one.node(), Subject: one.user, SinceTime: timestamppb.New(one.since),
		State: parleyv1.SessionState_SESSION_STATE_ATTACHED, Concurrency: int32(one.limits.concurrency),
	}
	switch {
	case one.leaving:
		info.State = parleyv1.SessionState_SESSION_STATE_LEAVING
	case one.stream == nil && !one.loose:
		info.State = parleyv1.SessionState_SESSION_STATE_DETACHED
	default:
	}
	for _, j := range g.jobs {
		if j.holder != one {
			continue
		}
		info.InFlight++
		if j.begun {
			info.Running++
		}
		if info.GetOldestTime() == nil || j.since.Before(info.GetOldestTime().AsTime()) {
			info.OldestMessageId, info.OldestTime = j.message.id, timestamppb.New(j.since)
		}
	}
	return info
}
