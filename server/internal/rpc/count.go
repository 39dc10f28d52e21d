package rpc

import (
	"strings"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
)

// The schema's bounds on repeated fields, which are checked here first: a request of two megabytes holds a million empty
// items, and judging them one by one takes seconds.
const (
	maxContentBytes  = 65_536
	maxBatchItems    = 500
	maxMetadataPairs = 16
	maxUserIDs       = 500
	maxQueueItems    = queue.MaxBatch
	maxHeaders       = 32
	maxCodes         = 32
	maxPaths         = 16
)

// reservedPrefix begins no topic's name.
const reservedPrefix = "__"

// preview judges what must be judged before a request is looked at item by item, and what the schema can't say.
func preview(request any, channels int) error {
	if err := countItems(request, channels); err != nil {
		return err
	}
	if err := countQueueItems(request); err != nil {
		return err
	}
	if r, ok := request.(ofTopic); ok {
		return notReserved("topic", r.GetTopic())
	}
	return nil
}

func notReserved(field, name string) error {
	if strings.HasPrefix(name, reservedPrefix) {
		return fault.Invalid(field, 0, "%s: names that begin with two underscores are reserved", field)
	}
	return nil
}

// countQueueItems is countItems for QueueService and AdminService.
func countQueueItems(request any) error {
	switch r := request.(type) {
	case *parleyv1.ProduceRequest:
		return tooMany("messages", len(r.GetMessages()), maxQueueItems)
	case *parleyv1.ScheduleRequest:
		return tooMany("messages", len(r.GetMessages()), maxQueueItems)
	case *parleyv1.AckRequest:
		return tooMany("tokens", len(r.GetTokens()), maxQueueItems)
	case *parleyv1.NackRequest:
		return tooMany("items", len(r.GetItems()), maxQueueItems)
	case *parleyv1.ExtendRequest:
		return tooMany("deliveries.tokens", len(r.GetDeliveries().GetTokens()), maxQueueItems)
	case *parleyv1.QueueMessage:
		return tooMany("headers", len(r.GetHeaders()), maxHeaders)
	case *parleyv1.CreateTopicRequest:
		return tooMany("topic.retry.non_retryable_codes", len(r.GetTopic().GetRetry().GetNonRetryableCodes()), maxCodes)
	case *parleyv1.UpdateTopicRequest:
		if err := tooMany("update_mask", len(r.GetUpdateMask().GetPaths()), maxPaths); err != nil {
			return err
		}
		return tooMany("topic.retry.non_retryable_codes", len(r.GetTopic().GetRetry().GetNonRetryableCodes()), maxCodes)
	case *parleyv1.ReplayDeadLettersRequest:
		return tooMany("selection.ids.dead_letter_ids", len(r.GetSelection().GetIds().GetDeadLetterIds()), maxQueueItems)
	case *parleyv1.PurgeDeadLettersRequest:
		return tooMany("selection.ids.dead_letter_ids", len(r.GetSelection().GetIds().GetDeadLetterIds()), maxQueueItems)
	}
	return nil
}

// countItems refuses requests with more items than allowed, without looking at any.
func countItems(request any, channels int) error {
	switch r := request.(type) {
	case *parleyv1.SubscribeRequest:
		return tooManyChannels("channels", len(r.GetChannels()), channels)
	case *parleyv1.UpdateSubscriptionRequest:
		if err := tooManyChannels("add", len(r.GetAdd()), channels); err != nil {
			return err
		}
		return tooManyChannels("remove", len(r.GetRemove()), channels)
	case *parleyv1.SendMessagesRequest:
		return tooMany("messages", len(r.GetMessages()), maxBatchItems)
	case *parleyv1.SendMessageRequest:
		return tooMany("metadata", len(r.GetMetadata()), maxMetadataPairs)
	case *parleyv1.CreateChannelRequest:
		return tooMany("members", len(r.GetMembers()), maxUserIDs)
	case *parleyv1.AddMembersRequest:
		return tooMany("members", len(r.GetMembers()), maxUserIDs)
	case *parleyv1.RemoveMembersRequest:
		return tooMany("user_ids", len(r.GetUserIds()), maxUserIDs)
	}
	return nil
}

func tooManyChannels(field string, n, limit int) error {
	if n <= limit {
		return nil
	}
	f := fault.New(fault.ResourceExhausted, fault.LimitExceeded, "%s: %d channels, a stream may have at most %d", field, n, limit)
	f.Field, f.Limit = field, int64(limit)
	return f
}

func tooMany(field string, n, limit int) error {
	if n <= limit {
		return nil
	}
	return fault.Invalid(field, int64(limit), "%s: %d items, at most %d are allowed", field, n, limit)
}
