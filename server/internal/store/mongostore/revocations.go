package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/revocation"
)

// revocations is the name of the collection of revocations.
const revocations = "revocations"

// Revocations implements revocation.Store. Safe for concurrent use. Reads are linearizable, as
// those of Channels are.
type Revocations struct {
	calls   *Channels
	entries *mongo.Collection
}

var _ revocation.Store = (*Revocations)(nil)

// Revocations returns a store of revocations in the same database. It is closed with s.
func (s *Store) Revocations() *Revocations {
	return &Revocations{s.Channels(), s.db.Collection(revocations)}
}

// revocationDocument is the stored form of an entry.
type revocationDocument struct {
	Key    string    `bson:"_id"`
	Until  time.Time `bson:"until"`
	Before time.Time `bson:"before,omitempty"`
	At     time.Time `bson:"at"`
	By     string    `bson:"by,omitempty"`
	Reason string    `bson:"reason,omitempty"`
}

func (d *revocationDocument) entry() revocation.Entry {
	e := revocation.Entry{Key: d.Key, Until: d.Until.UTC(), At: d.At.UTC(), By: d.By, Reason: d.Reason}
	if !d.Before.IsZero() {
		e.Before = d.Before.UTC()
	}
	return e
}

// makeRevocationIndexes creates the indexes. mongod itself deletes entries after their Until.
func (s *Store) makeRevocationIndexes(ctx context.Context) error {
	_, err := s.db.Collection(revocations).Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: up("changed"), Options: options.Index().SetName("changed")},
		{Keys: up("until"), Options: options.Index().SetName("until").SetExpireAfterSeconds(0)},
	})
	return err
}

// Revoke implements revocation.Store.
func (r *Revocations) Revoke(ctx context.Context, e revocation.Entry) error {
	latest := bson.D{{Key: "until", Value: e.Until}}
	if !e.Before.IsZero() {
		latest = append(latest, bson.E{Key: "before", Value: e.Before})
	}
	err := r.calls.write(ctx, func(ctx context.Context) error {
		_, err := r.entries.UpdateByID(ctx, e.Key, bson.D{
			{Key: "$max", Value: latest},
			{Key: "$set", Value: bson.D{{Key: "at", Value: e.At}, {Key: "by", Value: e.By}, {Key: "reason", Value: e.Reason}}},
			changedNow(),
		}, options.UpdateOne().SetUpsert(true))
		return err
	})
	if err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	return nil
}

// Changes implements revocation.Store, as Channels.Changes does.
func (r *Revocations) Changes(ctx context.Context, after revocation.Stamp,
) (entries []revocation.Entry, next revocation.Stamp, err error) {
	err = r.calls.read(ctx, func(ctx context.Context) error {
		at := mongo.SessionFromContext(ctx).OperationTime()
		if at == nil {
			return errors.New("the server returned no operation time")
		}
		next = revocation.Stamp{Hi: at.T, Lo: at.I}
		if after == (revocation.Stamp{}) {
			return nil
		}
		since := bson.Timestamp{T: after.Hi - min(after.Hi, changesOverlap), I: after.Lo}
		entries, err = r.find(ctx, bson.D{{Key: "changed", Value: bson.D{{Key: "$gte", Value: since}}}}, options.Find())
		return err
	})
	if err != nil {
		return nil, revocation.Stamp{}, fmt.Errorf("changes of revocations: %w", err)
	}
	return entries, next, nil
}

// List implements revocation.Store.
func (r *Revocations) List(ctx context.Context, after string, limit int) (entries []revocation.Entry, err error) {
	err = r.calls.read(ctx, func(ctx context.Context) error {
		entries, err = r.find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: after}}}},
			options.Find().SetSort(up("_id")).SetLimit(int64(limit)))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list revocations: %w", err)
	}
	return entries, nil
}

func (r *Revocations) find(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) ([]revocation.Entry, error) {
	cursor, err := r.entries.Find(ctx, filter, opts)
	if err != nil {
		return nil, err
	}
	var docs []revocationDocument
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, err
	}
	entries := make([]revocation.Entry, len(docs))
	for i := range docs {
		entries[i] = docs[i].entry()
	}
	return entries, nil
}
