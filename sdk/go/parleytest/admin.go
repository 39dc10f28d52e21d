package parleytest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// adminHandler implements AdminService, except for the methods that Unsupported lists.
type adminHandler struct {
	parleyv1connect.UnimplementedAdminServiceHandler

	s *Server
}

// unconfirmed returns the error for a call that deletes something without its name.
func unconfirmed() error {
	return errorAt(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_CONFIRMATION_REQUIRED, "confirm", 0)
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

// copyFields copies the fields that a mask names, each of which must be one of those that can be
// updated.
func copyFields(to, from proto.Message, mask *fieldmaskpb.FieldMask, updatable ...string) error {
	if len(mask.GetPaths()) == 0 {
		return invalidField("update_mask", 0)
	}
	for _, path := range mask.GetPaths() {
		if !slices.Contains(updatable, path) {
			return invalidField("update_mask", 0)
		}
	}
	target, source := to.ProtoReflect(), from.ProtoReflect()
	for _, path := range mask.GetPaths() {
		for i := range source.Descriptor().Fields().Len() {
			fd := source.Descriptor().Fields().Get(i)
			switch {
			case fd.TextName() != path:
			case source.Has(fd):
				target.Set(fd, source.Get(fd))
			default:
				target.Clear(fd)
			}
		}
	}
	return nil
}

// UpdateTopic implements the service.
func (h adminHandler) UpdateTopic(ctx context.Context, req *parleyv1.UpdateTopicRequest) (*parleyv1.UpdateTopicResponse, error) {
	return do(ctx, h.s, "UpdateTopic", req, func() (*parleyv1.UpdateTopicResponse, error) {
		changed := proto.CloneOf(req.GetTopic())
		if t := h.s.topics[changed.GetName()]; t != nil {
			changed = proto.CloneOf(t.settings)
		}
		err := copyFields(changed, proto.CloneOf(req.GetTopic()), req.GetUpdateMask(),
			"partitions", "retention", "max_messages_per_partition", "drop_oldest", "idempotency_window")
		if err != nil {
			return nil, err
		}
		t := h.s.topics[changed.GetName()]
		if t == nil {
			return nil, noTopic("topic")
		}
		completeTopic(changed)
		isHash := changed.GetPartitioner() == parleyv1.Partitioner_PARTITIONER_HASH
		if was := t.settings.GetPartitions(); changed.GetPartitions() < was || isHash && changed.GetPartitions() != was {
			return nil, invalidField("topic.partitions", 0)
		}
		t.settings = changed
		for _, g := range t.groups {
			h.s.shareLocked(g)
		}
		return &parleyv1.UpdateTopicResponse{Topic: proto.CloneOf(changed)}, nil
	})
}

// DeleteTopic implements the service.
func (h adminHandler) DeleteTopic(ctx context.Context, req *parleyv1.DeleteTopicRequest) (*parleyv1.DeleteTopicResponse, error) {
	return do(ctx, h.s, "DeleteTopic", req, func() (*parleyv1.DeleteTopicResponse, error) {
		if _, err := h.s.topicLocked(req.GetTopic()); err != nil {
			return nil, err
		}
		if req.GetConfirm() != req.GetTopic() {
			return nil, unconfirmed()
		}
		h.s.dropTopicLocked(req.GetTopic())
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

// SetTopicPaused implements the service.
func (h adminHandler) SetTopicPaused(ctx context.Context, req *parleyv1.SetTopicPausedRequest) (*parleyv1.SetTopicPausedResponse, error) {
	return do(ctx, h.s, "SetTopicPaused", req, func() (*parleyv1.SetTopicPausedResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		t.settings.Paused = req.GetPaused()
		return &parleyv1.SetTopicPausedResponse{Topic: proto.CloneOf(t.settings)}, nil
	})
}

// CreateGroup implements the service.
func (h adminHandler) CreateGroup(ctx context.Context, req *parleyv1.CreateGroupRequest) (*parleyv1.CreateGroupResponse, error) {
	return do(ctx, h.s, "CreateGroup", req, func() (*parleyv1.CreateGroupResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		if t.groups[req.GetGroup().GetName()] != nil {
			return nil, errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_GROUP_EXISTS, "group.name", 0)
		}
		g := t.addGroup(proto.CloneOf(req.GetGroup()))
		return &parleyv1.CreateGroupResponse{Group: proto.CloneOf(g.settings)}, nil
	})
}

// UpdateGroup implements the service.
func (h adminHandler) UpdateGroup(ctx context.Context, req *parleyv1.UpdateGroupRequest) (*parleyv1.UpdateGroupResponse, error) {
	return do(ctx, h.s, "UpdateGroup", req, func() (*parleyv1.UpdateGroupResponse, error) {
		updatable := []string{"order", "retry", "ack_timeout", "handler_timeout", "max_run_time", "resume_grace"}
		if err := copyFields(&parleyv1.Group{}, req.GetGroup(), req.GetUpdateMask(), updatable...); err != nil {
			return nil, err
		}
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup().GetName())
		if err != nil {
			return nil, err
		}
		if err := copyFields(g.settings, proto.CloneOf(req.GetGroup()), req.GetUpdateMask(), updatable...); err != nil {
			return nil, err
		}
		completeGroup(g.settings)
		h.s.wakeLocked()
		return &parleyv1.UpdateGroupResponse{Group: proto.CloneOf(g.settings)}, nil
	})
}

// GetGroup implements the service.
func (h adminHandler) GetGroup(ctx context.Context, req *parleyv1.GetGroupRequest) (*parleyv1.GetGroupResponse, error) {
	return do(ctx, h.s, "GetGroup", req, func() (*parleyv1.GetGroupResponse, error) {
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		if err != nil {
			return nil, err
		}
		return &parleyv1.GetGroupResponse{Group: proto.CloneOf(g.settings)}, nil
	})
}

// ListGroups implements the service.
func (h adminHandler) ListGroups(ctx context.Context, req *parleyv1.ListGroupsRequest) (*parleyv1.ListGroupsResponse, error) {
	return do(ctx, h.s, "ListGroups", req, func() (*parleyv1.ListGroupsResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ListGroupsResponse{}
		for _, name := range slices.Sorted(maps.Keys(t.groups)) {
			res.Groups = append(res.Groups, proto.CloneOf(t.groups[name].settings))
		}
		return res, nil
	})
}

// DeleteGroup implements the service.
func (h adminHandler) DeleteGroup(ctx context.Context, req *parleyv1.DeleteGroupRequest) (*parleyv1.DeleteGroupResponse, error) {
	return do(ctx, h.s, "DeleteGroup", req, func() (*parleyv1.DeleteGroupResponse, error) {
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		switch {
		case err != nil:
			return nil, err
		case req.GetConfirm() != req.GetGroup():
			return nil, unconfirmed()
		default:
			h.s.dropGroupLocked(g, noGroup(""))
			return &parleyv1.DeleteGroupResponse{}, nil
		}
	})
}

// SetGroupPaused implements the service.
func (h adminHandler) SetGroupPaused(ctx context.Context, req *parleyv1.SetGroupPausedRequest) (*parleyv1.SetGroupPausedResponse, error) {
	return do(ctx, h.s, "SetGroupPaused", req, func() (*parleyv1.SetGroupPausedResponse, error) {
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		if err != nil {
			return nil, err
		}
		g.settings.Paused = req.GetPaused()
		h.s.wakeLocked()
		return &parleyv1.SetGroupPausedResponse{Group: proto.CloneOf(g.settings)}, nil
	})
}

// SeekGroup implements the service.
func (h adminHandler) SeekGroup(ctx context.Context, req *parleyv1.SeekGroupRequest) (*parleyv1.SeekGroupResponse, error) {
	return do(ctx, h.s, "SeekGroup", req, func() (*parleyv1.SeekGroupResponse, error) {
		h.s.tickLocked(time.Now())
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		if err != nil {
			return nil, err
		}
		for _, j := range g.jobs {
			if j.holder != nil {
				j.holder.tellLost(parleyv1.LostDeliveries_CAUSE_CANCELLED, j.token)
				j.drop()
			}
		}
		g.seek(req.GetStart())
		h.s.wakeLocked()
		return &parleyv1.SeekGroupResponse{}, nil
	})
}

// TrimTopic implements the service.
func (h adminHandler) TrimTopic(ctx context.Context, req *parleyv1.TrimTopicRequest) (*parleyv1.TrimTopicResponse, error) {
	return do(ctx, h.s, "TrimTopic", req, func() (*parleyv1.TrimTopicResponse, error) {
		h.s.tickLocked(time.Now())
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		res := &parleyv1.TrimTopicResponse{}
		left, blocked := make(map[int32]int64), make(map[int32]bool)
		for _, m := range t.log {
			left[m.partition]++
		}
		for _, m := range slices.Clone(t.log) {
			keep := left[m.partition] <= req.GetMaxMessages()
			if req.GetMaxAge() != nil {
				keep = time.Since(m.at) < req.GetMaxAge().AsDuration()
			}
			blocked[m.partition] = blocked[m.partition] || keep || len(t.unsettled(m)) > 0 && !req.GetForce()
			if !blocked[m.partition] {
				left[m.partition]--
				res.Removed++
				res.Lost += t.remove(m)
			}
		}
		h.s.wakeLocked()
		return res, nil
	})
}
