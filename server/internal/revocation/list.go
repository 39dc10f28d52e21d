package revocation

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"golang.org/x/sync/singleflight"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// secondWait bounds one call of Second.
	secondWait = 250 * time.Millisecond
	// margin is added to the life of an entry: the leeway with which expired tokens are accepted, and
	// the difference of the nodes' clocks.
	margin = 90 * time.Second
	// revokeWait bounds the store's confirmation of a Revoke.
	revokeWait = 10 * time.Second
	// forgetEvery is how often entries whose Until has passed are forgotten.
	forgetEvery = time.Minute
	// maxUnstored bounds the entries that this node repeats until the store confirms them.
	maxUnstored = 1000
)

// Config configures a List. Store is required.
type Config struct {
	Store Store
	// Second is asked by a node that has not heard from the store. Nil means that there is none.
	Second Second
	// Announce sends an entry to all other nodes. It must not block. Nil sends nothing.
	Announce func(Entry)
	// Owner decides whether this node keeps Second complete. Nil means that it does.
	Owner Owner
	// Alone means that only this node changes the store, as in dev. It then always knows all
	// revocations after Start.
	Alone bool
	// FailOpen admits tokens while neither the store nor Second can tell whether they were revoked.
	FailOpen bool
	// MaxTokenLife is the longest time for which tokens are issued. The default is 24 h.
	MaxTokenLife time.Duration
	// Interval is the time between polls of the store. Each is up to a tenth shorter at random. The
	// default is 450 ms.
	Interval time.Duration
	// Now returns the current time; nil means time.Now. How long ago the store was heard is measured
	// by time.Now alone, which no change of the clock affects.
	Now    func() time.Time
	Logger *slog.Logger
	Meter  metric.Meter
}

// Owner knows the nodes. *cluster.Roster implements it and documents the methods.
type Owner interface {
	Owns(place int) bool
	AnyAble() bool
}

// List knows the revocations, and the live streams that they end. Safe for concurrent use.
type List struct {
	cfg   Config
	life  lifecycle.Base
	began time.Time
	// heard is when the newest poll that was answered began, as the time since began; 0 means never.
	heard atomic.Int64
	// asks and answers are the look-ups in Second, those under way and the last ones.
	asks    singleflight.Group
	answers answers
	// reloading is set while all revocations are read after the start.
	reloading atomic.Bool

	mu sync.RWMutex
	// tokens has what is known of revoked token keys, and users of revoked users, by their ids.
	tokens map[string]known
	users  map[string]known
	stamp  Stamp
	// unstored are entries of this node that the store has not confirmed, at most maxUnstored.
	unstored []Entry

	streams streams
	keeper  keeper

	// openedAt is when the last admission under FailOpen was logged.
	openedAt atomic.Int64
	opened   metric.Int64Counter
	// refused counts the calls that were refused because nobody could tell.
	refused metric.Int64Counter
}

// known is a revocation in memory. stored is set once the store is known to have it: one that was
// only announced, or that the store did not confirm, may be lost if nobody repeats it.
type known struct {
	until, before time.Time
	stored        bool
}

// New returns a List that knows nothing until Start.
func New(cfg Config) (*List, error) {
	cfg.MaxTokenLife = cmp.Or(cfg.MaxTokenLife, 24*time.Hour)
	cfg.Interval = cmp.Or(cfg.Interval, 450*time.Millisecond)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Announce == nil {
		cfg.Announce = func(Entry) {}
	}
	l := &List{cfg: cfg, began: time.Now(), tokens: make(map[string]known), users: make(map[string]known)}
	l.keeper = keeper{list: l, wake: make(chan struct{}, 1)}
	if cfg.Meter == nil {
		return l, nil
	}
	if err := l.measure(cfg.Meter); err != nil {
		return nil, fmt.Errorf("create metrics of revocations: %w", err)
	}
	return l, nil
}

// Start reads all revocations, and asks the store for more from then on. It must return before the
// first Check. It fails if the store does not answer. See lifecycle.Service.
func (l *List) Start(ctx context.Context) error {
	return l.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		if err := l.load(ctx); err != nil {
			return fmt.Errorf("read the revocations: %w", err)
		}
		run.Go(func(ctx context.Context) { l.poll(ctx, run) })
		if l.cfg.Second != nil {
			run.Go(l.keeper.keep)
		}
		if l.cfg.Second != nil && !l.cfg.Alone {
			run.Go(l.watchStreams)
		}
		return nil
	})
}

// Stop ends the polls. Check continues to work, with Second and Config.FailOpen.
func (l *List) Stop(ctx context.Context) error { return l.life.Stop(ctx) }

// apply takes entries over and ends the streams that they revoke. stored is whether the store has
// them.
func (l *List) apply(entries []Entry, stored bool) {
	if len(entries) == 0 {
		return
	}
	now := l.cfg.Now()
	fresh := entries[:0:0]
	l.mu.Lock()
	for _, e := range entries {
		if e.Until.After(now) && l.take(e, stored) {
			fresh = append(fresh, e)
		}
	}
	l.mu.Unlock()
	for _, e := range fresh {
		l.streams.end(e)
	}
}

// take adds an entry to the maps, and reports whether it revokes more than they did. The caller
// holds mu.
func (l *List) take(e Entry, stored bool) bool {
	all, name := l.tokens, e.Key
	if user, ok := userOf(e.Key); ok {
		all, name = l.users, user
	}
	was, ok := all[name]
	more := !ok || e.Until.After(was.until) || e.Before.After(was.before)
	all[name] = known{
		until: latest(e.Until, was.until), before: latest(e.Before, was.before), stored: stored || was.stored && !more,
	}
	return more
}

// merged returns the entry with the later of its times and those in memory.
func (l *List) merged(e Entry) Entry {
	l.mu.RLock()
	defer l.mu.RUnlock()
	k := l.tokens[e.Key]
	if user, ok := userOf(e.Key); ok {
		k = l.users[user]
	}
	e.Until, e.Before = latest(e.Until, k.until), latest(e.Before, k.before)
	return e
}

// forget drops the entries whose Until has passed.
func (l *List) forget() {
	now := l.cfg.Now()
	for _, all := range []map[string]known{l.tokens, l.users} {
		var old []string
		l.mu.RLock() // calls go on meanwhile
		for name, k := range all {
			if !k.until.After(now) {
				old = append(old, name)
			}
		}
		l.mu.RUnlock()
		for part := range slices.Chunk(old, listPage) {
			l.mu.Lock()
			for _, name := range part {
				if !all[name].until.After(now) {
					delete(all, name)
				}
			}
			l.mu.Unlock()
		}
	}
}

// Check returns a TOKEN_REVOKED fault if p's token was revoked, and a REVOCATION_UNKNOWN fault if
// that is not known, unless Config.FailOpen is set. It takes up to 250 ms if the store has not
// answered for a second, and no time otherwise.
func (l *List) Check(ctx context.Context, p *ident.Principal) error {
	// In this order: a poll that is answered in between would otherwise prove that a revocation is
	// known which this call has not seen.
	current := l.current()
	if l.knows(p) {
		return Revoked()
	}
	if current {
		return nil
	}
	return l.ask(ctx, p)
}

// Revoked returns the fault of a revoked token.
func Revoked() *fault.Error {
	return fault.New(fault.Unauthenticated, fault.TokenRevoked, "the token was revoked: sign in again")
}

func unknown(cause error) *fault.Error {
	return fault.Wrap(cause, fault.Unavailable, fault.RevocationUnknown,
		"it cannot be determined now whether the token was revoked: keep it and retry later")
}

// knows reports whether an entry in memory revokes p's token.
func (l *List) knows(p *ident.Principal) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if _, ok := l.tokens[p.Key]; ok {
		return true
	}
	if len(l.users) == 0 || p.OfAPIKey() {
		return false
	}
	k, ok := l.users[p.Subject]
	return ok && !p.IssuedAt.After(k.before)
}

// Unstored reports whether p's token is refused by a revocation of its key that the store may not
// have. A SignOut with it must then be admitted: it stores the revocation.
func (l *List) Unstored(p *ident.Principal) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	k, ok := l.tokens[p.Key]
	return ok && !k.stored
}

// Revoked reports whether this node knows that the token key is revoked.
func (l *List) Revoked(key string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, ok := l.tokens[key]
	return ok
}

// revokes reports whether an entry with p's key, or that of p's user, revokes p's token.
func (e *Entry) revokes(p *ident.Principal) bool {
	_, user := userOf(e.Key)
	return !user || !p.OfAPIKey() && !p.IssuedAt.After(e.Before)
}

// Revoke revokes what e.Key names, on this node at once, and on all nodes within a second after it
// returns. It continues if ctx ends. It sets At and, for a UserKey, Before. p is the principal of
// the token if one token is revoked, whose expiry may be later than Config.MaxTokenLife; nil
// otherwise. An error is a fault with the reason OUTCOME_UNKNOWN: the entry is in force on the
// nodes that have received it, and the call must be repeated.
func (l *List) Revoke(ctx context.Context, e Entry, p *ident.Principal) (Entry, error) {
	now := l.cfg.Now().UTC().Truncate(time.Millisecond)
	e.At, e.Until = now, now.Add(l.cfg.MaxTokenLife)
	if p != nil {
		e.Until = latest(e.Until, p.Expires.UTC().Truncate(time.Millisecond))
	}
	e.Until = earliest(e.Until.Add(margin), lastTime)
	if _, ok := userOf(e.Key); ok {
		e.Before = now
	}
	l.apply([]Entry{e}, false)
	// A user who closes the program at once is signed out all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeWait)
	defer cancel()
	l.put(ctx, e)
	l.cfg.Announce(e)
	if err := l.cfg.Store.Revoke(ctx, e); err != nil {
		l.mu.Lock()
		l.unstored = slices.DeleteFunc(l.unstored, func(old Entry) bool { return old.Key == e.Key })
		room := len(l.unstored) < maxUnstored
		if room {
			l.unstored = append(l.unstored, e)
		}
		l.mu.Unlock()
		if !room {
			l.cfg.Logger.WarnContext(ctx, "a revocation is stored only if its caller repeats it: too many wait for the store", "limit", maxUnstored)
		}
		return e, fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown,
			"the store did not confirm the revocation: repeat the call")
	}
	l.apply([]Entry{e}, true)
	return e, nil
}

// lastTime is the last time that JSON and protobuf can represent, in whole milliseconds.
var lastTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// Heard takes over an entry that another node announced.
func (l *List) Heard(e Entry) { l.apply([]Entry{e}, false) }

// Entries returns up to limit entries whose keys are greater than after, from the store.
func (l *List) Entries(ctx context.Context, after string, limit int) ([]Entry, error) {
	return l.cfg.Store.List(ctx, after, limit)
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
