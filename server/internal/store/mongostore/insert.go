package mongostore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/message"
)

// duplicateKey is the server's code for a conflict in a unique index.
const duplicateKey = 11000

// sentKey is the context key of the mark that watchSends sets.
type sentKey struct{}

// watchSends returns a monitor that marks the calls for which a command was about to be written to
// a connection. It forwards all events to next, which may be nil. A call without the mark has
// reached no server, regardless of its error.
func watchSends(next *event.CommandMonitor) *event.CommandMonitor {
	var m event.CommandMonitor
	if next != nil {
		m = *next
	}
	then := m.Started
	m.Started = func(ctx context.Context, e *event.CommandStartedEvent) {
		if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
			sent.Store(true)
		}
		if then != nil {
			then(ctx, e)
		}
	}
	return &m
}

// Insert appends entries of one shard as one ordered insert, acknowledged by a majority's
// journals. The driver retries it under one transaction number, which the server executes once. So
// a lost reply alone does not make the outcome unknown.
func (s *Store) Insert(ctx context.Context, shard int, entries []message.Entry) (int, error) {
	if len(entries) == 0 {
		return 0, nil
	}
	docs := make([]document, len(entries))
	for i := range entries {
		if b := message.Shard(entries[i].ChannelID, len(s.shards)); b != shard {
			return 0, fmt.Errorf("insert: channel %s is of shard %d, not %d: %w", entries[i].ChannelID, b, shard,
				message.ErrNotStored)
		}
		docs[i] = documentOf(&entries[i])
	}
	var sent atomic.Bool
	ctx = context.WithValue(ctx, sentKey{}, &sent)
	err := s.run(ctx, func(ctx context.Context) error {
		_, err := s.shards[shard].InsertMany(ctx, docs, options.InsertMany().SetOrdered(true))
		return err
	})
	if err == nil {
		return len(entries), nil
	}
	if !sent.Load() {
		return 0, fmt.Errorf("insert: %w: %w", message.ErrNotStored, err)
	}
	if n, ok := conflictAt(err); ok && n < len(entries) {
		return n, &message.ConflictError{ChannelID: entries[n].ChannelID}
	}
	return 0, fmt.Errorf("insert, outcome unknown: %w", err)
}

// conflictAt returns the index at which an ordered insert stopped because of a unique index. ok is
// false if anything else failed too: after a write concern error, the entries before the index are
// stored but may be rolled back.
func conflictAt(err error) (int, bool) {
	var failed mongo.BulkWriteException
	if !errors.As(err, &failed) || failed.WriteConcernError != nil || len(failed.WriteErrors) != 1 {
		return 0, false
	}
	we := failed.WriteErrors[0]
	return we.Index, we.Code == duplicateKey
}
