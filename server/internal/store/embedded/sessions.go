package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/channel"
)

// listed reports whether a channel is in the lists of sessions. A session that was deleted, or
// whose owner was erased, is in none.
func (r *channelRecord) listed() bool { return r.ActiveMS != 0 && r.CreatedBy != "" }

// sessionKey returns the key of a session's row in the list of its owner.
func sessionKey(channelID string, record *channelRecord) []byte {
	return append(appendNumber(nameKey(sessionRow, record.CreatedBy), ^record.ActiveMS), channelID...)
}

// activeKey returns the key of a session's row in the list of all sessions.
func activeKey(channelID string, record *channelRecord) []byte {
	return append(appendNumber([]byte{activeRow}, ^record.ActiveMS), channelID...)
}

// writeSession moves a channel's rows in the lists of sessions, if it is a session.
func writeSession(batch *pebble.Batch, channelID string, before, after *channelRecord) error {
	if before.listed() == after.listed() && before.ActiveMS == after.ActiveMS && before.CreatedBy == after.CreatedBy {
		return nil
	}
	var err error
	if before.listed() {
		err = errors.Join(batch.Delete(sessionKey(channelID, before), nil), batch.Delete(activeKey(channelID, before), nil))
	}
	if after.listed() {
		err = errors.Join(err, batch.Set(sessionKey(channelID, after), nil, nil), batch.Set(activeKey(channelID, after), nil, nil))
	}
	if err != nil {
		return fmt.Errorf("set session: %w", err)
	}
	return nil
}

// Sessions implements channel.Store.
func (c *Channels) Sessions(_ context.Context, ownerID string, after channel.SessionPlace, limit int) ([]channel.Row, error) {
	if !validNames(ownerID, after.ChannelID) {
		return nil, errName
	}
	prefix := nameKey(sessionRow, ownerID)
	upper := append(bytes.Clone(prefix[:len(prefix)-1]), 1)
	return c.sessionsIn(prefix, upper, len(prefix), after, func(last *channelRecord) []byte {
		last.CreatedBy = ownerID
		return sessionKey(after.ChannelID, last)
	}, limit)
}

// EverySession implements channel.Store.
func (c *Channels) EverySession(_ context.Context, after channel.SessionPlace, limit int) ([]channel.Row, error) {
	if !validNames(after.ChannelID) {
		return nil, errName
	}
	return c.sessionsIn([]byte{activeRow}, []byte{activeRow + 1}, 1, after, func(last *channelRecord) []byte {
		return activeKey(after.ChannelID, last)
	}, limit)
}

// sessionsIn returns up to limit sessions of a list, whose keys are between the bounds and have the
// activity at an offset. keyOf returns the key of the session at after, whose record it is given.
func (c *Channels) sessionsIn(
	lower, upper []byte, offset int, after channel.SessionPlace, keyOf func(last *channelRecord) []byte, limit int,
) (rows []channel.Row, err error) {
	if after.ChannelID != "" {
		lower = append(keyOf(&channelRecord{ActiveMS: after.Active.UnixMilli()}), 0)
	}
	err = c.read("sessions", func(v *view) (err error) {
		iter, err := v.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, iter.Close()) }()
		for ok := iter.First(); ok && len(rows) < limit; ok = iter.Next() {
			channelID := string(iter.Key()[offset+8:])
			var record channelRecord
			if _, err := v.record(channelKey(channelID), &record); err != nil {
				return err
			}
			rows = append(rows, record.row(channelID))
		}
		return iter.Error()
	})
	return rows, err
}

// Owners implements channel.Store.
func (c *Channels) Owners(_ context.Context, channelIDs []string) (map[string]channel.Member, error) {
	owners := make(map[string]channel.Member, len(channelIDs))
	err := c.read("owners", func(v *view) error {
		for _, channelID := range channelIDs {
			var of channelRecord
			var member memberRecord
			_, err := v.record(channelKey(channelID), &of)
			if err == nil && of.CreatedBy != "" {
				_, err = v.record(memberKey(channelID, of.CreatedBy), &member)
			}
			if err != nil {
				return err
			}
			if member.Member {
				owners[channelID] = member.row(channelID, of.CreatedBy)
			}
		}
		return nil
	})
	return owners, err
}

// SetTitle implements channel.Store.
func (c *Channels) SetTitle(ctx context.Context, channelID, title string) error {
	if !validNames(channelID) {
		return errName
	}
	return c.change(ctx, "set title", []string{channelID}, func(r *roster) error {
		record, err := r.channel(channelID)
		if err != nil {
			return err
		}
		if record == nil || record.State != channel.Live {
			return channel.ErrNotFound
		}
		record.Title = title
		return nil
	})
}
