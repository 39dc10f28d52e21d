package parleytest

import (
	"context"
	"maps"
	"slices"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// adminHandler is the service of operators, as far as tests of queues need it.
type adminHandler struct {
	parleyv1connect.UnimplementedAdminServiceHandler

	s *Server
}

// CreateTopic implements the service.
func (h adminHandler) CreateTopic(ctx context.Context, req *parleyv1.CreateTopicRequest) (*parleyv1.CreateTopicResponse, error) {
	return do(ctx, h.s, "CreateTopic", req, func() (*parleyv1.CreateTopicResponse, error) {
		name := req.GetTopic().GetName()
		if h.s.topics[name] != nil {
			return nil, Error(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_TOPIC_EXISTS)
		}
		h.s.topics[name] = newTopic(req.GetTopic())
		return &parleyv1.CreateTopicResponse{Topic: h.s.topics[name].settings}, nil
	})
}

// DeleteTopic implements the service.
func (h adminHandler) DeleteTopic(ctx context.Context, req *parleyv1.DeleteTopicRequest) (*parleyv1.DeleteTopicResponse, error) {
	return do(ctx, h.s, "DeleteTopic", req, func() (*parleyv1.DeleteTopicResponse, error) {
		if _, err := h.s.topicLocked(req.GetTopic()); err != nil {
			return nil, err
		}
		if req.GetConfirm() != req.GetTopic() {
			return nil, Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_CONFIRMATION_REQUIRED)
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
		return &parleyv1.GetTopicResponse{Topic: t.settings}, nil
	})
}

// ListTopics implements the service. All fit on one page.
func (h adminHandler) ListTopics(ctx context.Context, req *parleyv1.ListTopicsRequest) (*parleyv1.ListTopicsResponse, error) {
	return do(ctx, h.s, "ListTopics", req, func() (*parleyv1.ListTopicsResponse, error) {
		res := &parleyv1.ListTopicsResponse{}
		for _, name := range slices.Sorted(maps.Keys(h.s.topics)) {
			res.Topics = append(res.Topics, h.s.topics[name].settings)
		}
		return res, nil
	})
}

// PauseTopic implements the service.
func (h adminHandler) PauseTopic(ctx context.Context, req *parleyv1.PauseTopicRequest) (*parleyv1.PauseTopicResponse, error) {
	return do(ctx, h.s, "PauseTopic", req, func() (*parleyv1.PauseTopicResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		both := !req.GetProduceOnly() && !req.GetConsumeOnly()
		t.settings.ProducePaused = t.settings.GetProducePaused() || both || req.GetProduceOnly()
		t.settings.ConsumePaused = t.settings.GetConsumePaused() || both || req.GetConsumeOnly()
		return &parleyv1.PauseTopicResponse{Topic: t.settings}, nil
	})
}

// ResumeTopic implements the service.
func (h adminHandler) ResumeTopic(ctx context.Context, req *parleyv1.ResumeTopicRequest) (*parleyv1.ResumeTopicResponse, error) {
	return do(ctx, h.s, "ResumeTopic", req, func() (*parleyv1.ResumeTopicResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		t.settings.ProducePaused, t.settings.ConsumePaused = false, false
		h.s.wakeLocked()
		return &parleyv1.ResumeTopicResponse{Topic: t.settings}, nil
	})
}

// CreateGroup implements the service. Every group begins at the beginning.
func (h adminHandler) CreateGroup(ctx context.Context, req *parleyv1.CreateGroupRequest) (*parleyv1.CreateGroupResponse, error) {
	return do(ctx, h.s, "CreateGroup", req, func() (*parleyv1.CreateGroupResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		if t.groups[req.GetGroup()] != nil {
			return nil, Error(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_GROUP_EXISTS)
		}
		t.addGroup(req.GetGroup())
		return &parleyv1.CreateGroupResponse{}, nil
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
		total := &parleyv1.PartitionStats{
			Length: int64(len(t.log)), Delayed: int64(len(t.later)), Produced: int64(len(t.log) + len(t.later)),
		}
		for _, name := range slices.Sorted(maps.Keys(t.groups)) {
			g := t.groups[name]
			one := &parleyv1.GroupStats{
				Group: name, Acked: g.acked, Dead: int64(len(g.dead)), Consumers: int32(len(g.sessions)),
			}
			for _, i := range g.waiting {
				if i.attempt == 0 {
					one.Unread++
				} else {
					one.Retrying++
				}
			}
			for _, c := range g.sessions {
				one.Pending += int64(len(c.flight))
			}
			total.DeadLetters += one.GetDead()
			total.Groups = append(total.Groups, one)
		}
		return &parleyv1.GetTopicStatsResponse{Total: total}, nil
	})
}

// ListDeadLetters implements the service. All fit on one page.
func (h adminHandler) ListDeadLetters(
	ctx context.Context, req *parleyv1.ListDeadLettersRequest,
) (*parleyv1.ListDeadLettersResponse, error) {
	return do(ctx, h.s, "ListDeadLetters", req, func() (*parleyv1.ListDeadLettersResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ListDeadLettersResponse{}
		for _, name := range slices.Sorted(maps.Keys(t.groups)) {
			if req.GetGroup() == "" || req.GetGroup() == name {
				res.DeadLetters = append(res.DeadLetters, t.groups[name].dead...)
			}
		}
		slices.Reverse(res.GetDeadLetters())
		return res, nil
	})
}
