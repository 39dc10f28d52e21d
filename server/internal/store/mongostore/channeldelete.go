package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/ident"
)

// changedNow is the part of an update that makes Changes return the channel.
func changedNow() bson.E {
	return bson.E{Key: "$currentDate", Value: bson.D{{Key: "changed", Value: bson.D{{Key: "$type", Value: "timestamp"}}}}}
}

// Delete implements channel.Store.
func (c *Channels) Delete(ctx context.Context, channelID string, rev int64, now time.Time) (channel.Row, error) {
	var d channelDocument
	err := c.write(ctx, func(ctx context.Context) error {
		d = channelDocument{}
		return c.channels.FindOneAndUpdate(ctx, append(atRev(channelID, rev), whileLive), bson.D{
			{Key: "$inc", Value: bson.D{{Key: "settings_rev", Value: int64(1)}, {Key: "rev", Value: int64(1)}}},
			{Key: "$set", Value: bson.D{
				{Key: "state", Value: int32(channel.Deleting)},
				{Key: "stripped", Value: int64(0)},
				{Key: "due", Value: now},
				{Key: "shard", Value: c.shard(channelID)},
			}},
			{Key: "$unset", Value: bson.D{{Key: "active", Value: ""}, {Key: "title", Value: ""}}},
			changedNow(),
		}, options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&d)
	})
	if err == nil {
		return d.row(), nil
	}
	row := channel.Row{}
	if errors.Is(err, mongo.ErrNoDocuments) {
		var rows map[string]channel.Row
		rows, err = c.Rows(ctx, []string{channelID})
		var ok bool
		switch row, ok = rows[channelID]; {
		case err != nil:
		case !ok:
			err = channel.ErrNotFound
		default:
			err = channel.ErrChanged
		}
	}
	return row, fmt.Errorf("delete channel: %w", err)
}

// replaceable reports whether Create may create the channel anew as row.
func (d *channelDocument) replaceable(row *channel.Row) bool {
	repeat := row.CreateKey != "" && d.CreateKey == row.CreateKey && d.CreatedBy == row.CreatedBy
	return d.State == channel.Deleted && !repeat && !ident.IsSession(row.ChannelID)
}

// revive creates a Deleted channel anew. If another call has changed it since it was read as d,
// revive returns its document and channel.ErrExists.
func (c *Channels) revive(ctx context.Context, d *channelDocument, row *channel.Row, maker string, userIDs []string,
) (channelDocument, error) {
	set := bson.D{
		{Key: "members_only", Value: row.MembersOnly},
		{Key: "created_by", Value: row.CreatedBy},
		{Key: "created_at", Value: row.CreatedAt},
		{Key: "began", Value: d.Oldest},
		{Key: "maker", Value: maker},
		{Key: "joining", Value: userIDs},
	}
	unset := bson.D{{Key: "state", Value: ""}}
	if row.CreateKey != "" {
		set = append(set, bson.E{Key: "create_key", Value: row.CreateKey}, bson.E{Key: "create_digest", Value: row.CreateDigest})
	} else {
		unset = append(unset, bson.E{Key: "create_key", Value: ""}, bson.E{Key: "create_digest", Value: ""})
	}
	if row.Retention != nil {
		set = append(set, bson.E{Key: "retention", Value: retentionDocumentOf(row.Retention)}, bson.E{Key: "due", Value: row.CreatedAt})
	} else {
		unset = append(unset, bson.E{Key: "retention", Value: ""})
	}
	var made channelDocument
	filter := append(atRev(d.ID, d.SettingsRev), bson.E{Key: "state", Value: int32(channel.Deleted)})
	err := c.channels.FindOneAndUpdate(ctx, filter, bson.D{
		{Key: "$inc", Value: bson.D{{Key: "settings_rev", Value: int64(1)}, {Key: "rev", Value: int64(1)}}},
		{Key: "$set", Value: set},
		{Key: "$unset", Value: unset},
		changedNow(),
	}, options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&made)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return c.made(ctx, d.ID, maker, errors.New("a channel was changed and is not visible"))
	}
	return made, err
}

// DropMembers implements channel.TrimStore.
func (c *Channels) DropMembers(ctx context.Context, channelID string, limit int) (n int, err error) {
	var ids bson.A
	err = c.read(ctx, func(ctx context.Context) error {
		ids = nil
		d, ok, err := c.find(ctx, channelID)
		if err != nil || !ok || d.State == channel.Live {
			return err
		}
		ids, err = idsOf(ctx, c.members, bson.D{{Key: "channel_id", Value: channelID}}, memberIndex, limit)
		return err
	})
	if err == nil && len(ids) > 0 {
		// What was found is not looked for again, so that it counts even if the reply to its removal is
		// lost.
		err = c.write(ctx, func(ctx context.Context) error {
			_, err := c.members.DeleteMany(ctx, bson.D{anyID(ids)})
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("drop members: %w", err)
	}
	return len(ids), nil
}

// FinishDelete implements channel.TrimStore.
func (c *Channels) FinishDelete(ctx context.Context, channelID string) error {
	err := c.write(ctx, func(ctx context.Context) error {
		_, err := c.channels.UpdateOne(ctx, bson.D{{Key: "_id", Value: channelID}, {Key: "state", Value: int32(channel.Deleting)}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: int32(channel.Deleted)}}}})
		return err
	})
	if err != nil {
		return fmt.Errorf("finish the deletion: %w", err)
	}
	return nil
}
