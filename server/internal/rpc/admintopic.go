package rpc

import (
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
)

// CreateTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) CreateTopic(ctx context.Context, req *parleyv1.CreateTopicRequest) (*parleyv1.CreateTopicResponse, error) {
	if err := checkNotReserved("topic.name", req.GetTopic().GetName()); err != nil {
		return nil, err
	}
	t, err := s.deps.Admin.CreateTopic(ctx, topicFromWire(req.GetTopic()))
	if err != nil {
		return nil, err
	}
	return &parleyv1.CreateTopicResponse{Topic: topicToWire(t)}, nil
}

// setters maps each setting that UpdateTopic's mask may name to a function that copies it from the
// request's topic. A setting that the request leaves unset is copied as zero, which means the
// default.
var setters = map[string]func(to, from *queue.Topic){
	"partitions":                 func(to, from *queue.Topic) { to.Partitions = from.Partitions },
	"retry":                      func(to, from *queue.Topic) { to.Retry = from.Retry },
	"retention":                  func(to, from *queue.Topic) { to.Retention = from.Retention },
	"max_messages_per_partition": func(to, from *queue.Topic) { to.MaxMessages = from.MaxMessages },
	"drop_oldest":                func(to, from *queue.Topic) { to.DropOldest = from.DropOldest },
	"idempotency_window":         func(to, from *queue.Topic) { to.IdempotencyWindow = from.IdempotencyWindow },
}

// UpdateTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) UpdateTopic(ctx context.Context, req *parleyv1.UpdateTopicRequest) (*parleyv1.UpdateTopicResponse, error) {
	if err := checkMask(req.GetUpdateMask()); err != nil {
		return nil, err
	}
	if err := checkNotReserved("topic.name", req.GetTopic().GetName()); err != nil {
		return nil, err
	}
	from := topicFromWire(req.GetTopic())
	t, err := s.deps.Admin.UpdateTopic(ctx, from.Name, func(to *queue.Topic) error {
		for _, path := range req.GetUpdateMask().GetPaths() {
			setters[path](to, &from)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.UpdateTopicResponse{Topic: topicToWire(t)}, nil
}

func checkMask(mask *fieldmaskpb.FieldMask) error {
	const field = "update_mask"
	if len(mask.GetPaths()) == 0 {
		return fault.Invalid(field, 0, "%s: must name at least one field", field)
	}
	for _, path := range mask.GetPaths() {
		if setters[path] == nil {
			return fault.Invalid(field, 0, "%s: %q is not a field of a topic that can be updated", field, path)
		}
	}
	return nil
}

// DeleteTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) DeleteTopic(ctx context.Context, req *parleyv1.DeleteTopicRequest) (*parleyv1.DeleteTopicResponse, error) {
	if err := s.deps.Admin.DeleteTopic(ctx, req.GetTopic(), req.GetConfirm()); err != nil {
		return nil, err
	}
	return &parleyv1.DeleteTopicResponse{}, nil
}

// GetTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) GetTopic(ctx context.Context, req *parleyv1.GetTopicRequest) (*parleyv1.GetTopicResponse, error) {
	t, err := s.deps.Admin.Topic(ctx, req.GetTopic())
	if err != nil {
		return nil, err
	}
	return &parleyv1.GetTopicResponse{Topic: topicToWire(t)}, nil
}

// PauseTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) PauseTopic(ctx context.Context, req *parleyv1.PauseTopicRequest) (*parleyv1.PauseTopicResponse, error) {
	produce, consume := operationsOf(req.GetOperations())
	t, err := s.deps.Admin.Pause(ctx, req.GetTopic(), produce, consume)
	if err != nil {
		return nil, err
	}
	return &parleyv1.PauseTopicResponse{Topic: topicToWire(t)}, nil
}

// ResumeTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ResumeTopic(ctx context.Context, req *parleyv1.ResumeTopicRequest) (*parleyv1.ResumeTopicResponse, error) {
	produce, consume := operationsOf(req.GetOperations())
	t, err := s.deps.Admin.Resume(ctx, req.GetTopic(), produce, consume)
	if err != nil {
		return nil, err
	}
	return &parleyv1.ResumeTopicResponse{Topic: topicToWire(t)}, nil
}

// operationsOf reports whether a request names PRODUCE and whether it names CONSUME. The schema
// requires at least one.
func operationsOf(operations []parleyv1.TopicOperation) (produce, consume bool) {
	return slices.Contains(operations, parleyv1.TopicOperation_TOPIC_OPERATION_PRODUCE),
		slices.Contains(operations, parleyv1.TopicOperation_TOPIC_OPERATION_CONSUME)
}

// CreateGroup implements parleyv1connect.AdminServiceHandler.
func (s *adminService) CreateGroup(ctx context.Context, req *parleyv1.CreateGroupRequest) (*parleyv1.CreateGroupResponse, error) {
	g := queue.Group{Name: req.GetGroup(), Start: startFromWire(req.GetStart())}
	if err := s.deps.Admin.CreateGroup(ctx, req.GetTopic(), g); err != nil {
		return nil, err
	}
	return &parleyv1.CreateGroupResponse{}, nil
}

// DeleteGroup implements parleyv1connect.AdminServiceHandler.
func (s *adminService) DeleteGroup(ctx context.Context, req *parleyv1.DeleteGroupRequest) (*parleyv1.DeleteGroupResponse, error) {
	if err := s.deps.Admin.DeleteGroup(ctx, req.GetTopic(), req.GetGroup(), req.GetConfirm()); err != nil {
		return nil, err
	}
	return &parleyv1.DeleteGroupResponse{}, nil
}

// SeekGroup implements parleyv1connect.AdminServiceHandler.
func (s *adminService) SeekGroup(ctx context.Context, req *parleyv1.SeekGroupRequest) (*parleyv1.SeekGroupResponse, error) {
	g := queue.Group{Name: req.GetGroup(), Start: startFromWire(req.GetStart())}
	if err := s.deps.Admin.SeekGroup(ctx, req.GetTopic(), g); err != nil {
		return nil, err
	}
	return &parleyv1.SeekGroupResponse{}, nil
}

func startFromWire(w *parleyv1.GroupStart) queue.Start {
	switch {
	case w.GetPosition() == parleyv1.StartPosition_START_POSITION_END:
		return queue.Start{End: true}
	case w.GetTime() != nil:
		return queue.Start{Time: millisAt(w.GetTime())}
	default:
		return queue.Start{}
	}
}

// topicFromWire converts the settings that a caller may set. Unset ones stay zero, which package
// queue takes as the default.
func topicFromWire(w *parleyv1.Topic) queue.Topic {
	retry, retention := w.GetRetry(), w.GetRetention()
	return queue.Topic{
		Name: w.GetName(), Partitions: int(w.GetPartitions()),
		Partitioner: queue.Partitioner(w.GetPartitioner()), //nolint:gosec // one of the enum's, which are few
		StrictOrder: w.GetStrictOrder(),
		Retry: queue.RetryPolicy{
			MaxAttempts: int(retry.GetMaxAttempts()), MinBackoff: millis(retry.GetMinBackoff()),
			MaxBackoff: millis(retry.GetMaxBackoff()), NonRetryable: retry.GetNonRetryableCodes(),
		},
		Retention: queue.Retention{
			MaxAge: millis(retention.GetMaxAge()), MaxMessages: retention.GetMaxMessages(),
			DeadLetterAge: millis(retention.GetDeadLetterMaxAge()),
		},
		MaxMessages: w.GetMaxMessagesPerPartition(), DropOldest: w.GetDropOldest(),
		IdempotencyWindow: millis(w.GetIdempotencyWindow()),
	}
}

func topicToWire(t *queue.Topic) *parleyv1.Topic {
	attempts := int32(t.Retry.MaxAttempts) //nolint:gosec // at most 1,000
	w := &parleyv1.Topic{
		Name: t.Name, Partitions: int32(t.Partitions), //nolint:gosec // at most 256
		Partitioner: parleyv1.Partitioner(t.Partitioner), StrictOrder: t.StrictOrder,
		Retry: &parleyv1.RetryPolicy{
			MaxAttempts: &attempts, MinBackoff: durationpb.New(t.Retry.MinBackoff),
			MaxBackoff: durationpb.New(t.Retry.MaxBackoff), NonRetryableCodes: t.Retry.NonRetryable,
		},
		Retention: &parleyv1.TopicRetention{
			MaxAge: durationpb.New(t.Retention.MaxAge), MaxMessages: t.Retention.MaxMessages,
			DeadLetterMaxAge: durationpb.New(t.Retention.DeadLetterAge),
		},
		MaxMessagesPerPartition: t.MaxMessages, DropOldest: t.DropOldest,
		IdempotencyWindow: durationpb.New(t.IdempotencyWindow), CreateTime: timeToWire(t.CreatedAt),
		ProducePaused: t.ProducePaused, ConsumePaused: t.ConsumePaused,
	}
	for _, g := range t.Groups {
		w.Groups = append(w.Groups, g.Name)
	}
	return w
}
