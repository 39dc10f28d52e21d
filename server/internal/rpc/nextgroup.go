package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	nextv1 "github.com/parleyhq/parley/gen/go/parley/next/v1"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// CreateGroup implements nextv1connect.QueueAdminServiceHandler.
func (s *nextAdminService) CreateGroup(ctx context.Context, req *nextv1.CreateGroupRequest) (*nextv1.CreateGroupResponse, error) {
	g, err := s.deps.NextTopics.CreateGroup(ctx, req.GetTopic(), storedGroup(req.GetGroup()))
	if err != nil {
		return nil, err
	}
	return &nextv1.CreateGroupResponse{Group: wireGroup(g)}, nil
}

// UpdateGroup implements nextv1connect.QueueAdminServiceHandler.
func (s *nextAdminService) UpdateGroup(ctx context.Context, req *nextv1.UpdateGroupRequest) (*nextv1.UpdateGroupResponse, error) {
	from := storedGroup(req.GetGroup())
	change, err := apply(req.GetUpdateMask(), groupSetters, &from)
	if err != nil {
		return nil, err
	}
	g, err := s.deps.NextTopics.UpdateGroup(ctx, req.GetTopic(), from.Name, change)
	if err != nil {
		return nil, err
	}
	return &nextv1.UpdateGroupResponse{Group: wireGroup(g)}, nil
}

// GetGroup implements nextv1connect.QueueAdminServiceHandler.
func (s *nextAdminService) GetGroup(ctx context.Context, req *nextv1.GetGroupRequest) (*nextv1.GetGroupResponse, error) {
	g, err := s.deps.NextTopics.Group(ctx, req.GetTopic(), req.GetGroup())
	if err != nil {
		return nil, err
	}
	return &nextv1.GetGroupResponse{Group: wireGroup(g)}, nil
}

// ListGroups implements nextv1connect.QueueAdminServiceHandler.
func (s *nextAdminService) ListGroups(ctx context.Context, req *nextv1.ListGroupsRequest) (*nextv1.ListGroupsResponse, error) {
	t, err := s.deps.NextTopics.Topic(ctx, req.GetTopic())
	if err != nil {
		return nil, err
	}
	out := &nextv1.ListGroupsResponse{Groups: make([]*nextv1.Group, len(t.Groups))}
	for i := range t.Groups {
		out.Groups[i] = wireGroup(&t.Groups[i])
	}
	return out, nil
}

// DeleteGroup implements nextv1connect.QueueAdminServiceHandler.
func (s *nextAdminService) DeleteGroup(ctx context.Context, req *nextv1.DeleteGroupRequest) (*nextv1.DeleteGroupResponse, error) {
	if err := s.deps.NextTopics.DeleteGroup(ctx, req.GetTopic(), req.GetGroup(), req.GetConfirm()); err != nil {
		return nil, err
	}
	return &nextv1.DeleteGroupResponse{}, nil
}

// SetGroupPaused implements nextv1connect.QueueAdminServiceHandler.
func (s *nextAdminService) SetGroupPaused(ctx context.Context, req *nextv1.SetGroupPausedRequest) (*nextv1.SetGroupPausedResponse, error) {
	g, err := s.deps.NextTopics.SetGroupPaused(ctx, req.GetTopic(), req.GetGroup(), req.GetPaused())
	if err != nil {
		return nil, err
	}
	return &nextv1.SetGroupPausedResponse{Group: wireGroup(g)}, nil
}

// SeekGroup implements nextv1connect.QueueAdminServiceHandler.
func (s *nextAdminService) SeekGroup(ctx context.Context, req *nextv1.SeekGroupRequest) (*nextv1.SeekGroupResponse, error) {
	if err := s.deps.NextTopics.SeekGroup(ctx, req.GetTopic(), req.GetGroup(), storedStart(req.GetStart())); err != nil {
		return nil, err
	}
	return &nextv1.SeekGroupResponse{}, nil
}

// storedTopic converts the settings that a caller may set. Unset ones stay zero, which means the
// default.
func storedTopic(w *nextv1.Topic) qlog.Topic {
	retention := w.GetRetention()
	return qlog.Topic{
		Name: w.GetName(), Partitions: int(w.GetPartitions()),
		Partitioner: qlog.Partitioner(w.GetPartitioner()), //nolint:gosec // one of the enum's, which are few
		Bounds: qlog.Bounds{
			MaxMessages: w.GetMaxMessagesPerPartition(), DropOldest: w.GetDropOldest(), Window: millis(w.GetIdempotencyWindow()),
			RetainAge: millis(retention.GetMaxAge()), RetainMessages: retention.GetMaxMessages(),
		},
		DeadLetterAge: millis(retention.GetDeadLetterMaxAge()), MaxDeadLetters: retention.GetMaxDeadLetters(),
	}
}

func wireTopic(t *qlog.Topic) *nextv1.Topic {
	w := &nextv1.Topic{
		Name: t.Name, Partitions: int32(t.Partitions), Partitioner: nextv1.Partitioner(t.Partitioner), //nolint:gosec // at most 256
		Retention: &nextv1.TopicRetention{
			MaxAge: durationpb.New(t.RetainAge), MaxMessages: t.RetainMessages,
			DeadLetterMaxAge: durationpb.New(t.DeadLetterAge), MaxDeadLetters: t.MaxDeadLetters,
		},
		MaxMessagesPerPartition: t.MaxMessages, DropOldest: t.DropOldest, IdempotencyWindow: durationpb.New(t.Window),
		CreateTime: timeToWire(t.CreatedAt), Paused: t.ProducePaused,
	}
	for i := range t.Groups {
		w.Groups = append(w.Groups, t.Groups[i].Name)
	}
	return w
}

// The schema's numbers of modes and orders are one higher than qlog's: its 0 means the default,
// which is qlog's 0.
func storedGroup(w *nextv1.Group) qlog.Group {
	retry := w.GetRetry()
	return qlog.Group{
		Name: w.GetName(), Mode: qlog.GroupMode(max(0, w.GetMode()-1)), //nolint:gosec // one of the enum's, which are few
		Order: qlog.Order(max(0, w.GetOrder()-1)), //nolint:gosec // as mode
		Retry: qlog.RetryPolicy{
			MaxAttempts: int(retry.GetMaxAttempts()), MinBackoff: millis(retry.GetMinBackoff()), MaxBackoff: millis(retry.GetMaxBackoff()),
			NonRetryable: retry.GetNonRetryableCodes(),
		},
		AckTimeout: millis(w.GetAckTimeout()), Timeout: millis(w.GetHandlerTimeout()), MaxRunTime: millis(w.GetMaxRunTime()),
		ResumeGrace: millis(w.GetResumeGrace()), Start: storedStart(w.GetStart()),
	}
}

func wireGroup(g *qlog.Group) *nextv1.Group {
	attempts := int32(g.Retry.MaxAttempts) //nolint:gosec // at most 1,000
	return &nextv1.Group{
		Name: g.Name, Mode: nextv1.GroupMode(g.Mode) + 1, Order: nextv1.DeliveryOrder(g.Order) + 1,
		Retry: &nextv1.RetryPolicy{
			MaxAttempts: &attempts, MinBackoff: durationpb.New(g.Retry.MinBackoff), MaxBackoff: durationpb.New(g.Retry.MaxBackoff),
			NonRetryableCodes: g.Retry.NonRetryable,
		},
		AckTimeout: durationpb.New(g.AckTimeout), HandlerTimeout: durationpb.New(g.Timeout), MaxRunTime: durationpb.New(g.MaxRunTime),
		ResumeGrace: durationpb.New(g.ResumeGrace), Start: wireStart(g.Start), Paused: g.Paused,
	}
}

func storedStart(w *nextv1.GroupStart) qlog.Start {
	switch {
	case w.GetPosition() == nextv1.StartPosition_START_POSITION_END:
		return qlog.Start{End: true}
	case w.GetTime() != nil:
		return qlog.Start{Time: w.GetTime().AsTime()}
	default:
		return qlog.Start{}
	}
}

func wireStart(s qlog.Start) *nextv1.GroupStart {
	position := nextv1.StartPosition_START_POSITION_BEGINNING
	switch {
	case s.End:
		position = nextv1.StartPosition_START_POSITION_END
	case !s.Time.IsZero():
		return &nextv1.GroupStart{Start: &nextv1.GroupStart_Time{Time: timestamppb.New(s.Time)}}
	}
	return &nextv1.GroupStart{Start: &nextv1.GroupStart_Position{Position: position}}
}
