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
	// maxKnown bounds the channels, and separately the memberships, that an Access caches. When it is
	// reached, a quarter is dropped. A dropped one costs a read of the store.
	maxKnown = 65_536
	// maxKeys is the maximum number of channels in one call of a Store.
	maxKeys = 500
	// ensureTimeout bounds the creation of a row, which concurrent callers share. The creation must
	// not end with the context of the first of them.
	ensureTimeout = 5 * time.Second
)

// AccessConfig configures an Access. Zero values mean the defaults, except that Store is required.
type AccessConfig struct {
	Store Store
	// MaxAge is how long a membership is cached. The absence of a membership is never cached. The
	// default is 500 ms.
	MaxAge time.Duration
	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// Access checks memberships: a members-only channel may be used only by its members and by holders
// of the capability `manage`. It refuses nobody an open channel. It implements message.Access. It
// is safe for concurrent use.
//
// Whether a channel is members-only never changes, so Access caches it without expiry. It does not
// cache that a channel does not exist, because any node may create it.
type Access struct {
	cfg    AccessConfig
	flight singleflight.Group

	// mu guards the fields below. It is not held during calls of the store.
	mu sync.Mutex
	// membersOnly holds whether a channel is members-only, for channels whose rows were read.
	membersOnly map[string]bool
	// members holds the start time of the read that last returned the membership.
	members map[membership]time.Time
	// forgets counts calls of Forget. The result of a read is not cached if Forget was called
	// after the read began.
	forgets uint64
}

type membership struct {
	channelID, userID string
}

var _ message.Access = (*Access)(nil)

// NewAccess returns an Access with an empty cache.
func NewAccess(cfg AccessConfig) *Access {
	if cfg.MaxAge == 0 {
		cfg.MaxAge = 500 * time.Millisecond
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Access{cfg: cfg, membersOnly: make(map[string]bool), members: make(map[membership]time.Time)}
}

// ForSend implements message.Access. It first creates an open row for a channel without one, so
// that nobody can create a members-only channel under the id of one that has messages. If two nodes
// create a row at once, the store lets one win, and both use the winner's row.
func (a *Access) ForSend(ctx context.Context, p *ident.Principal, channelID string) error {
	membersOnly, err := a.ensure(ctx, channelID)
	if err != nil {
		return err
	}
	if !membersOnly || p.Can(ident.Manage, channelID) {
		return nil
	}
	return a.checkMember(ctx, p, channelID)
}

// ForRead implements message.Access. It creates no row.
func (a *Access) ForRead(ctx context.Context, p *ident.Principal, channelID string) error {
	if p.Can(ident.Manage, channelID) {
		return nil
	}
	membersOnly, err := a.filterMembersOnly(ctx, []string{channelID})
	if err != nil || len(membersOnly) == 0 {
		return err
	}
	return a.checkMember(ctx, p, channelID)
}

// checkMember returns nil if p is a member of the channel, and otherwise the fault NotMember. The
// caller has checked that the channel is members-only.
func (a *Access) checkMember(ctx context.Context, p *ident.Principal, channelID string) error {
	unreadable, err := a.notMemberOf(ctx, p.Subject, []string{channelID})
	if err != nil {
		return err
	}
	if len(unreadable) > 0 {
		return fault.NotMemberOf(channelID)
	}
	return nil
}

// Unreadable returns the channels that ForRead refuses p because p is not a member, in the order
// given. If this cannot be determined, the error is that of message.Unavailable.
func (a *Access) Unreadable(ctx context.Context, p *ident.Principal, channelIDs []string) (unreadable []string, err error) {
	unmanaged := make([]string, 0, len(channelIDs))
	for _, id := range channelIDs {
		if !p.Can(ident.Manage, id) {
			unmanaged = append(unmanaged, id)
		}
	}
	membersOnly, err := a.filterMembersOnly(ctx, unmanaged)
	if err != nil {
		return nil, err
	}
	return a.notMemberOf(ctx, p.Subject, membersOnly)
}

// Forget drops the cached memberships that the change may have ended. The results of reads that
// began before this call are not cached.
func (a *Access) Forget(change Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgets++
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

// readUnreadable returns the members-only channels among channelIDs of which the user is not a
// member. It reads memberships from the store, not from the cache.
func (a *Access) readUnreadable(ctx context.Context, userID string, channelIDs []string) (map[string]bool, error) {
	membersOnly, err := a.filterMembersOnly(ctx, channelIDs)
	if err != nil {
		return nil, err
	}
	ids, err := a.readNotMemberOf(ctx, userID, membersOnly)
	if err != nil {
		return nil, err
	}
	unreadable := make(map[string]bool, len(ids))
	for _, id := range ids {
		unreadable[id] = true
	}
	return unreadable, nil
}

// cachedMembersOnly reports whether a channel is members-only. ok is false if that is not in the
// cache.
func (a *Access) cachedMembersOnly(channelID string) (membersOnly, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	membersOnly, ok = a.membersOnly[channelID]
	return membersOnly, ok
}

// MayRead reports whether a user without the capability manage may read the channel. A channel that
// does not exist may be read by everyone.
func (a *Access) MayRead(ctx context.Context, userID, channelID string) (bool, error) {
	membersOnly, err := a.filterMembersOnly(ctx, []string{channelID})
	if err != nil || len(membersOnly) == 0 {
		return err == nil, err
	}
	notMember, err := a.notMemberOf(ctx, userID, membersOnly)
	return err == nil && len(notMember) == 0, err
}

// KnownOpen reports whether the cache has the channel as open. It does not read from the store.
func (a *Access) KnownOpen(channelID string) bool {
	membersOnly, ok := a.cachedMembersOnly(channelID)
	return ok && !membersOnly
}

// ensure reports whether a channel is members-only. It creates an open channel if there is none.
func (a *Access) ensure(ctx context.Context, channelID string) (membersOnly bool, err error) {
	if membersOnly, ok := a.cachedMembersOnly(channelID); ok {
		return membersOnly, nil
	}
	done := a.flight.DoChan(channelID, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ensureTimeout)
		defer cancel()
		row, err := a.cfg.Store.Ensure(ctx, channelID, now(a.cfg.Now))
		if err != nil {
			// The error may come from ensureTimeout, and not from a caller's deadline. The fault is
			// therefore StoreUnavailable.
			return nil, fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store does not answer")
		}
		a.cacheRow(row)
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

// cacheRow caches whether the channel of a row is members-only.
func (a *Access) cacheRow(row Row) {
	a.mu.Lock()
	defer a.mu.Unlock()
	putBounded(a.membersOnly, row.ChannelID, row.MembersOnly)
}

// filterMembersOnly returns the members-only channels among channelIDs, in the order given.
// Channels without a row are not members-only.
func (a *Access) filterMembersOnly(ctx context.Context, channelIDs []string) (membersOnly []string, err error) {
	kinds := make(map[string]bool, len(channelIDs))
	var uncached []string
	a.mu.Lock()
	for _, id := range channelIDs {
		if membersOnly, ok := a.membersOnly[id]; ok {
			kinds[id] = membersOnly
		} else {
			uncached = append(uncached, id)
		}
	}
	a.mu.Unlock()
	for len(uncached) > 0 {
		n := min(len(uncached), maxKeys)
		rows, err := a.cfg.Store.Rows(ctx, uncached[:n])
		if err != nil {
			return nil, message.Unavailable(err)
		}
		for id, row := range rows {
			a.cacheRow(row)
			kinds[id] = row.MembersOnly
		}
		uncached = uncached[n:]
	}
	for _, id := range channelIDs {
		if kinds[id] {
			membersOnly = append(membersOnly, id)
		}
	}
	return membersOnly, nil
}

// notMemberOf returns the channels of which the user is not a member, in the order given.
func (a *Access) notMemberOf(ctx context.Context, userID string, channelIDs []string) (notMember []string, err error) {
	began := a.cfg.Now()
	var uncached []string
	a.mu.Lock()
	for _, id := range channelIDs {
		if seen, ok := a.members[membership{id, userID}]; !ok || began.Sub(seen) > a.cfg.MaxAge {
			uncached = append(uncached, id)
		}
	}
	a.mu.Unlock()
	return a.readNotMemberOf(ctx, userID, uncached)
}

// readNotMemberOf is notMemberOf without the cache: it reads from the store.
func (a *Access) readNotMemberOf(ctx context.Context, userID string, channelIDs []string) (notMember []string, err error) {
	for len(channelIDs) > 0 {
		n := min(len(channelIDs), maxKeys)
		began := a.cfg.Now()
		a.mu.Lock()
		forgotten := a.forgets
		a.mu.Unlock()
		members, err := a.cfg.Store.MembersOf(ctx, userID, channelIDs[:n])
		if err != nil {
			return nil, message.Unavailable(err)
		}
		a.mu.Lock()
		for _, id := range channelIDs[:n] {
			if _, ok := members[id]; !ok {
				notMember = append(notMember, id)
			} else if a.forgets == forgotten {
				putBounded(a.members, membership{id, userID}, began)
			}
		}
		a.mu.Unlock()
		channelIDs = channelIDs[n:]
	}
	return notMember, nil
}

// putBounded sets m[key]. If the key is new and m has maxKnown entries, it first drops any
// maxKnown/4 of them.
func putBounded[K comparable, V any](m map[K]V, key K, value V) {
	if _, ok := m[key]; !ok && len(m) >= maxKnown {
		drop := maxKnown / 4
		for k := range m {
			delete(m, k)
			if drop--; drop == 0 {
				break
			}
		}
	}
	m[key] = value
}

// now returns the clock's time as stores keep it: in UTC, in whole milliseconds.
func now(clock func() time.Time) time.Time { return clock().UTC().Truncate(time.Millisecond) }
