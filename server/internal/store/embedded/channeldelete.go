package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
)

// Delete implements channel.Store.
func (c *Channels) Delete(ctx context.Context, channelID string, rev int64, now time.Time) (row channel.Row, err error) {
	if !validNames(channelID) {
		return channel.Row{}, errName
	}
	err = c.change(ctx, "delete channel", []string{channelID}, func(r *roster) error {
		record, err := r.channel(channelID)
		switch {
		case err != nil:
			return err
		case record == nil:
			return channel.ErrNotFound
		case record.SettingsRev != rev || record.State != channel.Live:
			row = record.row(channelID)
			return channel.ErrChanged
		}
		record.State, record.ActiveMS, record.Title = channel.Deleting, 0, ""
		record.Rev++
		record.SettingsRev++
		record.Stripped, record.DueMS = 0, now.UnixMilli()
		row = record.row(channelID)
		return nil
	}, channel.Change{ChannelID: channelID})
	return row, err
}

// DropMembers implements channel.TrimStore.
func (c *Channels) DropMembers(ctx context.Context, channelID string, limit int) (n int, err error) {
	if !validNames(channelID) {
		return 0, errName
	}
	s := c.store
	if err := s.begin(); err != nil {
		return 0, fmt.Errorf("drop members: %w", err)
	}
	defer s.end()
	defer s.rosters.lock([]string{channelID})()
	if err := errors.Join(ctx.Err(), s.failure.err()); err != nil {
		return 0, fmt.Errorf("drop members: %w", err)
	}
	v := s.views.view()
	defer s.views.release(v)
	var record channelRecord
	if _, err := v.record(channelKey(channelID), &record); err != nil || record.State == channel.Live {
		return 0, err
	}
	batch := s.db.NewBatch()
	lower, upper := nameBounds(memberRow, channelID, "")
	err = v.walk(lower, upper, func(userID string) (bool, error) {
		if n == limit {
			return false, nil
		}
		n++
		return true, errors.Join(batch.Delete(memberKey(channelID, userID), nil), batch.Delete(membershipKey(userID, channelID), nil))
	})
	if err != nil || batch.Empty() {
		return 0, errors.Join(err, batch.Close())
	}
	if err := s.commits.commit(batch); err != nil {
		return 0, fmt.Errorf("drop members: %w", err)
	}
	return n, nil
}

// FinishDelete implements channel.TrimStore.
func (c *Channels) FinishDelete(ctx context.Context, channelID string) error {
	if !validNames(channelID) {
		return errName
	}
	return c.change(ctx, "finish the deletion", []string{channelID}, func(r *roster) error {
		record, err := r.channel(channelID)
		if err == nil && record != nil && record.State == channel.Deleting {
			record.State = channel.Deleted
		}
		return err
	})
}
