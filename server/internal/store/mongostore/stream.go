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

// maxAwait is how long the server holds a request for change events while there are none. It only
// determines how often an idle feed sends a request.
const maxAwait = time.Second

// streamBatch bounds the change events that the server returns in one answer.
const streamBatch = 512

// errInvalidated reports that the collection was removed or renamed.
var errInvalidated = errors.New("change stream invalidated")

// errStreamEnded reports that the server closed the cursor without a reason.
var errStreamEnded = errors.New("change stream ended by the server")

// positionLostCodes are the server errors after which a stream can't continue from its position.
var positionLostCodes = []int{
	286, // ChangeStreamHistoryLost: the oplog no longer reaches back to it.
	280, // ChangeStreamFatalError
	260, // InvalidResumeToken
	// The errors for a damaged token: FailedToParse, Overflow, and the checks of its form, which
	// have no names.
	9, 15, 40647, 40648, 40649,
}

// positionLost reports whether a stream can't continue from its position, so that the store itself
// must be read.
func positionLost(err error) bool {
	if server, ok := errors.AsType[mongo.ServerError](err); ok {
		return slices.ContainsFunc(positionLostCodes, server.HasErrorCode)
	}
	return errors.Is(err, errInvalidated)
}

// streamEvent is the part of a change event that a feed reads.
type streamEvent struct {
	Operation   string         `bson:"operationType"`
	ClusterTime bson.Timestamp `bson:"clusterTime"`
	Document    document       `bson:"fullDocument"`
}

// openStream opens the change stream at the feed's position. The pipeline must not change, because
// the server may not find a token under another pipeline.
func (f *feed) openStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.store.timeout)
	defer cancel()
	opts := options.ChangeStream().SetMaxAwaitTime(maxAwait).SetBatchSize(streamBatch)
	if f.read.Token != nil {
		opts.SetStartAfter(f.read.Token)
	} else {
		at := f.read.Time
		opts.SetStartAtOperationTime(&at)
	}
	stream, err := f.store.shards[f.shard].Watch(ctx, mongo.Pipeline{{{
		Key: "$match", Value: bson.D{{Key: "operationType", Value: bson.D{
			{Key: "$in", Value: bson.A{"insert", "invalidate"}},
		}}},
	}}}, opts)
	if err != nil {
		return fmt.Errorf("open change stream: %w", err)
	}
	f.stream = stream
	return nil
}

func (f *feed) closeStream(ctx context.Context) {
	if f.stream == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = f.stream.Close(ctx) // the server removes an abandoned cursor on its own
	f.stream = nil
}

// follow returns the stream's next entries. It waits, up to maxAwait, for the first event only. If
// it fails after some events, it returns these, and the next call fails.
func (f *feed) follow(ctx context.Context, limit int) ([]message.Entry, error) {
	// A suspended primary keeps its connections open: without a limit the read would block for as
	// long as it is suspended.
	ctx, cancel := context.WithTimeout(ctx, maxAwait+f.store.timeout)
	defer cancel()
	var entries []message.Entry
	for len(entries) < limit {
		if len(entries) > 0 && f.stream.RemainingBatchLength() == 0 {
			return entries, nil
		}
		if !f.stream.TryNext(ctx) {
			return entries, f.quiet()
		}
		var e streamEvent
		if err := bson.Unmarshal(f.stream.Current, &e); err != nil { // see take
			return entries, fmt.Errorf("decode change event: %w", err)
		}
		if e.Operation == "invalidate" {
			return entries, errInvalidated
		}
		entries = append(entries, e.Document.entry())
		f.read = position{Time: e.ClusterTime, Token: slices.Clone(f.stream.ResumeToken())}
	}
	return entries, nil
}

// quiet returns why the stream had no event, or nil if it is idle.
func (f *feed) quiet() error {
	if err := f.stream.Err(); err != nil {
		return fmt.Errorf("change stream: %w", err)
	}
	if f.stream.ID() == 0 {
		return errStreamEnded
	}
	f.idle(f.stream.ResumeToken())
	return nil
}
