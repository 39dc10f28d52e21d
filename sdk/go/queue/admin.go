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

// What AdminService tells; the proto file says what each field means.
type (
	// Topic is a topic's settings.
	Topic = parleyv1.Topic
	// RetryPolicy says what becomes of a message that was given back.
	RetryPolicy = parleyv1.RetryPolicy
	// Retention says how long settled messages stay.
	Retention = parleyv1.Retention
	// TopicStats counts what a topic holds.
	TopicStats = parleyv1.GetTopicStatsResponse
	// PartitionStats counts what a partition holds.
	PartitionStats = parleyv1.PartitionStats
	// GroupStats counts what a group has to do and has done.
	GroupStats = parleyv1.GroupStats
	// PartitionOwner is a partition and who has it.
	PartitionOwner = parleyv1.PartitionOwner
	// PendingDelivery is a delivery that is not settled.
	PendingDelivery = parleyv1.PendingDelivery
	// DeadMessage is a message that was given up: a dead letter.
	DeadMessage = parleyv1.DeadLetter
)

// Start is a place in a topic. The zero value is the beginning.
type Start struct {
	// End is after the newest message.
	End bool
	// Time is the first message at or after it, by the server's clock; not beside End.
	Time time.Time
}

func (s Start) wire() *parleyv1.GroupStart {
	switch {
	case s.End:
		return &parleyv1.GroupStart{Start: &parleyv1.GroupStart_End{End: true}}
	case !s.Time.IsZero():
		return &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Time{Time: timestamppb.New(s.Time)}}
	default:
		return &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Beginning{Beginning: true}}
	}
}

// Admin makes, alters and looks into topics. Every call wants the capability `admin`. Failures that may pass are tried again until
// ctx ends; where the answer to an attempt was lost, an error that says that the work is done already tells so in its text. It is
// safe for concurrent use.
type Admin struct{ link link.Link }

// NewAdmin makes an admin.
func NewAdmin(c *parley.Client) *Admin { return &Admin{link: c.Link()} }

// adminCall makes one call of the service, again as long as failures may pass. done is the error that an earlier attempt of the call
// may have brought about; nil for none.
func adminCall[Req, Res any](
	ctx context.Context, a *Admin, name string, call func(ctx context.Context, s *link.Services, req Req) (Res, error), req Req,
	done error,
) (Res, error) {
	var res Res
	attempts := 0
	err := a.link.Retry(ctx, name, func(ctx context.Context, s *link.Services) (err error) {
		attempts++
		res, err = call(ctx, s, req)
		return err
	})
	if done != nil {
		err = mayBeOurs(err, attempts, done)
	}
	return res, err
}

// CreateTopic makes a topic. Over an existing one it is parley.ErrTopicExists.
func (a *Admin) CreateTopic(ctx context.Context, t *Topic) (*Topic, error) {
	res, err := adminCall(ctx, a, "CreateTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.CreateTopicRequest) (*parleyv1.CreateTopicResponse, error) {
			return s.Admin.CreateTopic(ctx, r)
		}, &parleyv1.CreateTopicRequest{Topic: t}, parley.ErrTopicExists)
	return res.GetTopic(), err
}

// UpdateTopic changes the named fields of a topic's settings: of partitions, retry, retention, max_messages_per_partition,
// drop_oldest, idempotency_window.
func (a *Admin) UpdateTopic(ctx context.Context, t *Topic, fields ...string) (*Topic, error) {
	res, err := adminCall(ctx, a, "UpdateTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.UpdateTopicRequest) (*parleyv1.UpdateTopicResponse, error) {
			return s.Admin.UpdateTopic(ctx, r)
		}, &parleyv1.UpdateTopicRequest{Topic: t, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}}, nil)
	return res.GetTopic(), err
}

// DeleteTopic removes a topic with everything in it. confirm must be the topic's name.
func (a *Admin) DeleteTopic(ctx context.Context, topic, confirm string) error {
	_, err := adminCall(ctx, a, "DeleteTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.DeleteTopicRequest) (*parleyv1.DeleteTopicResponse, error) {
			return s.Admin.DeleteTopic(ctx, r)
		}, &parleyv1.DeleteTopicRequest{Topic: topic, Confirm: confirm}, parley.ErrTopicNotFound)
	return err
}

// Topic gives a topic.
func (a *Admin) Topic(ctx context.Context, topic string) (*Topic, error) {
	res, err := adminCall(ctx, a, "GetTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.GetTopicRequest) (*parleyv1.GetTopicResponse, error) {
			return s.Admin.GetTopic(ctx, r)
		}, &parleyv1.GetTopicRequest{Topic: topic}, nil)
	return res.GetTopic(), err
}

// Topics iterates over all topics by name. An error is the last thing it yields.
func (a *Admin) Topics(ctx context.Context) iter.Seq2[*Topic, error] {
	return link.Pages(func(token string) ([]*Topic, string, error) {
		res, err := adminCall(ctx, a, "ListTopics",
			func(ctx context.Context, s *link.Services, r *parleyv1.ListTopicsRequest) (*parleyv1.ListTopicsResponse, error) {
				return s.Admin.ListTopics(ctx, r)
			}, &parleyv1.ListTopicsRequest{PageToken: token}, nil)
		return res.GetTopics(), res.GetNextPageToken(), err
	})
}

// Pause stops a topic: what it is told to take, or to deliver. Neither pauses both.
func (a *Admin) Pause(ctx context.Context, topic string, produce, consume bool) (*Topic, error) {
	req := &parleyv1.PauseTopicRequest{Topic: topic, ProduceOnly: produce && !consume, ConsumeOnly: consume && !produce}
	res, err := adminCall(ctx, a, "PauseTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.PauseTopicRequest) (*parleyv1.PauseTopicResponse, error) {
			return s.Admin.PauseTopic(ctx, r)
		}, req, nil)
	return res.GetTopic(), err
}

// Resume undoes Pause.
func (a *Admin) Resume(ctx context.Context, topic string) (*Topic, error) {
	res, err := adminCall(ctx, a, "ResumeTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.ResumeTopicRequest) (*parleyv1.ResumeTopicResponse, error) {
			return s.Admin.ResumeTopic(ctx, r)
		}, &parleyv1.ResumeTopicRequest{Topic: topic}, nil)
	return res.GetTopic(), err
}

// Stats counts what a topic holds, in all and for each partition and group.
func (a *Admin) Stats(ctx context.Context, topic string) (*TopicStats, error) {
	return adminCall(ctx, a, "GetTopicStats",
		func(ctx context.Context, s *link.Services, r *parleyv1.GetTopicStatsRequest) (*TopicStats, error) {
			return s.Admin.GetTopicStats(ctx, r)
		}, &parleyv1.GetTopicStatsRequest{Topic: topic}, nil)
}

// Trim removes a topic's oldest messages but for the newest `keep` of each partition, or where that is negative those younger than
// maxAge: never what a group has not settled, unless forced. It tells how many were removed, and how many of them a group had not
// settled. After a lost answer it tells of the rest only.
func (a *Admin) Trim(
	ctx context.Context, topic string, keep int64, maxAge time.Duration, force bool,
) (removed, unsettled int64, err error) {
	req := &parleyv1.TrimTopicRequest{Topic: topic, Force: force, Keep: &parleyv1.TrimTopicRequest_MaxMessages{MaxMessages: keep}}
	if keep < 0 {
		req.Keep = &parleyv1.TrimTopicRequest_MaxAge{MaxAge: durationpb.New(maxAge)}
	}
	res, err := adminCall(ctx, a, "TrimTopic",
		func(ctx context.Context, s *link.Services, r *parleyv1.TrimTopicRequest) (*parleyv1.TrimTopicResponse, error) {
			return s.Admin.TrimTopic(ctx, r)
		}, req, nil)
	return res.GetRemoved(), res.GetLost(), err
}
