package redispresence

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/presence"
)

// Open implements presence.Store.
func (s *Store) Open(ctx context.Context, shard int, old, epoch string) (presence.Head, error) {
	var c checks
	c.shard(shard)
	c.word("old epoch", old, 0, maxWord)
	c.epoch(epoch)
	c.thatf(old != epoch, "the new epoch must not be the old one, %q", old)
	if c.err != nil {
		return presence.Head{}, c.err
	}
	r := read(shardName(shard), s.run(ctx, s.scripts.open, []string{s.keys.meta(shard), s.keys.log(shard)}, old, epoch))
	_, head := r.head()
	if r.err != nil {
		return presence.Head{}, r.err
	}
	return head, nil
}

// Restored implements presence.Store. It does nothing either if the epoch is settled, so that a
// shard does not keep a field for every node that ever was.
func (s *Store) Restored(ctx context.Context, shard int, epoch, node string) error {
	var c checks
	c.shard(shard)
	c.epoch(epoch)
	c.node(node)
	if c.err != nil {
		return c.err
	}
	if err := s.run(ctx, s.scripts.restored, []string{s.keys.meta(shard)}, epoch, node).Err(); err != nil {
		return failed(shardName(shard), err)
	}
	return nil
}

// Settle implements presence.Store.
func (s *Store) Settle(ctx context.Context, shard int, epoch string) error {
	var c checks
	c.shard(shard)
	c.epoch(epoch)
	if c.err != nil {
		return c.err
	}
	if err := s.run(ctx, s.scripts.settle, []string{s.keys.meta(shard)}, epoch).Err(); err != nil {
		return failed(shardName(shard), err)
	}
	return nil
}

// metaTime returns the time in a field of a shard's meta, or the zero time if there is none.
func metaTime(meta map[string]string, field string) (time.Time, error) {
	if meta[field] == "" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(meta[field], 10, 64)
	return time.UnixMilli(ms), err
}

// RestoredNodes implements presence.Store. The nodes are sorted.
func (s *Store) RestoredNodes(ctx context.Context, shard int) (presence.Head, []string, error) {
	var c checks
	if c.shard(shard); c.err != nil {
		return presence.Head{}, nil, c.err
	}
	meta, err := s.client.HGetAll(ctx, s.keys.meta(shard)).Result()
	if err != nil {
		return presence.Head{}, nil, failed(shardName(shard), err)
	}
	head := presence.Head{Epoch: meta["epoch"]}
	if head.Epoch != "" {
		seq, seqErr := strconv.ParseInt(meta["seq"], 10, 64)
		opened, openedErr := metaTime(meta, "opened")
		last, lastErr := metaTime(meta, "last")
		settled, settledErr := metaTime(meta, "settled")
		if err := errors.Join(seqErr, openedErr, lastErr, settledErr); err != nil || opened.IsZero() {
			return presence.Head{}, nil, unreadable(shardName(shard), "head", meta)
		}
		head.Seq, head.LastAt, head.Opened, head.SettledAt = seq, last, opened, settled
	}
	var nodes []string
	for field := range meta {
		if node, ok := strings.CutPrefix(field, "r:"); ok {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return head, nodes, nil
}
