package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/message"
)

// Strip implements message.LogTrimmer. The partial indexes on sends, on changed messages and on
// pending changes no longer have a stripped entry.
func (s *Store) Strip(ctx context.Context, channelID string, after, before int64) error {
	filter := append(between(channelID, after, before), bson.E{Key: "kind", Value: bson.D{{Key: "$ne", Value: message.KindExpired}}})
	update := bson.D{
		{Key: "$set", Value: bson.D{
			{Key: "kind", Value: message.KindExpired},
			{Key: "status", Value: message.StatusSent},
			{Key: "content", Value: ""},
			{Key: "msg_type", Value: ""},
		}},
		{Key: "$unset", Value: bson.D{
			{Key: "metadata", Value: ""}, {Key: "digest", Value: ""}, {Key: "pending", Value: ""}, {Key: "traceparent", Value: ""},
		}},
	}
	err := s.run(ctx, again(func(ctx context.Context) error {
		_, err := s.of(channelID).UpdateMany(ctx, filter, update, options.UpdateMany().SetHint("seq"))
		return err
	}))
	if err != nil {
		return fmt.Errorf("strip: %w", err)
	}
	return nil
}

// Clear implements message.LogTrimmer.
func (s *Store) Clear(ctx context.Context, channelID string, after, before int64) error {
	cleared := bson.D{{Key: "kind", Value: message.KindExpired}, {Key: "from_id", Value: message.ErasedUser}}
	filter := append(between(channelID, after, before), bson.E{Key: "$nor", Value: bson.A{cleared}})
	update := bson.A{
		bson.D{{Key: "$set", Value: append(cleared,
			bson.E{Key: "status", Value: message.StatusSent}, bson.E{Key: "content", Value: ""}, bson.E{Key: "msg_type", Value: ""},
			// The same as message.ErasedKey.
			bson.E{Key: "client_msg_id", Value: bson.D{{Key: "$concat", Value: bson.A{message.ErasedKey(0)[:len(message.ErasedKey(0))-1], bson.D{{Key: "$toString", Value: "$seq"}}}}}},
		)}},
		bson.D{{Key: "$unset", Value: bson.A{"metadata", "digest", "pending", "traceparent"}}},
	}
	err := s.run(ctx, again(func(ctx context.Context) error {
		_, err := s.of(channelID).UpdateMany(ctx, filter, update, options.UpdateMany().SetHint("seq"))
		return err
	}))
	if err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	return nil
}

// Delete implements message.LogTrimmer.
func (s *Store) Delete(ctx context.Context, channelID string, after, before int64) error {
	err := s.run(ctx, again(func(ctx context.Context) error {
		_, err := s.of(channelID).DeleteMany(ctx, between(channelID, after, before), options.DeleteMany().SetHint("seq"))
		return err
	}))
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// between returns a filter for a channel's entries with after < seq < before.
func between(channelID string, after, before int64) bson.D {
	return bson.D{
		{Key: "channel_id", Value: channelID},
		{Key: "seq", Value: bson.D{{Key: "$gt", Value: after}, {Key: "$lt", Value: before}}},
	}
}

// boundaryRow is the projection of a channel's boundary.
type boundaryRow struct {
	ID      string `bson:"_id"`
	Oldest  int64  `bson:"oldest"`
	Expired int64  `bson:"expired"`
}

func (r *boundaryRow) boundary() message.Boundary {
	return message.Boundary{Oldest: r.Oldest, Expired: r.Expired}
}

// atBoundary returns the head with its boundary. A restore can bring back the channels later than
// the logs. What the boundary has passed was stored once, so its seqs are not used again.
func atBoundary(head message.Head, b message.Boundary) message.Head {
	head.Boundary = b
	head.Seq, head.Count = max(head.Seq, b.Oldest-1), max(head.Count, b.Expired)
	return head
}

// boundary reads where the readable part of a log begins.
func (s *Store) boundary(ctx context.Context, channelID string) (message.Boundary, error) {
	var row boundaryRow
	err := s.db.Collection("channels").FindOne(ctx, bson.D{{Key: "_id", Value: channelID}},
		options.FindOne().SetProjection(up("oldest", "expired"))).Decode(&row)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return message.Boundary{}, nil
	}
	return row.boundary(), err
}

// boundaries reads where the readable parts of logs begin. Channels without a row are absent.
func (s *Store) boundaries(ctx context.Context, channelIDs []string) (map[string]message.Boundary, error) {
	found := make(map[string]message.Boundary, len(channelIDs))
	if len(channelIDs) == 0 {
		return found, nil
	}
	err := s.read(ctx, func(ctx context.Context) error {
		cursor, err := s.db.Collection("channels").Find(ctx, anyOf("_id", channelIDs),
			options.Find().SetProjection(up("oldest", "expired")).SetBatchSize(int32(len(channelIDs)+1))) //nolint:gosec // at most 500
		if err != nil {
			return err
		}
		var rows []boundaryRow
		if err := cursor.All(ctx, &rows); err != nil {
			return err
		}
		for i := range rows {
			found[rows[i].ID] = rows[i].boundary()
		}
		return nil
	})
	return found, err
}
