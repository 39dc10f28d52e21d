package queue

import (
	"context"
	"errors"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// The resources that the calls of an Admin return. The proto files describe the fields.
type (
	// Topic contains a topic's settings.
	Topic = parleyv1.Topic
	// Group contains the settings of a consumer group.
	Group = parleyv1.Group
	// RetryPolicy sets when and how often a failed message is delivered again.
	RetryPolicy = parleyv1.RetryPolicy
	// Retention sets how long settled messages stay.
	Retention = parleyv1.TopicRetention
)

// Start is a position in a topic at which a consumer group starts to read: FromBeginning, FromEnd
// or FromTime. It is the Start of a Group and the target of SeekGroup.
type Start = *parleyv1.GroupStart

// FromBeginning returns the position of the oldest stored message.
func FromBeginning() Start { return startAt(parleyv1.StartPosition_START_POSITION_BEGINNING) }

// FromEnd returns the position after the newest message.
func FromEnd() Start { return startAt(parleyv1.StartPosition_START_POSITION_END) }

// FromTime returns the position of the first message at or after t, by the server's clock. A time
// in the future means the end.
func FromTime(t time.Time) Start {
	return &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Time{Time: timestamppb.New(t)}}
}

func startAt(p parleyv1.StartPosition) Start {
	return &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Position{Position: p}}
}

// Admin manages topics and consumer groups. Every call requires the capability `admin`: the action
// `read` for calls that change nothing, the action `write` for all other calls. Calls are retried
// until ctx or the call's deadline ends (see parley.WithCallTimeout). It is safe for concurrent
// use.
type Admin struct{ link link.Link }

// NewAdmin returns an Admin that uses the client.
func NewAdmin(c *parley.Client) *Admin { return &Admin{link: link.Of(c)} }

// adminCall makes one call of the service.
func adminCall[Req, Res any](
	ctx context.Context, a *Admin, name string, call func(s *link.Services) func(context.Context, *Req) (*Res, error), req *Req,
) (*Res, error) {
	var res *Res
	err := a.link.Call(ctx, name, func(ctx context.Context, s *link.Services) (err error) {
		res, err = call(s)(ctx, req)
		return err
	})
	return res, err
}

// EnsureTopic creates a topic, or if it exists changes the named fields of its settings, and
// returns it. Without fields an existing topic is not changed.
func (a *Admin) EnsureTopic(ctx context.Context, t *Topic, fields ...string) (*Topic, error) {
	topic, err := a.CreateTopic(ctx, t)
	switch {
	case !errors.Is(err, parley.ErrTopicExists):
		return topic, err
	case len(fields) == 0:
		return a.Topic(ctx, t.GetName())
	default:
		return a.UpdateTopic(ctx, t, fields...)
	}
}

// CreateTopic creates a topic and returns it. If the topic exists, also because an earlier attempt
// of this call has created it, CreateTopic returns parley.ErrTopicExists and changes nothing.
func (a *Admin) CreateTopic(ctx context.Context, t *Topic) (*Topic, error) {
	res, err := adminCall(ctx, a, "CreateTopic",
		func(s *link.Services) func(context.Context, *parleyv1.CreateTopicRequest) (*parleyv1.CreateTopicResponse, error) {
			return s.Admin.CreateTopic
		}, &parleyv1.CreateTopicRequest{Topic: t})
	return res.GetTopic(), err
}

// UpdateTopic changes the named fields of a topic's settings and returns the topic. The fields are
// some of partitions, retention, max_messages_per_partition, drop_oldest and idempotency_window.
func (a *Admin) UpdateTopic(ctx context.Context, t *Topic, fields ...string) (*Topic, error) {
	res, err := adminCall(ctx, a, "UpdateTopic",
		func(s *link.Services) func(context.Context, *parleyv1.UpdateTopicRequest) (*parleyv1.UpdateTopicResponse, error) {
			return s.Admin.UpdateTopic
		}, &parleyv1.UpdateTopicRequest{Topic: t, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}})
	return res.GetTopic(), err
}

// DeleteTopic deletes a topic and everything in it. It returns parley.ErrConfirmationRequired if
// confirm is not the topic's name, and parley.ErrTopicNotFound if there is no such topic, also
// because an earlier attempt of this call has deleted it.
func (a *Admin) DeleteTopic(ctx context.Context, topic, confirm string) error {
	_, err := adminCall(ctx, a, "DeleteTopic",
		func(s *link.Services) func(context.Context, *parleyv1.DeleteTopicRequest) (*parleyv1.DeleteTopicResponse, error) {
			return s.Admin.DeleteTopic
		}, &parleyv1.DeleteTopicRequest{Topic: topic, Confirm: confirm})
	return err
}

// Topic returns a topic.
func (a *Admin) Topic(ctx context.Context, topic string) (*Topic, error) {
	res, err := adminCall(ctx, a, "GetTopic",
		func(s *link.Services) func(context.Context, *parleyv1.GetTopicRequest) (*parleyv1.GetTopicResponse, error) {
			return s.Admin.GetTopic
		}, &parleyv1.GetTopicRequest{Topic: topic})
	return res.GetTopic(), err
}

// Topics iterates over all topics, ordered by name. Each page is a call. If a call fails, the
// iteration ends with its error.
func (a *Admin) Topics(ctx context.Context) iter.Seq2[*Topic, error] {
	return link.Pages(func(token string) ([]*Topic, string, error) {
		res, err := adminCall(ctx, a, "ListTopics",
			func(s *link.Services) func(context.Context, *parleyv1.ListTopicsRequest) (*parleyv1.ListTopicsResponse, error) {
				return s.Admin.ListTopics
			}, &parleyv1.ListTopicsRequest{PageToken: token})
		return res.GetTopics(), res.GetNextPageToken(), err
	})
}

// PauseTopic pauses Produce of a topic: producers get parley.ErrTopicPaused, which they retry until
// their deadline. ResumeTopic ends the pause.
func (a *Admin) PauseTopic(ctx context.Context, topic string) (*Topic, error) {
	return a.setTopicPaused(ctx, topic, true)
}

// ResumeTopic ends the pause of a topic.
func (a *Admin) ResumeTopic(ctx context.Context, topic string) (*Topic, error) {
	return a.setTopicPaused(ctx, topic, false)
}

func (a *Admin) setTopicPaused(ctx context.Context, topic string, paused bool) (*Topic, error) {
	res, err := adminCall(ctx, a, "SetTopicPaused",
		func(s *link.Services) func(context.Context, *parleyv1.SetTopicPausedRequest) (*parleyv1.SetTopicPausedResponse, error) {
			return s.Admin.SetTopicPaused
		}, &parleyv1.SetTopicPausedRequest{Topic: topic, Paused: paused})
	return res.GetTopic(), err
}

// RepairTopic creates again what the queue store lost of a topic: its settings, partitions and
// groups, as far as another part of the store has a copy. It returns the topic, and what was
// missing, for people. Nodes do the same on their own when they notice a loss.
func (a *Admin) RepairTopic(ctx context.Context, topic string) (repaired *Topic, missing []string, err error) {
	res, err := adminCall(ctx, a, "RepairTopic",
		func(s *link.Services) func(context.Context, *parleyv1.RepairTopicRequest) (*parleyv1.RepairTopicResponse, error) {
			return s.Admin.RepairTopic
		}, &parleyv1.RepairTopicRequest{Topic: topic})
	return res.GetTopic(), res.GetRepaired(), err
}
