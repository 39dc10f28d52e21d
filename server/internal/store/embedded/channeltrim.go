package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/message"
)

var _ channel.TrimStore = (*Channels)(nil)

// trimRecord is the part of a channelRecord about retention and trimming. Retains is set if the
// channel has a policy of its own.
type trimRecord struct {
	Retains     bool  `json:"retains,omitempty"`
	MaxAgeMS    int64 `json:"max_age_ms,omitempty"`
	MaxMessages int64 `json:"max_messages,omitempty"`
	MaxBytes    int64 `json:"max_bytes,omitempty"`
	SettingsRev int64 `json:"settings_rev,omitempty"`
	Oldest      int64 `json:"oldest,omitempty"`
	Expired     int64 `json:"expired,omitempty"`
	Stripped    int64 `json:"stripped,omitempty"`
	Deleted     int64 `json:"deleted,omitempty"`
	DueMS       int64 `json:"due_ms,omitempty"`
}

func (r *trimRecord) setRetention(own *channel.Retention) {
	r.Retains, r.MaxAgeMS, r.MaxMessages, r.MaxBytes = own != nil, 0, 0, 0
	if own != nil {
		r.MaxAgeMS, r.MaxMessages, r.MaxBytes = own.MaxAge.Milliseconds(), own.MaxMessages, own.MaxBytes
	}
}

func (r *trimRecord) retention() *channel.Retention {
	if !r.Retains {
		return nil
	}
	return &channel.Retention{MaxAge: time.Duration(r.MaxAgeMS) * time.Millisecond, MaxMessages: r.MaxMessages, MaxBytes: r.MaxBytes}
}

func (r *trimRecord) trim() channel.Trim {
	t := channel.Trim{Stripped: r.Stripped, Deleted: r.Deleted}
	if r.DueMS != 0 {
		t.Due = time.UnixMilli(r.DueMS).UTC()
	}
	return t
}

// SetSettings implements channel.Store.
func (c *Channels) SetSettings(ctx context.Context, channelID string, rev int64, set channel.Settings, now time.Time,
) (row channel.Row, err error) {
	if !validNames(channelID) {
		return channel.Row{}, errName
	}
	err = c.change(ctx, "set settings", []string{channelID}, func(r *roster) error {
		record, err := r.channel(channelID)
		switch {
		case err != nil:
			return err
		case record == nil || record.State != channel.Live:
			return channel.ErrNotFound
		case record.SettingsRev != rev:
			row = record.row(channelID)
			return channel.ErrChanged
		}
		if record.MembersOnly != set.MembersOnly {
			record.MembersOnly = set.MembersOnly
			record.Rev++
		}
		record.setRetention(set.Retention)
		record.SettingsRev++
		record.DueMS = now.UnixMilli()
		row = record.row(channelID)
		return nil
	}, channel.Change{ChannelID: channelID})
	return row, err
}

// RowsAfter implements channel.TrimStore.
func (c *Channels) RowsAfter(_ context.Context, after string, limit int) (rows []channel.Row, err error) {
	if !validNames(after) {
		return nil, errName
	}
	err = c.read("rows after", func(v *view) error {
		lower := append(nameKey(channelRow, after), 0) // just above the key of after itself
		if after == "" {
			lower = []byte{channelRow}
		}
		return v.walk(lower, []byte{channelRow + 1}, func(channelID string) (bool, error) {
			var record channelRecord
			if _, err := v.record(channelKey(channelID), &record); err != nil {
				return false, err
			}
			rows = append(rows, record.row(channelID))
			return len(rows) < limit, nil
		})
	})
	return rows, err
}

// Due implements channel.TrimStore.
func (c *Channels) Due(_ context.Context, shard int, until time.Time, limit int) (rows []channel.Row, err error) {
	err = c.read("due channels", func(v *view) error {
		return v.walk([]byte{dueRow}, appendNumber([]byte{dueRow}, until.UnixMilli()+1), func(channelID string) (bool, error) {
			if message.Shard(channelID, len(c.store.shards)) != shard {
				return true, nil
			}
			var record channelRecord
			if _, err := v.record(channelKey(channelID), &record); err != nil {
				return false, err
			}
			rows = append(rows, record.row(channelID))
			return len(rows) < limit, nil
		})
	})
	return rows, err
}

// MoveBoundary implements channel.TrimStore.
func (c *Channels) MoveBoundary(ctx context.Context, channelID string, rev int64, to message.Boundary, due time.Time,
) (moved bool, err error) {
	if !validNames(channelID) {
		return false, errName
	}
	err = c.change(ctx, "move boundary", []string{channelID}, func(r *roster) error {
		record, err := r.channel(channelID)
		if err != nil || record == nil || record.SettingsRev != rev || record.Oldest >= to.Oldest {
			return err
		}
		record.Oldest, record.Expired, record.DueMS = to.Oldest, to.Expired, due.UnixMilli()
		moved = true
		return nil
	})
	return moved && err == nil, err
}

// SetTrim implements channel.TrimStore.
func (c *Channels) SetTrim(ctx context.Context, read *channel.Row, trim channel.Trim) error {
	if !validNames(read.ChannelID) {
		return errName
	}
	return c.change(ctx, "set trim", []string{read.ChannelID}, func(r *roster) error {
		record, err := r.channel(read.ChannelID)
		if err != nil || record == nil {
			return err
		}
		if record.SettingsRev == read.SettingsRev {
			record.Stripped, record.Deleted = max(record.Stripped, trim.Stripped), max(record.Deleted, trim.Deleted)
		}
		due := int64(0)
		if !trim.Due.IsZero() {
			due = trim.Due.UnixMilli()
		}
		unchanged := record.SettingsRev == read.SettingsRev && record.Oldest == read.Oldest && record.Head == read.Head
		if unchanged || due != 0 && (record.DueMS == 0 || due < record.DueMS) {
			record.DueMS = due
		}
		return nil
	})
}

// dueKey returns the key of a channel's dueRow.
func dueKey(dueMS int64, channelID string) []byte {
	key := append(appendNumber([]byte{dueRow}, dueMS), 0)
	return append(append(key, channelID...), 0)
}

// writeDue adds the change of a channel's dueRow to a batch.
func writeDue(batch *pebble.Batch, channelID string, was, is int64) error {
	if was == is {
		return nil
	}
	var err error
	if was != 0 {
		err = batch.Delete(dueKey(was, channelID), nil)
	}
	if is != 0 {
		err = errors.Join(err, batch.Set(dueKey(is, channelID), nil, nil))
	}
	if err != nil {
		return fmt.Errorf("set due: %w", err)
	}
	return nil
}
