package mongostore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/message"
)

// erasing returns the update that makes set and removes the sender from the entry at seq, with all
// that a recall removes.
func erasing(set bson.D, seq int64) bson.D {
	return bson.D{
		{Key: "$set", Value: append(set,
			bson.E{Key: "from_id", Value: message.ErasedUser}, bson.E{Key: "client_msg_id", Value: message.ErasedKey(seq)})},
		{Key: "$unset", Value: bson.D{
			{Key: "metadata", Value: ""}, {Key: "digest", Value: ""}, {Key: "traceparent", Value: ""},
		}},
	}
}

// BySender implements message.LogEraser: one fence, and one read of each shard until there are
// enough entries.
func (s *Store) BySender(ctx context.Context, userID string, limit int) (found []message.Entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.fence.wait(ctx, s.life); err != nil {
		return nil, fmt.Errorf("by sender: %w", err)
	}
	for _, b := range s.shards {
		if len(found) >= limit {
			break
		}
		var some []message.Entry
		err := s.read(ctx, func(ctx context.Context) (err error) {
			some, err = findIn(ctx, b, bson.D{{Key: "from_id", Value: userID}}, options.Find().SetHint(senderIndex).
				SetLimit(int64(limit-len(found))).SetProjection(bson.D{{Key: "content", Value: 0}, {Key: "metadata", Value: 0}}))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("by sender: %w", err)
		}
		found = append(found, some...)
	}
	return found, nil
}

// Scrub implements message.LogEraser: one ordered command, of an update for each entry.
func (s *Store) Scrub(ctx context.Context, channelID, userID string, seqs []int64) error {
	if len(seqs) == 0 {
		return nil
	}
	var steps []mongo.WriteModel
	for _, seq := range seqs {
		filter := bson.D{
			{Key: "channel_id", Value: channelID},
			{Key: "seq", Value: seq},
			{Key: "from_id", Value: userID},
			{Key: "kind", Value: bson.D{{Key: "$ne", Value: message.KindSend}}},
		}
		steps = append(steps, mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(erasing(nil, seq)))
	}
	err := s.run(ctx, func(ctx context.Context) error {
		// Each step updates one document, so the driver retries the command.
		_, err := s.of(channelID).BulkWrite(ctx, steps, options.BulkWrite().SetOrdered(true))
		return err
	})
	if err != nil {
		return fmt.Errorf("scrub: %w", err)
	}
	return nil
}
