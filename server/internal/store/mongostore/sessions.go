package mongostore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/channel"
)

// sessionsIndex has the Live sessions by owner, latest activity and id.
const sessionsIndex = "sessions"

// Sessions implements channel.Store: one read of at most limit documents.
func (c *Channels) Sessions(ctx context.Context, ownerID string, after channel.SessionPlace, limit int) (rows []channel.Row, err error) {
	filter := bson.D{{Key: "created_by", Value: ownerID}, {Key: "active", Value: bson.D{{Key: "$exists", Value: true}}}}
	if after.ChannelID != "" {
		filter = bson.D{{Key: "created_by", Value: ownerID}, {Key: "$or", Value: bson.A{
			bson.D{{Key: "active", Value: bson.D{{Key: "$lt", Value: after.Active}}}},
			bson.D{{Key: "active", Value: after.Active}, {Key: "_id", Value: bson.D{{Key: "$gt", Value: after.ChannelID}}}},
		}}}
	}
	err = c.read(ctx, func(ctx context.Context) error {
		cursor, err := c.channels.Find(ctx, filter, options.Find().SetHint(sessionsIndex).SetLimit(int64(limit)).
			SetSort(bson.D{{Key: "active", Value: -1}, {Key: "_id", Value: 1}}))
		if err != nil {
			return err
		}
		var docs []channelDocument
		if err := cursor.All(ctx, &docs); err != nil {
			return err
		}
		rows = make([]channel.Row, len(docs))
		for i := range docs {
			rows[i] = docs[i].row()
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sessions: %w", err)
	}
	return rows, nil
}

// SetTitle implements channel.Store. If the update matches nothing, it is repeated behind the
// fence, because a former primary may not know the channel yet.
func (c *Channels) SetTitle(ctx context.Context, channelID, title string) error {
	update := bson.D{{Key: "$set", Value: bson.D{{Key: "title", Value: title}}}}
	if title == "" {
		update = bson.D{{Key: "$unset", Value: bson.D{{Key: "title", Value: ""}}}}
	}
	found := false
	set := func(ctx context.Context) error {
		updated, err := c.channels.UpdateOne(ctx, bson.D{{Key: "_id", Value: channelID}, whileLive}, update)
		found = err == nil && updated.MatchedCount == 1
		return err
	}
	err := c.write(ctx, set)
	if err == nil && !found {
		err = c.read(ctx, set)
	}
	if err == nil && !found {
		err = channel.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("set title: %w", err)
	}
	return nil
}
