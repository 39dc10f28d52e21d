package channel

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore is an in-memory store for scripted faults. The real stores are tested by storetest.
type fakeStore struct {
	mu      sync.Mutex
	rows    map[string]Row
	members map[membership]Member
	left    map[membership]int64
	changes []Change
	calls   map[string]int

	// before runs before every call of the store, without the lock, and may fail or delay it. after
	// does the same once the call has succeeded.
	before, after func(ctx context.Context, call string) error
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		rows: map[string]Row{}, members: map[membership]Member{}, left: map[membership]int64{}, calls: map[string]int{},
	}
}

// do runs the hook before, then fn under the lock, then the hook after.
func (f *fakeStore) do(ctx context.Context, call string, fn func() error) error {
	f.mu.Lock()
	f.calls[call]++
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, call); err != nil {
			return err
		}
	}
	f.mu.Lock()
	err := fn()
	f.mu.Unlock()
	if err == nil && after != nil {
		err = after(ctx, call)
	}
	return err
}

func (f *fakeStore) Sessions(ctx context.Context, ownerID string, after SessionPlace, limit int) (rows []Row, err error) {
	err = f.do(ctx, "Sessions", func() error {
		rows = f.sessions(after, limit, func(row Row) bool { return row.CreatedBy == ownerID })
		return nil
	})
	return rows, err
}

func (f *fakeStore) EverySession(ctx context.Context, after SessionPlace, limit int) (rows []Row, err error) {
	err = f.do(ctx, "EverySession", func() error {
		rows = f.sessions(after, limit, func(Row) bool { return true })
		return nil
	})
	return rows, err
}

// sessions returns sessions for which want is true. The caller holds mu.
func (f *fakeStore) sessions(after SessionPlace, limit int, want func(Row) bool) (rows []Row) {
	for _, row := range f.rows {
		later := cmp.Or(after.Active.Compare(row.Active), cmp.Compare(row.ChannelID, after.ChannelID)) > 0
		if !row.Active.IsZero() && row.State == Live && want(row) && (after == SessionPlace{} || later) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Or(b.Active.Compare(a.Active), cmp.Compare(a.ChannelID, b.ChannelID)) })
	return rows[:min(limit, len(rows))]
}

func (f *fakeStore) Owners(ctx context.Context, channelIDs []string) (map[string]Member, error) {
	owners := make(map[string]Member)
	err := f.do(ctx, "Owners", func() error {
		for _, id := range channelIDs {
			if m, ok := f.members[membership{id, f.rows[id].CreatedBy}]; ok {
				owners[id] = m
			}
		}
		return nil
	})
	return owners, err
}

func (f *fakeStore) SetTitle(ctx context.Context, channelID, title string) error {
	return f.do(ctx, "SetTitle", func() error {
		row, ok := f.rows[channelID]
		if !ok || row.State != Live {
			return ErrNotFound
		}
		row.Title = title
		f.rows[channelID] = row
		return nil
	})
}

// script sets the hooks; nil removes one.
func (f *fakeStore) script(before, after func(ctx context.Context, call string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func (f *fakeStore) called(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *fakeStore) Ensure(ctx context.Context, id string, now time.Time) (row Row, err error) {
	err = f.do(ctx, "Ensure", func() error {
		if _, ok := f.rows[id]; !ok {
			f.rows[id] = Row{ChannelID: id, CreatedAt: now}
		}
		row = f.rows[id]
		return nil
	})
	return row, err
}

func (f *fakeStore) Create(ctx context.Context, row Row, userIDs []string) (got Row, err error) {
	err = f.do(ctx, "Create", func() error {
		if there, ok := f.rows[row.ChannelID]; ok {
			got = there
			return ErrExists
		}
		row.Numbers = Numbers{}
		if _, session := ident.SessionOf(row.ChannelID); session {
			row.Active = row.CreatedAt
		}
		got = row
		f.rows[row.ChannelID] = row
		f.join(row.ChannelID, userIDs, RoleMember, row.CreatedAt)
		if slices.Contains(userIDs, row.CreatedBy) {
			f.join(row.ChannelID, []string{row.CreatedBy}, Owner, row.CreatedAt)
		}
		f.changes = append(f.changes, Change{ChannelID: row.ChannelID})
		return nil
	})
	return got, err
}

func (f *fakeStore) SetSettings(ctx context.Context, id string, rev int64, set Settings, now time.Time) (row Row, err error) {
	err = f.do(ctx, "SetSettings", func() error {
		there, ok := f.rows[id]
		switch {
		case !ok:
			return ErrNotFound
		case there.SettingsRev != rev:
			row = there
			return ErrChanged
		}
		if there.MembersOnly != set.MembersOnly {
			there.MembersOnly = set.MembersOnly
			there.Rev++
			f.changes = append(f.changes, Change{ChannelID: id})
		}
		there.Retention, there.SettingsRev, there.Trim.Due = set.Retention, rev+1, now
		f.rows[id], row = there, there
		return nil
	})
	return row, err
}

// Delete and MoveBoundary are tested on real stores.
func (f *fakeStore) Delete(context.Context, string, int64, time.Time) (Row, error) {
	return Row{}, errors.New("not faked")
}

func (f *fakeStore) MoveBoundary(context.Context, string, int64, message.Boundary, time.Time) (bool, error) {
	return false, errors.New("not faked")
}

func (f *fakeStore) join(id string, userIDs []string, role Role, now time.Time) {
	for _, u := range userIDs {
		k := membership{id, u}
		if _, ok := f.members[k]; !ok {
			f.members[k] = Member{ChannelID: id, UserID: u, JoinedAt: now}
		}
		if m := f.members[k]; m.Role < role {
			m.Role = role
			f.members[k] = m
		}
	}
}

func (f *fakeStore) Rows(ctx context.Context, ids []string) (rows map[string]Row, err error) {
	rows = map[string]Row{}
	err = f.do(ctx, "Rows", func() error {
		if len(ids) > maxKeys {
			return errors.New("too many")
		}
		for _, id := range ids {
			if row, ok := f.rows[id]; ok {
				rows[id] = row
			}
		}
		return nil
	})
	return rows, err
}

func (f *fakeStore) AddMembers(ctx context.Context, id string, userIDs []string, now time.Time) error {
	return f.do(ctx, "AddMembers", func() error {
		if _, ok := f.rows[id]; !ok {
			return ErrNotFound
		}
		f.join(id, userIDs, RoleMember, now)
		return nil
	})
}

func (f *fakeStore) RemoveMembers(ctx context.Context, id string, userIDs []string, left int64) error {
	return f.do(ctx, "RemoveMembers", func() error {
		if _, ok := f.rows[id]; !ok {
			return ErrNotFound
		}
		for _, u := range userIDs {
			delete(f.members, membership{id, u})
			f.left[membership{id, u}] = left
		}
		f.changes = append(f.changes, Change{id, userIDs})
		return nil
	})
}

func (f *fakeStore) list(match func(m *Member) (key string, ok bool), after string, limit int) []Member {
	byKey := map[string]Member{}
	for _, m := range f.members {
		if key, ok := match(&m); ok && key > after {
			byKey[key] = m
		}
	}
	keys := slices.Sorted(maps.Keys(byKey))
	var out []Member
	for _, k := range keys[:min(limit, len(keys))] {
		out = append(out, byKey[k])
	}
	return out
}

func (f *fakeStore) Members(ctx context.Context, id, after string, limit int) (ms []Member, err error) {
	err = f.do(ctx, "Members", func() error {
		ms = f.list(func(m *Member) (string, bool) { return m.UserID, m.ChannelID == id }, after, limit)
		return nil
	})
	return ms, err
}

func (f *fakeStore) CountMembers(ctx context.Context, id string) (n int, err error) {
	err = f.do(ctx, "CountMembers", func() error {
		for _, m := range f.members {
			if m.ChannelID == id && m.IsMember() {
				n++
			}
		}
		return nil
	})
	return n, err
}

func (f *fakeStore) Memberships(ctx context.Context, user, after string, limit int) (ms []Member, err error) {
	err = f.do(ctx, "Memberships", func() error {
		ms = f.list(func(m *Member) (string, bool) { return m.ChannelID, m.UserID == user }, after, limit)
		return nil
	})
	return ms, err
}

func (f *fakeStore) MembersOf(ctx context.Context, user string, ids []string) (ms map[string]Member, err error) {
	ms = map[string]Member{}
	err = f.do(ctx, "MembersOf", func() error {
		if len(ids) > maxKeys {
			return errors.New("too many")
		}
		for _, id := range ids {
			if m, ok := f.members[membership{id, user}]; ok {
				ms[id] = m
			}
		}
		return nil
	})
	return ms, err
}

func (f *fakeStore) SetRole(ctx context.Context, id, user string, role Role, now time.Time) error {
	return f.do(ctx, "SetRole", func() error {
		if _, ok := f.rows[id]; !ok {
			return ErrNotFound
		}
		f.join(id, []string{user}, RoleMember, now)
		m := f.members[membership{id, user}]
		m.Role = role
		f.members[membership{id, user}] = m
		return nil
	})
}

func (f *fakeStore) MembersIn(ctx context.Context, id string, users []string) (ms map[string]Member, err error) {
	ms = map[string]Member{}
	err = f.do(ctx, "MembersIn", func() error {
		for _, u := range users {
			if m, ok := f.members[membership{id, u}]; ok {
				ms[u] = m
			}
		}
		return nil
	})
	return ms, err
}

func (f *fakeStore) MarkRead(ctx context.Context, id, user string, c Cursor, join bool, now time.Time) (at Cursor, ok bool, err error) {
	err = f.do(ctx, "MarkRead", func() error {
		k := membership{id, user}
		m, member := f.members[k]
		if !member && (!join || f.rows[id].MembersOnly) {
			return nil
		}
		if !member {
			m = Member{ChannelID: id, UserID: user, Role: Follower, JoinedAt: now}
		}
		if c.Seq > m.Seq {
			m.Cursor = c
		}
		f.members[k] = m
		at, ok = m.Cursor, true
		return nil
	})
	return at, ok, err
}

func (f *fakeStore) Advance(ctx context.Context, moves []Advance, now time.Time) error {
	return f.do(ctx, "Advance", func() error {
		for _, a := range moves {
			for u, c := range a.Senders {
				f.join(a.ChannelID, []string{u}, Follower, now)
				m := f.members[membership{a.ChannelID, u}]
				m.Cursor = c
				f.members[membership{a.ChannelID, u}] = m
			}
			row := f.rows[a.ChannelID]
			row.ChannelID, row.Numbers = a.ChannelID, a.Numbers
			f.rows[a.ChannelID] = row
		}
		return nil
	})
}

func (f *fakeStore) Changes(ctx context.Context, after Stamp) (cs []Change, next Stamp, err error) {
	err = f.do(ctx, "Changes", func() error {
		next = Stamp{Hi: 1, Lo: uint32(len(f.changes))}
		if after != (Stamp{}) {
			cs = slices.Clone(f.changes[after.Lo:])
		}
		return nil
	})
	return cs, next, err
}

var _ Store = (*fakeStore)(nil)

// fakeLog holds logs that contain only messages, no edits or recalls.
type fakeLog struct {
	mu   sync.Mutex
	logs map[string][]message.Message
	err  error
	// reads counts the calls of MessagesAt.
	reads int
}

func (l *fakeLog) send(id, content string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logs == nil {
		l.logs = map[string][]message.Message{}
	}
	n := int64(len(l.logs[id]) + 1)
	l.logs[id] = append(l.logs[id], message.Message{ChannelID: id, Seq: n, Count: n, Content: content})
}

func (l *fakeLog) State(_ context.Context, id string) (message.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int64(len(l.logs[id]))
	return message.State{Head: n, Count: n}, l.err
}

func (l *fakeLog) CountAt(_ context.Context, id string, seq int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.logs[id][seq-1].Count, l.err
}

func (l *fakeLog) MessagesAt(_ context.Context, places []message.Place) (map[message.Place]message.Message, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	found := map[message.Place]message.Message{}
	for _, p := range places {
		if p.Seq <= int64(len(l.logs[p.ChannelID])) {
			found[p] = l.logs[p.ChannelID][p.Seq-1]
		}
	}
	return found, l.err
}

var _ Log = (*message.Reader)(nil)

// can returns a principal with capabilities for all channels that pattern covers.
func can(subject, pattern string, actions ...ident.Action) *ident.Principal {
	return &ident.Principal{Subject: subject, Channels: []ident.Capability{{Pattern: pattern, Actions: actions}}}
}
