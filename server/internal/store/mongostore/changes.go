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

// changesOverlap is how far, in seconds, successive results of Changes overlap. mongod sets a
// change's time when it executes the update, a moment before the change gets its place in the
// oplog. So a change may become visible after others with a higher time. The overlap is far above
// that moment in a running process. If the process is suspended in that moment, no call can obtain
// a place meanwhile, because that takes a majority write on the same primary.
const changesOverlap = 5

// Changes implements channel.Store. A stamp is a time of mongod, read after a majority write (the
// store's fence). So every change acknowledged before the call is older than next and is found,
// even by a node whose connections lead to a former primary that was suspended and has resumed.
func (c *Channels) Changes(ctx context.Context, after channel.Stamp) (changed []channel.Change, next channel.Stamp, err error) {
	err = c.read(ctx, func(ctx context.Context) error {
		// The time of the fence or a later one. The reads below are no older than that.
		at := mongo.SessionFromContext(ctx).OperationTime()
		if at == nil {
			return errors.New("the server returned no operation time")
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

// changedSince returns which channels were created as members-only, closed, opened or deleted, and
// which members were removed, at the time since or later.
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
