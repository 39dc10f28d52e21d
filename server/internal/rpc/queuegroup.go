package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// CreateGroup implements parleyv1connect.AdminServiceHandler.
func (s *adminService) CreateGroup(ctx context.Context, req *parleyv1.CreateGroupRequest) (*parleyv1.CreateGroupResponse, error) {
	g, err := s.deps.Topics.CreateGroup(ctx, req.GetTopic(), storedGroup(req.GetGroup()))
	if err != nil {
		return nil, err
	}
	return &parleyv1.CreateGroupResponse{Group: wireGroup(g)}, nil
}

// UpdateGroup implements parleyv1connect.AdminServiceHandler.
func (s *adminService) UpdateGroup(ctx context.Context, req *parleyv1.UpdateGroupRequest) (*parleyv1.UpdateGroupResponse, error) {
	from := storedGroup(req.GetGroup())
	change, err := apply(req.GetUpdateMask(), groupSetters, &from)
	if err != nil {
		return nil, err
	}
	g, err := s.deps.Topics.UpdateGroup(ctx, req.GetTopic(), from.Name, change)
	if err != nil {
		return nil, err
	}
	return &parleyv1.UpdateGroupResponse{Group: wireGroup(g)}, nil
}

// GetGroup implements parleyv1connect.AdminServiceHandler.
func (s *adminService) GetGroup(ctx context.Context, req *parleyv1.GetGroupRequest) (*parleyv1.GetGroupResponse, error) {
	g, err := s.deps.Topics.Group(ctx, req.GetTopic(), req.GetGroup())
	if err != nil {
		return nil, err
	}
	return &parleyv1.GetGroupResponse{Group: wireGroup(g)}, nil
}

// ListGroups implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ListGroups(ctx context.Context, req *parleyv1.ListGroupsRequest) (*parleyv1.ListGroupsResponse, error) {
	t, err := s.deps.Topics.Topic(ctx, req.GetTopic())
	if err != nil {
		return nil, err
	}
	out := &parleyv1.ListGroupsResponse{Groups: make([]*parleyv1.Group, len(t.Groups))}
	for i := range t.Groups {
		out.Groups[i] = wireGroup(&t.Groups[i])
	}
	return out, nil
}

// DeleteGroup implements parleyv1connect.AdminServiceHandler.
func (s *adminService) DeleteGroup(ctx context.Context, req *parleyv1.DeleteGroupRequest) (*parleyv1.DeleteGroupResponse, error) {
	if err := s.deps.Topics.DeleteGroup(ctx, req.GetTopic(), req.GetGroup(), req.GetConfirm()); err != nil {
		return nil, err
	}
	return &parleyv1.DeleteGroupResponse{}, nil
}

// SetGroupPaused implements parleyv1connect.AdminServiceHandler.
func (s *adminService) SetGroupPaused(ctx context.Context, req *parleyv1.SetGroupPausedRequest) (*parleyv1.SetGroupPausedResponse, error) {
	g, err := s.deps.Topics.SetGroupPaused(ctx, req.GetTopic(), req.GetGroup(), req.GetPaused())
	if err != nil {
		return nil, err
	}
	return &parleyv1.SetGroupPausedResponse{Group: wireGroup(g)}, nil
}

// SeekGroup implements parleyv1connect.AdminServiceHandler.
func (s *adminService) SeekGroup(ctx context.Context, req *parleyv1.SeekGroupRequest) (*parleyv1.SeekGroupResponse, error) {
	if err := s.deps.Topics.SeekGroup(ctx, req.GetTopic(), req.GetGroup(), storedStart(req.GetStart())); err != nil {
		return nil, err
	}
	return &parleyv1.SeekGroupResponse{}, nil
}

// storedTopic converts the settings that a caller may set. Unset ones stay zero, which means the
// default.
func storedTopic(w *parleyv1.Topic) qlog.Topic {
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

func wireTopic(t *qlog.Topic) *parleyv1.Topic {
	w := &parleyv1.Topic{
		Name: t.Name, Partitions: int32(t.Partitions), Partitioner: parleyv1.Partitioner(t.Partitioner), //nolint:gosec // at most 256
		Retention: &parleyv1.TopicRetention{
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
func storedGroup(w *parleyv1.Group) qlog.Group {
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

func wireGroup(g *qlog.Group) *parleyv1.Group {
	attempts := int32(g.Retry.MaxAttempts) //nolint:gosec // at most 1,000
	return &parleyv1.Group{
		Name: g.Name, Mode: parleyv1.GroupMode(g.Mode) + 1, Order: parleyv1.DeliveryOrder(g.Order) + 1,
		Retry: &parleyv1.RetryPolicy{
			MaxAttempts: &attempts, MinBackoff: durationpb.New(g.Retry.MinBackoff), MaxBackoff: durationpb.New(g.Retry.MaxBackoff),
			NonRetryableCodes: g.Retry.NonRetryable,
		},
		AckTimeout: durationpb.New(g.AckTimeout), HandlerTimeout: durationpb.New(g.Timeout), MaxRunTime: durationpb.New(g.MaxRunTime),
		ResumeGrace: durationpb.New(g.ResumeGrace), Start: wireStart(g.Start), Paused: g.Paused,
	}
}

func storedStart(w *parleyv1.GroupStart) qlog.Start {
	switch {
	case w.GetPosition() == parleyv1.StartPosition_START_POSITION_END:
		return qlog.Start{End: true}
	case w.GetTime() != nil:
		return qlog.Start{Time: w.GetTime().AsTime()}
	default:
		return qlog.Start{}
	}
}

func wireStart(s qlog.Start) *parleyv1.GroupStart {
	position := parleyv1.StartPosition_START_POSITION_BEGINNING
	switch {
	case s.End:
		position = parleyv1.StartPosition_START_POSITION_END
	case !s.Time.IsZero():
		return &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Time{Time: timestamppb.New(s.Time)}}
	}
	return &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Position{Position: position}}
}
