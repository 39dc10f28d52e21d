package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/ident"
)

// Channels implements channel.Store. Safe for concurrent use. Changes of one channel run one at a
// time. Changes of different channels, and of messages, can share an fsync.
type Channels struct{ store *Store }

var _ channel.Store = (*Channels)(nil)

// Channels returns a store of channels and members in the same database. It is closed with s.
func (s *Store) Channels() *Channels { return &Channels{s} }

// read calls fn with a view, a snapshot of what is durable. what names the call in errors.
func (c *Channels) read(what string, fn func(v *view) error) error {
	s := c.store
	if err := s.begin(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer s.end()
	v := s.views.view()
	defer s.views.release(v)
	if err := fn(v); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// change calls fn to modify records of channels and members, and returns once the result is
// durable. It checks ctx before it starts but not while it waits for the fsync. If fn has modified
// a record, Changes then also returns changed. what names the call in errors.
func (c *Channels) change(
	ctx context.Context, what string, channelIDs []string, fn func(r *roster) error, changed ...channel.Change,
) error {
	s := c.store
	if err := s.begin(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer s.end()
	defer s.rosters.lock(channelIDs)()
	if err := errors.Join(ctx.Err(), s.failure.err()); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	v := s.views.view()
	defer s.views.release(v)
	r := &roster{view: v, channels: map[string]*loadedRecord[channelRecord]{}, members: map[memberID]*loadedRecord[memberRecord]{}}
	if err := fn(r); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	batch := s.db.NewBatch()
	if err := r.write(batch); err != nil || batch.Empty() {
		return errors.Join(err, batch.Close())
	}
	if err := s.commits.commit(batch); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.changes.add(changed)
	return nil
}

// errName reports an id that can't be part of a key.
var errName = errors.New("an id contains a zero byte")

// Ensure implements channel.Store.
func (c *Channels) Ensure(ctx context.Context, channelID string, now time.Time) (row channel.Row, err error) {
	if !validNames(channelID) {
		return channel.Row{}, errName
	}
	var record channelRecord
	found := false
	err = c.read("ensure channel", func(v *view) (err error) {
		found, err = v.record(channelKey(channelID), &record)
		return err
	})
	if err == nil && !found && ident.IsSession(channelID) {
		err = fmt.Errorf("ensure channel: %w", channel.ErrNotFound)
	}
	if err != nil || found {
		return record.row(channelID), err
	}
	err = c.change(ctx, "ensure channel", []string{channelID}, func(r *roster) error {
		record, err := r.ensure(channelID, now)
		if err == nil {
			row = record.row(channelID)
		}
		return err
	})
	return row, err
}

// Create implements channel.Store.
func (c *Channels) Create(ctx context.Context, row channel.Row, userIDs []string) (channel.Row, error) {
	if !validNames(row.ChannelID) || !validNames(userIDs...) {
		return channel.Row{}, errName
	}
	var got channel.Row
	err := c.change(ctx, "create channel", []string{row.ChannelID}, func(r *roster) error {
		there, err := r.channel(row.ChannelID)
		if err != nil {
			return err
		}
		made, err := r.create(there, &row)
		if err != nil {
			got = there.row(row.ChannelID)
			return err
		}
		got = made.row(row.ChannelID)
		if err := r.join(row.ChannelID, userIDs, row.CreatedAt); err != nil || !slices.Contains(userIDs, row.CreatedBy) {
			return err
		}
		owner, err := r.member(row.ChannelID, row.CreatedBy)
		if err == nil {
			owner.join(channel.Owner, row.CreatedAt)
		}
		return err
	})
	if err != nil && !errors.Is(err, channel.ErrExists) {
		return channel.Row{}, err
	}
	if err == nil && (got.MembersOnly || got.SettingsRev > 0) {
		c.store.changes.add([]channel.Change{{ChannelID: row.ChannelID}})
	}
	return got, err
}

// create returns the record of a new channel. there is the record of the id, or nil. If that is not
// of a deleted channel that row may replace, it returns channel.ErrExists.
func (r *roster) create(there *channelRecord, row *channel.Row) (made *channelRecord, err error) {
	switch {
	case there == nil:
		made = r.make(row.ChannelID, channelRecord{Rev: row.Rev})
	case there.State != channel.Deleted || ident.IsSession(row.ChannelID) || row.CreateKey != "" && there.CreateKey == row.CreateKey && there.CreatedBy == row.CreatedBy:
		return nil, channel.ErrExists
	default:
		made = there
		made.State, made.Began = channel.Live, made.Oldest
		made.Rev++
		made.SettingsRev++
	}
	made.MembersOnly, made.CreatedBy, made.CreatedMS = row.MembersOnly, row.CreatedBy, row.CreatedAt.UnixMilli()
	made.CreateKey, made.CreateDigest = row.CreateKey, row.CreateDigest
	if ident.IsSession(row.ChannelID) {
		made.ActiveMS, made.Title = made.CreatedMS, row.Title
	}
	made.setRetention(row.Retention)
	if row.Retention != nil {
		made.DueMS = made.CreatedMS
	}
	return made, nil
}

// live returns channel.ErrNotFound if there is no channel or it was deleted.
func (r *roster) live(channelID string) error {
	there, err := r.channel(channelID)
	if err == nil && (there == nil || there.State != channel.Live) {
		err = channel.ErrNotFound
	}
	return err
}

// join makes users members of a channel. It changes nothing for those who are members.
func (r *roster) join(channelID string, userIDs []string, now time.Time) error {
	for _, userID := range userIDs {
		m, err := r.member(channelID, userID)
		if err != nil {
			return err
		}
		m.join(channel.RoleMember, now)
	}
	return nil
}

// Rows implements channel.Store.
func (c *Channels) Rows(_ context.Context, channelIDs []string) (map[string]channel.Row, error) {
	rows := make(map[string]channel.Row, len(channelIDs))
	err := c.read("rows of channels", func(v *view) error {
		for _, id := range channelIDs {
			var record channelRecord
			found, err := v.record(channelKey(id), &record)
			if err != nil {
				return err
			}
			if found {
				rows[id] = record.row(id)
			}
		}
		return nil
	})
	return rows, err
}

// AddMembers implements channel.Store.
func (c *Channels) AddMembers(ctx context.Context, channelID string, userIDs []string, now time.Time) error {
	if !validNames(channelID) || !validNames(userIDs...) {
		return errName
	}
	return c.change(ctx, "add members", []string{channelID}, func(r *roster) error {
		if err := r.live(channelID); err != nil {
			return err
		}
		return r.join(channelID, userIDs, now)
	})
}

// SetRole implements channel.Store.
func (c *Channels) SetRole(ctx context.Context, channelID, userID string, role channel.Role, now time.Time) error {
	if !validNames(channelID, userID) {
		return errName
	}
	return c.change(ctx, "set role", []string{channelID}, func(r *roster) error {
		if err := r.live(channelID); err != nil {
			return err
		}
		m, err := r.member(channelID, userID)
		if err != nil {
			return err
		}
		m.join(channel.RoleMember, now)
		m.Role = role
		return nil
	})
}

// RemoveMembers implements channel.Store.
func (c *Channels) RemoveMembers(ctx context.Context, channelID string, userIDs []string, left int64) error {
	if !validNames(channelID) || !validNames(userIDs...) {
		return errName
	}
	return c.change(ctx, "remove members", []string{channelID}, func(r *roster) error {
		if err := r.live(channelID); err != nil {
			return err
		}
		for _, userID := range userIDs {
			m, err := r.member(channelID, userID)
			if err != nil {
				return err
			}
			m.Member, m.Left = false, max(m.Left, left)
		}
		return nil
	}, channel.Change{ChannelID: channelID, UserIDs: userIDs})
}

// MarkRead implements channel.Store.
func (c *Channels) MarkRead(ctx context.Context, channelID, userID string, to channel.Cursor, join bool, now time.Time,
) (cursor channel.Cursor, ok bool, err error) {
	if !validNames(channelID, userID) {
		return channel.Cursor{}, false, errName
	}
	err = c.change(ctx, "mark read", []string{channelID}, func(r *roster) error {
		m, err := r.member(channelID, userID)
		if err != nil {
			return err
		}
		if !m.Member && join && !ident.IsSession(channelID) {
			record, err := r.ensure(channelID, now)
			if err != nil {
				return err
			}
			if record.open() {
				m.join(channel.Follower, now)
			}
		}
		if m.Member {
			m.move(to)
			cursor, ok = m.cursor(), true
		}
		return nil
	})
	if err != nil {
		return channel.Cursor{}, false, err
	}
	return cursor, ok, nil
}

// Advance implements channel.Store. It writes all moves in one batch.
func (c *Channels) Advance(ctx context.Context, moves []channel.Advance, now time.Time) error {
	ids := make([]string, len(moves))
	for i := range moves {
		ids[i] = moves[i].ChannelID
	}
	if !validNames(ids...) {
		return errName
	}
	return c.change(ctx, "advance channels", ids, func(r *roster) error {
		for i := range moves {
			if err := r.advance(&moves[i], now); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *roster) advance(move *channel.Advance, now time.Time) error {
	find := r.ensure
	if ident.IsSession(move.ChannelID) {
		find = func(channelID string, _ time.Time) (*channelRecord, error) { return r.channel(channelID) }
	}
	record, err := find(move.ChannelID, now)
	if err != nil || record == nil {
		return err
	}
	for userID, cursor := range move.Senders {
		if !validNames(userID) {
			return errName
		}
		m, err := r.member(move.ChannelID, userID)
		if err != nil {
			return err
		}
		if record.open() && cursor.Seq > m.Left && cursor.Seq >= record.Began {
			m.join(channel.Follower, now)
		}
		if record.open() || m.Member {
			m.move(cursor)
		}
	}
	if move.Head > record.Head {
		record.Head, record.Count = move.Head, move.Count
	}
	record.LastMessage = max(record.LastMessage, move.LastMessage)
	if record.ActiveMS != 0 && !move.Active.IsZero() {
		record.ActiveMS = max(record.ActiveMS, move.Active.UnixMilli())
	}
	return nil
}

// Members implements channel.Store.
func (c *Channels) Members(_ context.Context, channelID, after string, limit int) (found []channel.Member, err error) {
	if !validNames(channelID, after) {
		return nil, errName
	}
	err = c.read("members", func(v *view) error {
		lower, upper := nameBounds(memberRow, channelID, after)
		return v.walk(lower, upper, func(userID string) (bool, error) {
			var record memberRecord
			if _, err := v.record(memberKey(channelID, userID), &record); err != nil {
				return false, err
			}
			if record.Member && len(found) < limit {
				found = append(found, record.row(channelID, userID))
			}
			return len(found) < limit, nil
		})
	})
	return found, err
}

// CountMembers implements channel.Store.
func (c *Channels) CountMembers(_ context.Context, channelID string) (n int, err error) {
	if !validNames(channelID) {
		return 0, errName
	}
	err = c.read("count members", func(v *view) error {
		lower, upper := nameBounds(memberRow, channelID, "")
		return v.walk(lower, upper, func(userID string) (bool, error) {
			var record memberRecord
			if _, err := v.record(memberKey(channelID, userID), &record); err != nil {
				return false, err
			}
			if record.role() >= channel.RoleMember {
				n++
			}
			return true, nil
		})
	})
	return n, err
}

// Memberships implements channel.Store.
func (c *Channels) Memberships(_ context.Context, userID, after string, limit int) (found []channel.Member, err error) {
	if !validNames(userID, after) {
		return nil, errName
	}
	err = c.read("memberships", func(v *view) error {
		lower, upper := nameBounds(membershipRow, userID, after)
		return v.walk(lower, upper, func(channelID string) (bool, error) {
			if len(found) >= limit {
				return false, nil
			}
			var record memberRecord
			if _, err := v.record(memberKey(channelID, userID), &record); err != nil {
				return false, err
			}
			found = append(found, record.row(channelID, userID))
			return true, nil
		})
	})
	return found, err
}

// walk calls fn with the last name of each key, in key order, until fn returns false.
func (v *view) walk(lower, upper []byte, fn func(name string) (bool, error)) (err error) {
	iter, err := v.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return fmt.Errorf("walk: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for iter.First(); iter.Valid(); iter.Next() {
		more, err := fn(lastName(iter.Key()))
		if err != nil || !more {
			return err
		}
	}
	return iter.Error()
}

// MembersOf implements channel.Store.
func (c *Channels) MembersOf(_ context.Context, userID string, channelIDs []string) (map[string]channel.Member, error) {
	if !validNames(userID) || !validNames(channelIDs...) {
		return nil, errName
	}
	of := make(map[string]channel.Member, len(channelIDs))
	err := c.read("members of", func(v *view) error {
		for _, channelID := range channelIDs {
			var record memberRecord
			if _, err := v.record(memberKey(channelID, userID), &record); err != nil {
				return err
			}
			if record.Member {
				of[channelID] = record.row(channelID, userID)
			}
		}
		return nil
	})
	return of, err
}

// MembersIn implements channel.Store.
func (c *Channels) MembersIn(_ context.Context, channelID string, userIDs []string) (map[string]channel.Member, error) {
	if !validNames(channelID) || !validNames(userIDs...) {
		return nil, errName
	}
	in := make(map[string]channel.Member, len(userIDs))
	err := c.read("members in", func(v *view) error {
		for _, userID := range userIDs {
			var record memberRecord
			if _, err := v.record(memberKey(channelID, userID), &record); err != nil {
				return err
			}
			if record.Member {
				in[userID] = record.row(channelID, userID)
			}
		}
		return nil
	})
	return in, err
}

// Changes implements channel.Store. It returns only changes that this process made within the last
// minute.
func (c *Channels) Changes(_ context.Context, after channel.Stamp) (changed []channel.Change, next channel.Stamp, err error) {
	err = c.read("changes of channels", func(*view) error {
		changed, next = c.store.changes.since(after)
		return nil
	})
	return changed, next, err
}
