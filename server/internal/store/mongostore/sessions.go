package mongostore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/channel"
)

const (
	// sessionsIndex has the Live sessions by owner, latest activity and id.
	sessionsIndex = "sessions"
	// activeIndex has the Live sessions by latest activity and id.
	activeIndex = "active"
)

// Sessions implements channel.Store: one read of at most limit documents.
func (c *Channels) Sessions(ctx context.Context, ownerID string, after channel.SessionPlace, limit int) ([]channel.Row, error) {
	return c.sessions(ctx, bson.D{{Key: "created_by", Value: ownerID}}, sessionsIndex, after, limit)
}

// EverySession implements channel.Store: one read of at most limit documents.
func (c *Channels) EverySession(ctx context.Context, after channel.SessionPlace, limit int) ([]channel.Row, error) {
	return c.sessions(ctx, nil, activeIndex, after, limit)
}

// sessions reads a page of the sessions that match a filter, from an index in their order.
func (c *Channels) sessions(ctx context.Context, filter bson.D, index string, after channel.SessionPlace, limit int,
) (rows []channel.Row, err error) {
	if after.ChannelID == "" {
		filter = append(filter, bson.E{Key: "active", Value: bson.D{{Key: "$exists", Value: true}}})
	} else {
		// The first condition is a bound in the index, so that only sessions with the same activity as
		// the last one are read and left out.
		filter = append(filter, bson.E{Key: "active", Value: bson.D{{Key: "$lte", Value: after.Active}}},
			bson.E{Key: "$nor", Value: bson.A{bson.D{
				{Key: "active", Value: after.Active}, {Key: "_id", Value: bson.D{{Key: "$lte", Value: after.ChannelID}}},
			}}})
	}
	rows, err = c.findRows(ctx, filter, options.Find().SetHint(index).SetLimit(int64(limit)).
		SetSort(bson.D{{Key: "active", Value: -1}, {Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("sessions: %w", err)
	}
	return rows, nil
}

// Owners implements channel.Store: one read, of a document for each session.
func (c *Channels) Owners(ctx context.Context, channelIDs []string) (map[string]channel.Member, error) {
	owners := make(map[string]channel.Member, len(channelIDs))
	if len(channelIDs) == 0 {
		return owners, nil
	}
	err := c.read(ctx, func(ctx context.Context) error {
		joining := bson.E{Key: "joining", Value: bson.D{{Key: "$exists", Value: true}}}
		if err := c.settleAll(ctx, append(anyOf("_id", channelIDs), joining)); err != nil {
			return err
		}
		found, err := c.findMembers(ctx, append(anyOf("channel_id", channelIDs),
			bson.E{Key: "role", Value: int32(channel.Owner)}, bson.E{Key: "member", Value: true}), "channel_id", len(channelIDs))
		for _, m := range found {
			owners[m.ChannelID] = m
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("owners: %w", err)
	}
	return owners, nil
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
