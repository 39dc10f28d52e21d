package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/channel"
)

// changesOverlap is how much of what was given before is given again, in seconds. A change's time is filled in by mongod
// when the update is executed, a moment before it gets its place in the oplog; so one may become visible after others with
// a higher time. It is far above how long that moment may be in a process that runs; in one that was stopped in it no call
// can have got a place meanwhile, because that takes a majority write of the same primary.
const changesOverlap = 5

// Changes implements channel.Store. A place is a time of mongod's: behind the fence, so that all that was acknowledged
// before the call is older and is seen, even by a node whose connections lead to a stopped primary that woke.
func (c *Channels) Changes(ctx context.Context, after channel.Stamp) (changed []channel.Change, next channel.Stamp, err error) {
	err = c.read(ctx, func(ctx context.Context) error {
		// The fence's, or a later one. What is read below is no older than that.
		at := mongo.SessionFromContext(ctx).OperationTime()
		if at == nil {
			return errors.New("the server told no operation time")
		}
		next = channel.Stamp{Hi: at.T, Lo: at.I}
		if after == (channel.Stamp{}) {
			return nil
		}
		since := bson.Timestamp{T: after.Hi - min(after.Hi, changesOverlap), I: after.Lo}
		changed, err = c.changedSince(ctx, since)
		return err
	})
	if err != nil {
		return nil, channel.Stamp{}, fmt.Errorf("changes of channels: %w", err)
	}
	return changed, next, nil
}

// changedSince reads which channels were made, and who was removed from which, at a time or later.
func (c *Channels) changedSince(ctx context.Context, since bson.Timestamp) ([]channel.Change, error) {
	filter := bson.D{{Key: "changed", Value: bson.D{{Key: "$gte", Value: since}}}}
	docs, err := c.list(ctx, filter)
	if err != nil {
		return nil, err
	}
	var changed []channel.Change
	at := make(map[string]int)
	for i := range docs {
		at[docs[i].ID] = len(changed)
		changed = append(changed, channel.Change{ChannelID: docs[i].ID})
	}
	all := len(changed)
	cursor, err := c.members.Find(ctx, filter, options.Find().SetProjection(up("channel_id", "user_id")))
	if err != nil {
		return nil, err
	}
	var removed []memberDocument
	if err := cursor.All(ctx, &removed); err != nil {
		return nil, err
	}
	for i := range removed {
		n, ok := at[removed[i].ChannelID]
		if !ok {
			n = len(changed)
			at[removed[i].ChannelID] = n
			changed = append(changed, channel.Change{ChannelID: removed[i].ChannelID})
		}
		if n >= all {
			changed[n].UserIDs = append(changed[n].UserIDs, removed[i].UserID)
		}
	}
	return changed, nil
}
