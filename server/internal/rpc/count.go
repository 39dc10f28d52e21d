package rpc

import (
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
)

// The schema's bounds on repeated fields, which are checked here first: a request of two megabytes holds a million empty
// items, and judging them one by one takes seconds.
const (
	maxBatchItems    = 500
	maxMetadataPairs = 16
	maxUserIDs       = 500
)

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
		return tooMany("user_ids", len(r.GetUserIds()), maxUserIDs)
	case *parleyv1.AddMembersRequest:
		return tooMany("user_ids", len(r.GetUserIds()), maxUserIDs)
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
