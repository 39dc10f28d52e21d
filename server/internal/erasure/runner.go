package erasure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

// Log is the part of the message store that a Runner uses. message.Store documents the methods.
type Log interface {
	message.LogEraser
	Head(ctx context.Context, channelID string) (message.Head, error)
}

// Channels is the part of the store of channels that a Runner uses. channel.Store documents the
// other methods.
type Channels interface {
	channel.EraseStore
	Memberships(ctx context.Context, userID, after string, limit int) ([]channel.Member, error)
	RemoveMembers(ctx context.Context, channelID string, userIDs []string, left int64) error
	Sessions(ctx context.Context, ownerID string, after channel.SessionPlace, limit int) ([]channel.Row, error)
	Rows(ctx context.Context, channelIDs []string) (map[string]channel.Row, error)
}

// Cache is the cache of the newest messages.
type Cache interface {
	// Drop deletes what the cache has of a channel.
	Drop(ctx context.Context, channelID string) error
}

// Owner decides which shards this node works for. It is feed.Owner. The owner of the first shard
// runs the jobs.
type Owner interface{ Owns(shard int) bool }

// Config configures a Runner. All fields up to EndSession are required.
type Config struct {
	Store    Store
	Log      Log
	Channels Channels
	// Writer appends to the logs.
	Writer message.Appender
	Cache  Cache
	// EndSession deletes a session; it is channel.Service.EndSession. A retention.Trimmer then clears
	// its entries.
	EndSession func(ctx context.Context, channelID string) error
	// Owner decides whether this node runs the jobs; nil means that it does.
	Owner Owner
	// Notify announces to the other nodes that a user has lost access to a channel; may be nil.
	Notify func(c channel.Change)
	// EventsMaxAge is how long the event stream keeps an event. The default is 24 h.
	EventsMaxAge time.Duration
	// Every is how often the Runner looks for jobs. The default is 2 s.
	Every time.Duration
	// Settle is how long nothing of the user must have been found before the records that refuse
	// access are removed. It must be longer than Store.Changes of the channels remembers changes and
	// than an append can take. The default is 75 s.
	Settle time.Duration
	// Recheck is how often a job that is Erased looks again. The default is 1 minute.
	Recheck time.Duration
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

const (
	// stepEntries is the number of entries of a step, and appendSize that of messages in one append.
	// A writer looks each of them up within one time limit.
	stepEntries, appendSize = 256, 32
	// stepMembers is the number of memberships or records of a step.
	stepMembers = 100
	// stepSessions bounds Job.Sessions. More sessions are deleted once these are cleared.
	stepSessions = 200
	// maxCached bounds Job.Cached. A job with more waits for the cache.
	maxCached = 1000
	// retryAfter is the time after which a step that failed is repeated.
	retryAfter = 3 * time.Second
	// jobPage is the number of jobs in one read.
	jobPage = 100
)

// Runner runs the jobs of a fleet, while this node is their owner. It is a lifecycle.Service.
type Runner struct {
	cfg  Config
	life lifecycle.Base
	wake chan struct{}
}

// New returns a Runner. Start starts it.
func New(cfg Config) *Runner {
	cfg.EventsMaxAge, cfg.Settle = cmp.Or(cfg.EventsMaxAge, 24*time.Hour), cmp.Or(cfg.Settle, 75*time.Second)
	cfg.Every, cfg.Recheck = cmp.Or(cfg.Every, 2*time.Second), cmp.Or(cfg.Recheck, time.Minute)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Notify == nil {
		cfg.Notify = func(channel.Change) {}
	}
	return &Runner{cfg: cfg, wake: make(chan struct{}, 1)}
}

// Start starts to run jobs and returns at once. See lifecycle.Service.
func (r *Runner) Start(ctx context.Context) error {
	return r.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		run.Go(r.run)
		return nil
	})
}

// Stop stops and waits for the goroutine, even if ctx ends. What was begun is done by the next
// Runner.
func (r *Runner) Stop(ctx context.Context) error { return r.life.Stop(ctx) }

// Wake makes the Runner look for jobs at once. It does not block.
func (r *Runner) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Runner) run(ctx context.Context) {
	ticker := time.NewTicker(r.cfg.Every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if r.cfg.Owner == nil || r.cfg.Owner.Owns(0) {
			if err := r.pass(ctx); err != nil && ctx.Err() == nil {
				r.cfg.Logger.WarnContext(ctx, "erasure step failed", "error", err)
			}
		}
		select {
		case <-ticker.C:
		case <-r.wake:
		case <-ctx.Done():
		}
	}
}

// pass runs a step of each job that is due, and repeats that until none is.
func (r *Runner) pass(ctx context.Context) error {
	for {
		again := false
		for after := ""; ; {
			jobs, err := r.cfg.Store.List(ctx, after, jobPage, true)
			if err != nil {
				return err
			}
			for i := range jobs {
				if jobs[i].NextAt.After(time.Now()) {
					continue
				}
				began := time.Now()
				if err := r.step(ctx, &jobs[i]); err != nil && !errors.Is(err, ErrChanged) {
					return fmt.Errorf("erasure %s: %w", jobs[i].ID, err)
				}
				again = true
				// Other work has its share of the store.
				if err := lifecycle.Pause(ctx, time.Since(began)); err != nil {
					return err
				}
			}
			if len(jobs) < jobPage {
				break
			}
			after = jobs[len(jobs)-1].ID
		}
		if !again {
			return nil
		}
	}
}

// step runs one step of a job and saves what it has done. After an error the job is due again
// later.
func (r *Runner) step(ctx context.Context, job *Job) error {
	job.NextAt = time.Time{}
	err := r.work(ctx, job)
	if err == nil || errors.Is(err, ErrChanged) {
		return err
	}
	job.NextAt = now().Add(retryAfter)
	return errors.Join(err, r.save(ctx, job))
}

func (r *Runner) save(ctx context.Context, job *Job) error {
	saved, err := r.cfg.Store.Save(ctx, *job)
	if err == nil {
		*job = saved
	}
	return err
}

// now returns the time as it is stored.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// work does the first of these that there is to do: sessions, entries, memberships, cached
// messages, deleted sessions that are not cleared yet, records about channels. If there is nothing,
// it waits, or moves the job to its next state.
func (r *Runner) work(ctx context.Context, job *Job) error {
	if more, err := r.endSessions(ctx, job); more || err != nil {
		return err
	}
	entries, err := r.cfg.Log.BySender(ctx, job.UserID, stepEntries)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return r.eraseEntries(ctx, job, entries)
	}
	members, err := r.cfg.Channels.Memberships(ctx, job.UserID, "", stepMembers)
	if err != nil {
		return err
	}
	if len(members) > 0 {
		return r.endMemberships(ctx, job, members)
	}
	if job.Cached = r.dropCached(ctx, job.Cached); len(job.Cached) > 0 {
		return errors.New("the cache did not answer")
	}
	if cleared, err := r.sessionsCleared(ctx, job); !cleared || err != nil {
		return err
	}
	if job.QuietAt.IsZero() {
		job.QuietAt = now()
	}
	if quiet := job.QuietAt.Add(r.cfg.Settle); now().Before(quiet) {
		job.NextAt = quiet
		return r.save(ctx, job)
	}
	n, err := r.cfg.Channels.Forget(ctx, job.UserID, stepMembers)
	if err != nil {
		return err
	}
	if n == 0 {
		r.advance(ctx, job)
	}
	return r.save(ctx, job)
}

// advance moves a job for which nothing was found.
func (r *Runner) advance(ctx context.Context, job *Job) {
	at := now()
	switch {
	case job.State == Running:
		job.State, job.ErasedAt = Erased, at
		job.NextAt = at.Add(r.cfg.Recheck)
		r.cfg.Logger.InfoContext(ctx, "user erased", "request_id", job.ID, "messages", job.Messages, "memberships", job.Memberships)
	case at.Before(job.ErasedAt.Add(r.cfg.EventsMaxAge + r.cfg.Settle)):
		job.NextAt = at.Add(r.cfg.Recheck)
	default:
		job.State, job.FinishedAt = Finished, at
		r.cfg.Logger.InfoContext(ctx, "erasure finished", "request_id", job.ID)
	}
}

// eraseEntries erases entries. It first records the channels whose cached messages must be dropped.
func (r *Runner) eraseEntries(ctx context.Context, job *Job, entries []message.Entry) error {
	job.Cached = r.dropCached(ctx, job.Cached)
	var ids []string
	byChannel := make(map[string][]message.Entry)
	for i := range entries {
		id := entries[i].ChannelID
		if _, ok := byChannel[id]; !ok {
			ids = append(ids, id)
		}
		byChannel[id] = append(byChannel[id], entries[i])
		if !slices.Contains(job.Cached, id) {
			job.Cached = append(job.Cached, id)
		}
	}
	if len(job.Cached) > maxCached {
		return errors.New("the cache did not answer")
	}
	job.QuietAt = now()
	if err := r.save(ctx, job); err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if err := r.eraseIn(ctx, job, id, byChannel[id]); err != nil {
			errs = append(errs, err)
		}
	}
	job.Cached = r.dropCached(ctx, job.Cached)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.save(ctx, job)
}

// eraseIn erases entries of one channel: messages by a recall each, others by Scrub.
func (r *Runner) eraseIn(ctx context.Context, job *Job, channelID string, entries []message.Entry) error {
	var drafts []message.Draft
	var others []int64
	for i := range entries {
		if entries[i].Kind == message.KindSend {
			drafts = append(drafts, message.EraseDraft(&entries[i]))
		} else {
			others = append(others, entries[i].Seq)
		}
	}
	if len(drafts) > 0 {
		// An erasure needs no access, so it may follow any change of the channel's mode. If the mode
		// changes meanwhile, the append is refused and the erasure goes on later.
		head, err := r.cfg.Log.Head(ctx, channelID)
		if err != nil {
			return err
		}
		for i := range drafts {
			drafts[i].Rev = head.Rev
		}
	}
	for some := range slices.Chunk(drafts, appendSize) {
		for _, out := range r.cfg.Writer.Append(ctx, some) {
			if out.Err != nil {
				return fmt.Errorf("erase a message of %s: %w", channelID, errors.Join(out.Err, errors.Unwrap(out.Err)))
			}
			job.Messages++
		}
	}
	if len(others) == 0 {
		return nil
	}
	if err := r.cfg.Log.Scrub(ctx, channelID, job.UserID, others); err != nil {
		return err
	}
	job.Changes += int64(len(others))
	return nil
}

// endMemberships removes the user from channels. Their records remain for now: they make other
// nodes end the user's streams, and keep a late event from making the user a member again.
func (r *Runner) endMemberships(ctx context.Context, job *Job, members []channel.Member) error {
	deleted := 0
	for i := range members {
		id := members[i].ChannelID
		head, err := r.cfg.Log.Head(ctx, id)
		if err != nil {
			return err
		}
		err = r.cfg.Channels.RemoveMembers(ctx, id, []string{job.UserID}, head.Seq)
		if errors.Is(err, channel.ErrNotFound) {
			deleted++ // a retention.Trimmer removes the members of a deleted channel
			continue
		}
		if err != nil {
			return err
		}
		r.cfg.Notify(channel.Change{ChannelID: id, UserIDs: []string{job.UserID}})
		job.Memberships++
	}
	if deleted == len(members) {
		return errors.New("members of deleted channels are not removed yet")
	}
	job.QuietAt = now()
	return r.save(ctx, job)
}

// dropCached drops the cached messages of channels and returns those for which that failed.
func (r *Runner) dropCached(ctx context.Context, ids []string) (failed []string) {
	for i, id := range ids {
		if err := r.cfg.Cache.Drop(ctx, id); err != nil {
			return append(failed, ids[i:]...)
		}
	}
	return nil
}
