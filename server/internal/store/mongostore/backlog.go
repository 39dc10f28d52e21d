package mongostore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/message"
)

// lookBack is how much older than a place in the stream an entry's ts may be that stands behind it: mongod fills ts in
// before the entry gets its place. It is far above the time limit of an insert. In seconds.
const lookBack = 120

// backlog reads what a bucket holds from a time on, in the order of ts, page by page. It needs no cursor that could end.
type backlog struct {
	// after is the last entry returned, or all that is known of it at first: its ts.
	after document
}

// startBacklog gives the feed a new place, now, and what the store holds from before it to return first. A backlog that
// was under way goes on from where it was, now up to the new place.
func (f *feed) startBacklog(ctx context.Context) error {
	lost := f.read
	now, err := f.store.operationTime(ctx)
	if err != nil {
		return err
	}
	// The stream brings what has its place in the oplog at or after this time. What has one before it is seen by every
	// read from now on, since the time has raised the horizon.
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

// next returns the next page; none at the end.
func (b *backlog) next(ctx context.Context, s *Store, bucket, limit int) ([]message.Entry, error) {
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
		cursor, err := s.buckets[bucket].Find(ctx, filter, opts)
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
