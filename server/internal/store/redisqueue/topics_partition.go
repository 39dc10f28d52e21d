package redisqueue

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
)

var (
	topicPartition   = newScript("topic_partition", -1, "lib_topic")
	topicUnpartition = newScript("topic_unpartition", -1)
	topicGroup       = newScript("topic_group", 5, "lib_topic")
	topicUngroup     = newScript("topic_ungroup", -1)
	topicSeek        = newScript("topic_seek", -1, "lib_topic")
)

// MakePartition implements queue.TopicStore. ErrNoTopic if the partition is of another topic of the same name.
func (s *Store) MakePartition(ctx context.Context, t *queue.Topic, partition int) error {
	ref := t.Ref(partition)
	keys := []string{s.keys.main(ref), s.keys.meta(ref), s.keys.delayed(ref)}
	args := []any{t.UID, flag(t.ProducePaused), flag(t.ConsumePaused)}
	for _, g := range t.Groups {
		keys = append(keys, s.keys.retry(ref, g.Name), s.keys.stats(ref, g.Name))
		args = append(args, g.Name, startID(g.Start))
	}
	if _, err := s.write(ctx, topicPartition, keys, args...); err != nil {
		return fmt.Errorf("make partition %d of %s: %w", partition, t.Name, err)
	}
	return nil
}

// RemovePartition implements queue.TopicStore. Idempotency keys, and markers of replayed dead letters, are left to expire:
// the keys are this topic's by its UID.
func (s *Store) RemovePartition(ctx context.Context, t *queue.Topic, partition int) error {
	ref := t.Ref(partition)
	groups, err := s.groupsThere(ctx, t, ref)
	if err != nil {
		return fmt.Errorf("remove partition %d of %s: %w", partition, t.Name, err)
	}
	keys := []string{
		s.keys.meta(ref), s.keys.main(ref), s.keys.deadLetters(ref), s.keys.moving(ref), s.keys.delayed(ref), s.keys.delayedData(ref),
	}
	for _, g := range groups {
		keys = append(keys, s.groupKeys(ref, g)...)
	}
	if _, err := s.write(ctx, topicUnpartition, keys, t.UID); err != nil {
		return fmt.Errorf("remove partition %d of %s: %w", partition, t.Name, err)
	}
	return nil
}

// groupsThere gives the names of the topic's groups, and of those that the partition has without the topic's knowing: from a
// group that was being made or removed.
func (s *Store) groupsThere(ctx context.Context, t *queue.Topic, ref queue.Ref) ([]string, error) {
	names := map[string]bool{}
	for _, g := range t.Groups {
		names[g.Name] = true
	}
	infos, err := s.client.XInfoGroups(ctx, s.keys.main(ref)).Result()
	if err != nil && !redis.HasErrorPrefix(err, "no such key") {
		return nil, readError(err)
	}
	for _, info := range infos {
		names[info.Name] = true
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// groupKeys gives all keys of a group in a partition.
func (s *Store) groupKeys(ref queue.Ref, group string) []string {
	return append([]string{
		s.keys.lease(ref, group), s.keys.epoch(ref, group), s.keys.retry(ref, group), s.keys.stats(ref, group),
	}, s.groupWork(ref, group)...)
}

// groupWork gives the keys of what a group has under way in a partition, beside its streams.
func (s *Store) groupWork(ref queue.Ref, group string) []string {
	return []string{
		s.keys.retrying(ref, group), s.keys.retryingData(ref, group), s.keys.unsettled(ref, group),
		s.keys.parked(ref, group), s.keys.parkedData(ref, group),
	}
}

// MakeGroup implements queue.TopicStore. ErrNoTopic.
func (s *Store) MakeGroup(ctx context.Context, ref queue.Ref, g queue.Group) error {
	keys := []string{
		s.keys.main(ref), s.keys.meta(ref), s.keys.delayed(ref), s.keys.retry(ref, g.Name), s.keys.stats(ref, g.Name),
	}
	if _, err := s.write(ctx, topicGroup, keys, ref.UID, g.Name, startID(g.Start)); err != nil {
		return fmt.Errorf("make group %s in partition %d of %s: %w", g.Name, ref.Partition, ref.Topic, err)
	}
	return nil
}

// RemoveGroup implements queue.TopicStore. Where there is no such partition there is no such group, which is fine.
func (s *Store) RemoveGroup(ctx context.Context, ref queue.Ref, group string) error {
	keys := append([]string{s.keys.main(ref), s.keys.meta(ref)}, s.groupKeys(ref, group)...)
	if _, err := s.write(ctx, topicUngroup, keys, ref.UID, group); err != nil {
		return fmt.Errorf("remove group %s from partition %d of %s: %w", group, ref.Partition, ref.Topic, err)
	}
	return nil
}

// SeekGroup implements queue.TopicStore. ErrNoTopic, ErrNoGroup.
func (s *Store) SeekGroup(ctx context.Context, ref queue.Ref, g queue.Group) error {
	keys := append([]string{
		s.keys.main(ref), s.keys.meta(ref), s.keys.delayed(ref), s.keys.lease(ref, g.Name), s.keys.retry(ref, g.Name),
		s.keys.stats(ref, g.Name),
	}, s.groupWork(ref, g.Name)...)
	if _, err := s.write(ctx, topicSeek, keys, ref.UID, g.Name, startID(g.Start)); err != nil {
		return fmt.Errorf("seek group %s in partition %d of %s: %w", g.Name, ref.Partition, ref.Topic, err)
	}
	return nil
}

// startID gives the id after which a group begins.
func startID(start queue.Start) string {
	switch {
	case start.End:
		return "$"
	case start.Time.UnixMilli() <= 0:
		return "0"
	default:
		// After the last possible one of the millisecond before.
		return fmt.Sprintf("%d-18446744073709551615", ceilMilli(start.Time)-1)
	}
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
