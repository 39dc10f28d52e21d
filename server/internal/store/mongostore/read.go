package mongostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
)

// Head reads a log's end linearizably: in majority reads that follow a majority write (the fence).
// It reads the boundary first, which is therefore never beyond the end. It fails within the store's
// time limit if there is no majority.
func (s *Store) Head(ctx context.Context, channelID string) (message.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout) // includes the fence, which may wait behind another write
	defer cancel()
	if err := s.fence.wait(ctx, s.life); err != nil {
		return message.Head{}, fmt.Errorf("head: %w", err)
	}
	var head message.Head
	err := s.read(ctx, func(ctx context.Context) error {
		boundary, err := s.boundary(ctx, channelID)
		if err != nil {
			return err
		}
		head, err = s.head(ctx, channelID)
		head = atBoundary(head, boundary)
		return err
	})
	if err != nil {
		return message.Head{}, fmt.Errorf("head: %w", err)
	}
	return head, nil
}

// headRow is the projection of the last entry of a log.
type headRow struct {
	ChannelID string    `bson:"channel_id"`
	Seq       int64     `bson:"seq"`
	Count     int64     `bson:"count"`
	MsgTime   time.Time `bson:"msg_time"`
	Bytes     int64     `bson:"bytes"`
	Rev       int64     `bson:"rev"`
}

func (r *headRow) head() message.Head {
	return message.Head{Seq: r.Seq, Count: r.Count, MsgTime: r.MsgTime.UTC(), Bytes: r.Bytes, Rev: r.Rev}
}

func (s *Store) head(ctx context.Context, channelID string) (message.Head, error) {
	var row headRow
	err := s.of(channelID).FindOne(ctx, bson.D{{Key: "channel_id", Value: channelID}}, options.FindOne().
		SetSort(bson.D{{Key: "seq", Value: -1}}).SetProjection(up("seq", "count", "msg_time", "bytes", "rev"))).Decode(&row)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return message.Head{}, nil
	}
	if err != nil {
		return message.Head{}, err
	}
	return row.head(), nil
}

// Heads implements message.LogReader: one fence, one read of the boundaries, and one for each
// shard. The server answers the read by a seek in the index for each log (DISTINCT_SCAN),
// regardless of the logs' lengths.
func (s *Store) Heads(ctx context.Context, channelIDs []string) (map[string]message.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.fence.wait(ctx, s.life); err != nil {
		return nil, fmt.Errorf("heads: %w", err)
	}
	boundaries, err := s.boundaries(ctx, channelIDs)
	if err != nil {
		return nil, fmt.Errorf("heads: %w", err)
	}
	rows, err := eachShard(ctx, s, channelIDs, func(ctx context.Context, b *mongo.Collection, ids []string) (rows []headRow, err error) {
		cursor, err := b.Aggregate(ctx, headsPipeline(ids), options.Aggregate().SetHint("seq"))
		if err != nil {
			return nil, err
		}
		return rows, cursor.All(ctx, &rows)
	})
	if err != nil {
		return nil, fmt.Errorf("heads: %w", err)
	}
	heads := make(map[string]message.Head, len(rows))
	for i := range rows {
		heads[rows[i].ChannelID] = atBoundary(rows[i].head(), boundaries[rows[i].ChannelID])
	}
	return heads, nil
}

// headsPipeline selects the last entry of each log.
func headsPipeline(channelIDs []string) mongo.Pipeline {
	first := func(field string) bson.E {
		return bson.E{Key: field, Value: bson.D{{Key: "$first", Value: "$" + field}}}
	}
	return mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "channel_id", Value: bson.D{{Key: "$in", Value: channelIDs}}}}}},
		{{Key: "$sort", Value: bson.D{{Key: "channel_id", Value: -1}, {Key: "seq", Value: -1}}}},
		{{Key: "$group", Value: bson.D{
			{Key: "_id", Value: "$channel_id"}, first("channel_id"), first("seq"), first("count"), first("msg_time"), first("bytes"), first("rev"),
		}}},
	}
}

// ByClientKeys finds entries by sender and client_msg_id, in a majority read at least as new as any
// earlier answer to this store. Keys without an entry are missing from the result.
func (s *Store) ByClientKeys(ctx context.Context, channelID string, keys []message.ClientKey,
) (map[message.ClientKey]message.Entry, error) {
	found := make(map[message.ClientKey]message.Entry, len(keys))
	if len(keys) == 0 {
		return found, nil
	}
	wanted := make(map[message.ClientKey]bool, len(keys))
	for _, k := range keys {
		wanted[k] = true
	}
	entries, err := s.find(ctx, channelID, byClientKeys(channelID, keys), options.Find().SetHint(senderIndex).
		SetBatchSize(int32(len(keys)+1))) //nolint:gosec // a request's items
	if err != nil {
		return nil, fmt.Errorf("by client keys: %w", err)
	}
	for i := range entries {
		if k := (message.ClientKey{FromID: entries[i].FromID, ClientMsgID: entries[i].ClientMsgID}); wanted[k] {
			found[k] = entries[i]
		}
	}
	return found, nil
}

// maxSeeks bounds the seeks of one branch of a look-up by client keys, of several senders: the
// product of its senders and ids.
const maxSeeks = 1024

// byClientKeys returns a filter that matches the entries with the given keys, and few others. A
// branch for each sender would cost the server more for planning than for reading, and a single one
// could seek each id for each sender. So senders share a branch as far as maxSeeks allows.
func byClientKeys(channelID string, keys []message.ClientKey) bson.D {
	keys = slices.SortedFunc(slices.Values(keys), func(a, b message.ClientKey) int { return cmp.Compare(a.FromID, b.FromID) })
	var branches bson.A
	var senders, ids bson.A
	add := func() {
		branches = append(branches, bson.D{
			{Key: "from_id", Value: bson.D{{Key: "$in", Value: senders}}},
			{Key: "channel_id", Value: channelID},
			{Key: "client_msg_id", Value: bson.D{{Key: "$in", Value: ids}}},
		})
		senders, ids = nil, nil
	}
	for from := range keys {
		if from > 0 && keys[from].FromID == keys[from-1].FromID {
			continue
		}
		to := from + 1
		for to < len(keys) && keys[to].FromID == keys[from].FromID {
			to++
		}
		if n := len(senders) + 1; n > 1 && n*(len(ids)+to-from) > maxSeeks {
			add()
		}
		senders = append(senders, keys[from].FromID)
		for _, k := range keys[from:to] {
			ids = append(ids, k.ClientMsgID)
		}
	}
	if add(); len(branches) == 1 {
		return branches[0].(bson.D) //nolint:forcetypeassert // see add
	}
	return bson.D{{Key: "$or", Value: branches}}
}

// targetsAtOnce is the most messages of one read of Targets, so that its answer stays below the 16
// MiB of a batch.
const targetsAtOnce = 100

// Targets returns messages with their pending edits and recalls applied. It reads these first: one
// that is applied between the reads is in the message. All are majority reads in one causally
// consistent session, at least as new as any earlier answer to this store.
func (s *Store) Targets(ctx context.Context, channelID string, msgIDs []string) (map[string]message.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	targets := make(map[string]message.Entry, len(msgIDs))
	err := s.read(ctx, func(ctx context.Context) error {
		pending, err := pendingIn(ctx, s.of(channelID), []string{channelID})
		if err != nil {
			return err
		}
		for ids := range slices.Chunk(msgIDs, targetsAtOnce) {
			found, err := findIn(ctx, s.of(channelID), bson.D{
				{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}, {Key: "channel_id", Value: channelID}, {Key: "kind", Value: message.KindSend},
			}, options.Find().SetBatchSize(targetsAtOnce+1))
			if err != nil {
				return err
			}
			message.Fold(found, pending)
			for i := range found {
				if found[i].Status == message.StatusRecalled {
					found[i].Digest = nil
				}
				targets[found[i].MsgID] = found[i]
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("targets: %w", err)
	}
	return targets, nil
}

// Pending implements message.LogReader: one majority read for each shard.
func (s *Store) Pending(ctx context.Context, channelIDs ...string) ([]message.Entry, error) {
	pending, err := eachShard(ctx, s, channelIDs, func(ctx context.Context, b *mongo.Collection, ids []string) ([]message.Entry, error) {
		return pendingIn(ctx, b, ids)
	})
	if err != nil {
		return nil, fmt.Errorf("pending: %w", err)
	}
	slices.SortFunc(pending, func(a, b message.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return pending, nil
}

// pendingIn returns the pending edits and recalls of channels in their shard, in no order, with the
// named fields only, or whole if none is named.
func pendingIn(ctx context.Context, b *mongo.Collection, channelIDs []string, fields ...string) ([]message.Entry, error) {
	opts := options.Find().SetHint(pendingIndex)
	if len(fields) > 0 {
		opts.SetProjection(up(fields...))
	}
	return findIn(ctx, b, bson.D{
		{Key: "channel_id", Value: bson.D{{Key: "$in", Value: channelIDs}}}, {Key: "pending", Value: true},
	}, opts)
}

// findIn returns the entries of a shard that match a filter.
func findIn(ctx context.Context, b *mongo.Collection, filter bson.D, opts *options.FindOptionsBuilder) ([]message.Entry, error) {
	cursor, err := b.Find(ctx, filter, opts)
	if err != nil {
		return nil, err
	}
	return take(ctx, cursor)
}

// Changed implements message.LogReader, in a majority read.
func (s *Store) Changed(ctx context.Context, channelID string, after, before int64, limit, maxBytes int,
) (changed []message.Entry, err error) {
	place := bson.D{{Key: "$gt", Value: after}}
	if before > 0 {
		place = append(place, bson.E{Key: "$lt", Value: before})
	}
	err = s.read(ctx, func(ctx context.Context) error {
		cursor, err := s.of(channelID).Find(ctx, bson.D{
			{Key: "channel_id", Value: channelID},
			{Key: "status", Value: bson.D{{Key: "$gt", Value: message.StatusSent}}},
			{Key: "changed_seq", Value: place},
		}, options.Find().SetHint(changedIndex).SetSort(up("changed_seq")).SetLimit(int64(limit)).SetBatchSize(firstBatch(limit, maxBytes)))
		if err != nil {
			return err
		}
		changed, err = takeWithin(ctx, cursor, limit, maxBytes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("changed: %w", err)
	}
	return changed, nil
}

// Message finds a message by its id, in a majority read. ok is false if there is none.
func (s *Store) Message(ctx context.Context, channelID, msgID string) (e message.Entry, ok bool, err error) {
	err = s.read(ctx, func(ctx context.Context) (err error) {
		e, ok, err = s.message(ctx, channelID, msgID)
		return err
	})
	if err != nil {
		return message.Entry{}, false, fmt.Errorf("message: %w", err)
	}
	return e, ok, nil
}

func (s *Store) message(ctx context.Context, channelID, msgID string) (message.Entry, bool, error) {
	var d document
	err := s.of(channelID).FindOne(ctx, bson.D{
		{Key: "_id", Value: msgID}, {Key: "channel_id", Value: channelID}, {Key: "kind", Value: message.KindSend},
	}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return message.Entry{}, false, nil
	}
	if err != nil {
		return message.Entry{}, false, err
	}
	return d.entry(), true, nil
}

// Messages implements message.LogReader: one majority read for each shard.
func (s *Store) Messages(ctx context.Context, places []message.Place) ([]message.Entry, error) {
	seqs := make(map[string]bson.A)
	for _, p := range places {
		seqs[p.ChannelID] = append(seqs[p.ChannelID], p.Seq)
	}
	entries, err := eachShard(ctx, s, slices.Collect(maps.Keys(seqs)), func(ctx context.Context, b *mongo.Collection, ids []string,
	) ([]message.Entry, error) {
		n := 1
		channels := make(bson.A, len(ids))
		for i, id := range ids {
			n += len(seqs[id])
			channels[i] = bson.D{
				{Key: "channel_id", Value: id}, {Key: "seq", Value: bson.D{{Key: "$in", Value: seqs[id]}}}, {Key: "kind", Value: message.KindSend},
			}
		}
		filter := bson.D{{Key: "$or", Value: channels}}
		return findIn(ctx, b, filter, options.Find().SetBatchSize(int32(n)))
	})
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	return entries, nil
}

// eachShard calls find for each shard of the channels, in majority reads, and returns all rows.
func eachShard[T any](ctx context.Context, s *Store, channelIDs []string,
	find func(ctx context.Context, b *mongo.Collection, channelIDs []string) ([]T, error),
) ([]T, error) {
	shards := make(map[*mongo.Collection][]string)
	for _, id := range channelIDs {
		shards[s.of(id)] = append(shards[s.of(id)], id)
	}
	var mu sync.Mutex
	var all []T
	reads, ctx := errgroup.WithContext(ctx)
	for b, ids := range shards {
		reads.Go(func() error {
			var rows []T
			err := s.read(ctx, func(ctx context.Context) (err error) {
				rows, err = find(ctx, b, ids)
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			all = append(all, rows...)
			return err
		})
	}
	return all, reads.Wait()
}

// find returns the entries that match filter, which must name the channel. channelID only selects
// the collection.
func (s *Store) find(ctx context.Context, channelID string, filter bson.D, opts *options.FindOptionsBuilder,
) ([]message.Entry, error) {
	var entries []message.Entry
	err := s.read(ctx, func(ctx context.Context) (err error) {
		entries, err = findIn(ctx, s.of(channelID), filter, opts)
		return err
	})
	return entries, err
}

// Entries returns the entries of a range, in a majority read.
func (s *Store) Entries(ctx context.Context, channelID string, r message.Range) ([]message.Entry, error) {
	seq := bson.D{{Key: "$gt", Value: r.After}}
	if r.Before > 0 {
		seq = append(seq, bson.E{Key: "$lt", Value: r.Before})
	}
	filter := bson.D{{Key: "channel_id", Value: channelID}, {Key: "seq", Value: seq}}
	order := 1
	if r.Desc {
		order = -1
	}
	opts := options.Find().SetSort(bson.D{{Key: "seq", Value: order}}).SetLimit(int64(r.Limit))
	if r.MessagesOnly {
		filter = append(filter, bson.E{Key: "kind", Value: message.KindSend})
		opts.SetHint(sendsIndex)
	}
	if r.HeadersOnly {
		opts.SetProjection(bson.D{{Key: "content", Value: 0}, {Key: "metadata", Value: 0}})
	}
	opts.SetBatchSize(firstBatch(r.Limit, r.MaxBytes))
	var entries []message.Entry
	err := s.read(ctx, func(ctx context.Context) error {
		cursor, err := s.of(channelID).Find(ctx, filter, opts)
		if err != nil {
			return err
		}
		entries, err = takeWithin(ctx, cursor, r.Limit, r.MaxBytes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("entries: %w", err)
	}
	return entries, nil
}

// take reads a cursor to its end and closes it.
func take(ctx context.Context, cursor *mongo.Cursor) ([]message.Entry, error) {
	return takeWithin(ctx, cursor, 1<<20, 0)
}

const (
	// largestText is the size of the largest texts, for the size of a first batch.
	largestText = 128 << 10
	// leastBatch is the least number of documents in a batch: small ones cost a round trip each.
	leastBatch = 2
)

// firstBatch returns the number of documents to request first, of limit documents or maxBytes. The
// server limits no batch by bytes, so the first one is small enough for the largest texts. A
// maxBytes of 0 means no limit.
func firstBatch(limit, maxBytes int) int32 {
	if maxBytes == 0 {
		return int32(min(limit, 1<<20)) //nolint:gosec // bounded
	}
	return int32(min(limit, max(leastBatch, maxBytes/largestText), 1<<20)) //nolint:gosec // bounded
}

// takeWithin reads a cursor to its end, or through the entry with which the total size exceeds
// maxBytes, and closes it. A maxBytes of 0 means no limit. Each further batch is as large as the
// entries so far let expect. It unmarshals directly, because the cursor's Decode and All allocate a
// buffer of 4 KiB for each document.
func takeWithin(ctx context.Context, cursor *mongo.Cursor, limit, maxBytes int) (_ []message.Entry, err error) {
	defer func() { err = errors.Join(err, cursor.Close(ctx)) }()
	var entries []message.Entry
	sum := 0
	for cursor.Next(ctx) {
		var d document
		if err := bson.Unmarshal(cursor.Current, &d); err != nil {
			return nil, err
		}
		e := d.entry()
		entries = append(entries, e)
		if sum += e.Size(); maxBytes > 0 && sum > maxBytes {
			return entries, nil
		}
		if maxBytes > 0 && cursor.RemainingBatchLength() == 0 {
			next := 1 + (maxBytes-sum)/max(1, sum/len(entries))
			cursor.SetBatchSize(int32(min(max(next, leastBatch), max(1, limit-len(entries)), 1<<20)))
		}
	}
	return entries, cursor.Err()
}
