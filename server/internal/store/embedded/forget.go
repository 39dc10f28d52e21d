package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/channel"
)

var _ channel.EraseStore = (*Channels)(nil)

// Forget implements channel.EraseStore. It seeks the user in the members of each channel, and reads
// all channels.
func (c *Channels) Forget(ctx context.Context, userID string, limit int) (n int, err error) {
	if !validNames(userID) {
		return 0, errName
	}
	var left, created []string
	err = c.read("forget user", func(v *view) (err error) {
		if left, err = v.channelsLeft(userID, limit); err != nil {
			return err
		}
		created, err = v.channelsBy(userID, limit)
		return err
	})
	if err != nil || len(left)+len(created) == 0 {
		return 0, err
	}
	s := c.store
	if err := s.begin(); err != nil {
		return 0, fmt.Errorf("forget user: %w", err)
	}
	defer s.end()
	defer s.rosters.lock(append(left, created...))()
	if err := errors.Join(ctx.Err(), s.failure.err()); err != nil {
		return 0, fmt.Errorf("forget user: %w", err)
	}
	v := s.views.view()
	defer s.views.release(v)
	batch := s.db.NewBatch()
	if err := v.forget(batch, userID, left, created); err != nil || batch.Empty() {
		return 0, errors.Join(err, batch.Close())
	}
	if err := s.commits.commit(batch); err != nil {
		return 0, fmt.Errorf("forget user: %w", err)
	}
	return len(left) + len(created), nil
}

// channelsLeft returns up to limit channels that have a record of the user as a former member.
func (v *view) channelsLeft(userID string, limit int) (ids []string, err error) {
	iter, err := v.NewIter(&pebble.IterOptions{LowerBound: []byte{memberRow}, UpperBound: []byte{memberRow + 1}})
	if err != nil {
		return nil, fmt.Errorf("former memberships: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for ok := iter.First(); ok && len(ids) < limit; {
		key := iter.Key()
		channelID := string(key[1 : 1+bytes.IndexByte(key[1:], 0)])
		var record memberRecord
		found, err := v.record(memberKey(channelID, userID), &record)
		if err != nil {
			return nil, err
		}
		if found && !record.Member {
			ids = append(ids, channelID)
		}
		next := nameKey(memberRow, channelID)
		next[len(next)-1] = 1
		ok = iter.SeekGE(next)
	}
	return ids, iter.Error()
}

// channelsBy returns up to limit channels that the user created.
func (v *view) channelsBy(userID string, limit int) (ids []string, err error) {
	err = v.walk([]byte{channelRow}, []byte{channelRow + 1}, func(channelID string) (bool, error) {
		var record channelRecord
		if _, err := v.record(channelKey(channelID), &record); err != nil {
			return false, err
		}
		if record.CreatedBy == userID {
			ids = append(ids, channelID)
		}
		return len(ids) < limit, nil
	})
	return ids, err
}

// forget adds to a batch what Forget removes from the given channels, whose locks the caller holds.
func (v *view) forget(batch *pebble.Batch, userID string, left, created []string) error {
	for _, id := range left {
		var record memberRecord
		found, err := v.record(memberKey(id, userID), &record)
		if err == nil && found && !record.Member {
			err = batch.Delete(memberKey(id, userID), nil)
		}
		if err != nil {
			return fmt.Errorf("forget user: %w", err)
		}
	}
	for _, id := range created {
		var record channelRecord
		found, err := v.record(channelKey(id), &record)
		if err == nil && found && record.CreatedBy == userID {
			before := record
			record.CreatedBy, record.CreateKey, record.CreateDigest, record.Title, record.ActiveMS = "", "", "", "", 0
			err = errors.Join(setRecord(batch, channelKey(id), &record), writeSession(batch, id, &before, &record))
		}
		if err != nil {
			return fmt.Errorf("forget user: %w", err)
		}
	}
	return nil
}
