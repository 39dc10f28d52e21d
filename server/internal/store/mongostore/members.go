package mongostore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/channel"
)

// memberDocument is the stored form of a current or former member or follower. If they were ever
// removed, the document also has `left`, the channel's last seq at the last removal, and `changed`,
// the time of the removal by mongod's clock.
type memberDocument struct {
	ChannelID string `bson:"channel_id"`
	UserID    string `bson:"user_id"`
	// Member is true for members and followers.
	Member bool `bson:"member"`
	// Role is not stored in documents from before there were roles, which are those of members. It has
	// no meaning if Member is false.
	Role     channel.Role `bson:"role"`
	JoinedAt time.Time    `bson:"joined_at"`
	Seq      int64        `bson:"seq"`
	Count    int64        `bson:"count"`
}

func (d *memberDocument) row() channel.Member {
	return channel.Member{
		ChannelID: d.ChannelID, UserID: d.UserID, Role: cmp.Or(d.Role, channel.RoleMember), JoinedAt: d.JoinedAt.UTC(), Cursor: d.cursor(),
	}
}

func (d *memberDocument) cursor() channel.Cursor { return channel.Cursor{Seq: d.Seq, Count: d.Count} }

func memberFilter(channelID, userID string) bson.D {
	return bson.D{{Key: "channel_id", Value: channelID}, {Key: "user_id", Value: userID}}
}

// AddMembers implements channel.Store.
func (c *Channels) AddMembers(ctx context.Context, channelID string, userIDs []string, now time.Time) error {
	err := c.write(ctx, func(ctx context.Context) error {
		if err := c.live(ctx, channelID); err != nil {
			return err
		}
		return c.updateMembers(ctx, channelID, userIDs, touching(joining(true, channel.RoleMember, channel.Cursor{}, now)))
	})
	if err != nil {
		return fmt.Errorf("add members: %w", err)
	}
	return nil
}

// SetRole implements channel.Store.
func (c *Channels) SetRole(ctx context.Context, channelID, userID string, role channel.Role, now time.Time) error {
	update := append(touching(joining(true, channel.RoleMember, channel.Cursor{}, now)),
		bson.D{{Key: "$set", Value: bson.D{{Key: "role", Value: int32(role)}}}})
	err := c.write(ctx, func(ctx context.Context) error {
		if err := c.live(ctx, channelID); err != nil {
			return err
		}
		return c.updateMembers(ctx, channelID, []string{userID}, update)
	})
	if err != nil {
		return fmt.Errorf("set role: %w", err)
	}
	return nil
}

// RemoveMembers implements channel.Store.
func (c *Channels) RemoveMembers(ctx context.Context, channelID string, userIDs []string, left int64) error {
	err := c.write(ctx, func(ctx context.Context) error {
		if err := c.live(ctx, channelID); err != nil {
			return err
		}
		return c.updateMembers(ctx, channelID, userIDs, bson.D{
			{Key: "$set", Value: bson.D{{Key: "member", Value: false}}},
			{Key: "$max", Value: bson.D{{Key: "left", Value: left}}},
			{Key: "$currentDate", Value: bson.D{{Key: "changed", Value: bson.D{{Key: "$type", Value: "timestamp"}}}}},
		})
	})
	if err != nil {
		return fmt.Errorf("remove members: %w", err)
	}
	return nil
}

// updateMembers updates users' documents, and creates missing ones.
func (c *Channels) updateMembers(ctx context.Context, channelID string, userIDs []string, update any) error {
	if len(userIDs) == 0 {
		return nil
	}
	models := make([]mongo.WriteModel, len(userIDs))
	for i, userID := range userIDs {
		models[i] = mongo.NewUpdateOneModel().SetFilter(memberFilter(channelID, userID)).SetUpdate(update).SetUpsert(true)
	}
	_, err := c.members.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	return err
}

// joining returns the update of a member document that sets the role of the user, unless they have
// a higher one, if the expression joins is true. It also moves their cursor forward to cursor. role
// is Follower or RoleMember. The update is a pipeline and must not contain an id: MongoDB would
// read one that begins with $ as a field.
func joining(joins any, role channel.Role, cursor channel.Cursor, now time.Time) bson.A {
	op := func(name string, args ...any) bson.D { return bson.D{{Key: name, Value: bson.A(args)}} }
	listed := op("$eq", "$member", true)
	// The user's role, or 0.
	has := op("$cond", listed, op("$ifNull", "$role", int32(channel.RoleMember)), int32(0))
	gets := op("$and", op("$lt", has, int32(role)), joins)
	seq := op("$ifNull", "$seq", int64(0))
	return bson.A{bson.D{{Key: "$set", Value: bson.D{
		{Key: "member", Value: op("$or", listed, joins)},
		{Key: "role", Value: op("$cond", gets, int32(role), has)},
		// For a new document this sets joined_at.
		{Key: "joined_at", Value: op("$cond", gets, now, op("$ifNull", "$joined_at", now))},
		{Key: "seq", Value: op("$max", seq, cursor.Seq)},
		{Key: "count", Value: op("$cond", op("$gt", cursor.Seq, seq), cursor.Count, op("$ifNull", "$count", int64(0)))},
	}}}}
}

// touching extends an update so that it always changes the document, and its answer waits for a
// majority. An update that changes nothing does not wait, and a former primary that was suspended
// and has resumed answers it from stale data.
func touching(update bson.A) bson.A {
	n := bson.D{{Key: "$add", Value: bson.A{bson.D{{Key: "$ifNull", Value: bson.A{"$touched", int64(0)}}}, int64(1)}}}
	return append(update, bson.D{{Key: "$set", Value: bson.D{{Key: "touched", Value: n}}}})
}

// Members implements channel.Store.
func (c *Channels) Members(ctx context.Context, channelID, after string, limit int) ([]channel.Member, error) {
	var found []channel.Member
	err := c.read(ctx, func(ctx context.Context) (err error) {
		if err := c.settleAll(ctx, bson.D{
			{Key: "_id", Value: channelID}, {Key: "joining", Value: bson.D{{Key: "$exists", Value: true}}},
		}); err != nil {
			return err
		}
		found, err = c.findMembers(ctx, bson.D{
			{Key: "channel_id", Value: channelID},
			{Key: "user_id", Value: bson.D{{Key: "$gt", Value: after}}},
			{Key: "member", Value: true},
		}, "user_id", limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("members: %w", err)
	}
	return found, nil
}

// CountMembers implements channel.Store.
func (c *Channels) CountMembers(ctx context.Context, channelID string) (int, error) {
	var n int64
	err := c.read(ctx, func(ctx context.Context) (err error) {
		if err := c.settleAll(ctx, bson.D{
			{Key: "_id", Value: channelID}, {Key: "joining", Value: bson.D{{Key: "$exists", Value: true}}},
		}); err != nil {
			return err
		}
		n, err = c.members.CountDocuments(ctx, bson.D{
			{Key: "channel_id", Value: channelID},
			{Key: "member", Value: true},
			{Key: "role", Value: bson.D{{Key: "$ne", Value: int32(channel.Follower)}}},
		})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count members: %w", err)
	}
	return int(n), nil
}

// Memberships implements channel.Store.
func (c *Channels) Memberships(ctx context.Context, userID, after string, limit int) ([]channel.Member, error) {
	found, err := c.ofUser(ctx, userID, bson.D{{Key: "$gt", Value: after}}, limit)
	if err != nil {
		return nil, fmt.Errorf("memberships: %w", err)
	}
	return found, nil
}

// MembersOf implements channel.Store.
func (c *Channels) MembersOf(ctx context.Context, userID string, channelIDs []string) (map[string]channel.Member, error) {
	of := make(map[string]channel.Member, len(channelIDs))
	if len(channelIDs) == 0 {
		return of, nil
	}
	found, err := c.ofUser(ctx, userID, bson.D{{Key: "$in", Value: channelIDs}}, len(channelIDs))
	if err != nil {
		return nil, fmt.Errorf("members of: %w", err)
	}
	for _, m := range found {
		of[m.ChannelID] = m
	}
	return of, nil
}

// MembersIn implements channel.Store.
func (c *Channels) MembersIn(ctx context.Context, channelID string, userIDs []string) (map[string]channel.Member, error) {
	in := make(map[string]channel.Member, len(userIDs))
	if len(userIDs) == 0 {
		return in, nil
	}
	err := c.read(ctx, func(ctx context.Context) error {
		if err := c.settleAll(ctx, bson.D{
			{Key: "_id", Value: channelID}, {Key: "joining", Value: bson.D{{Key: "$exists", Value: true}}},
		}); err != nil {
			return err
		}
		found, err := c.findMembers(ctx, bson.D{
			{Key: "channel_id", Value: channelID}, {Key: "user_id", Value: bson.D{{Key: "$in", Value: userIDs}}}, {Key: "member", Value: true},
		}, "user_id", len(userIDs))
		for _, m := range found {
			in[m.UserID] = m
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("members in: %w", err)
	}
	return in, nil
}

// ofUser returns a user's memberships in the channels whose ids match the query expression
// channels, at most limit.
func (c *Channels) ofUser(ctx context.Context, userID string, channels bson.D, limit int) (found []channel.Member, err error) {
	err = c.read(ctx, func(ctx context.Context) (err error) {
		if err := c.settleAll(ctx, bson.D{{Key: "joining", Value: userID}}); err != nil {
			return err
		}
		found, err = c.findMembers(ctx, bson.D{
			{Key: "user_id", Value: userID}, {Key: "channel_id", Value: channels}, {Key: "member", Value: true},
		}, "channel_id", limit)
		return err
	})
	return found, err
}

// findMembers returns the members that match filter, ascending by a field, at most limit. A limit
// of 0 returns none.
func (c *Channels) findMembers(ctx context.Context, filter bson.D, by string, limit int) ([]channel.Member, error) {
	if limit <= 0 {
		return nil, nil
	}
	cursor, err := c.members.Find(ctx, filter, options.Find().SetSort(up(by)).SetLimit(int64(limit)))
	if err != nil {
		return nil, err
	}
	var docs []memberDocument
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, err
	}
	found := make([]channel.Member, len(docs))
	for i := range docs {
		found[i] = docs[i].row()
	}
	return found, nil
}
