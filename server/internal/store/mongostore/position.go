package mongostore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// position is a place in the change stream of a shard's collection (see message.Shard).
type position struct {
	// Time is the cluster time of the event at this place, or slightly earlier. Positions are
	// ordered by it.
	Time bson.Timestamp `bson:"cluster_time"`
	// Token resumes the stream. Without it the stream starts at Time.
	Token bson.Raw `bson:"token,omitempty"`
}

// makePosition creates a shard's row of `feeds` if there is none, at the cluster's current time.
// If the shard already has entries, because somebody removed the row, the position is at the first
// of them: repeated events are better than lost ones.
func (s *Store) makePosition(ctx context.Context, shard int) error {
	now, err := s.operationTime(ctx)
	if err != nil {
		return err
	}
	return s.read(ctx, func(ctx context.Context) error {
		row := bson.D{{Key: "_id", Value: shard}}
		feeds := s.db.Collection("feeds")
		if err := feeds.FindOne(ctx, row).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
			return err
		}
		var first struct {
			TS bson.Timestamp `bson:"ts"`
		}
		err := s.shards[shard].FindOne(ctx, bson.D{}, options.FindOne().
			SetSort(bson.D{{Key: "ts", Value: 1}}).SetProjection(bson.D{{Key: "ts", Value: 1}})).Decode(&first)
		switch {
		case err == nil:
			now = first.TS
		case !errors.Is(err, mongo.ErrNoDocuments):
			return err
		}
		_, err = feeds.UpdateOne(ctx, row, bson.D{{Key: "$setOnInsert", Value: position{Time: now}}},
			options.UpdateOne().SetUpsert(true))
		if mongo.IsDuplicateKeyError(err) { // another node created it at the same moment
			err = nil
		}
		return err
	})
}

// loadPosition reads a shard's row of `feeds`.
func (s *Store) loadPosition(ctx context.Context, shard int) (position, error) {
	var p position
	err := s.read(ctx, func(ctx context.Context) error {
		return s.db.Collection("feeds").FindOne(ctx, bson.D{{Key: "_id", Value: shard}}).Decode(&p)
	})
	if err != nil {
		return position{}, fmt.Errorf("load feed position: %w", err)
	}
	return p, nil
}

// savePosition saves a shard's position in its row of `feeds`, unless the row has a later one.
func (s *Store) savePosition(ctx context.Context, shard int, p position) error {
	update := bson.D{{Key: "$set", Value: p}}
	if p.Token == nil {
		update = append(update, bson.E{Key: "$unset", Value: bson.D{{Key: "token", Value: ""}}})
	}
	err := s.run(ctx, func(ctx context.Context) error {
		_, err := s.db.Collection("feeds").UpdateOne(ctx, bson.D{
			{Key: "_id", Value: shard}, {Key: "cluster_time", Value: bson.D{{Key: "$lt", Value: p.Time}}},
		}, update)
		return err
	})
	if err != nil {
		return fmt.Errorf("save feed position: %w", err)
	}
	return nil
}

// operationTime returns the primary's current time. Every previously acknowledged entry precedes it
// in the oplog.
func (s *Store) operationTime(ctx context.Context) (bson.Timestamp, error) {
	var at *bson.Timestamp
	err := s.run(ctx, func(ctx context.Context) error {
		err := s.db.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
		at = mongo.SessionFromContext(ctx).OperationTime()
		return err
	})
	if err != nil {
		return bson.Timestamp{}, fmt.Errorf("operation time: %w", err)
	}
	if at == nil {
		return bson.Timestamp{}, errors.New("operation time: the server returned none")
	}
	return *at, nil
}

// tokenTime returns the cluster time at the start of a resume token. The token's `_data` is a key
// string in hex: the type byte of a timestamp (0x82), then seconds and increment, big-endian. A
// stream without events has no other time. ok is false for a token of another form.
func tokenTime(token bson.Raw) (at bson.Timestamp, ok bool) {
	data, ok := token.Lookup("_data").StringValueOK()
	if !ok || len(data) < 18 {
		return bson.Timestamp{}, false
	}
	b, err := hex.DecodeString(data[:18])
	if err != nil || b[0] != 0x82 {
		return bson.Timestamp{}, false
	}
	for i := range 4 {
		at.T = at.T<<8 | uint32(b[1+i])
		at.I = at.I<<8 | uint32(b[5+i])
	}
	return at, true
}
