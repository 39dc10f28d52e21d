package queue

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// PurgeDeadLetters deletes dead letters and returns how many. If an answer was lost, the number
// counts only the last attempt. It returns parley.ErrConfirmationRequired if confirm is not the
// topic's name, and parley.ErrGroupNotFound for a group that does not exist and left no dead
// letters.
func (a *Admin) PurgeDeadLetters(ctx context.Context, topic string, letters Selection, confirm string) (int64, error) {
	res, err := adminCall(ctx, a, "PurgeDeadLetters",
		func(s *link.Services) func(context.Context, *parleyv1.PurgeDeadLettersRequest) (*parleyv1.PurgeDeadLettersResponse, error) {
			return s.Admin.PurgeDeadLetters
		}, &parleyv1.PurgeDeadLettersRequest{Topic: topic, Selection: letters.wire, Confirm: confirm})
	return res.GetPurged(), err
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
// it removed, and how many of them a group had not settled: a message counts once for each such
// group. If an answer was lost, the numbers count only the last attempt.
func (a *Admin) Trim(ctx context.Context, topic string, keep Keep, opts ...TrimOption) (removed, unsettled int64, err error) {
	req := &parleyv1.TrimTopicRequest{Topic: topic}
	if keep.apply != nil {
		keep.apply(req)
	}
	for _, opt := range opts {
		opt(req)
	}
	res, err := adminCall(ctx, a, "TrimTopic",
		func(s *link.Services) func(context.Context, *parleyv1.TrimTopicRequest) (*parleyv1.TrimTopicResponse, error) {
			return s.Admin.TrimTopic
		}, req)
	return res.GetRemoved(), res.GetLost(), err
}
