package mongostore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/parleyhq/parley/server/internal/message"
)

// The first and the longest wait before a feed retries after an error. See Next.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// feed is one shard's change feed. It is a change stream that is reopened whenever it breaks. If
// the stream's position is no longer in the oplog, the feed reads the store itself.
type feed struct {
	store *Store
	shard int
	log   *slog.Logger
	retry *backoff.ExponentialBackOff
	saver *saver
	// life ends with Close, which ends a blocked Next.
	life context.Context //nolint:containedctx // not a call's context
	end  context.CancelFunc

	mu sync.Mutex // held by each call; guards the fields below
	// read is where the stream continues. All entries before it were returned, except those that
	// the backlog still has to return.
	read   position
	stream *mongo.ChangeStream
	// backlog is set when the stream's position is lost, until all entries stored before read were
	// returned.
	backlog *backlog
	// unconfirmed counts the entries returned since the last Published.
	unconfirmed int
	// offered is when read was last passed to the saver. offeredTime is the time of that position.
	offered     time.Time
	offeredTime bson.Timestamp
}

var _ message.Feed = (*feed)(nil)

// OpenFeed opens a shard's feed at the last saved position.
func (s *Store) OpenFeed(ctx context.Context, shard int) (message.Feed, error) {
	if shard < 0 || shard >= len(s.shards) {
		return nil, fmt.Errorf("open feed: shard %d of %d", shard, len(s.shards))
	}
	at, err := s.loadPosition(ctx, shard)
	if err != nil {
		return nil, fmt.Errorf("open feed: %w", err)
	}
	f := &feed{
		store: s, shard: shard, log: s.log.With("shard", shard), read: at, offered: time.Now(), offeredTime: at.Time,
		retry: &backoff.ExponentialBackOff{
			InitialInterval: firstRetry, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: lastRetry,
		},
	}
	f.retry.Reset()
	f.life, f.end = context.WithCancel(s.life)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feeds == nil {
		f.end()
		return nil, fmt.Errorf("open feed: %w", errClosed)
	}
	s.feeds[f] = struct{}{}
	f.saver = newSaver(
		func(p position) error { return s.savePosition(s.life, shard, p) },
		func(err error) { f.log.WarnContext(f.life, "change feed: position not saved", "error", err) })
	return f, nil
}

// Next returns entries in the order of the oplog. It retries after server errors, with a wait in
// between. It returns an error only if ctx or the feed has ended.
func (f *feed) Next(ctx context.Context, limit int) ([]message.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.life, cancel)()
	for {
		if f.life.Err() != nil {
			return nil, errClosed
		}
		entries, err := f.poll(ctx, max(limit, 1))
		if len(entries) > 0 {
			if err != nil { // reopen behind these entries, where the error recurs
				f.closeStream(context.WithoutCancel(ctx))
			}
			f.unconfirmed += len(entries)
			f.retry.Reset()
			return entries, nil
		}
		if err == nil {
			f.retry.Reset()
			continue
		}
		if f.life.Err() != nil {
			f.closeStream(context.WithoutCancel(ctx))
			return nil, errClosed
		}
		if ctx.Err() != nil {
			// Events that the stream had delivered but Next had not returned are lost with the
			// call: start from the last one returned.
			f.closeStream(context.WithoutCancel(ctx))
			return nil, fmt.Errorf("change feed: %w", ctx.Err())
		}
		f.recover(ctx, err)
	}
}

// recover prepares the next attempt after a failure, and waits.
func (f *feed) recover(ctx context.Context, err error) {
	f.closeStream(ctx)
	wait := f.retry.NextBackOff()
	if positionLost(err) {
		f.log.WarnContext(ctx, "change feed: position lost, reading from the store", "error", err, "wait", wait)
		if err := f.startBacklog(ctx); err != nil {
			f.log.WarnContext(ctx, "change feed: start backlog failed", "error", err)
		}
	} else {
		f.log.WarnContext(ctx, "change feed: interrupted, reopening", "error", err, "wait", wait)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// poll returns up to limit entries, those of the backlog first. If there are none for a moment, it
// returns none, and the caller polls again.
func (f *feed) poll(ctx context.Context, limit int) ([]message.Entry, error) {
	if f.stream == nil {
		if err := f.openStream(ctx); err != nil {
			return nil, err
		}
	}
	if f.backlog != nil {
		entries, err := f.backlog.next(ctx, f.store, f.shard, limit)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
		f.backlog = nil
	}
	return f.follow(ctx, limit)
}

// Published confirms the entries that Next has returned, without waiting. The position is saved in
// the background within 200 ms, or at once after 256 entries, but not during a backlog.
func (f *feed) Published(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.life.Err() != nil {
		return errClosed
	}
	n := f.unconfirmed
	f.unconfirmed = 0
	// During a backlog there is no position in the stream before which everything is published.
	if f.backlog == nil && n > 0 {
		f.confirm(n)
	}
	return nil
}

func (f *feed) confirm(events int) {
	f.offered, f.offeredTime = time.Now(), f.read.Time
	f.saver.confirm(f.read, events)
}

// idle records how far the stream has read without finding an event, so that the position does not
// age out of the oplog.
func (f *feed) idle(token bson.Raw) {
	at, ok := tokenTime(token)
	if !ok || at.Before(f.read.Time) {
		return
	}
	f.read = position{Time: at, Token: bson.Raw(append([]byte(nil), token...))}
	if f.unconfirmed == 0 && f.offeredTime.Before(at) && time.Since(f.offered) >= saveIdle {
		f.confirm(0)
	}
}

// Close ends a blocked Next, saves what was confirmed, and frees the feed. Further calls do
// nothing.
func (f *feed) Close(ctx context.Context) error {
	f.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.mu.Lock()
	delete(f.store.feeds, f)
	f.store.mu.Unlock()
	if f.saver == nil {
		return nil
	}
	f.closeStream(ctx)
	err := f.saver.close(ctx)
	f.saver = nil
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close feed: %w", err)
	}
	return err
}
