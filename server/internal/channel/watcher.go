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
)

// Hub holds this node's live streams. Its methods may be called concurrently and return promptly.
type Hub interface {
	// Watched returns the subjects whose streams subscribe to the channel by membership, each once.
	Watched(channelID string) []string
	// Expel removes the channel from every such stream of the subject. It may be repeated.
	Expel(channelID, subject string)
}

// WatcherConfig configures a Watcher. Zero values mean the defaults, except that Store, Access and
// Hub are required.
type WatcherConfig struct {
	Store  Store
	Access *Access
	Hub    Hub
	// Interval is the maximum time between polls of the store for changes. Each interval is up to a
	// fifth shorter at random, so that nodes spread. The default is 500 ms.
	Interval time.Duration
	// Timeout bounds one call of the store. The default is 400 ms.
	Timeout time.Duration
	// Patience is how long the store may take to confirm the membership of a user named by a hint.
	// The user is then expelled without confirmation. The default is 800 ms.
	Patience time.Duration
	// Linger is how long a change is checked again and again. It covers streams that subscribed to
	// the channel meanwhile on the strength of a membership read before the change. The default is
	// 5 s.
	Linger time.Duration
	Logger *slog.Logger
}

// Watcher removes members-only channels from the streams of users who are no longer members. It
// gets changes from hints, immediately, and by polling the store, always, so that losing either
// does no harm. A change only names the memberships to check; the membership at the time of the
// check counts.
//
// One goroutine owns the state and calls nothing that may block. Calls of the store run in their
// own goroutines, so that a store that hangs cannot delay the end of a Patience.
type Watcher struct {
	cfg     WatcherConfig
	wake    chan struct{}
	polls   chan polled
	answers chan answer
	// The fields of the loop's goroutine:
	place   Stamp
	nextAt  time.Time
	polling bool
	looking int
	doubts  map[membership]*doubt
	recent  map[string]*recentChange

	life lifecycle.Base
	// run starts the goroutines that call the store.
	run *lifecycle.Run

	// mu guards the fields below.
	mu      sync.Mutex
	hints   []hint
	stopped bool
}

// hint is a change that a node announced.
type hint struct {
	Change
	at time.Time
}

// doubt is a subscription whose membership must be checked.
type doubt struct {
	// since is the time of the last change that concerns it. Only a check that began later counts.
	since time.Time
	// until is when Patience ends; zero means never.
	until time.Time
	// retryAt is the earliest time of the next check. looking is true while a check is in progress.
	retryAt time.Time
	looking bool
}

// recentChange is the part of a channel's members that is checked repeatedly until a time.
type recentChange struct {
	all   bool
	users map[string]bool
	until time.Time
}

type polled struct {
	changes []Change
	place   Stamp
	err     error
}

// answer is the result of checking one user's channels.
type answer struct {
	userID string
	asked  []string
	began  time.Time
	// lost holds those of the channels that the user may no longer use.
	lost map[string]bool
	err  error
}

const (
	// maxLooks is the maximum number of concurrent membership checks.
	maxLooks = 16
	// lookAgain is the delay after a failed check.
	lookAgain = 50 * time.Millisecond
	// startTimeout bounds the read of the first stamp.
	startTimeout = 10 * time.Second
)

// NewWatcher returns a watcher. Start starts it.
func NewWatcher(cfg WatcherConfig) *Watcher {
	cfg.Interval = cmp.Or(cfg.Interval, 500*time.Millisecond)
	cfg.Timeout = cmp.Or(cfg.Timeout, 400*time.Millisecond)
	cfg.Patience = cmp.Or(cfg.Patience, 800*time.Millisecond)
	cfg.Linger = cmp.Or(cfg.Linger, 5*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Watcher{
		cfg: cfg, wake: make(chan struct{}, 1), polls: make(chan polled, 1), answers: make(chan answer, maxLooks),
		doubts: make(map[membership]*doubt), recent: make(map[string]*recentChange),
	}
}

// Start reads the stamp from which changes count, and starts watching. It must return before the
// first stream is opened. It fails if the store does not answer. See lifecycle.Service.
func (w *Watcher) Start(ctx context.Context) error {
	return w.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		first, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		_, place, err := w.cfg.Store.Changes(first, Stamp{})
		if err != nil {
			return fmt.Errorf("watch members: %w", err)
		}
		w.place, w.run = place, run
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

// Stop ends the watcher's goroutines and waits for them.
func (w *Watcher) Stop(ctx context.Context) error { return w.life.Stop(ctx) }

// Hint announces a change that a node made. It returns at once and may be called at any time, even
// before Start.
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
			w.takeHints()
		case p := <-w.polls:
			w.takePoll(ctx, p)
		case a := <-w.answers:
			w.takeAnswer(ctx, a)
		case <-timer.C:
		}
		timer.Reset(time.Until(w.work(ctx, time.Now())))
	}
}

// work does the work that is due and returns the time of the next.
func (w *Watcher) work(ctx context.Context, now time.Time) time.Time {
	if !w.polling && !now.Before(w.nextAt) {
		w.lookAtRecent(now)
		w.poll(now)
	}
	next := w.nextAt
	if w.polling {
		next = now.Add(w.cfg.Interval) // the answer of the poll wakes the loop earlier
	}
	unseen := 0
	for k, d := range w.doubts {
		if !d.until.IsZero() && !now.Before(d.until) {
			w.expel(k)
			unseen++
			continue
		}
		if !d.until.IsZero() && d.until.Before(next) {
			next = d.until
		}
		if !d.looking && d.retryAt.After(now) && d.retryAt.Before(next) {
			next = d.retryAt
		}
	}
	if unseen > 0 {
		w.cfg.Logger.WarnContext(ctx, "the store does not tell whether subscribers are members still: they lose channels",
			"subscriptions", unseen)
	}
	w.look(now)
	return next
}

func (w *Watcher) poll(now time.Time) {
	w.polling = true
	w.nextAt = now.Add(w.cfg.Interval - rand.N(w.cfg.Interval/5+1))
	place := w.place
	w.run.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
		defer cancel()
		changes, next, err := w.cfg.Store.Changes(ctx, place)
		w.polls <- polled{changes, next, err} // does not block: there is one poll at a time
	})
}

func (w *Watcher) takePoll(ctx context.Context, p polled) {
	w.polling = false
	if p.err != nil {
		w.cfg.Logger.DebugContext(ctx, "the store does not tell who lost which channel", "error", p.err)
		return
	}
	w.place = p.place
	now := time.Now()
	for _, c := range p.changes {
		w.cfg.Access.Forget(c)
		w.note(c, now, time.Time{})
	}
}

func (w *Watcher) takeHints() {
	w.mu.Lock()
	hints := w.hints
	w.hints = nil
	w.mu.Unlock()
	for _, h := range hints {
		var until time.Time
		if len(h.UserIDs) > 0 {
			until = h.at.Add(w.cfg.Patience)
		}
		w.note(h.Change, h.at, until)
	}
}

// note marks the subscriptions that a change concerns for a check.
func (w *Watcher) note(c Change, at, until time.Time) {
	if w.cfg.Access.knownOpen(c.ChannelID) {
		return // everyone may use it
	}
	r := w.recent[c.ChannelID]
	if r == nil {
		r = &recentChange{users: make(map[string]bool)}
		w.recent[c.ChannelID] = r
	}
	r.until = at.Add(w.cfg.Linger)
	users := make(map[string]bool, len(c.UserIDs))
	for _, u := range c.UserIDs {
		users[u], r.users[u] = true, true
	}
	all := len(c.UserIDs) == 0
	r.all = r.all || all
	w.doubt(c.ChannelID, all, users, at, until)
}

func (w *Watcher) doubt(channelID string, all bool, users map[string]bool, since, until time.Time) {
	for _, subject := range w.cfg.Hub.Watched(channelID) {
		if !all && !users[subject] {
			continue
		}
		k := membership{channelID, subject}
		d := w.doubts[k]
		switch {
		case d == nil:
			d = &doubt{}
			w.doubts[k] = d
		case until.IsZero() && !d.until.IsZero():
			continue // most likely announced by a hint already; starting over would consume its patience
		}
		d.since, d.retryAt = since, time.Time{}
		if d.until.IsZero() {
			d.until = until
		}
	}
}

// lookAtRecent marks the subscriptions that recent changes concern for another check.
func (w *Watcher) lookAtRecent(now time.Time) {
	for id, r := range w.recent {
		w.doubt(id, r.all, r.users, now, time.Time{})
		if now.After(r.until) {
			delete(w.recent, id)
		}
	}
}

// look starts the checks that are due, one call per user.
func (w *Watcher) look(now time.Time) {
	asks := make(map[string][]string)
	for k, d := range w.doubts {
		ask := asks[k.userID]
		room := len(ask) < maxKeys && (ask != nil || len(asks) < maxLooks-w.looking)
		if room && !d.looking && !now.Before(d.retryAt) {
			asks[k.userID] = append(ask, k.channelID)
			d.looking = true
		}
	}
	for userID, channelIDs := range asks {
		w.looking++
		w.run.Go(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
			defer cancel()
			a := answer{userID: userID, asked: channelIDs, began: time.Now()}
			a.lost, a.err = w.cfg.Access.lost(ctx, userID, channelIDs)
			w.answers <- a // does not block: there are at most maxLooks
		})
	}
}

func (w *Watcher) takeAnswer(ctx context.Context, a answer) {
	w.looking--
	if a.err != nil {
		w.cfg.Logger.DebugContext(ctx, "the store does not tell who is a member", "error", a.err)
	}
	for _, id := range a.asked {
		k := membership{id, a.userID}
		d := w.doubts[k]
		if d == nil {
			continue // its patience has ended
		}
		d.looking = false
		switch {
		case a.err != nil:
			d.retryAt = time.Now().Add(lookAgain)
		case a.lost[id]:
			w.expel(k)
		case !a.began.Before(d.since):
			delete(w.doubts, k)
		}
	}
}

func (w *Watcher) expel(k membership) {
	delete(w.doubts, k)
	w.cfg.Hub.Expel(k.channelID, k.userID)
}
