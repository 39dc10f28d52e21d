package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/queue/topics"
)

// Topics creates, changes and lists topics and consumer groups. *topics.Admin implements it and
// documents the methods. The caller's capability has been checked.
type Topics interface { //nolint:interfacebloat // one method for each call of the service
	CreateTopic(ctx context.Context, t qlog.Topic) (*qlog.Topic, error)
	// UpdateTopic and UpdateGroup call fn with a copy, and again with a newer copy after a conflict.
	UpdateTopic(ctx context.Context, name string, fn func(t *qlog.Topic) error) (*qlog.Topic, error)
	DeleteTopic(ctx context.Context, name, confirm string) error
	Topic(ctx context.Context, name string) (*qlog.Topic, error)
	Topics(ctx context.Context, after string, n int) (topics []*qlog.Topic, more bool, err error)
	SetTopicPaused(ctx context.Context, name string, paused bool) (*qlog.Topic, error)
	RepairTopic(ctx context.Context, name string) (*qlog.Topic, []string, error)
	CreateGroup(ctx context.Context, topic string, g qlog.Group) (*qlog.Group, error)
	UpdateGroup(ctx context.Context, topic, name string, fn func(g *qlog.Group) error) (*qlog.Group, error)
	Group(ctx context.Context, topic, name string) (*qlog.Group, error)
	SetGroupPaused(ctx context.Context, topic, name string, paused bool) (*qlog.Group, error)
	DeleteGroup(ctx context.Context, topic, name, confirm string) error
	SeekGroup(ctx context.Context, topic, name string, start qlog.Start) error
}

var _ Topics = (*topics.Admin)(nil)

// CreateTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) CreateTopic(ctx context.Context, req *parleyv1.CreateTopicRequest) (*parleyv1.CreateTopicResponse, error) {
	t, err := s.deps.Topics.CreateTopic(ctx, storedTopic(req.GetTopic()))
	if err != nil {
		return nil, err
	}
	return &parleyv1.CreateTopicResponse{Topic: wireTopic(t)}, nil
}

// topicSetters maps each setting that UpdateTopic's mask may name to a function that copies it from
// the request's topic. A setting that the request leaves unset is copied as zero, which means the
// default.
var topicSetters = map[string]func(to, from *qlog.Topic){
	"partitions": func(to, from *qlog.Topic) { to.Partitions = from.Partitions },
	"retention": func(to, from *qlog.Topic) {
		to.RetainAge, to.RetainMessages = from.RetainAge, from.RetainMessages
		to.DeadLetterAge, to.MaxDeadLetters = from.DeadLetterAge, from.MaxDeadLetters
	},
	"max_messages_per_partition": func(to, from *qlog.Topic) { to.MaxMessages = from.MaxMessages },
	"drop_oldest":                func(to, from *qlog.Topic) { to.DropOldest = from.DropOldest },
	"idempotency_window":         func(to, from *qlog.Topic) { to.Window = from.Window },
}

// groupSetters is topicSetters for UpdateGroup.
var groupSetters = map[string]func(to, from *qlog.Group){
	"order":           func(to, from *qlog.Group) { to.Order = from.Order },
	"retry":           func(to, from *qlog.Group) { to.Retry = from.Retry },
	"ack_timeout":     func(to, from *qlog.Group) { to.AckTimeout = from.AckTimeout },
	"handler_timeout": func(to, from *qlog.Group) { to.Timeout = from.Timeout },
	"max_run_time":    func(to, from *qlog.Group) { to.MaxRunTime = from.MaxRunTime },
	"resume_grace":    func(to, from *qlog.Group) { to.ResumeGrace = from.ResumeGrace },
}

// apply copies the settings that a mask names. It fails if the mask names none, or one that cannot
// be updated.
func apply[T any](mask *fieldmaskpb.FieldMask, setters map[string]func(to, from *T), from *T) (func(to *T) error, error) {
	const field = "update_mask"
	if len(mask.GetPaths()) == 0 {
		return nil, fault.Invalid(field, 0, "%s: must name at least one field", field)
	}
	for _, path := range mask.GetPaths() {
		if setters[path] == nil {
			return nil, fault.Invalid(field, 0, "%s: %q is not a field that can be updated", field, echoed(path))
		}
	}
	return func(to *T) error {
		for _, path := range mask.GetPaths() {
			setters[path](to, from)
		}
		return nil
	}, nil
}

// UpdateTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) UpdateTopic(ctx context.Context, req *parleyv1.UpdateTopicRequest) (*parleyv1.UpdateTopicResponse, error) {
	from := storedTopic(req.GetTopic())
	change, err := apply(req.GetUpdateMask(), topicSetters, &from)
	if err != nil {
		return nil, err
	}
	t, err := s.deps.Topics.UpdateTopic(ctx, from.Name, change)
	if err != nil {
		return nil, err
	}
	return &parleyv1.UpdateTopicResponse{Topic: wireTopic(t)}, nil
}

// DeleteTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) DeleteTopic(ctx context.Context, req *parleyv1.DeleteTopicRequest) (*parleyv1.DeleteTopicResponse, error) {
	if err := s.deps.Topics.DeleteTopic(ctx, req.GetTopic(), req.GetConfirm()); err != nil {
		return nil, err
	}
	return &parleyv1.DeleteTopicResponse{}, nil
}

// GetTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) GetTopic(ctx context.Context, req *parleyv1.GetTopicRequest) (*parleyv1.GetTopicResponse, error) {
	t, err := s.deps.Topics.Topic(ctx, req.GetTopic())
	if err != nil {
		return nil, err
	}
	return &parleyv1.GetTopicResponse{Topic: wireTopic(t)}, nil
}

// ListTopics implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ListTopics(ctx context.Context, req *parleyv1.ListTopicsRequest) (*parleyv1.ListTopicsResponse, error) {
	page, err := s.page(ctx, "topics", nil)
	if err != nil {
		return nil, err
	}
	after, err := page.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	found, more, err := s.deps.Topics.Topics(ctx, after, orDefault(req.GetPageSize(), defaultPage))
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListTopicsResponse{}
	size := 0
	for i, t := range found {
		w := wireTopic(t)
		if size += proto.Size(w); i > 0 && size > pageBytes {
			found, more = found[:i], true
			break
		}
		resp.Topics = append(resp.Topics, w)
	}
	if more && len(found) > 0 {
		resp.NextPageToken = page.seal(found[len(found)-1].Name)
	}
	return resp, nil
}

// SetTopicPaused implements parleyv1connect.AdminServiceHandler.
func (s *adminService) SetTopicPaused(ctx context.Context, req *parleyv1.SetTopicPausedRequest) (*parleyv1.SetTopicPausedResponse, error) {
	t, err := s.deps.Topics.SetTopicPaused(ctx, req.GetTopic(), req.GetPaused())
	if err != nil {
		return nil, err
	}
	return &parleyv1.SetTopicPausedResponse{Topic: wireTopic(t)}, nil
}

// RepairTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) RepairTopic(ctx context.Context, req *parleyv1.RepairTopicRequest) (*parleyv1.RepairTopicResponse, error) {
	t, repaired, err := s.deps.Topics.RepairTopic(ctx, req.GetTopic())
	if err != nil {
		return nil, err
	}
	return &parleyv1.RepairTopicResponse{Topic: wireTopic(t), Repaired: repaired}, nil
}
