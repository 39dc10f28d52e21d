package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/message"
)

// Head reads a log's end linearizably: in a majority read that follows a majority write (the
// fence). It fails within the store's time limit if there is no majority.
func (s *Store) Head(ctx context.Context, channelID string) (message.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout) // includes the fence, which may wait behind another write
	defer cancel()
	if err := s.fence.wait(ctx, s.life); err != nil {
		return message.Head{}, fmt.Errorf("head: %w", err)
	}
	var head message.Head
	err := s.read(ctx, func(ctx context.Context) (err error) {
		head, err = s.head(ctx, channelID)
		return err
	})
	if err != nil {
		return message.Head{}, fmt.Errorf("head: %w", err)
	}
	return head, nil
}

func (s *Store) head(ctx context.Context, channelID string) (message.Head, error) {
	var row struct {
		Seq     int64     `bson:"seq"`
		Count   int64     `bson:"count"`
		MsgTime time.Time `bson:"msg_time"`
	}
	err := s.of(channelID).FindOne(ctx, bson.D{{Key: "channel_id", Value: channelID}}, options.FindOne().
		SetSort(bson.D{{Key: "seq", Value: -1}}).
		SetProjection(bson.D{{Key: "seq", Value: 1}, {Key: "count", Value: 1}, {Key: "msg_time", Value: 1}})).Decode(&row)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return message.Head{}, nil
	}
	if err != nil {
		return message.Head{}, err
	}
	return message.Head{Seq: row.Seq, Count: row.Count, MsgTime: row.MsgTime.UTC()}, nil
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
	ids := make(bson.A, 0, len(keys))
	var senders bson.A
	for _, k := range keys {
		wanted[k] = true
		ids = append(ids, k.ClientMsgID)
		if !slices.Contains(senders, any(k.FromID)) {
			senders = append(senders, k.FromID)
		}
	}
	entries, err := s.find(ctx, channelID, bson.D{
		{Key: "channel_id", Value: channelID},
		{Key: "client_msg_id", Value: bson.D{{Key: "$in", Value: ids}}},
		{Key: "from_id", Value: bson.D{{Key: "$in", Value: senders}}},
	}, options.Find().SetBatchSize(int32(len(keys)+1))) //nolint:gosec // a request's items
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

// Target returns a message with its last edit or recall applied. It reads both after a majority
// write (the fence), in one causally consistent session. ok is false if there is no such message.
func (s *Store) Target(ctx context.Context, channelID, msgID string) (target message.Entry, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.fence.wait(ctx, s.life); err != nil {
		return message.Entry{}, false, fmt.Errorf("target: %w", err)
	}
	err = s.read(ctx, func(ctx context.Context) error {
		target, ok, err = s.message(ctx, channelID, msgID)
		if err != nil || !ok {
			return err
		}
		var change document
		err := s.of(channelID).FindOne(ctx, bson.D{
			{Key: "channel_id", Value: channelID}, {Key: "target_seq", Value: target.Seq},
		}, options.FindOne().SetSort(bson.D{{Key: "seq", Value: -1}})).Decode(&change)
		if errors.Is(err, mongo.ErrNoDocuments) {
			return nil
		}
		if err != nil {
			return err
		}
		both := []message.Entry{target, change.entry()}
		message.Fold(both)
		target = both[0]
		if target.Status == message.StatusRecalled {
			target.Digest = nil
		}
		return nil
	})
	if err != nil {
		return message.Entry{}, false, fmt.Errorf("target: %w", err)
	}
	return target, ok, nil
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

// Messages returns the sends with the given seqs, in a majority read.
func (s *Store) Messages(ctx context.Context, channelID string, seqs []int64) ([]message.Entry, error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	entries, err := s.find(ctx, channelID, bson.D{
		{Key: "channel_id", Value: channelID},
		{Key: "seq", Value: bson.D{{Key: "$in", Value: seqs}}},
		{Key: "kind", Value: message.KindSend},
	}, options.Find().SetBatchSize(int32(len(seqs)+1))) //nolint:gosec // a page's items
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	return entries, nil
}

// find returns the entries that match filter, which must name the channel. channelID only selects
// the collection.
func (s *Store) find(ctx context.Context, channelID string, filter bson.D, opts *options.FindOptionsBuilder,
) ([]message.Entry, error) {
	var entries []message.Entry
	err := s.read(ctx, func(ctx context.Context) error {
		cursor, err := s.of(channelID).Find(ctx, filter, opts)
		if err != nil {
			return err
		}
		entries, err = take(ctx, cursor, 0)
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
	if r.MaxBytes == 0 {
		opts.SetBatchSize(int32(min(r.Limit, 1<<20))) //nolint:gosec // bounded
	}
	var entries []message.Entry
	err := s.read(ctx, func(ctx context.Context) error {
		cursor, err := s.of(channelID).Find(ctx, filter, opts)
		if err != nil {
			return err
		}
		entries, err = take(ctx, cursor, r.MaxBytes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("entries: %w", err)
	}
	return entries, nil
}

// take reads a cursor to its end, or through the entry with which the contents exceed maxBytes, and
// closes it. A maxBytes of 0 means no limit. It unmarshals directly, because the cursor's Decode
// and All allocate a buffer of 4 KiB for each document.
func take(ctx context.Context, cursor *mongo.Cursor, maxBytes int) (_ []message.Entry, err error) {
	defer func() { err = errors.Join(err, cursor.Close(ctx)) }()
	var entries []message.Entry
	sum := 0
	for cursor.Next(ctx) {
		var d document
		if err := bson.Unmarshal(cursor.Current, &d); err != nil {
			return nil, err
		}
		entries = append(entries, d.entry())
		sum += len(d.Content)
		if maxBytes > 0 && sum > maxBytes {
			return entries, nil
		}
	}
	return entries, cursor.Err()
}

// Changes implements message.LogReader.
func (s *Store) Changes(ctx context.Context, channelID string, targets []int64) ([]message.Entry, error) {
	entries, err := s.find(ctx, channelID, bson.D{
		{Key: "channel_id", Value: channelID},
		{Key: "target_seq", Value: bson.D{{Key: "$in", Value: targets}}},
	}, options.Find().SetSort(bson.D{{Key: "seq", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	return entries, nil
}
