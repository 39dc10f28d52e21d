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

// maxAwait is how long the server holds a request for events when there are none. It bounds only how often an idle feed
// looks around.
const maxAwait = time.Second

// streamBatch is the most events that one round trip brings.
const streamBatch = 512

// errInvalidated is what follows the collection's removal or renaming.
var errInvalidated = errors.New("change stream invalidated")

// errStreamEnded is what follows the server's closing of the cursor without a reason.
var errStreamEnded = errors.New("change stream ended by the server")

// placeLostCodes are the server's errors after which a stream can't go on from its place.
var placeLostCodes = []int{
	286, // ChangeStreamHistoryLost: the oplog no longer reaches back to it.
	280, // ChangeStreamFatalError
	260, // InvalidResumeToken
	// What a damaged token gives: FailedToParse, Overflow, and the checks of its form, which have no names.
	9, 15, 40647, 40648, 40649,
}

// placeLost reports whether a stream can't go on from its place, so that the store itself has to be read.
func placeLost(err error) bool {
	if server, ok := errors.AsType[mongo.ServerError](err); ok {
		return slices.ContainsFunc(placeLostCodes, server.HasErrorCode)
	}
	return errors.Is(err, errInvalidated)
}

// streamEvent is what a feed reads of a change event.
type streamEvent struct {
	Operation   string         `bson:"operationType"`
	ClusterTime bson.Timestamp `bson:"clusterTime"`
	Document    document       `bson:"fullDocument"`
}

// openStream opens the change stream at the feed's place. The pipeline must stay as it is: the server may not find a
// token again under another one.
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
	stream, err := f.store.buckets[f.bucket].Watch(ctx, mongo.Pipeline{{{
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
	_ = f.stream.Close(ctx) // the server forgets an abandoned cursor by itself
	f.stream = nil
}

// follow returns what the stream brings, waiting up to maxAwait for the first event only. A call that fails after events
// returns these, and the next one fails.
func (f *feed) follow(ctx context.Context, limit int) ([]message.Entry, error) {
	// A stopped primary keeps its connections: without a limit the read would hang for as long as it is stopped.
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

// quiet tells why a stream had no event.
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
