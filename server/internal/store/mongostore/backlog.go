package mongostore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/message"
)

// lookBack is how many seconds before a lost position a backlog begins. mongod sets an entry's ts
// before it assigns the entry's place in the oplog, so ts may be that much older. It is far above
// the time limit of an insert.
const lookBack = 120

// backlog reads a shard's stored entries from a time on, in order of ts (mongod's time of the
// insert), page by page. It needs no server cursor, which could end.
type backlog struct {
	// after is the last entry returned. At first it holds only the ts to start at.
	after document
}

// startBacklog moves the feed's position to now and makes the feed first return the store's entries
// from before it. A backlog already in progress continues where it was, up to the new position.
func (f *feed) startBacklog(ctx context.Context) error {
	lost := f.read
	now, err := f.store.operationTime(ctx)
	if err != nil {
		return err
	}
	// The stream delivers the entries whose place in the oplog is at or after this time. Entries
	// before it are visible to every read from now on, because the time has raised the horizon.
	f.read = position{Time: now}
	if f.backlog == nil {
		since := bson.Timestamp{}
		if lost.Time.T > lookBack {
			since = bson.Timestamp{T: lost.Time.T - lookBack, I: lost.Time.I}
		}
		f.backlog = &backlog{after: document{TS: since}}
	}
	return nil
}

// next returns the next page, at most limit entries, or no entries at the end.
func (b *backlog) next(ctx context.Context, s *Store, shard, limit int) ([]message.Entry, error) {
	at := b.after
	filter := bson.D{
		{Key: "ts", Value: bson.D{{Key: "$gte", Value: at.TS}}},
		{Key: "$or", Value: bson.A{
			bson.D{{Key: "ts", Value: bson.D{{Key: "$gt", Value: at.TS}}}},
			bson.D{{Key: "seq", Value: bson.D{{Key: "$gt", Value: at.Seq}}}},
			bson.D{{Key: "seq", Value: at.Seq}, {Key: "channel_id", Value: bson.D{{Key: "$gt", Value: at.ChannelID}}}},
		}},
	}
	opts := options.Find().SetLimit(int64(limit)).SetBatchSize(int32(min(limit, 1<<20))). //nolint:gosec // bounded
												SetSort(bson.D{{Key: "ts", Value: 1}, {Key: "seq", Value: 1}, {Key: "channel_id", Value: 1}})
	var docs []document
	err := s.read(ctx, func(ctx context.Context) error {
		cursor, err := s.shards[shard].Find(ctx, filter, opts)
		if err != nil {
			return err
		}
		return cursor.All(ctx, &docs)
	})
	if err != nil {
		return nil, fmt.Errorf("read backlog: %w", err)
	}
	entries := make([]message.Entry, len(docs))
	for i := range docs {
		entries[i] = docs[i].entry()
		b.after = docs[i]
	}
	return entries, nil
}
