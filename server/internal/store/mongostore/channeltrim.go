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
	"github.com/parleyhq/parley/server/internal/message"
)

var _ channel.TrimStore = (*Channels)(nil)

// retentionDocument is the stored form of a channel's own policy.
type retentionDocument struct {
	MaxAgeMS    int64 `bson:"max_age_ms,omitempty"`
	MaxMessages int64 `bson:"max_messages,omitempty"`
	MaxBytes    int64 `bson:"max_bytes,omitempty"`
}

func (d *retentionDocument) retention() *channel.Retention {
	if d == nil {
		return nil
	}
	return &channel.Retention{
		MaxAge: time.Duration(d.MaxAgeMS) * time.Millisecond, MaxMessages: d.MaxMessages, MaxBytes: d.MaxBytes,
	}
}

func retentionDocumentOf(r *channel.Retention) retentionDocument {
	return retentionDocument{MaxAgeMS: r.MaxAge.Milliseconds(), MaxMessages: r.MaxMessages, MaxBytes: r.MaxBytes}
}

// atRev returns a filter for a channel whose settings have a revision. A document without the field
// has revision 0.
func atRev(channelID string, rev int64) bson.D {
	revs := bson.A{rev}
	if rev == 0 {
		revs = append(revs, nil)
	}
	return bson.D{{Key: "_id", Value: channelID}, {Key: "settings_rev", Value: bson.D{{Key: "$in", Value: revs}}}}
}

// whileLive is a condition for channels that are Live, whose documents have no state.
var whileLive = bson.E{Key: "state", Value: bson.D{{Key: "$exists", Value: false}}} //nolint:gochecknoglobals // a constant

// SetSettings implements channel.Store. Nearly always it is one update. If the mode changes, the
// first one matches nothing.
func (c *Channels) SetSettings(ctx context.Context, channelID string, rev int64, set channel.Settings, now time.Time,
) (channel.Row, error) {
	values := bson.D{
		{Key: "due", Value: now}, {Key: "shard", Value: c.shard(channelID)}, {Key: "members_only", Value: set.MembersOnly},
	}
	update := bson.D{{Key: "$inc", Value: bson.D{{Key: "settings_rev", Value: int64(1)}}}}
	switching := bson.D{
		{Key: "$inc", Value: bson.D{{Key: "settings_rev", Value: int64(1)}, {Key: "rev", Value: int64(1)}}},
		changedNow(),
	}
	if set.Retention == nil {
		unset := bson.E{Key: "$unset", Value: bson.D{{Key: "retention", Value: ""}}}
		update, switching = append(update, unset), append(switching, unset)
	} else {
		values = append(values, bson.E{Key: "retention", Value: retentionDocumentOf(set.Retention)})
	}
	update, switching = append(update, bson.E{Key: "$set", Value: values}), append(switching, bson.E{Key: "$set", Value: values})
	var d channelDocument
	err := c.write(ctx, func(ctx context.Context) error {
		change := func(from bool, update bson.D) error {
			d = channelDocument{}
			filter := append(atRev(channelID, rev), bson.E{Key: "members_only", Value: from}, whileLive)
			return c.channels.FindOneAndUpdate(ctx, filter, update,
				options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&d)
		}
		err := change(set.MembersOnly, update)
		if errors.Is(err, mongo.ErrNoDocuments) {
			err = change(!set.MembersOnly, switching)
		}
		return err
	})
	if !errors.Is(err, mongo.ErrNoDocuments) {
		if err != nil {
			return channel.Row{}, fmt.Errorf("set settings: %w", err)
		}
		return d.row(), nil
	}
	rows, err := c.Rows(ctx, []string{channelID})
	row, ok := rows[channelID]
	switch {
	case err != nil:
	case !ok || row.State != channel.Live:
		err = channel.ErrNotFound
	default:
		err = channel.ErrChanged
	}
	return row, fmt.Errorf("set settings: %w", err)
}

// shard returns the shard that a channel's entries are in.
func (c *Channels) shard(channelID string) int {
	return message.Shard(channelID, len(c.store.shards))
}

// RowsAfter implements channel.TrimStore.
func (c *Channels) RowsAfter(ctx context.Context, after string, limit int) ([]channel.Row, error) {
	rows, err := c.findRows(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: after}}}},
		options.Find().SetSort(up("_id")).SetLimit(int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("rows after: %w", err)
	}
	return rows, nil
}

// Due implements channel.TrimStore.
func (c *Channels) Due(ctx context.Context, shard int, until time.Time, limit int) ([]channel.Row, error) {
	rows, err := c.findRows(ctx, bson.D{
		{Key: "shard", Value: shard}, {Key: "due", Value: bson.D{{Key: "$lte", Value: until}}},
	}, options.Find().SetHint(dueIndex).SetSort(up("shard", "due")).SetLimit(int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("due channels: %w", err)
	}
	return rows, nil
}

func (c *Channels) findRows(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (rows []channel.Row, err error) {
	err = c.read(ctx, func(ctx context.Context) error {
		cursor, err := c.channels.Find(ctx, filter, opts)
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
	return rows, err
}

// MoveBoundary implements channel.TrimStore. After a transient error it may return false although
// it has moved the boundary.
func (c *Channels) MoveBoundary(ctx context.Context, channelID string, rev int64, to message.Boundary, due time.Time,
) (moved bool, err error) {
	before := bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: to.Oldest}}}}
	filter := append(atRev(channelID, rev), bson.E{Key: "oldest", Value: before})
	err = c.write(ctx, func(ctx context.Context) error {
		updated, err := c.channels.UpdateOne(ctx, filter, bson.D{{Key: "$set", Value: bson.D{
			{Key: "oldest", Value: to.Oldest},
			{Key: "expired", Value: to.Expired},
			{Key: "due", Value: due},
			{Key: "shard", Value: c.shard(channelID)},
		}}})
		moved = err == nil && updated.MatchedCount == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("move boundary: %w", err)
	}
	return moved, nil
}

// SetTrim implements channel.TrimStore.
func (c *Channels) SetTrim(ctx context.Context, read *channel.Row, trim channel.Trim) error {
	op := func(name string, args ...any) bson.D { return bson.D{{Key: name, Value: bson.A(args)}} }
	var due, earlier any = trim.Due, op("$min", "$due", trim.Due) // of a missing field and a time, $min is the time
	if trim.Due.IsZero() {
		due, earlier = "$$REMOVE", "$due"
	}
	is := func(field string, value int64) bson.D { return op("$eq", op("$ifNull", field, int64(0)), value) }
	sameSettings := is("$settings_rev", read.SettingsRev)
	unchanged := op("$and", sameSettings, is("$oldest", read.Oldest), is("$head", read.Head))
	err := c.write(ctx, func(ctx context.Context) error {
		_, err := c.channels.UpdateByID(ctx, read.ChannelID, bson.A{bson.D{{Key: "$set", Value: bson.D{
			{Key: "stripped", Value: op("$cond", sameSettings, op("$max", "$stripped", trim.Stripped), "$stripped")},
			{Key: "deleted", Value: op("$cond", sameSettings, op("$max", "$deleted", trim.Deleted), "$deleted")},
			{Key: "due", Value: op("$cond", unchanged, due, earlier)},
			{Key: "shard", Value: c.shard(read.ChannelID)},
		}}}})
		return err
	})
	if err != nil {
		return fmt.Errorf("set trim: %w", err)
	}
	return nil
}
