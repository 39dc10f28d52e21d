package mongostore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/channel"
)

var _ channel.EraseStore = (*Channels)(nil)

const (
	// formerIndex has the documents of former members by user.
	formerIndex = "former"
	// creatorIndex has the channels with a creator by that user.
	creatorIndex = "created_by"
)

// Forget implements channel.EraseStore. A document that is deleted although its user has just
// become a member again is not among them: the deletion checks it.
func (c *Channels) Forget(ctx context.Context, userID string, limit int) (n int, err error) {
	former := bson.D{{Key: "user_id", Value: userID}, {Key: "member", Value: false}}
	by := bson.D{{Key: "created_by", Value: userID}}
	var members, channels bson.A
	err = c.read(ctx, func(ctx context.Context) (err error) {
		if err := c.settleAll(ctx, bson.D{{Key: "joining", Value: userID}}); err != nil {
			return err
		}
		if members, err = idsOf(ctx, c.members, former, formerIndex, limit); err != nil {
			return err
		}
		channels, err = idsOf(ctx, c.channels, by, creatorIndex, limit)
		return err
	})
	if err == nil && len(members)+len(channels) > 0 {
		// What was found is not looked for again, so that it counts even if the reply to its removal is
		// lost.
		err = c.write(ctx, func(ctx context.Context) error {
			return c.forget(ctx, append(former, anyID(members)), append(by, anyID(channels)))
		})
	}
	if err != nil {
		return 0, fmt.Errorf("forget user: %w", err)
	}
	return len(members) + len(channels), nil
}

// forget deletes the records of members and removes the creators of channels that match.
func (c *Channels) forget(ctx context.Context, members, channels bson.D) error {
	if _, err := c.members.DeleteMany(ctx, members); err != nil {
		return err
	}
	gone := bson.D{
		{Key: "created_by", Value: ""},
		{Key: "create_key", Value: ""},
		{Key: "create_digest", Value: ""},
		{Key: "title", Value: ""},
		{Key: "active", Value: ""},
	}
	_, err := c.channels.UpdateMany(ctx, channels, bson.D{{Key: "$unset", Value: gone}})
	return err
}

// anyID returns a condition for the documents with one of the ids.
func anyID(ids bson.A) bson.E { return bson.E{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}} }

// idsOf returns the ids of up to limit documents that match a filter.
func idsOf(ctx context.Context, in *mongo.Collection, filter bson.D, index string, limit int) (bson.A, error) {
	cursor, err := in.Find(ctx, filter, options.Find().SetHint(index).SetLimit(int64(limit)).SetProjection(up("_id")))
	if err != nil {
		return nil, err
	}
	var docs []struct {
		ID any `bson:"_id"`
	}
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, err
	}
	ids := make(bson.A, len(docs))
	for i := range docs {
		ids[i] = docs[i].ID
	}
	return ids, nil
}
