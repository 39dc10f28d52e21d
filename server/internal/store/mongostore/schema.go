package mongostore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
)

// identityID is the `_id` of the identity row of `meta`.
const identityID = "identity"

// storeFormat is the version of the collections and documents that this package reads and writes.
// It must change when an older server would read them incorrectly. Open converts a store of format
// olderFormat, which has no expired entries.
const (
	storeFormat = 3
	olderFormat = 2
)

// identityRow is the identity row of `meta`.
type identityRow struct {
	// Format is the storeFormat of the newest server that has opened the store. 0 means 1.
	Format int `bson:"format"`
	Shards int `bson:"shards"`
	// Buckets is the name of Shards in olderFormat.
	Buckets int    `bson:"buckets,omitempty"`
	Epoch   string `bson:"epoch"`
	Secret  []byte `bson:"secret"`
}

// loadIdentity returns the store's identity. It creates one if there is none. It returns an error
// if the store has another format, or if shards is neither 0 nor the stored number.
func (s *Store) loadIdentity(ctx context.Context, shards int) (message.Identity, error) {
	epoch, err := newEpoch()
	if err != nil {
		return message.Identity{}, err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return message.Identity{}, fmt.Errorf("create secret: %w", err)
	}
	fresh := identityRow{Format: storeFormat, Shards: shards, Epoch: epoch, Secret: secret}
	if shards == 0 {
		fresh.Shards = defaultShards
	}
	var row identityRow
	err = s.run(ctx, func(ctx context.Context) error {
		upsert := func() error {
			return s.db.Collection("meta").FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: identityID}},
				bson.D{{Key: "$setOnInsert", Value: fresh}},
				options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&row)
		}
		err := upsert()
		if mongo.IsDuplicateKeyError(err) { // another node created it at the same moment
			err = upsert()
		}
		return err
	})
	if err != nil {
		return message.Identity{}, fmt.Errorf("load identity: %w", err)
	}
	if format := max(row.Format, 1); format != storeFormat && format != olderFormat {
		return message.Identity{}, fmt.Errorf("the store has format %d and this parleyd reads format %d: run the version of parleyd that made it",
			format, storeFormat)
	}
	if row.Format == olderFormat {
		row.Shards = row.Buckets
	}
	if shards != 0 && shards != row.Shards {
		return message.Identity{}, fmt.Errorf("the store was made with %d shards, which can't be changed to %d: set shards: %[1]d, or PARLEY_SHARDS=%[1]d",
			row.Shards, shards)
	}
	if row.Shards < 1 || row.Epoch == "" || len(row.Secret) == 0 {
		return message.Identity{}, errors.New("the store's identity row is damaged")
	}
	if row.Format == olderFormat {
		if err := s.convert(ctx); err != nil {
			return message.Identity{}, fmt.Errorf("load identity: %w", err)
		}
	}
	return message.Identity{Shards: row.Shards, Epoch: row.Epoch, Secret: row.Secret}, nil
}

// convert marks a store of olderFormat as one of storeFormat, so that older servers no longer open
// it.
func (s *Store) convert(ctx context.Context) error {
	return s.run(ctx, again(func(ctx context.Context) error {
		_, err := s.db.Collection("meta").UpdateOne(ctx, bson.D{{Key: "_id", Value: identityID}, {Key: "format", Value: olderFormat}},
			bson.D{
				{Key: "$set", Value: bson.D{{Key: "format", Value: storeFormat}}},
				{Key: "$rename", Value: bson.D{{Key: "buckets", Value: "shards"}}},
			})
		return err
	}))
}

// StoredEpoch reads the epoch linearizably.
func (s *Store) StoredEpoch(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.fence.wait(ctx, s.life); err != nil {
		return "", fmt.Errorf("stored epoch: %w", err)
	}
	var row identityRow
	err := s.read(ctx, func(ctx context.Context) error {
		return s.db.Collection("meta").FindOne(ctx, bson.D{{Key: "_id", Value: identityID}}).Decode(&row)
	})
	if err != nil {
		return "", fmt.Errorf("stored epoch: %w", err)
	}
	return row.Epoch, nil
}

// NewEpoch replaces the epoch of every log and returns the new one.
func (s *Store) NewEpoch(ctx context.Context) (string, error) {
	epoch, err := newEpoch()
	if err != nil {
		return "", err
	}
	err = s.run(ctx, func(ctx context.Context) error {
		_, err := s.db.Collection("meta").UpdateByID(ctx, identityID,
			bson.D{{Key: "$set", Value: bson.D{{Key: "epoch", Value: epoch}}}})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("new epoch: %w", err)
	}
	s.mu.Lock()
	s.identity.Epoch = epoch
	s.mu.Unlock()
	return epoch, nil
}

func newEpoch() (string, error) {
	b := make([]byte, 8)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("create epoch: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// prepareShards creates the indexes and the feeds' positions. It returns before the store accepts
// a send, so that a feed's first position is before every entry.
func (s *Store) prepareShards(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.makeChannelIndexes(ctx); err != nil {
			return fmt.Errorf("channels: create indexes: %w", err)
		}
		if err := s.makeRevocationIndexes(ctx); err != nil {
			return fmt.Errorf("revocations: create indexes: %w", err)
		}
		return nil
	})
	for i := range s.shards {
		g.Go(func() error {
			if err := s.makeIndexes(ctx, s.shards[i]); err != nil {
				return fmt.Errorf("shard %d: create indexes: %w", i, err)
			}
			if err := s.makePosition(ctx, i); err != nil {
				return fmt.Errorf("shard %d: create feed position: %w", i, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// up returns a document with the value 1 for each field: the keys of an ascending index, an
// ascending sort, or a projection.
func up(fields ...string) bson.D {
	keys := make(bson.D, len(fields))
	for i, f := range fields {
		keys[i] = bson.E{Key: f, Value: 1}
	}
	return keys
}

// The partial indexes, which calls name, because the server may choose one that passes over
// documents that do not match. Only these make the cost of a read independent of the number of
// edits.
const (
	// sendsIndex has the sends by channel and seq.
	sendsIndex = "sends"
	// changedIndex has the messages that were changed, by channel and changed_seq.
	changedIndex = "changed"
	// pendingIndex has the changes that are not applied, by channel, target and seq.
	pendingIndex = "pending"
	// openIndex has the open messages by time, channel and seq.
	openIndex = "open"
)

const (
	// senderIndex is the unique index of client keys.
	senderIndex = "sender"
	// olderSenderIndex is the index of client keys in olderFormat. It is dropped once there is
	// senderIndex, because it costs each insert as much.
	olderSenderIndex = "client_msg_id"
	// conversionTimeout bounds the creation of indexes for the entries of an older store.
	conversionTimeout = time.Hour
	// indexNotFound is the server's code for an index that does not exist.
	indexNotFound = 27
)

func (s *Store) makeIndexes(ctx context.Context, b *mongo.Collection) error {
	older, timeout, err := s.olderIndexes(ctx, b, openIndex)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err = b.Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: up("channel_id", "seq"), Options: options.Index().SetName("seq").SetUnique(true)},
		// The sender comes first, so that all that a user wrote is one range.
		{Keys: up("from_id", "channel_id", "client_msg_id"), Options: options.Index().SetName(senderIndex).SetUnique(true)},
		// The order in which a feed that lost its position reads the store. seq and channel_id make
		// it total.
		{Keys: up("ts", "seq", "channel_id"), Options: options.Index().SetName("ts")},
		{
			Keys:    up("channel_id", "kind", "seq"),
			Options: options.Index().SetName(sendsIndex).SetPartialFilterExpression(bson.D{{Key: "kind", Value: message.KindSend}}),
		},
		{
			Keys: up("channel_id", "changed_seq"),
			Options: options.Index().SetName(changedIndex).SetPartialFilterExpression(
				bson.D{{Key: "status", Value: bson.D{{Key: "$gt", Value: message.StatusSent}}}}),
		},
		{
			Keys:    up("channel_id", "target_seq", "seq"),
			Options: options.Index().SetName(pendingIndex).SetPartialFilterExpression(bson.D{{Key: "pending", Value: true}}),
		},
		{
			Keys:    up("msg_time", "channel_id", "seq"),
			Options: options.Index().SetName(openIndex).SetPartialFilterExpression(bson.D{isOpen}),
		},
	})
	if err != nil || !older {
		return err
	}
	s.log.InfoContext(ctx, "an index of an older version is dropped", "collection", b.Name())
	err = b.Indexes().DropOne(ctx, olderSenderIndex)
	var failed mongo.CommandError
	if errors.As(err, &failed) && failed.HasErrorCode(indexNotFound) { // another node was faster
		return nil
	}
	return err
}

// olderIndexes reports whether a collection has olderSenderIndex, and returns the time limit for
// the creation of its indexes. The limit is higher if an older version created the collection, so
// that its documents must be read: newest is the index that was added last.
func (s *Store) olderIndexes(ctx context.Context, b *mongo.Collection, newest string) (older bool, timeout time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	indexes, err := b.Indexes().ListSpecifications(ctx)
	has := func(name string) bool {
		return slices.ContainsFunc(indexes, func(index mongo.IndexSpecification) bool { return index.Name == name })
	}
	older, timeout = has(olderSenderIndex), s.timeout
	if older || len(indexes) > 0 && !has(newest) {
		timeout = max(timeout, conversionTimeout)
	}
	return older, timeout, err
}
