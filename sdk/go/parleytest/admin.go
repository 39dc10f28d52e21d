package parleytest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// adminHandler implements AdminService, except for the methods that Unsupported lists.
type adminHandler struct {
	parleyv1connect.UnimplementedAdminServiceHandler

	s *Server
}

// CreateTopic implements the service.
func (h adminHandler) CreateTopic(ctx context.Context, req *parleyv1.CreateTopicRequest) (*parleyv1.CreateTopicResponse, error) {
	return do(ctx, h.s, "CreateTopic", req, func() (*parleyv1.CreateTopicResponse, error) {
		name := req.GetTopic().GetName()
		if strings.HasPrefix(name, "__") {
			return nil, invalidField("topic.name", 0)
		}
		if h.s.topics[name] != nil {
			return nil, errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_TOPIC_EXISTS, "topic.name", 0)
		}
		h.s.topics[name] = newTopic(proto.CloneOf(req.GetTopic()))
		return &parleyv1.CreateTopicResponse{Topic: proto.CloneOf(h.s.topics[name].settings)}, nil
	})
}

// DeleteTopic implements the service.
func (h adminHandler) DeleteTopic(ctx context.Context, req *parleyv1.DeleteTopicRequest) (*parleyv1.DeleteTopicResponse, error) {
	return do(ctx, h.s, "DeleteTopic", req, func() (*parleyv1.DeleteTopicResponse, error) {
		if _, err := h.s.topicLocked(req.GetTopic()); err != nil {
			return nil, err
		}
		if req.GetConfirm() != req.GetTopic() {
			return nil, errorAt(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_CONFIRMATION_REQUIRED, "confirm", 0)
		}
		delete(h.s.topics, req.GetTopic())
		return &parleyv1.DeleteTopicResponse{}, nil
	})
}

// GetTopic implements the service.
func (h adminHandler) GetTopic(ctx context.Context, req *parleyv1.GetTopicRequest) (*parleyv1.GetTopicResponse, error) {
	return do(ctx, h.s, "GetTopic", req, func() (*parleyv1.GetTopicResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		return &parleyv1.GetTopicResponse{Topic: proto.CloneOf(t.settings)}, nil
	})
}

// ListTopics implements the service. It returns all topics on one page.
func (h adminHandler) ListTopics(ctx context.Context, req *parleyv1.ListTopicsRequest) (*parleyv1.ListTopicsResponse, error) {
	return do(ctx, h.s, "ListTopics", req, func() (*parleyv1.ListTopicsResponse, error) {
		res := &parleyv1.ListTopicsResponse{}
		for _, name := range slices.Sorted(maps.Keys(h.s.topics)) {
			res.Topics = append(res.Topics, proto.CloneOf(h.s.topics[name].settings))
		}
		return res, nil
	})
}

// PauseTopic implements the service.
func (h adminHandler) PauseTopic(ctx context.Context, req *parleyv1.PauseTopicRequest) (*parleyv1.PauseTopicResponse, error) {
	return do(ctx, h.s, "PauseTopic", req, func() (*parleyv1.PauseTopicResponse, error) {
		t, err := h.s.setPausedLocked(req.GetTopic(), req.GetOperations(), true)
		return &parleyv1.PauseTopicResponse{Topic: t}, err
	})
}

// ResumeTopic implements the service.
func (h adminHandler) ResumeTopic(ctx context.Context, req *parleyv1.ResumeTopicRequest) (*parleyv1.ResumeTopicResponse, error) {
	return do(ctx, h.s, "ResumeTopic", req, func() (*parleyv1.ResumeTopicResponse, error) {
		t, err := h.s.setPausedLocked(req.GetTopic(), req.GetOperations(), false)
		return &parleyv1.ResumeTopicResponse{Topic: t}, err
	})
}

// setPausedLocked pauses the operations of a topic, or resumes them if paused is false.
func (s *shared) setPausedLocked(name string, operations []parleyv1.TopicOperation, paused bool) (*parleyv1.Topic, error) {
	t, err := s.topicLocked(name)
	if err != nil {
		return nil, err
	}
	if slices.Contains(operations, parleyv1.TopicOperation_TOPIC_OPERATION_PRODUCE) {
		t.settings.ProducePaused = paused
	}
	if slices.Contains(operations, parleyv1.TopicOperation_TOPIC_OPERATION_CONSUME) {
		t.settings.ConsumePaused = paused
	}
	s.wakeLocked()
	return proto.CloneOf(t.settings), nil
}

// CreateGroup implements the service.
func (h adminHandler) CreateGroup(ctx context.Context, req *parleyv1.CreateGroupRequest) (*parleyv1.CreateGroupResponse, error) {
	return do(ctx, h.s, "CreateGroup", req, func() (*parleyv1.CreateGroupResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		if t.groups[req.GetGroup()] != nil {
			return nil, errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_GROUP_EXISTS, "group", 0)
		}
		t.addGroup(req.GetGroup(), req.GetStart())
		return &parleyv1.CreateGroupResponse{}, nil
	})
}

// SeekGroup implements the service.
func (h adminHandler) SeekGroup(ctx context.Context, req *parleyv1.SeekGroupRequest) (*parleyv1.SeekGroupResponse, error) {
	return do(ctx, h.s, "SeekGroup", req, func() (*parleyv1.SeekGroupResponse, error) {
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		switch {
		case err != nil:
			return nil, err
		case len(g.consumers) > 0:
			return nil, errorAt(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_GROUP_IN_USE, "group", 0)
		}
		g.seek(req.GetStart())
		return &parleyv1.SeekGroupResponse{}, nil
	})
}

// TrimTopic implements the service.
func (h adminHandler) TrimTopic(ctx context.Context, req *parleyv1.TrimTopicRequest) (*parleyv1.TrimTopicResponse, error) {
	return do(ctx, h.s, "TrimTopic", req, func() (*parleyv1.TrimTopicResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		switch {
		case err != nil:
			return nil, err
		case req.GetKeep() == nil:
			return nil, invalidField("keep", 0)
		}
		res := &parleyv1.TrimTopicResponse{}
		left, blocked := make(map[int32]int64), make(map[int32]bool)
		for _, i := range t.log {
			left[i.partition]++
		}
		t.log = slices.DeleteFunc(t.log, func(i *item) bool {
			keep := left[i.partition] <= req.GetMaxMessages()
			if req.GetMaxAge() != nil {
				keep = time.Since(i.at) < req.GetMaxAge().AsDuration()
			}
			unsettled := t.unsettled(i)
			blocked[i.partition] = blocked[i.partition] || keep || len(unsettled) > 0 && !req.GetForce()
			if blocked[i.partition] {
				return false
			}
			left[i.partition]--
			res.Removed++
			for _, g := range unsettled {
				g.drop(i)
				res.Lost++
			}
			return true
		})
		return res, nil
	})
}

// GetTopicStats implements the service, with totals only.
func (h adminHandler) GetTopicStats(
	ctx context.Context, req *parleyv1.GetTopicStatsRequest,
) (*parleyv1.GetTopicStatsResponse, error) {
	return do(ctx, h.s, "GetTopicStats", req, func() (*parleyv1.GetTopicStatsResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		total := &parleyv1.TopicStats{
			Length: int64(len(t.log)), Delayed: int64(len(t.later)), Produced: int64(len(t.log) + len(t.later)),
		}
		for _, name := range slices.Sorted(maps.Keys(t.groups)) {
			g := t.groups[name]
			one := &parleyv1.GroupStats{
				Group: name, Acked: g.acked, Dead: int64(len(g.dead)) + g.replayed, Replayed: g.replayed,
				Consumers: int32(len(g.consumers)),
			}
			for _, i := range g.waiting {
				if i.attempt == 0 {
					one.Unread++
				} else {
					one.Retrying++
				}
			}
			for _, c := range g.consumers {
				one.Pending += int64(len(c.flight))
			}
			total.DeadLetters += int64(len(g.dead))
			total.Groups = append(total.Groups, one)
		}
		return &parleyv1.GetTopicStatsResponse{Total: total}, nil
	})
}

// ListDeadLetters implements the service. It returns all dead letters on one page.
func (h adminHandler) ListDeadLetters(
	ctx context.Context, req *parleyv1.ListDeadLettersRequest,
) (*parleyv1.ListDeadLettersResponse, error) {
	return do(ctx, h.s, "ListDeadLetters", req, func() (*parleyv1.ListDeadLettersResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		if req.GetGroup() != "" && t.groups[req.GetGroup()] == nil {
			return nil, noGroup("group")
		}
		res := &parleyv1.ListDeadLettersResponse{}
		for _, name := range slices.Sorted(maps.Keys(t.groups)) {
			if req.GetGroup() == "" || req.GetGroup() == name {
				for _, d := range t.groups[name].dead {
					res.DeadLetters = append(res.DeadLetters, d.DeadLetter)
				}
			}
		}
		slices.Reverse(res.GetDeadLetters())
		return res, nil
	})
}

// removeLocked removes the selected dead letters from their groups and returns them, at most limit
// in total; a negative limit means all. more is true if selected dead letters are left.
func (s *shared) removeLocked(
	t *topic, selection *parleyv1.DeadLetterSelection, limit int,
) (removed map[*group][]*deadLetter, more bool, err error) {
	ids := selection.GetIds().GetDeadLetterIds()
	if _, ok := selection.GetSelection().(*parleyv1.DeadLetterSelection_Group); ok && t.groups[selection.GetGroup()] == nil {
		return nil, false, noGroup("selection.group")
	}
	removed = make(map[*group][]*deadLetter)
	for _, name := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[name]
		g.dead = slices.DeleteFunc(g.dead, func(d *deadLetter) bool {
			wanted := selection.GetAll() != nil || selection.GetGroup() == name || slices.Contains(ids, d.GetDeadLetterId())
			if wanted && limit == 0 {
				more = true
			}
			if !wanted || limit == 0 {
				return false
			}
			limit--
			removed[g] = append(removed[g], d)
			return true
		})
	}
	return removed, more, nil
}

// ReplayDeadLetters implements the service.
func (h adminHandler) ReplayDeadLetters(
	ctx context.Context, req *parleyv1.ReplayDeadLettersRequest,
) (*parleyv1.ReplayDeadLettersResponse, error) {
	return do(ctx, h.s, "ReplayDeadLetters", req, func() (*parleyv1.ReplayDeadLettersResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		if req.Partition != nil && req.GetPartition() >= t.settings.GetPartitions() {
			return nil, invalidField("partition", int64(t.settings.GetPartitions())-1)
		}
		removed, more, err := h.s.removeLocked(t, req.GetSelection(), cmp.Or(int(req.GetLimit()), 1000))
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ReplayDeadLettersResponse{More: more}
		for g, letters := range removed {
			for _, d := range letters {
				i := d.item.fresh()
				if req.Partition != nil {
					i.partition = req.GetPartition()
				}
				g.putBack(i)
				g.replayed++
				res.Replayed++
			}
		}
		h.s.wakeLocked()
		return res, nil
	})
}

// PurgeDeadLetters implements the service.
func (h adminHandler) PurgeDeadLetters(
	ctx context.Context, req *parleyv1.PurgeDeadLettersRequest,
) (*parleyv1.PurgeDeadLettersResponse, error) {
	return do(ctx, h.s, "PurgeDeadLetters", req, func() (*parleyv1.PurgeDeadLettersResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		switch {
		case err != nil:
			return nil, err
		case req.GetConfirm() != req.GetTopic():
			return nil, errorAt(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_CONFIRMATION_REQUIRED, "confirm", 0)
		}
		removed, _, err := h.s.removeLocked(t, req.GetSelection(), -1)
		if err != nil {
			return nil, err
		}
		res := &parleyv1.PurgeDeadLettersResponse{}
		for _, letters := range removed {
			res.Purged += int64(len(letters))
		}
		return res, nil
	})
}
