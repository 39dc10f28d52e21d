package channel

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// maxKnown bounds the channels, and the memberships, that an Access remembers; a forgotten one costs a read.
	maxKnown = 65_536
	// maxKeys is the most channels that a Store takes in one call.
	maxKeys = 500
	// ensureTimeout bounds the making of a row, which must not end with the first of those who wait for it.
	ensureTimeout = 5 * time.Second
)

// AccessConfig sets up an Access; zero values mean the defaults, but for Store.
type AccessConfig struct {
	Store Store
	// MaxAge is how long a membership that was found is believed: 500 ms. That somebody is no member is never remembered.
	MaxAge time.Duration
	// Now is the clock; time.Now.
	Now func() time.Time
}

// Access says who may use a channel: everybody an open one, members and holders of `manage` any. It implements
// message.Access. Safe for concurrent use.
//
// What kind a channel is never changes, so it is remembered for as long as there is room; that there is no such
// channel is remembered by nobody, because any node may make it.
type Access struct {
	cfg    AccessConfig
	flight singleflight.Group

	// mu guards what follows. No call is made under it.
	mu sync.Mutex
	// membersOnly holds the channels whose rows were seen.
	membersOnly map[string]bool
	// members holds when the read began that last showed the membership.
	members map[membership]time.Time
	// forgotten counts calls of Forget: what a read shows that began before the last of them is not remembered.
	forgotten uint64
}

type membership struct {
	channelID, userID string
}

var _ message.Access = (*Access)(nil)

// NewAccess makes an Access that knows nothing yet.
func NewAccess(cfg AccessConfig) *Access {
	if cfg.MaxAge == 0 {
		cfg.MaxAge = 500 * time.Millisecond
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Access{cfg: cfg, membersOnly: make(map[string]bool), members: make(map[membership]time.Time)}
}

// ForSend implements message.Access. A channel without a row gets an open one first, so that nobody can make a
// members-only channel of one that has messages; of two who make it at once the store lets one win, and both obey.
func (a *Access) ForSend(ctx context.Context, p *ident.Principal, channelID string) error {
	membersOnly, err := a.ensure(ctx, channelID)
	if err != nil {
		return err
	}
	if !membersOnly || p.Can(ident.Manage, channelID) {
		return nil
	}
	return a.refuse(ctx, p, channelID)
}

// ForRead implements message.Access.
func (a *Access) ForRead(ctx context.Context, p *ident.Principal, channelID string) error {
	if p.Can(ident.Manage, channelID) {
		return nil
	}
	closed, err := a.closed(ctx, []string{channelID})
	if err != nil || len(closed) == 0 {
		return err
	}
	return a.refuse(ctx, p, channelID)
}

// refuse gives the fault of a members-only channel for who is no member of it.
func (a *Access) refuse(ctx context.Context, p *ident.Principal, channelID string) error {
	lost, err := a.strangerTo(ctx, p.Subject, []string{channelID})
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		return notMember(channelID)
	}
	return nil
}

// Readable gives those of the channels that ForRead refuses p as no member, in their order. Its error is Unavailable
// where that can't be told.
func (a *Access) Readable(ctx context.Context, p *ident.Principal, channelIDs []string) (refused []string, err error) {
	ask := make([]string, 0, len(channelIDs))
	for _, id := range channelIDs {
		if !p.Can(ident.Manage, id) {
			ask = append(ask, id)
		}
	}
	closed, err := a.closed(ctx, ask)
	if err != nil {
		return nil, err
	}
	return a.strangerTo(ctx, p.Subject, closed)
}

// Forget has memberships looked up anew that change may have ended: no read that began before is believed any more.
func (a *Access) Forget(change Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgotten++
	for _, u := range change.UserIDs {
		delete(a.members, membership{change.ChannelID, u})
	}
	if len(change.UserIDs) > 0 {
		return
	}
	for k := range a.members {
		if k.channelID == change.ChannelID {
			delete(a.members, k)
		}
	}
}

// lost gives those of the channels that take members only and of which the user is none, as the store tells now.
func (a *Access) lost(ctx context.Context, userID string, channelIDs []string) (map[string]bool, error) {
	closed, err := a.closed(ctx, channelIDs)
	if err != nil {
		return nil, err
	}
	strange, err := a.freshStrangerTo(ctx, userID, closed)
	if err != nil {
		return nil, err
	}
	lost := make(map[string]bool, len(strange))
	for _, id := range strange {
		lost[id] = true
	}
	return lost, nil
}

// kind gives what kind a channel is known to be; ok is false if its row was not seen.
func (a *Access) kind(channelID string) (membersOnly, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	membersOnly, ok = a.membersOnly[channelID]
	return membersOnly, ok
}

// knownOpen reports whether the channel is known to be open, without asking the store.
func (a *Access) knownOpen(channelID string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	membersOnly, ok := a.membersOnly[channelID]
	return ok && !membersOnly
}

// ensure tells whether a channel takes members only, and makes an open one if there is none.
func (a *Access) ensure(ctx context.Context, channelID string) (membersOnly bool, err error) {
	a.mu.Lock()
	membersOnly, ok := a.membersOnly[channelID]
	a.mu.Unlock()
	if ok {
		return membersOnly, nil
	}
	done := a.flight.DoChan(channelID, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ensureTimeout)
		defer cancel()
		row, err := a.cfg.Store.Ensure(ctx, channelID, now(a.cfg.Now))
		if err != nil {
			// The time that passed may be this flight's, and not the caller's: what is wrong is the store.
			return nil, fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store does not answer")
		}
		a.saw(row)
		return row.MembersOnly, nil
	})
	select {
	case res := <-done:
		if res.Err != nil {
			return false, res.Err
		}
		membersOnly, _ = res.Val.(bool)
		return membersOnly, nil
	case <-ctx.Done():
		return false, message.Unavailable(context.Cause(ctx))
	}
}

// saw remembers what kind a channel is.
func (a *Access) saw(row Row) {
	a.mu.Lock()
	defer a.mu.Unlock()
	makeRoom(a.membersOnly)
	a.membersOnly[row.ChannelID] = row.MembersOnly
}

// closed gives those of the channels that take members only, in their order. Those without a row do not.
func (a *Access) closed(ctx context.Context, channelIDs []string) (closed []string, err error) {
	kinds := make(map[string]bool, len(channelIDs))
	var ask []string
	a.mu.Lock()
	for _, id := range channelIDs {
		if membersOnly, ok := a.membersOnly[id]; ok {
			kinds[id] = membersOnly
		} else {
			ask = append(ask, id)
		}
	}
	a.mu.Unlock()
	for len(ask) > 0 {
		n := min(len(ask), maxKeys)
		rows, err := a.cfg.Store.Rows(ctx, ask[:n])
		if err != nil {
			return nil, message.Unavailable(err)
		}
		for id, row := range rows {
			a.saw(row)
			kinds[id] = row.MembersOnly
		}
		ask = ask[n:]
	}
	for _, id := range channelIDs {
		if kinds[id] {
			closed = append(closed, id)
		}
	}
	return closed, nil
}

// strangerTo gives those of the channels in which the user is no member, in their order.
func (a *Access) strangerTo(ctx context.Context, userID string, channelIDs []string) (strange []string, err error) {
	began := a.cfg.Now()
	var ask []string
	a.mu.Lock()
	for _, id := range channelIDs {
		if seen, ok := a.members[membership{id, userID}]; !ok || began.Sub(seen) > a.cfg.MaxAge {
			ask = append(ask, id)
		}
	}
	a.mu.Unlock()
	return a.freshStrangerTo(ctx, userID, ask)
}

// freshStrangerTo is strangerTo by the store alone, no older than the call.
func (a *Access) freshStrangerTo(ctx context.Context, userID string, ask []string) (strange []string, err error) {
	for len(ask) > 0 {
		n := min(len(ask), maxKeys)
		began := a.cfg.Now()
		a.mu.Lock()
		forgotten := a.forgotten
		a.mu.Unlock()
		mine, err := a.cfg.Store.MembersOf(ctx, userID, ask[:n])
		if err != nil {
			return nil, message.Unavailable(err)
		}
		a.mu.Lock()
		for _, id := range ask[:n] {
			if _, ok := mine[id]; !ok {
				strange = append(strange, id)
			} else if a.forgotten == forgotten {
				makeRoom(a.members)
				a.members[membership{id, userID}] = began
			}
		}
		a.mu.Unlock()
		ask = ask[n:]
	}
	return strange, nil
}

// makeRoom drops a quarter of a map that is full.
func makeRoom[K comparable, V any](m map[K]V) {
	if len(m) < maxKnown {
		return
	}
	drop := maxKnown / 4
	for k := range m {
		delete(m, k)
		if drop--; drop == 0 {
			break
		}
	}
}

// now is a clock's time as stores keep it: UTC, in whole milliseconds.
func now(clock func() time.Time) time.Time { return clock().UTC().Truncate(time.Millisecond) }
