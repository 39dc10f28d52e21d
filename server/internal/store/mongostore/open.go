package mongostore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/message"
)

// isOpen is the condition of openIndex. A query must have the same to use the index.
var isOpen = bson.E{Key: "status", Value: bson.D{{Key: "$lt", Value: message.StatusSent}}} //nolint:gochecknoglobals // a constant

// OpenMessages implements message.OpenLister: one majority read of each shard.
func (s *Store) OpenMessages(
	ctx context.Context, shards []int, from, before time.Time, limit int,
) (found []message.Entry, err error) {
	if limit < 1 {
		return nil, nil
	}
	const up1 = time.Millisecond - 1 // stored times are whole milliseconds; a fraction is rounded up
	filter := bson.D{isOpen, {Key: "msg_time", Value: bson.D{
		{Key: "$gte", Value: from.Add(up1)}, {Key: "$lt", Value: before.Add(up1)},
	}}}
	for i, shard := range s.shards {
		if !slices.Contains(shards, i) {
			continue
		}
		var some []message.Entry
		err := s.read(ctx, func(ctx context.Context) (err error) {
			some, err = findIn(ctx, shard, filter, options.Find().SetHint(openIndex).
				SetSort(up("msg_time", "channel_id", "seq")).SetLimit(int64(limit)).
				SetProjection(bson.D{{Key: "content", Value: 0}, {Key: "metadata", Value: 0}}))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("open messages: %w", err)
		}
		found = append(found, some...)
	}
	slices.SortFunc(found, func(a, b message.Entry) int {
		return cmp.Or(a.MsgTime.Compare(b.MsgTime), strings.Compare(a.ChannelID, b.ChannelID), cmp.Compare(a.Seq, b.Seq))
	})
	return found[:min(limit, len(found))], nil
}
