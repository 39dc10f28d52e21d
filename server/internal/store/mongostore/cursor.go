package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maypok86/otter/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// MarkRead implements channel.Store. Nearly always it is one update. Only if that moves no cursor,
// it reads the member to find out why.
func (c *Channels) MarkRead(ctx context.Context, channelID, userID string, to channel.Cursor, join bool, now time.Time,
) (cursor channel.Cursor, ok bool, err error) {
	err = c.write(ctx, func(ctx context.Context) error {
		moved, err := c.members.UpdateOne(ctx, movable(channelID, userID, to), moving(to))
		if err != nil {
			return err
		}
		if moved.MatchedCount == 1 {
			cursor, ok = to, true
			return nil
		}
		cursor, ok, err = c.readCursor(ctx, channelID, userID, to)
		if err != nil || ok || !join || ident.IsSession(channelID) {
			return err
		}
		d, err := c.ensure(ctx, channelID, now)
		if err != nil || !d.open() {
			return err
		}
		var member memberDocument
		err = c.members.FindOneAndUpdate(ctx, memberFilter(channelID, userID), touching(joining(true, channel.Follower, to, now)),
			options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&member)
		cursor, ok = member.cursor(), err == nil
		return err
	})
	if err != nil {
		return channel.Cursor{}, false, fmt.Errorf("mark read: %w", err)
	}
	return cursor, ok, nil
}

// movable returns a filter for a member whose cursor is before to; moving returns the update that
// moves it there.
func movable(channelID, userID string, to channel.Cursor) bson.D {
	return append(memberFilter(channelID, userID),
		bson.E{Key: "member", Value: true}, bson.E{Key: "seq", Value: bson.D{{Key: "$lt", Value: to.Seq}}})
}

func moving(to channel.Cursor) bson.D {
	return bson.D{{Key: "$set", Value: bson.D{{Key: "seq", Value: to.Seq}, {Key: "count", Value: to.Count}}}}
}

// readCursor reads a member's cursor behind the fence (see Channels.read). ok is false if the user
// is not a member. If the cursor is before to, because the user has just become a member, it moves
// it first. An update that changes nothing does not wait for a majority, and a former primary that
// was suspended and has resumed answers it from stale data.
func (c *Channels) readCursor(ctx context.Context, channelID, userID string, to channel.Cursor,
) (cursor channel.Cursor, ok bool, err error) {
	err = c.read(ctx, func(ctx context.Context) error {
		if _, _, err := c.find(ctx, channelID); err != nil {
			return err
		}
		for {
			var member memberDocument
			filter := append(memberFilter(channelID, userID), bson.E{Key: "member", Value: true})
			err := c.members.FindOne(ctx, filter).Decode(&member)
			if errors.Is(err, mongo.ErrNoDocuments) {
				return nil
			}
			if err != nil {
				return err
			}
			if member.Seq >= to.Seq {
				cursor, ok = member.cursor(), true
				return nil
			}
			if _, err := c.members.UpdateOne(ctx, movable(channelID, userID, to), moving(to)); err != nil {
				return err
			}
		}
	})
	return cursor, ok, err
}

// Advance implements channel.Store. For any number of channels and senders it uses up to three
// commands: one reads the channels, one moves the senders' cursors, one updates the channels'
// numbers. Channels that are missing or have joining members take more.
func (c *Channels) Advance(ctx context.Context, moves []channel.Advance, now time.Time) error {
	if len(moves) == 0 {
		return nil
	}
	err := c.write(ctx, func(ctx context.Context) error {
		modes, err := c.ensureAll(ctx, moves, now)
		if err != nil {
			return err
		}
		unordered := options.BulkWrite().SetOrdered(false) // all of them only move forward
		if models := cursorModels(moves, modes, now); len(models) > 0 {
			if _, err := c.members.BulkWrite(ctx, models, unordered); err != nil {
				return err
			}
		}
		_, err = c.channels.BulkWrite(ctx, rowModels(moves), unordered)
		return err
	})
	if err != nil {
		return fmt.Errorf("advance channels: %w", err)
	}
	return nil
}

// ensureAll creates the missing channels except for sessions, settles the documents of all of them
// like ensure, and returns their modes. A session that is missing counts as members-only.
func (c *Channels) ensureAll(ctx context.Context, moves []channel.Advance, now time.Time) (modes map[string]settledMode, err error) {
	modes = make(map[string]settledMode, len(moves))
	revs := make(map[string]int64, len(moves))
	var ids []string
	for i := range moves {
		if mode, ok := c.settled.GetIfPresent(moves[i].ChannelID); ok && mode.rev >= moves[i].Rev && message.Elapsed(mode.read) < settledFor {
			modes[moves[i].ChannelID] = mode
		} else {
			ids = append(ids, moves[i].ChannelID)
			revs[moves[i].ChannelID] = moves[i].Rev
		}
	}
	for len(ids) > 0 {
		read := time.Now()
		docs, err := c.list(ctx, anyOf("_id", ids))
		if err != nil {
			return nil, err
		}
		for i := range docs {
			if err := c.settle(ctx, &docs[i]); err != nil {
				return nil, err
			}
			mode := settledMode{open: docs[i].open(), rev: docs[i].Rev, began: docs[i].Began, read: read}
			c.settled.Set(docs[i].ID, mode)
			// A row that is behind its log, read from a former primary, is not known to be open.
			mode.open = mode.open && mode.rev >= revs[docs[i].ID]
			modes[docs[i].ID] = mode
		}
		var models []mongo.WriteModel
		for _, id := range ids {
			if _, ok := modes[id]; !ok && !ident.IsSession(id) {
				models = append(models, mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: id}}).
					SetUpdate(ensuring(now)).SetUpsert(true))
			}
		}
		if len(models) == 0 {
			return modes, nil
		}
		if _, err := c.channels.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false)); err != nil {
			return nil, err
		}
	}
	return modes, nil
}

// maxSettled bounds the channels that newSettled caches. Advance must read any other.
const maxSettled = 65_536

// settledMode is whether a channel was open at an access revision, and Row.Began. read is when the
// read of the row began.
type settledMode struct {
	open       bool
	rev, began int64
	read       time.Time
}

// settledFor is how long a cached mode is used. A deleted channel can be created again after
// message.ExpiryGrace at the earliest. Until then every cached mode of before has expired, and so
// has an Advance that uses it. So a late one does not make a sender of the deleted channel a
// follower of the new one.
const settledFor = message.ExpiryGrace / 2

// newSettled returns a cache of which channels exist without joining members, and of their modes.
// What is in it changes only with the access revision, which the entries have, or with a deletion.
// So Advance need not read these rows.
func newSettled() *otter.Cache[string, settledMode] {
	return otter.Must(&otter.Options[string, settledMode]{
		MaximumSize: maxSettled,
		// The cache runs its short maintenance in the calling goroutine. A goroutine of its own
		// would have to be stopped, and a Channels is never closed.
		Executor: func(fn func()) { fn() },
	})
}

// cursorModels returns the updates that move the senders' cursors. In open channels they also make
// senders followers whose message came after their last removal and is not of a deleted channel
// with this id. modes holds the modes of the channels.
func cursorModels(moves []channel.Advance, modes map[string]settledMode, now time.Time) (models []mongo.WriteModel) {
	for i := range moves {
		m := &moves[i]
		for userID, cursor := range m.Senders {
			if mode := modes[m.ChannelID]; !mode.open || cursor.Seq < mode.began {
				models = append(models, mongo.NewUpdateOneModel().SetFilter(movable(m.ChannelID, userID, cursor)).
					SetUpdate(moving(cursor)))
				continue
			}
			beyond := bson.D{{Key: "$gt", Value: bson.A{cursor.Seq, bson.D{{Key: "$ifNull", Value: bson.A{"$left", int64(0)}}}}}}
			models = append(models, mongo.NewUpdateOneModel().SetFilter(memberFilter(m.ChannelID, userID)).
				SetUpdate(joining(beyond, channel.Follower, cursor, now)).SetUpsert(true))
		}
	}
	return models
}

// rowModels returns the updates that move the channels' numbers. Each number only moves forward,
// and count moves with head.
func rowModels(moves []channel.Advance) []mongo.WriteModel {
	models := make([]mongo.WriteModel, len(moves))
	for i := range moves {
		m := &moves[i]
		further := bson.D{{Key: "$gt", Value: bson.A{m.Head, "$head"}}}
		set := bson.D{
			{Key: "head", Value: bson.D{{Key: "$max", Value: bson.A{"$head", m.Head}}}},
			{Key: "count", Value: bson.D{{Key: "$cond", Value: bson.A{further, m.Count, "$count"}}}},
			{Key: "last_message", Value: bson.D{{Key: "$max", Value: bson.A{"$last_message", m.LastMessage}}}},
		}
		if ident.IsSession(m.ChannelID) && !m.Active.IsZero() {
			later := bson.D{{Key: "$max", Value: bson.A{"$active", m.Active}}}
			there := bson.D{{Key: "$gt", Value: bson.A{"$active", nil}}} // not of a deleted session
			set = append(set, bson.E{Key: "active", Value: bson.D{{Key: "$cond", Value: bson.A{there, later, "$$REMOVE"}}}})
		}
		models[i] = mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: m.ChannelID}}).SetUpdate(bson.A{
			bson.D{{Key: "$set", Value: set}},
		})
	}
	return models
}
