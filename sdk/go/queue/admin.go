package queue

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// The resources that AdminService returns. The proto files describe the fields.
type (
	// Topic contains a topic's settings.
	Topic = parleyv1.Topic
	// RetryPolicy sets when and how often a failed message is delivered again.
	RetryPolicy = parleyv1.RetryPolicy
	// Retention sets how long settled messages stay.
	Retention = parleyv1.TopicRetention
	// TopicStats contains the numbers of messages of a whole topic.
	TopicStats = parleyv1.TopicStats
	// PartitionStats contains the numbers of messages of one partition.
	PartitionStats = parleyv1.PartitionStats
	// GroupStats contains the numbers of messages of a group by state.
	GroupStats = parleyv1.GroupStats
	// PartitionOwner is a partition and the consumer that it is assigned to.
	PartitionOwner = parleyv1.PartitionOwner
	// PendingDelivery is an unsettled delivery.
	PendingDelivery = parleyv1.PendingDelivery
	// DeadMessage is a dead letter.
	DeadMessage = parleyv1.DeadLetter
)

// Operation is an operation on a topic that can be paused.
type Operation = parleyv1.TopicOperation

// The operations that can be paused.
const (
	// Produce is the operation of producing and scheduling messages.
	Produce Operation = parleyv1.TopicOperation_TOPIC_OPERATION_PRODUCE
	// Consume is the operation of delivering messages to consumers.
	Consume Operation = parleyv1.TopicOperation_TOPIC_OPERATION_CONSUME
)

// Start is a position in a topic at which a consumer group starts to read: FromBeginning, FromEnd
// or FromTime. The zero value is no position: CreateGroup then starts at the beginning, and
// SeekGroup returns parley.ErrInvalidField.
type Start struct{ wire *parleyv1.GroupStart }

// FromBeginning returns the position of the oldest stored message.
func FromBeginning() Start { return startAt(parleyv1.StartPosition_START_POSITION_BEGINNING) }

// FromEnd returns the position after the newest message.
func FromEnd() Start { return startAt(parleyv1.StartPosition_START_POSITION_END) }

// FromTime returns the position of the first message at or after t, by the server's clock. A time
// in the future means the end.
func FromTime(t time.Time) Start {
	return Start{&parleyv1.GroupStart{Start: &parleyv1.GroupStart_Time{Time: timestamppb.New(t)}}}
}

func startAt(p parleyv1.StartPosition) Start {
	return Start{&parleyv1.GroupStart{Start: &parleyv1.GroupStart_Position{Position: p}}}
}

// Admin manages topics and consumer groups. Every call requires the capability `admin`: the action
// `read` for calls that change nothing, the action `write` for all other calls. Calls are retried
// until ctx or the call's deadline ends (see parley.WithCallTimeout). If an earlier attempt of a
// call may have succeeded already, the text of the error says so. It is safe for concurrent use.
type Admin struct{ link link.Link }

// NewAdmin returns an Admin that uses the client.
func NewAdmin(c *parley.Client) *Admin { return &Admin{link: link.Of(c)} }

// adminCall makes one call of the service. done is the error that an earlier attempt of the call
// may have caused, or nil.
func adminCall[Req, Res any](
	ctx context.Context, a *Admin, name string, call func(ctx context.Context, s *link.Services, req Req) (Res, error), req Req,
	done error,
) (Res, error) {
	var res Res
	attempts := 0
	err := a.link.Call(ctx, name, func(ctx context.Context, s *link.Services) (err error) {
		attempts++
		res, err = call(ctx, s, req)
		return err
	})
	if done != nil {
		err = mayBeOurs(err, attempts, done)
	}
	return res, err
}

// CreateTopic creates a topic and returns it. If the topic exists, it returns parley.ErrTopicExists
// and changes nothing.
func (a *Admin) CreateTopic(ctx context.Context, t *Topic) (*Topic, error) {
	res, err := adminCall(ctx, a, "CreateTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.CreateTopicRequest) (*parleyv1.CreateTopicResponse, error) {
			return s.Admin.CreateTopic(ctx, r)
		}, &parleyv1.CreateTopicRequest{Topic: t}, parley.ErrTopicExists)
	return res.GetTopic(), err
}

// UpdateTopic changes the named fields of a topic's settings and returns the topic. The fields are
// some of partitions, retry, retention, max_messages_per_partition, drop_oldest and
// idempotency_window.
func (a *Admin) UpdateTopic(ctx context.Context, t *Topic, fields ...string) (*Topic, error) {
	res, err := adminCall(ctx, a, "UpdateTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.UpdateTopicRequest) (*parleyv1.UpdateTopicResponse, error) {
			return s.Admin.UpdateTopic(ctx, r)
		}, &parleyv1.UpdateTopicRequest{Topic: t, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}}, nil)
	return res.GetTopic(), err
}

// DeleteTopic deletes a topic and everything in it. It returns parley.ErrConfirmationRequired if
// confirm is not the topic's name.
func (a *Admin) DeleteTopic(ctx context.Context, topic, confirm string) error {
	_, err := adminCall(ctx, a, "DeleteTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.DeleteTopicRequest) (*parleyv1.DeleteTopicResponse, error) {
			return s.Admin.DeleteTopic(ctx, r)
		}, &parleyv1.DeleteTopicRequest{Topic: topic, Confirm: confirm}, parley.ErrTopicNotFound)
	return err
}

// Topic returns a topic.
func (a *Admin) Topic(ctx context.Context, topic string) (*Topic, error) {
	res, err := adminCall(ctx, a, "GetTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.GetTopicRequest) (*parleyv1.GetTopicResponse, error) {
			return s.Admin.GetTopic(ctx, r)
		}, &parleyv1.GetTopicRequest{Topic: topic}, nil)
	return res.GetTopic(), err
}

// Topics iterates over all topics, ordered by name. Each page is a call. If a call fails, the
// iteration ends with its error.
func (a *Admin) Topics(ctx context.Context) iter.Seq2[*Topic, error] {
	return link.Pages(func(token string) ([]*Topic, string, error) {
		res, err := adminCall(ctx, a, "ListTopics",
			func(ctx context.Context, s *link.Services, r *parleyv1.ListTopicsRequest) (*parleyv1.ListTopicsResponse, error) {
				return s.Admin.ListTopics(ctx, r)
			}, &parleyv1.ListTopicsRequest{PageToken: token}, nil)
		return res.GetTopics(), res.GetNextPageToken(), err
	})
}

// Pause pauses operations of a topic: Produce, Consume or both. Other operations do not change.
// Without operations it returns parley.ErrInvalidField. While Produce is paused, producers get
// parley.ErrTopicPaused, which they retry until their deadline.
func (a *Admin) Pause(ctx context.Context, topic string, operations ...Operation) (*Topic, error) {
	res, err := adminCall(ctx, a, "PauseTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.PauseTopicRequest) (*parleyv1.PauseTopicResponse, error) {
			return s.Admin.PauseTopic(ctx, r)
		}, &parleyv1.PauseTopicRequest{Topic: topic, Operations: operations}, nil)
	return res.GetTopic(), err
}

// Resume resumes operations of a topic: Produce, Consume or both. Other operations do not change.
// Without operations it returns parley.ErrInvalidField.
func (a *Admin) Resume(ctx context.Context, topic string, operations ...Operation) (*Topic, error) {
	res, err := adminCall(ctx, a, "ResumeTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.ResumeTopicRequest) (*parleyv1.ResumeTopicResponse, error) {
			return s.Admin.ResumeTopic(ctx, r)
		}, &parleyv1.ResumeTopicRequest{Topic: topic, Operations: operations}, nil)
	return res.GetTopic(), err
}

// Stats returns the number of messages of a topic by state: in total, and for each partition in
// order.
func (a *Admin) Stats(ctx context.Context, topic string) (total *TopicStats, partitions []*PartitionStats, err error) {
	res, err := adminCall(ctx, a, "GetTopicStats",
		func(ctx context.Context, s *link.Services, r *parleyv1.GetTopicStatsRequest) (*parleyv1.GetTopicStatsResponse, error) {
			return s.Admin.GetTopicStats(ctx, r)
		}, &parleyv1.GetTopicStatsRequest{Topic: topic}, nil)
	return res.GetTotal(), res.GetPartitions(), err
}

// Keep selects the messages that Trim keeps: KeepNewest or KeepYoungerThan. The zero value selects
// none, for which Trim returns parley.ErrInvalidField.
type Keep struct {
	apply func(*parleyv1.TrimTopicRequest)
}

// KeepNewest keeps the newest n messages of each partition.
func KeepNewest(n int64) Keep {
	return Keep{func(r *parleyv1.TrimTopicRequest) { r.Keep = &parleyv1.TrimTopicRequest_MaxMessages{MaxMessages: n} }}
}

// KeepYoungerThan keeps the messages that are younger than age.
func KeepYoungerThan(age time.Duration) Keep {
	return Keep{func(r *parleyv1.TrimTopicRequest) {
		r.Keep = &parleyv1.TrimTopicRequest_MaxAge{MaxAge: durationpb.New(age)}
	}}
}

// TrimOption sets a property of a Trim.
type TrimOption func(*parleyv1.TrimTopicRequest)

// WithUnsettled makes Trim also remove messages that a group has not settled. The group loses them.
func WithUnsettled() TrimOption { return func(r *parleyv1.TrimTopicRequest) { r.Force = true } }

// Trim removes the oldest messages of a topic, except those that keep selects and those that a
// group has not settled. WithUnsettled removes the unsettled ones too. It returns how many messages
// it removed, and how many of them a group had not settled. If an answer was lost, the numbers
// count only the last attempt.
func (a *Admin) Trim(ctx context.Context, topic string, keep Keep, opts ...TrimOption) (removed, unsettled int64, err error) {
	req := &parleyv1.TrimTopicRequest{Topic: topic}
	if keep.apply != nil {
		keep.apply(req)
	}
	for _, opt := range opts {
		opt(req)
	}
	res, err := adminCall(ctx, a, "TrimTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.TrimTopicRequest) (*parleyv1.TrimTopicResponse, error) {
			return s.Admin.TrimTopic(ctx, r)
		}, req, nil)
	return res.GetRemoved(), res.GetLost(), err
}
