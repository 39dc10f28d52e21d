package mongostore

import (
	"context"
	"crypto/rand"
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

// Channels implements channel.Store. Safe for concurrent use.
//
// A channel is one document of `channels`. Each current or former member is one document of
// `members`, which is deleted only with the channel. A new channel's members are first listed in
// the channel's own document, under `joining`, so that the channel is created with all of them or
// not at all. Create then copies them to documents of `members`. If it was interrupted, the next
// method that reads or changes members does that first. The copy never overwrites, so a late one
// does nothing.
//
// All reads are linearizable: they follow a majority write, the store's fence. A write's conditions
// are either in its own filter, or never change once they hold, or were read behind the fence.
type Channels struct {
	store    *Store
	channels *mongo.Collection
	members  *mongo.Collection
	// settled caches, by channel id, whether the channel is open; see newSettled.
	settled *otter.Cache[string, settledMode]
}

var _ channel.Store = (*Channels)(nil)

// Channels returns a store of channels and members in the same database. It is closed with s.
func (s *Store) Channels() *Channels {
	return &Channels{store: s, channels: s.db.Collection("channels"), members: s.db.Collection("members"), settled: newSettled()}
}

// channelDocument is the stored form of a channel. The document also has `changed`: the time at
// which mongod created the channel as members-only, or last closed, opened or deleted it.
type channelDocument struct {
	ID          string `bson:"_id"`
	MembersOnly bool   `bson:"members_only"`
	// State and Began are stored only after a deletion, and State only while it is not Live.
	State       channel.State `bson:"state"`
	Began       int64         `bson:"began"`
	Rev         int64         `bson:"rev"`
	CreatedBy   string        `bson:"created_by"`
	CreatedAt   time.Time     `bson:"created_at"`
	Head        int64         `bson:"head"`
	Count       int64         `bson:"count"`
	LastMessage int64         `bson:"last_message"`
	// Active is stored only for Live sessions.
	Active time.Time `bson:"active"`
	// Title is stored only for Live sessions that have one.
	Title string `bson:"title"`
	// CreateKey and CreateDigest are stored only if the call that created the channel had a key.
	CreateKey    string `bson:"create_key"`
	CreateDigest string `bson:"create_digest"`
	// Maker is random and identifies the call that created the channel.
	Maker string `bson:"maker"`
	// Joining lists the members who have no document of their own yet.
	Joining []string `bson:"joining"`
	// Retention is stored only if the channel has a policy of its own.
	Retention   *retentionDocument `bson:"retention"`
	SettingsRev int64              `bson:"settings_rev"`
	Oldest      int64              `bson:"oldest"`
	Expired     int64              `bson:"expired"`
	Stripped    int64              `bson:"stripped"`
	Deleted     int64              `bson:"deleted"`
	// Due is stored together with `shard`, the shard of the channel's entries.
	Due time.Time `bson:"due"`
}

// open reports whether everyone may use the channel.
func (d *channelDocument) open() bool { return d.State == channel.Live && !d.MembersOnly }

func (d *channelDocument) row() channel.Row {
	return channel.Row{
		ChannelID: d.ID, MembersOnly: d.MembersOnly, State: d.State, Began: d.Began, Rev: d.Rev,
		CreatedBy: d.CreatedBy, CreatedAt: d.CreatedAt.UTC(), CreateKey: d.CreateKey, CreateDigest: d.CreateDigest,
		Numbers: channel.Numbers{Head: d.Head, Count: d.Count, LastMessage: d.LastMessage},
		Active:  d.Active.UTC(), Title: d.Title,
		Retention: d.Retention.retention(), SettingsRev: d.SettingsRev,
		Boundary: message.Boundary{Oldest: d.Oldest, Expired: d.Expired},
		Trim:     channel.Trim{Stripped: d.Stripped, Deleted: d.Deleted, Due: d.Due.UTC()},
	}
}

const (
	// dueIndex is the name of the index of the channels that a trimmer must look at.
	dueIndex = "due"
	// memberIndex is the name of the index of members by channel and user.
	memberIndex = "member"
)

// makeChannelIndexes creates the indexes of both collections.
func (s *Store) makeChannelIndexes(ctx context.Context) error {
	c := s.Channels()
	_, timeout, err := s.olderIndexes(ctx, c.channels, activeIndex)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err = c.channels.Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: up("joining"), Options: options.Index().SetName("joining").SetSparse(true)},
		{Keys: up("changed"), Options: options.Index().SetName("changed").SetSparse(true)},
		{
			Keys: up("shard", "due"),
			Options: options.Index().SetName(dueIndex).SetPartialFilterExpression(
				bson.D{{Key: "due", Value: bson.D{{Key: "$exists", Value: true}}}}),
		},
		{
			Keys: up("created_by"),
			Options: options.Index().SetName(creatorIndex).SetPartialFilterExpression(
				bson.D{{Key: "created_by", Value: bson.D{{Key: "$gt", Value: ""}}}}),
		},
		{
			Keys: bson.D{{Key: "created_by", Value: 1}, {Key: "active", Value: -1}, {Key: "_id", Value: 1}},
			Options: options.Index().SetName(sessionsIndex).SetPartialFilterExpression(
				bson.D{{Key: "active", Value: bson.D{{Key: "$exists", Value: true}}}}),
		},
		{
			Keys: bson.D{{Key: "active", Value: -1}, {Key: "_id", Value: 1}},
			Options: options.Index().SetName(activeIndex).SetPartialFilterExpression(
				bson.D{{Key: "active", Value: bson.D{{Key: "$exists", Value: true}}}}),
		},
	})
	if err != nil {
		return err
	}
	_, err = c.members.Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: up("channel_id", "user_id"), Options: options.Index().SetName(memberIndex).SetUnique(true)},
		{
			Keys:    up("user_id", "channel_id"),
			Options: options.Index().SetName("memberships").SetPartialFilterExpression(bson.D{{Key: "member", Value: true}}),
		},
		{
			Keys:    up("user_id"),
			Options: options.Index().SetName(formerIndex).SetPartialFilterExpression(bson.D{{Key: "member", Value: false}}),
		},
		{Keys: up("changed"), Options: options.Index().SetName("changed").SetSparse(true)},
	})
	if err != nil {
		return err
	}
	_, err = s.db.Collection(erasures).Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    up("open", "_id"),
		Options: options.Index().SetName(openErasuresIndex).SetPartialFilterExpression(bson.D{{Key: "open", Value: true}}),
	})
	return err
}

// write runs op with Store.read, because op may read as well. So op is repeated after transient
// errors, and also after a conflict of two concurrent inserts of one document. op must be safe to
// repeat.
func (c *Channels) write(ctx context.Context, op func(context.Context) error) error {
	return c.store.read(ctx, func(ctx context.Context) error {
		for {
			err := op(ctx)
			if ctx.Err() != nil || !mongo.IsDuplicateKeyError(err) {
				return err
			}
		}
	})
}

// read is like write, but waits for the store's fence, a majority write, before it calls op. So the
// majority reads of op are linearizable.
func (c *Channels) read(ctx context.Context, op func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.store.timeout) // including the wait for the fence
	defer cancel()
	if err := c.store.fence.wait(ctx, c.store.life); err != nil {
		return err
	}
	return c.write(ctx, op)
}

// Ensure implements channel.Store.
func (c *Channels) Ensure(ctx context.Context, channelID string, now time.Time) (channel.Row, error) {
	var d channelDocument
	err := c.write(ctx, func(ctx context.Context) (err error) {
		if ident.IsSession(channelID) {
			d, err = c.must(ctx, channelID)
		} else {
			d, err = c.ensure(ctx, channelID, now)
		}
		return err
	})
	if err != nil {
		return channel.Row{}, fmt.Errorf("ensure channel: %w", err)
	}
	return d.row(), nil
}

// ensure returns a channel's document, and creates it if there is none. It settles the document:
// users under `joining` get member documents of their own.
func (c *Channels) ensure(ctx context.Context, channelID string, now time.Time) (channelDocument, error) {
	d, ok, err := c.find(ctx, channelID)
	if err != nil || ok {
		return d, err
	}
	// If the document exists after all, this waits until a majority has it.
	filter := bson.D{{Key: "_id", Value: channelID}}
	err = c.channels.FindOneAndUpdate(ctx, filter, ensuring(now),
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&d)
	if err != nil {
		return channelDocument{}, err
	}
	return d, c.settle(ctx, &d)
}

// ensuring returns the update that creates an open channel if there is none.
func ensuring(now time.Time) bson.D {
	return bson.D{{Key: "$setOnInsert", Value: bson.D{
		{Key: "members_only", Value: false},
		{Key: "created_at", Value: now},
		{Key: "head", Value: int64(0)},
		{Key: "count", Value: int64(0)},
		{Key: "last_message", Value: int64(0)},
	}}}
}

// find returns a channel's document and settles it, like ensure. ok is false if there is none,
// which is certain only behind the fence.
func (c *Channels) find(ctx context.Context, channelID string) (d channelDocument, ok bool, err error) {
	err = c.channels.FindOne(ctx, bson.D{{Key: "_id", Value: channelID}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return channelDocument{}, false, nil
	}
	if err != nil {
		return channelDocument{}, false, err
	}
	return d, true, c.settle(ctx, &d)
}

// must is like find for a channel that must exist. If find finds none, must searches again behind
// the fence, and then returns channel.ErrNotFound.
func (c *Channels) must(ctx context.Context, channelID string) (d channelDocument, err error) {
	d, ok, err := c.find(ctx, channelID)
	if err != nil || ok {
		return d, err
	}
	err = c.read(ctx, func(ctx context.Context) error {
		d, ok, err = c.find(ctx, channelID)
		return err
	})
	if err == nil && !ok {
		err = channel.ErrNotFound
	}
	return d, err
}

// live returns channel.ErrNotFound if there is no channel or it was deleted. It reads behind the
// fence if a former primary may not know yet that the channel was created again.
func (c *Channels) live(ctx context.Context, channelID string) error {
	d, err := c.must(ctx, channelID)
	if err != nil || d.State == channel.Live {
		return err
	}
	return c.read(ctx, func(ctx context.Context) error {
		if d, err = c.must(ctx, channelID); err == nil && d.State != channel.Live {
			err = channel.ErrNotFound
		}
		return err
	})
}

// Create implements channel.Store.
func (c *Channels) Create(ctx context.Context, row channel.Row, userIDs []string) (channel.Row, error) {
	d, err := c.insert(ctx, row, userIDs)
	if err != nil && !errors.Is(err, channel.ErrExists) {
		return channel.Row{}, fmt.Errorf("create channel: %w", err)
	}
	// The node that created the channel may have died before this. A failure here does not fail the
	// call: the next caller that needs the members repeats it.
	_ = c.write(ctx, func(ctx context.Context) error { return c.settle(ctx, &d) })
	if err != nil {
		return d.row(), fmt.Errorf("create channel: %w", err)
	}
	return d.row(), nil
}

// insert inserts a channel's document, with all its members joining, and returns it. If the channel
// exists already, insert returns its document and channel.ErrExists.
func (c *Channels) insert(ctx context.Context, row channel.Row, userIDs []string) (d channelDocument, err error) {
	maker := rand.Text()
	doc := bson.D{
		{Key: "_id", Value: row.ChannelID},
		{Key: "members_only", Value: row.MembersOnly},
		{Key: "created_by", Value: row.CreatedBy},
		{Key: "created_at", Value: row.CreatedAt},
		{Key: "head", Value: int64(0)},
		{Key: "count", Value: int64(0)},
		{Key: "last_message", Value: int64(0)},
		{Key: "maker", Value: maker},
	}
	if row.Rev > 0 {
		doc = append(doc, bson.E{Key: "rev", Value: row.Rev})
	}
	if row.CreateKey != "" {
		doc = append(doc, bson.E{Key: "create_key", Value: row.CreateKey}, bson.E{Key: "create_digest", Value: row.CreateDigest})
	}
	var active time.Time
	var title string
	if ident.IsSession(row.ChannelID) {
		active, title = row.CreatedAt, row.Title
		doc = append(doc, bson.E{Key: "active", Value: active})
	}
	if title != "" {
		doc = append(doc, bson.E{Key: "title", Value: title})
	}
	if row.Retention != nil {
		doc = append(doc, bson.E{Key: "retention", Value: retentionDocumentOf(row.Retention)},
			bson.E{Key: "due", Value: row.CreatedAt}, bson.E{Key: "shard", Value: c.shard(row.ChannelID)})
	}
	if len(userIDs) > 0 {
		doc = append(doc, bson.E{Key: "joining", Value: userIDs})
	}
	if row.MembersOnly {
		doc = append(doc, bson.E{Key: "changed", Value: bson.Timestamp{}}) // set by mongod
	}
	err = c.write(ctx, func(ctx context.Context) error {
		_, err := c.channels.InsertOne(ctx, doc)
		if mongo.IsDuplicateKeyError(err) {
			d, err = c.made(ctx, row.ChannelID, maker, err)
			if errors.Is(err, channel.ErrExists) && d.replaceable(&row) {
				d, err = c.revive(ctx, &d, &row, maker, userIDs)
			}
			return err
		}
		d = channelDocument{
			ID: row.ChannelID, MembersOnly: row.MembersOnly, CreatedBy: row.CreatedBy, CreatedAt: row.CreatedAt,
			CreateKey: row.CreateKey, CreateDigest: row.CreateDigest, Joining: userIDs, Rev: row.Rev, Active: active, Title: title,
		}
		if row.Retention != nil {
			own := retentionDocumentOf(row.Retention)
			d.Retention, d.Due = &own, row.CreatedAt
		}
		return err
	})
	return d, err
}

// made returns the document of a channel whose insert conflicted. The error is nil if this call
// inserted it, channel.ErrExists if another one did, and clash if no document is visible yet.
func (c *Channels) made(ctx context.Context, channelID, maker string, clash error) (d channelDocument, err error) {
	err = c.read(ctx, func(ctx context.Context) error {
		d = channelDocument{}
		err := c.channels.FindOne(ctx, bson.D{{Key: "_id", Value: channelID}}).Decode(&d)
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			return clash
		case err == nil && d.Maker != maker:
			return channel.ErrExists
		}
		return err
	})
	return d, err
}

// settle copies the joining users into documents of their own, then clears joining.
func (c *Channels) settle(ctx context.Context, d *channelDocument) error {
	if len(d.Joining) == 0 {
		return nil
	}
	models := make([]mongo.WriteModel, len(d.Joining))
	for i, userID := range d.Joining {
		role := channel.RoleMember
		if userID == d.CreatedBy {
			role = channel.Owner
		}
		models[i] = mongo.NewUpdateOneModel().SetFilter(memberFilter(d.ID, userID)).SetUpsert(true).SetUpdate(
			bson.D{{Key: "$setOnInsert", Value: bson.D{
				{Key: "member", Value: true},
				{Key: "role", Value: int32(role)},
				{Key: "joined_at", Value: d.CreatedAt},
				{Key: "seq", Value: int64(0)},
				{Key: "count", Value: int64(0)},
			}}})
	}
	if _, err := c.members.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false)); err != nil {
		return err
	}
	d.Joining = nil
	made := bson.D{{Key: "_id", Value: d.ID}}
	if d.Maker != "" { // a late one does not take from a channel that was deleted and created again
		made = append(made, bson.E{Key: "maker", Value: d.Maker})
	}
	_, err := c.channels.UpdateOne(ctx, made, bson.D{{Key: "$unset", Value: bson.D{{Key: "joining", Value: ""}}}})
	return err
}

// settleAll calls settle for all channels that match filter.
func (c *Channels) settleAll(ctx context.Context, filter bson.D) error {
	docs, err := c.list(ctx, filter)
	if err != nil {
		return err
	}
	for i := range docs {
		if err := c.settle(ctx, &docs[i]); err != nil {
			return err
		}
	}
	return nil
}

// list returns all channels that match filter.
func (c *Channels) list(ctx context.Context, filter bson.D) ([]channelDocument, error) {
	cursor, err := c.channels.Find(ctx, filter)
	if err != nil {
		return nil, err
	}
	var docs []channelDocument
	err = cursor.All(ctx, &docs)
	return docs, err
}

// Rows implements channel.Store.
func (c *Channels) Rows(ctx context.Context, channelIDs []string) (map[string]channel.Row, error) {
	rows := make(map[string]channel.Row, len(channelIDs))
	if len(channelIDs) == 0 {
		return rows, nil
	}
	err := c.read(ctx, func(ctx context.Context) error {
		docs, err := c.list(ctx, anyOf("_id", channelIDs))
		for i := range docs {
			rows[docs[i].ID] = docs[i].row()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rows of channels: %w", err)
	}
	return rows, nil
}

// anyOf returns a filter for documents whose field has one of values.
func anyOf(field string, values []string) bson.D {
	return bson.D{{Key: field, Value: bson.D{{Key: "$in", Value: values}}}}
}
