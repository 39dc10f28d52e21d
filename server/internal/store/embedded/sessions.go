package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/channel"
)

// sessionKey returns the key of a session's row in the list of its owner. It is nil if the session
// is in no list, because it was deleted or its owner was erased.
func sessionKey(channelID string, record *channelRecord) []byte {
	if record.ActiveMS == 0 || record.CreatedBy == "" {
		return nil
	}
	return append(appendNumber(nameKey(sessionRow, record.CreatedBy), ^record.ActiveMS), channelID...)
}

// writeSession moves a channel's row in the list of its owner, if it is a session.
func writeSession(batch *pebble.Batch, channelID string, before, after *channelRecord) error {
	from, to := sessionKey(channelID, before), sessionKey(channelID, after)
	if bytes.Equal(from, to) {
		return nil
	}
	var err error
	if from != nil {
		err = batch.Delete(from, nil)
	}
	if to != nil {
		err = errors.Join(err, batch.Set(to, nil, nil))
	}
	if err != nil {
		return fmt.Errorf("set session: %w", err)
	}
	return nil
}

// Sessions implements channel.Store.
func (c *Channels) Sessions(_ context.Context, ownerID string, after channel.SessionPlace, limit int) (rows []channel.Row, err error) {
	if !validNames(ownerID, after.ChannelID) {
		return nil, errName
	}
	err = c.read("sessions", func(v *view) (err error) {
		prefix := nameKey(sessionRow, ownerID)
		lower, upper := prefix, append(bytes.Clone(prefix[:len(prefix)-1]), 1)
		if after.ChannelID != "" {
			last := channelRecord{CreatedBy: ownerID, ActiveMS: after.Active.UnixMilli()}
			lower = append(sessionKey(after.ChannelID, &last), 0)
		}
		iter, err := v.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, iter.Close()) }()
		for ok := iter.First(); ok && len(rows) < limit; ok = iter.Next() {
			channelID := string(iter.Key()[len(prefix)+8:])
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
