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
	// Watched gives the subjects whose streams have the channel by their membership, each once.
	Watched(channelID string) []string
	// Expel takes the channel off every such stream of the subject. It may be repeated.
	Expel(channelID, subject string)
}

// WatcherConfig sets up a Watcher; zero values mean the defaults, but for Store, Access and Hub.
type WatcherConfig struct {
	Store  Store
	Access *Access
	Hub    Hub
	// Interval is how often the store is asked for changes: 500 ms. Up to a fifth less, so that nodes spread.
	Interval time.Duration
	// Timeout bounds one call of the store: 400 ms.
	Timeout time.Duration
	// Patience is how long the store may take to tell whether a user whom a hint named is a member still: 800 ms. Then he
	// is expelled unseen.
	Patience time.Duration
	// Linger is how long a change is looked at again: 5 s. It is for streams that took the channel meanwhile, by a right
	// that was looked up before the change.
	Linger time.Duration
	Logger *slog.Logger
}

// Watcher takes members-only channels off the streams of those who are no members of them any more. It learns of changes
// by hints, at once, and by asking the store, always: so the loss of either does no harm. A change only says where to
// look; what counts is the membership as it is then.
//
// One goroutine keeps what there is to do, and calls nobody who might not answer. Calls of the store have goroutines of
// their own, so a store that hangs can't hold up the end of anybody's patience.
type Watcher struct {
	cfg     WatcherConfig
	wake    chan struct{}
	polls   chan polled
	answers chan answer
	// The loop's own:
	place   Stamp
	nextAt  time.Time
	polling bool
	looking int
	doubts  map[membership]*doubt
	recent  map[string]*recentChange

	life lifecycle.Base
	// run starts the calls of the store.
	run *lifecycle.Run

	// mu guards what follows.
	mu      sync.Mutex
	hints   []hint
	stopped bool
}

// hint is a change that a node told of.
type hint struct {
	Change
	at time.Time
}

// doubt is a stream that may have to lose its channel.
type doubt struct {
	// since is the last change that concerns it: only a look that began afterwards counts.
	since time.Time
	// until is when patience ends; zero is never.
	until time.Time
	// retryAt is the earliest time of the next look; looking is true while one is under way.
	retryAt time.Time
	looking bool
}

// recentChange is what of a channel is looked at again until a time.
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

// answer is what the store told of one user's channels.
type answer struct {
	userID string
	asked  []string
	began  time.Time
	// lost are those of them that the user may not have.
	lost map[string]bool
	err  error
}

const (
	// maxLooks is the most look-ups of memberships at once.
	maxLooks = 16
	// lookAgain is the wait after one that failed.
	lookAgain = 50 * time.Millisecond
	// startTimeout bounds the wait for the first place.
	startTimeout = 10 * time.Second
)

// NewWatcher makes a watcher, which Start starts.
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

// Start finds the place from which changes count, and begins to watch. It must return before the first stream is
// opened. It fails if the store does not answer. See lifecycle.Service.
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

// Stop ends the work and waits for it.
func (w *Watcher) Stop(ctx context.Context) error { return w.life.Stop(ctx) }

// Hint tells of a change that a node has made. It returns at once, and may be called at any time, even before Start.
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

// work does what is due, and gives when something is due next.
func (w *Watcher) work(ctx context.Context, now time.Time) time.Time {
	if !w.polling && !now.Before(w.nextAt) {
		w.lookAtRecent(now)
		w.poll(now)
	}
	next := w.nextAt
	if w.polling {
		next = now.Add(w.cfg.Interval) // its answer wakes the loop before
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
		w.polls <- polled{changes, next, err} // one at a time: there is room
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

// note doubts the streams that a change concerns.
func (w *Watcher) note(c Change, at, until time.Time) {
	if w.cfg.Access.knownOpen(c.ChannelID) {
		return // everybody may have it
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
			continue // most likely what a hint told already: looking anew would use up its patience
		}
		d.since, d.retryAt = since, time.Time{}
		if d.until.IsZero() {
			d.until = until
		}
	}
}

// lookAtRecent doubts again whom the changes of late concern.
func (w *Watcher) lookAtRecent(now time.Time) {
	for id, r := range w.recent {
		w.doubt(id, r.all, r.users, now, time.Time{})
		if now.After(r.until) {
			delete(w.recent, id)
		}
	}
}

// look asks the store about doubts, user by user.
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
			w.answers <- a // at most maxLooks: there is room
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
			continue // patience has ended
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
