package channel

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

// Subscriptions holds this node's live streams. Its methods may be called concurrently and return
// promptly.
type Subscriptions interface {
	// SubscribedSubjects returns the subjects with streams that have the channel, each once.
	// Subscriptions that need no membership are left out: those of holders of `manage`, and if the
	// channel is open, all except those by membership. With ModeDeleted none is left out.
	SubscribedSubjects(channelID string, mode message.Mode) []string
	// Expel removes the channel from every stream of the subject, except from the subscriptions that
	// SubscribedSubjects leaves out. It may be repeated.
	Expel(channelID, subject string, mode message.Mode)
}

// WatcherConfig configures a Watcher. Zero values mean the defaults, except that Store, Access and
// Subscriptions are required.
type WatcherConfig struct {
	Store         Store
	Access        *Access
	Subscriptions Subscriptions
	// Interval is the maximum time between polls of the store for changes. Each interval is up to a
	// fifth shorter at random, so that the nodes do not poll all at once. The default is 500 ms.
	Interval time.Duration
	// Timeout bounds one call of the store. The default is 400 ms. After a call that failed the next
	// one has twice the time, up to four times Timeout: a store that is only slow is still heard.
	Timeout time.Duration
	// ConfirmTimeout is how long the store may take to confirm the membership of a user named by a
	// hint (see Watcher.Hint). After it the user is expelled without an answer. The default is 800 ms.
	ConfirmTimeout time.Duration
	// RecheckFor is how long the memberships that a change names are checked again after it, at every
	// poll. It covers streams that subscribed meanwhile because of a membership read before the
	// change. The default is 5 s.
	RecheckFor time.Duration
	Logger     *slog.Logger
}

// Watcher removes channels from the streams of users who are no longer members: members-only
// channels from all, and open ones from those that have them by membership. It removes deleted
// channels from all streams. It gets changes from hints, immediately, and by polling the store,
// always, so that losing either does no harm. A change only names the memberships to check; the
// membership at the time of the check counts.
//
// One goroutine owns the state and calls nothing that may block. Calls of the store run in their
// own goroutines, so that a store that hangs cannot delay a ConfirmTimeout.
type Watcher struct {
	cfg     WatcherConfig
	wake    chan struct{}
	polls   chan pollResult
	results chan checkResult
	// Only the goroutine of watch uses the fields from here to recent.
	stamp          Stamp
	nextAt         time.Time
	polling        bool
	checksInFlight int
	// pollTimeout and checkTimeout are the time limits of the next poll and of the next check.
	pollTimeout, checkTimeout time.Duration
	pending                   map[membership]*pendingCheck
	recent                    map[string]*recentChange

	life lifecycle.Base
	// run starts the goroutines that call the store.
	run *lifecycle.Run

	// mu guards the fields below.
	mu      sync.Mutex
	hints   []hint
	stopped bool
}

// hint is a change that was passed to Hint, and the time of that call.
type hint struct {
	Change
	at time.Time
}

// pendingCheck is a subscription whose membership must be checked.
type pendingCheck struct {
	// since is the time of the last change that concerns it. A check that began earlier does not
	// confirm the membership.
	since time.Time
	// deadline is when the user is expelled without a confirmation; zero means never.
	deadline time.Time
	// retryAt is the earliest time of the next check. inFlight is true while a check is in
	// progress.
	retryAt  time.Time
	inFlight bool
}

// recentChange names the users of a channel whose memberships are checked at every poll until a
// time: all subscribers, or those in users.
type recentChange struct {
	all   bool
	users map[string]bool
	until time.Time
}

type pollResult struct {
	changes []Change
	stamp   Stamp
	err     error
}

// checkResult is the result of checking memberships.
type checkResult struct {
	keys  []membership
	began time.Time
	// lost is the result of Access.readLost.
	lost map[membership]message.Mode
	err  error
}

const (
	// maxChecks is the maximum number of concurrent membership checks.
	maxChecks = 16
	// maxPatience is the highest multiple of WatcherConfig.Timeout that a call of the store may take.
	maxPatience = 4
	// checkRetryDelay is the delay after a failed check.
	checkRetryDelay = 50 * time.Millisecond
	// startTimeout bounds the read of the first Stamp in Start.
	startTimeout = 10 * time.Second
)

// NewWatcher returns a watcher that does nothing until Start.
func NewWatcher(cfg WatcherConfig) *Watcher {
	cfg.Interval = cmp.Or(cfg.Interval, 500*time.Millisecond)
	cfg.Timeout = cmp.Or(cfg.Timeout, 400*time.Millisecond)
	cfg.ConfirmTimeout = cmp.Or(cfg.ConfirmTimeout, 800*time.Millisecond)
	cfg.RecheckFor = cmp.Or(cfg.RecheckFor, 5*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Watcher{
		cfg: cfg, wake: make(chan struct{}, 1), polls: make(chan pollResult, 1), results: make(chan checkResult, maxChecks),
		pending: make(map[membership]*pendingCheck), recent: make(map[string]*recentChange),
		pollTimeout: cfg.Timeout, checkTimeout: cfg.Timeout,
	}
}

// Start reads the stamp from which changes count, and starts watching. It must return before the
// first stream is opened. It fails if the store does not answer. See lifecycle.Service.
func (w *Watcher) Start(ctx context.Context) error {
	return w.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		first, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		_, stamp, err := w.cfg.Store.Changes(first, Stamp{})
		if err != nil {
			return fmt.Errorf("watch members: %w", err)
		}
		w.stamp, w.run = stamp, run
		run.OnStop(func(context.Context) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.stopped = true
			return nil
		})
		run.Go(w.watch)
		return nil
	})
}

// Stop ends the watcher's goroutines and waits for them, even if ctx ends.
func (w *Watcher) Stop(ctx context.Context) error { return w.life.Stop(ctx) }

// Hint passes a change that this or another node made to the watcher. It returns at once and may be
// called at any time, even before Start, and concurrently. After Stop it only drops cached
// memberships.
func (w *Watcher) Hint(c Change) {
	w.cfg.Access.Forget(c)
	w.mu.Lock()
	if !w.stopped {
		w.hints = append(w.hints, hint{c, time.Now()})
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Watcher) watch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			w.applyHints()
		case p := <-w.polls:
			w.applyPoll(ctx, p)
		case a := <-w.results:
			w.applyCheck(ctx, a)
		case <-timer.C:
		}
		timer.Reset(time.Until(w.runDue(ctx, time.Now())))
	}
}

// runDue starts the poll and the checks that are due, and expels users whose deadlines have passed.
// It returns the time at which to call it again at the latest.
func (w *Watcher) runDue(ctx context.Context, now time.Time) time.Time {
	if !w.polling && !now.Before(w.nextAt) {
		w.recheckRecent(now)
		w.poll(now)
	}
	next := w.nextAt
	if w.polling {
		next = now.Add(w.cfg.Interval) // the answer of the poll wakes the loop earlier
	}
	unconfirmed := 0
	for k, d := range w.pending {
		if !d.deadline.IsZero() && !now.Before(d.deadline) {
			w.expel(k, w.knownMode(k.channelID))
			unconfirmed++
			continue
		}
		if !d.deadline.IsZero() && d.deadline.Before(next) {
			next = d.deadline
		}
		if !d.inFlight && d.retryAt.After(now) && d.retryAt.Before(next) {
			next = d.retryAt
		}
	}
	if unconfirmed > 0 {
		w.cfg.Logger.WarnContext(ctx, "membership not confirmed in time, expelling subscribers",
			"subscriptions", unconfirmed)
	}
	w.startChecks(now)
	return next
}

func (w *Watcher) poll(now time.Time) {
	w.polling = true
	w.nextAt = now.Add(w.cfg.Interval - rand.N(w.cfg.Interval/5+1))
	stamp, timeout := w.stamp, w.pollTimeout
	w.run.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		changes, next, err := w.cfg.Store.Changes(ctx, stamp)
		w.polls <- pollResult{changes, next, err} // does not block: there is one poll at a time
	})
}

func (w *Watcher) applyPoll(ctx context.Context, p pollResult) {
	w.polling = false
	w.pollTimeout = w.nextTimeout(w.pollTimeout, p.err)
	if p.err != nil {
		w.cfg.Logger.DebugContext(ctx, "polling for membership changes failed", "error", p.err)
		return
	}
	w.stamp = p.stamp
	now := time.Now()
	for _, c := range p.changes {
		w.cfg.Access.Forget(c)
		w.addChange(c, now, time.Time{})
	}
}

func (w *Watcher) applyHints() {
	w.mu.Lock()
	hints := w.hints
	w.hints = nil
	w.mu.Unlock()
	for _, h := range hints {
		var until time.Time
		if len(h.UserIDs) > 0 {
			until = h.at.Add(w.cfg.ConfirmTimeout)
		}
		w.addChange(h.Change, h.at, until)
	}
}

// addChange marks the subscriptions that a change concerns for a check. at is the time of the
// change. until is the deadline for confirmations; zero means none.
func (w *Watcher) addChange(c Change, at, until time.Time) {
	r := w.recent[c.ChannelID]
	if r == nil {
		r = &recentChange{users: make(map[string]bool)}
		w.recent[c.ChannelID] = r
	}
	r.until = at.Add(w.cfg.RecheckFor)
	users := make(map[string]bool, len(c.UserIDs))
	for _, u := range c.UserIDs {
		users[u], r.users[u] = true, true
	}
	all := len(c.UserIDs) == 0
	r.all = r.all || all
	w.scheduleChecks(c.ChannelID, all, users, at, until)
}

// knownMode returns whether the channel is known to be open. If it is not, it counts as
// members-only.
func (w *Watcher) knownMode(channelID string) message.Mode {
	if w.cfg.Access.KnownOpen(channelID) {
		return message.ModeOpen
	}
	return message.ModeMembersOnly
}

func (w *Watcher) scheduleChecks(channelID string, all bool, users map[string]bool, since, until time.Time) {
	mode := message.ModeDeleted // it may have been
	if !all {
		mode = w.knownMode(channelID)
	}
	for _, subject := range w.cfg.Subscriptions.SubscribedSubjects(channelID, mode) {
		if !all && !users[subject] {
			continue
		}
		k := membership{channelID, subject}
		d := w.pending[k]
		switch {
		case d == nil:
			d = &pendingCheck{}
			w.pending[k] = d
		case until.IsZero() && !d.deadline.IsZero():
			continue // most likely announced by a hint already; starting over would extend its deadline
		}
		d.since, d.retryAt = since, time.Time{}
		if d.deadline.IsZero() {
			d.deadline = until
		}
	}
}

// recheckRecent marks the subscriptions that recent changes concern for another check.
func (w *Watcher) recheckRecent(now time.Time) {
	for id, r := range w.recent {
		w.scheduleChecks(id, r.all, r.users, now, time.Time{})
		if now.After(r.until) {
			delete(w.recent, id)
		}
	}
}

// startChecks starts the checks that are due, in a goroutine for each call of the store. A call
// checks the users of one channel if there are more of them than the user has channels, as after it
// was closed, and otherwise the channels of one user. At most maxChecks goroutines run at a time,
// including those of earlier calls. The other checks stay due.
func (w *Watcher) startChecks(now time.Time) {
	users, channels := make(map[string]int), make(map[string]int) // the due checks of each channel, and of each user
	due := make([]membership, 0, len(w.pending))
	for k, d := range w.pending {
		if !d.inFlight && !now.Before(d.retryAt) {
			due = append(due, k)
			users[k.channelID]++
			channels[k.userID]++
		}
	}
	asks := make(map[membership][]membership)
	for _, k := range due {
		of := membership{userID: k.userID}
		if users[k.channelID] > channels[k.userID] {
			of = membership{channelID: k.channelID}
		}
		ask := asks[of]
		if len(ask) < maxKeys && (ask != nil || len(asks) < maxChecks-w.checksInFlight) {
			asks[of] = append(ask, k)
			w.pending[k].inFlight = true
		}
	}
	timeout := w.checkTimeout
	for _, keys := range asks {
		w.checksInFlight++
		w.run.Go(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			a := checkResult{keys: keys, began: time.Now()}
			a.lost, a.err = w.cfg.Access.readLost(ctx, keys)
			w.results <- a // does not block: there are at most maxChecks
		})
	}
}

func (w *Watcher) applyCheck(ctx context.Context, a checkResult) {
	w.checksInFlight--
	w.checkTimeout = w.nextTimeout(w.checkTimeout, a.err)
	if a.err != nil {
		w.cfg.Logger.DebugContext(ctx, "checking membership failed", "error", a.err)
	}
	for _, k := range a.keys {
		d := w.pending[k]
		if d == nil {
			continue // its deadline has passed
		}
		d.inFlight = false
		mode, lost := a.lost[k]
		switch {
		case a.err != nil:
			d.retryAt = time.Now().Add(checkRetryDelay)
		case lost && a.began.Before(d.since): // it may have been closed since
			w.cfg.Subscriptions.Expel(k.channelID, k.userID, mode)
		case lost:
			w.expel(k, mode)
		case !a.began.Before(d.since):
			delete(w.pending, k)
		}
	}
}

// nextTimeout returns the time limit of the call after one that had the limit last and returned
// err.
func (w *Watcher) nextTimeout(last time.Duration, err error) time.Duration {
	if err == nil {
		return w.cfg.Timeout
	}
	return min(2*last, maxPatience*w.cfg.Timeout)
}

func (w *Watcher) expel(k membership, mode message.Mode) {
	delete(w.pending, k)
	w.cfg.Subscriptions.Expel(k.channelID, k.userID, mode)
}
