package redislog

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Marks returns how far the groups of a partition are. A group whose state is lost has none, and
// then Groups is empty: nothing is known about what it has settled. ErrNoTopic.
func (s *Store) Marks(ctx context.Context, ref qlog.Ref) (qlog.Marks, error) {
	m, err := s.marks(ctx, ref)
	if err != nil {
		return qlog.Marks{}, fmt.Errorf("marks of partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	return m, nil
}

func (s *Store) marks(ctx context.Context, ref qlog.Ref) (m qlog.Marks, err error) {
	head, err := s.client.HMGet(ctx, s.keys.meta(ref), "uid", "gv", "groups", "ord").Result()
	if err != nil {
		return m, readError(err)
	}
	if head[0] != ref.UID {
		return m, qlog.ErrNoTopic
	}
	ord, err := numbersOf(head[3:])
	if err != nil {
		return m, err
	}
	m.Ord = ord[0]
	if version, ok := head[1].(string); ok {
		if m.Version, err = strconv.ParseInt(version, 10, 64); err != nil {
			return m, fmt.Errorf("gv is %q", version)
		}
	}
	list, _ := head[2].(string)
	names := strings.Fields(list)
	states := make([]*redis.SliceCmd, len(names))
	var length *redis.IntCmd
	if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, g := range names {
			states[i] = p.HMGet(ctx, s.keys.state(ref, g), "cursor", "sent", "open")
		}
		length = p.XLen(ctx, s.keys.main(ref))
		return nil
	}); err != nil {
		return m, readError(err)
	}
	m.Length = length.Val()
	for i, state := range states {
		g, ok := decodeMarks(names[i], state.Val())
		if !ok {
			m.Groups = nil
			return m, nil
		}
		m.Groups = append(m.Groups, g)
	}
	return m, nil
}

func decodeMarks(name string, fields []any) (g qlog.GroupMarks, ok bool) {
	cursor, _ := fields[0].(string)
	sent, _ := fields[1].(string)
	open, _ := fields[2].(string)
	g.Group = name
	var err1, err2 error
	g.Cursor, err1 = qlog.ParsePos(cursor)
	g.Sent, err2 = qlog.ParsePos(sent)
	g.Open, _ = strconv.ParseInt(open, 10, 64) // absent: none
	return g, err1 == nil && err2 == nil
}

// Lengths returns how many entries the logs of some partitions have, in one round trip, so that it
// costs little to find those with something to remove.
func (s *Store) Lengths(ctx context.Context, t *qlog.Topic, partitions []int) ([]int64, error) {
	replies := make([]*redis.IntCmd, len(partitions))
	if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, partition := range partitions {
			replies[i] = p.XLen(ctx, s.keys.main(t.Ref(partition)))
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("lengths of %d partitions of %s: %w", len(partitions), t.Name, readError(err))
	}
	lengths := make([]int64, len(partitions))
	for i, r := range replies {
		lengths[i] = r.Val()
	}
	return lengths, nil
}
