package channel

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/message"
)

// cachedMode returns a channel's mode; ok is false if it is not in the cache.
func (a *Access) cachedMode(channelID string) (m mode, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok = a.modes[channelID]
	return m, ok
}

// modeAt returns a channel's mode at the access revision atLeast or a later one, and whether the
// channel has a row. A channel without one is open.
func (a *Access) modeAt(ctx context.Context, channelID string, atLeast int64) (m mode, exists bool, err error) {
	if m, ok := a.cachedMode(channelID); ok && m.rev >= atLeast {
		return m, true, nil
	}
	modes, err := a.readModes(ctx, []string{channelID})
	if err != nil {
		return mode{}, false, err
	}
	m, exists = modes[channelID]
	if m.rev < atLeast {
		return mode{}, false, fault.New(fault.Unavailable, fault.StoreUnavailable, "the store is behind; retry")
	}
	return m, exists, nil
}

// OpenAt returns the access revision at which the cache has the channel as open. ok is false if it
// does not. It does not read from the store.
func (a *Access) OpenAt(channelID string) (rev int64, ok bool) {
	m, ok := a.cachedMode(channelID)
	return m.rev, ok && m.kind == message.ModeOpen
}

// KnownOpen reports whether the cache has the channel as open. It does not read from the store.
func (a *Access) KnownOpen(channelID string) bool {
	_, ok := a.OpenAt(channelID)
	return ok
}

// ensure returns the mode of a channel. It creates an open channel if there is none.
func (a *Access) ensure(ctx context.Context, channelID string) (mode, error) {
	if m, ok := a.cachedMode(channelID); ok {
		return m, nil
	}
	done := a.flight.DoChan(channelID, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ensureTimeout)
		defer cancel()
		forgotten := a.modesForgotten()
		row, err := a.cfg.Store.Ensure(ctx, channelID, now(a.cfg.Now))
		if err != nil {
			// The error may come from ensureTimeout, and not from a caller's deadline. The fault is
			// therefore StoreUnavailable.
			return nil, fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store does not answer")
		}
		a.cacheRow(row, forgotten)
		return modeOf(&row), nil
	})
	select {
	case res := <-done:
		if res.Err != nil {
			return mode{}, res.Err
		}
		m, _ := res.Val.(mode)
		return m, nil
	case <-ctx.Done():
		return mode{}, message.Unavailable(context.Cause(ctx))
	}
}

// modesForgotten returns a number for cacheRow. Call it before the row is read.
func (a *Access) modesForgotten() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.modeForgets
}

// cacheRow caches the mode of a row, unless a mode of a later revision is cached. If the channel
// was deleted, it drops the cached mode. forgotten is the result of modesForgotten from before the
// row was read: if modes were forgotten since, cacheRow does nothing.
func (a *Access) cacheRow(row Row, forgotten uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.modeForgets != forgotten || a.modes[row.ChannelID].rev > row.Rev:
	case row.State == Live:
		putBounded(a.modes, row.ChannelID, modeOf(&row))
	default:
		delete(a.modes, row.ChannelID)
	}
}

// filterMembersOnly returns the members-only channels among channelIDs, in the order given.
// Channels without a row are not members-only.
func (a *Access) filterMembersOnly(ctx context.Context, channelIDs []string) (membersOnly []string, err error) {
	modes, err := a.modesOf(ctx, channelIDs)
	if err != nil {
		return nil, err
	}
	for _, id := range channelIDs {
		if modes[id].kind == message.ModeMembersOnly {
			membersOnly = append(membersOnly, id)
		}
	}
	return membersOnly, nil
}

// modesOf returns the modes of those channels that have a row.
func (a *Access) modesOf(ctx context.Context, channelIDs []string) (map[string]mode, error) {
	modes := make(map[string]mode, len(channelIDs))
	var uncached []string
	a.mu.Lock()
	for _, id := range channelIDs {
		if m, ok := a.modes[id]; ok {
			modes[id] = m
		} else {
			uncached = append(uncached, id)
		}
	}
	a.mu.Unlock()
	read, err := a.readModes(ctx, uncached)
	maps.Copy(modes, read)
	return modes, err
}

// readModes reads the modes of channels from the store and caches them. Channels without a row are
// absent.
func (a *Access) readModes(ctx context.Context, channelIDs []string) (map[string]mode, error) {
	modes := make(map[string]mode, len(channelIDs))
	for some := range slices.Chunk(channelIDs, maxKeys) {
		forgotten := a.modesForgotten()
		rows, err := a.cfg.Store.Rows(ctx, some)
		if err != nil {
			return nil, message.Unavailable(err)
		}
		for id, row := range rows {
			a.cacheRow(row, forgotten)
			modes[id] = modeOf(&row)
		}
	}
	return modes, nil
}

// known returns a cached membership that was read at the access revision rev or a later one, and at
// the cached one or later; ok is false if there is none that is recent enough at began. The caller
// holds mu.
func (a *Access) known(k membership, began time.Time, rev int64) (m knownMember, ok bool) {
	m, ok = a.members[k]
	return m, ok && began.Sub(m.read) <= a.cfg.MaxAge && m.rev >= max(rev, a.modes[k.channelID].rev)
}

// notMemberOf returns the channels of which the user is not a member, in the order given. modes are
// the modes at which the caller checks; some may be missing.
func (a *Access) notMemberOf(ctx context.Context, userID string, channelIDs []string, modes map[string]mode,
) (notMember []string, err error) {
	began := a.cfg.Now()
	var uncached []string
	a.mu.Lock()
	for _, id := range channelIDs {
		if _, ok := a.known(membership{id, userID}, began, modes[id].rev); !ok {
			uncached = append(uncached, id)
		}
	}
	a.mu.Unlock()
	return a.readNotMemberOf(ctx, userID, uncached)
}

// readLost returns those of the memberships whose channel was deleted or whose user is not a
// member, and the mode of each channel. All are of one user, or all of one channel; there are at
// most maxKeys. It reads memberships from the store, not from the cache.
func (a *Access) readLost(ctx context.Context, keys []membership) (lost map[membership]message.Mode, err error) {
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = k.channelID
	}
	modes, err := a.modesOf(ctx, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	members, err := a.readMembers(ctx, keys)
	if err != nil {
		return nil, err
	}
	lost = make(map[membership]message.Mode)
	for _, k := range keys {
		member, mode := members[k], modes[k.channelID].kind
		if mode == message.ModeDeleted || !member.IsMember() {
			lost[k] = mode
		}
	}
	return lost, nil
}

// readMembers reads the memberships among keys that there are, in one call of the store. All keys
// are of one user, or all of one channel.
func (a *Access) readMembers(ctx context.Context, keys []membership) (map[membership]Member, error) {
	found := make(map[membership]Member, len(keys))
	channelID, userID := keys[0].channelID, keys[0].userID
	if len(keys) > 1 && keys[1].channelID == channelID {
		userIDs := make([]string, len(keys))
		for i, k := range keys {
			userIDs[i] = k.userID
		}
		members, err := a.cfg.Store.MembersIn(ctx, channelID, userIDs)
		if err != nil {
			return nil, message.Unavailable(err)
		}
		for id, m := range members {
			found[membership{channelID, id}] = m
		}
		return found, nil
	}
	channelIDs := make([]string, len(keys))
	for i, k := range keys {
		channelIDs[i] = k.channelID
	}
	members, err := a.readMembersOf(ctx, userID, channelIDs)
	for id, m := range members {
		found[membership{id, userID}] = m
	}
	return found, err
}

// readNotMemberOf is notMemberOf without the cache: it reads from the store.
func (a *Access) readNotMemberOf(ctx context.Context, userID string, channelIDs []string) (notMember []string, err error) {
	for some := range slices.Chunk(channelIDs, maxKeys) {
		members, err := a.readMembersOf(ctx, userID, some)
		if err != nil {
			return nil, err
		}
		for _, id := range some {
			if m := members[id]; !m.IsMember() {
				notMember = append(notMember, id)
			}
		}
	}
	return notMember, nil
}

// readMembersOf reads the user's memberships in at most maxKeys channels, and caches them. Those of
// a follower are returned and not cached.
func (a *Access) readMembersOf(ctx context.Context, userID string, channelIDs []string) (map[string]Member, error) {
	began := a.cfg.Now()
	revs := make(map[string]int64, len(channelIDs))
	a.mu.Lock()
	forgotten := a.forgets
	for _, id := range channelIDs {
		revs[id] = a.modes[id].rev
	}
	a.mu.Unlock()
	members, err := a.cfg.Store.MembersOf(ctx, userID, channelIDs)
	if err != nil {
		return nil, message.Unavailable(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.forgets != forgotten {
		return members, nil
	}
	for id, m := range members {
		if m.IsMember() {
			putBounded(a.members, membership{id, userID}, knownMember{m.Role, began, revs[id]})
		}
	}
	return members, nil
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
