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

	nextv1 "github.com/parleyhq/parley/gen/go/parley/next/v1"
	"github.com/parleyhq/parley/gen/go/parley/next/v1/nextv1connect"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// adminHandler implements QueueAdminService, except for the methods that Unsupported lists.
type adminHandler struct {
	nextv1connect.UnimplementedQueueAdminServiceHandler

	s *Server
}

// unconfirmed returns the error for a call that deletes something without its name.
func unconfirmed() error {
	return errorAt(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_CONFIRMATION_REQUIRED, "confirm", 0)
}

// CreateTopic implements the service.
func (h adminHandler) CreateTopic(ctx context.Context, req *nextv1.CreateTopicRequest) (*nextv1.CreateTopicResponse, error) {
	return do(ctx, h.s, "CreateTopic", req, func() (*nextv1.CreateTopicResponse, error) {
		name := req.GetTopic().GetName()
		if strings.HasPrefix(name, "__") {
			return nil, invalidField("topic.name", 0)
		}
		if h.s.topics[name] != nil {
			return nil, errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_TOPIC_EXISTS, "topic.name", 0)
		}
		h.s.topics[name] = newTopic(proto.CloneOf(req.GetTopic()))
		return &nextv1.CreateTopicResponse{Topic: proto.CloneOf(h.s.topics[name].settings)}, nil
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
func (h adminHandler) UpdateTopic(ctx context.Context, req *nextv1.UpdateTopicRequest) (*nextv1.UpdateTopicResponse, error) {
	return do(ctx, h.s, "UpdateTopic", req, func() (*nextv1.UpdateTopicResponse, error) {
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
		isHash := changed.GetPartitioner() == nextv1.Partitioner_PARTITIONER_HASH
		if was := t.settings.GetPartitions(); changed.GetPartitions() < was || isHash && changed.GetPartitions() != was {
			return nil, invalidField("topic.partitions", 0)
		}
		t.settings = changed
		for _, g := range t.groups {
			h.s.shareLocked(g)
		}
		return &nextv1.UpdateTopicResponse{Topic: proto.CloneOf(changed)}, nil
	})
}

// DeleteTopic implements the service.
func (h adminHandler) DeleteTopic(ctx context.Context, req *nextv1.DeleteTopicRequest) (*nextv1.DeleteTopicResponse, error) {
	return do(ctx, h.s, "DeleteTopic", req, func() (*nextv1.DeleteTopicResponse, error) {
		if _, err := h.s.topicLocked(req.GetTopic()); err != nil {
			return nil, err
		}
		if req.GetConfirm() != req.GetTopic() {
			return nil, unconfirmed()
		}
		h.s.dropTopicLocked(req.GetTopic())
		return &nextv1.DeleteTopicResponse{}, nil
	})
}

// GetTopic implements the service.
func (h adminHandler) GetTopic(ctx context.Context, req *nextv1.GetTopicRequest) (*nextv1.GetTopicResponse, error) {
	return do(ctx, h.s, "GetTopic", req, func() (*nextv1.GetTopicResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		return &nextv1.GetTopicResponse{Topic: proto.CloneOf(t.settings)}, nil
	})
}

// ListTopics implements the service. It returns all topics on one page.
func (h adminHandler) ListTopics(ctx context.Context, req *nextv1.ListTopicsRequest) (*nextv1.ListTopicsResponse, error) {
	return do(ctx, h.s, "ListTopics", req, func() (*nextv1.ListTopicsResponse, error) {
		res := &nextv1.ListTopicsResponse{}
		for _, name := range slices.Sorted(maps.Keys(h.s.topics)) {
			res.Topics = append(res.Topics, proto.CloneOf(h.s.topics[name].settings))
		}
		return res, nil
	})
}

// SetTopicPaused implements the service.
func (h adminHandler) SetTopicPaused(ctx context.Context, req *nextv1.SetTopicPausedRequest) (*nextv1.SetTopicPausedResponse, error) {
	return do(ctx, h.s, "SetTopicPaused", req, func() (*nextv1.SetTopicPausedResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		t.settings.Paused = req.GetPaused()
		return &nextv1.SetTopicPausedResponse{Topic: proto.CloneOf(t.settings)}, nil
	})
}

// CreateGroup implements the service.
func (h adminHandler) CreateGroup(ctx context.Context, req *nextv1.CreateGroupRequest) (*nextv1.CreateGroupResponse, error) {
	return do(ctx, h.s, "CreateGroup", req, func() (*nextv1.CreateGroupResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		if t.groups[req.GetGroup().GetName()] != nil {
			return nil, errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_GROUP_EXISTS, "group.name", 0)
		}
		g := t.addGroup(proto.CloneOf(req.GetGroup()))
		return &nextv1.CreateGroupResponse{Group: proto.CloneOf(g.settings)}, nil
	})
}

// UpdateGroup implements the service.
func (h adminHandler) UpdateGroup(ctx context.Context, req *nextv1.UpdateGroupRequest) (*nextv1.UpdateGroupResponse, error) {
	return do(ctx, h.s, "UpdateGroup", req, func() (*nextv1.UpdateGroupResponse, error) {
		updatable := []string{"order", "retry", "ack_timeout", "handler_timeout", "max_run_time", "resume_grace"}
		if err := copyFields(&nextv1.Group{}, req.GetGroup(), req.GetUpdateMask(), updatable...); err != nil {
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
		return &nextv1.UpdateGroupResponse{Group: proto.CloneOf(g.settings)}, nil
	})
}

// GetGroup implements the service.
func (h adminHandler) GetGroup(ctx context.Context, req *nextv1.GetGroupRequest) (*nextv1.GetGroupResponse, error) {
	return do(ctx, h.s, "GetGroup", req, func() (*nextv1.GetGroupResponse, error) {
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		if err != nil {
			return nil, err
		}
		return &nextv1.GetGroupResponse{Group: proto.CloneOf(g.settings)}, nil
	})
}

// ListGroups implements the service.
func (h adminHandler) ListGroups(ctx context.Context, req *nextv1.ListGroupsRequest) (*nextv1.ListGroupsResponse, error) {
	return do(ctx, h.s, "ListGroups", req, func() (*nextv1.ListGroupsResponse, error) {
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		res := &nextv1.ListGroupsResponse{}
		for _, name := range slices.Sorted(maps.Keys(t.groups)) {
			res.Groups = append(res.Groups, proto.CloneOf(t.groups[name].settings))
		}
		return res, nil
	})
}

// DeleteGroup implements the service.
func (h adminHandler) DeleteGroup(ctx context.Context, req *nextv1.DeleteGroupRequest) (*nextv1.DeleteGroupResponse, error) {
	return do(ctx, h.s, "DeleteGroup", req, func() (*nextv1.DeleteGroupResponse, error) {
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		switch {
		case err != nil:
			return nil, err
		case req.GetConfirm() != req.GetGroup():
			return nil, unconfirmed()
		default:
			h.s.dropGroupLocked(g, noGroup(""))
			return &nextv1.DeleteGroupResponse{}, nil
		}
	})
}

// SetGroupPaused implements the service.
func (h adminHandler) SetGroupPaused(ctx context.Context, req *nextv1.SetGroupPausedRequest) (*nextv1.SetGroupPausedResponse, error) {
	return do(ctx, h.s, "SetGroupPaused", req, func() (*nextv1.SetGroupPausedResponse, error) {
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		if err != nil {
			return nil, err
		}
		g.settings.Paused = req.GetPaused()
		h.s.wakeLocked()
		return &nextv1.SetGroupPausedResponse{Group: proto.CloneOf(g.settings)}, nil
	})
}

// SeekGroup implements the service.
func (h adminHandler) SeekGroup(ctx context.Context, req *nextv1.SeekGroupRequest) (*nextv1.SeekGroupResponse, error) {
	return do(ctx, h.s, "SeekGroup", req, func() (*nextv1.SeekGroupResponse, error) {
		h.s.tickLocked(time.Now())
		g, err := h.s.groupLocked(req.GetTopic(), req.GetGroup())
		if err != nil {
			return nil, err
		}
		for _, j := range g.jobs {
			if j.holder != nil {
				j.holder.tellLost(nextv1.LostDeliveries_CAUSE_CANCELLED, j.token)
				j.drop()
			}
		}
		g.seek(req.GetStart())
		h.s.wakeLocked()
		return &nextv1.SeekGroupResponse{}, nil
	})
}

// TrimTopic implements the service.
func (h adminHandler) TrimTopic(ctx context.Context, req *nextv1.TrimTopicRequest) (*nextv1.TrimTopicResponse, error) {
	return do(ctx, h.s, "TrimTopic", req, func() (*nextv1.TrimTopicResponse, error) {
		h.s.tickLocked(time.Now())
		t, err := h.s.topicLocked(req.GetTopic())
		if err != nil {
			return nil, err
		}
		res := &nextv1.TrimTopicResponse{}
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
