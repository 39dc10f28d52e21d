package rpc

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/queue"
)

// timeToWire converts a time. The zero time becomes nil.
func timeToWire(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// statsToWire converts stats. For each group it adds the number of its consumers and of the
// partitions that have a consumer of the group.
func statsToWire(s *queue.TopicStats) *parleyv1.GetTopicStatsResponse {
	held := make(map[string]int32)
	resp := &parleyv1.GetTopicStatsResponse{}
	for i := range s.Partitions {
		w := partitionToWire(&s.Partitions[i])
		for j, g := range s.Partitions[i].Groups {
			if g.Held {
				held[g.Group]++
				w.Groups[j].Consumers, w.Groups[j].OwnedPartitions = 1, 1
			}
		}
		resp.Partitions = append(resp.Partitions, w)
	}
	resp.Total = totalToWire(&s.Total)
	for _, g := range resp.GetTotal().GetGroups() {
		g.Consumers, g.OwnedPartitions = int32(s.Members[g.GetGroup()]), held[g.GetGroup()] //nolint:gosec // a count of streams
	}
	return resp
}

func partitionToWire(s *queue.PartitionStats) *parleyv1.PartitionStats {
	return &parleyv1.PartitionStats{
		Partition: int32(s.Partition), Length: s.Length, Delayed: s.Delayed, Produced: s.Produced, //nolint:gosec // below 256
		Cancelled: s.Cancelled, DeadLetters: s.DeadLetters, FirstId: s.FirstID, LastId: s.LastID,
		Groups: groupsToWire(s.Groups),
	}
}

func totalToWire(s *queue.PartitionStats) *parleyv1.TopicStats {
	return &parleyv1.TopicStats{
		Length: s.Length, Delayed: s.Delayed, Produced: s.Produced, Cancelled: s.Cancelled, DeadLetters: s.DeadLetters,
		FirstId: s.FirstID, LastId: s.LastID, Groups: groupsToWire(s.Groups),
	}
}

func groupsToWire(groups []queue.GroupStats) []*parleyv1.GroupStats {
	out := make([]*parleyv1.GroupStats, len(groups))
	for i := range groups {
		g := &groups[i]
		out[i] = &parleyv1.GroupStats{
			Group: g.Group, Unread: g.Unread, Pending: g.Pending, Retrying: g.Retrying, Parked: g.Parked, Acked: g.Acked,
			Dead: g.Dead, Retried: g.Retried, Replayed: g.Replayed, Trimmed: g.Trimmed, Skipped: g.Skipped,
			OldestAge: durationpb.New(g.OldestAge),
		}
	}
	return out
}

func ownerToWire(o *queue.Owner) *parleyv1.PartitionOwner {
	return &parleyv1.PartitionOwner{
		Partition: int32(o.Partition), StreamId: o.StreamID, Consumer: o.Consumer, NodeId: o.NodeID, //nolint:gosec // below 256
		Epoch: o.Epoch, LeaseLeft: durationpb.New(o.Left),
	}
}

func pendingToWire(e *queue.PendingEntry, consumers map[string]string) *parleyv1.PendingDelivery {
	return &parleyv1.PendingDelivery{
		MessageId: e.MessageID, Partition: int32(e.Partition), Consumer: consumers[e.StreamID], //nolint:gosec // below 256
		StreamId: e.StreamID, Attempt: int32(e.Attempt), Idle: durationpb.New(e.Idle), //nolint:gosec // a count of deliveries
	}
}

func letterToWire(l *queue.DeadLetter) *parleyv1.DeadLetter {
	return &parleyv1.DeadLetter{
		DeadLetterId: l.ID, MessageId: l.MessageID, Partition: int32(l.Partition), Group: l.Group, Key: l.Key, //nolint:gosec // below 256
		Payload: l.Payload, Headers: l.Headers, Attempts: int32(l.Attempts), Reason: l.Reason, Code: l.Code, //nolint:gosec // a count
		ProduceTime: timeToWire(l.ProducedAt), DeadLetterTime: timeToWire(l.DeadAt),
	}
}
