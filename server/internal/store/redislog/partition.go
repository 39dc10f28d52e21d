package redislog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var (
	partitionScript = newScript("partition", -1, "lib_group")
	groupScript     = newScript("group", 6, "lib_group")
	dropScript      = newScript("drop", -1)
)

// MakePartition implements qlog.TopicStore. A partition whose settings were lost continues after
// the newest message of its log, or if that was lost too, at Redis' time. If it has scheduled
// messages, the keepers look at it again.
//
// The groups to remove are read before. One that appears in between is of a later version of the
// settings, so that nothing is removed.
func (s *Store) MakePartition(ctx context.Context, t *qlog.Topic, partition int) error {
	ref := t.Ref(partition)
	doc, err := encodeCopy(t)
	if err != nil {
		return err
	}
	keys := []string{s.keys.main(ref), s.keys.meta(ref)}
	args := []any{t.UID, t.Version, doc, flag(t.ProducePaused), len(t.Groups)}
	for i := range t.Groups {
		g := &t.Groups[i]
		keys, args = append(keys, s.keys.state(ref, g.Name)), append(args, g.Name, startOf(g.Start))
	}
	_, names, err := s.groups(ctx, ref)
	if err != nil && !errors.Is(err, qlog.ErrNoTopic) {
		return fmt.Errorf("make partition %d of %s: %w", partition, t.Name, err)
	}
	for _, name := range names {
		if t.Group(name) == nil {
			keys, args = append(keys, s.groupKeys(qlog.GroupRef{Ref: ref, Group: name})...), append(args, name)
		}
	}
	if _, err := s.write(ctx, partitionScript, keys, args...); err != nil {
		return fmt.Errorf("make partition %d of %s: %w", partition, t.Name, err)
	}
	n, err := s.client.ZCard(ctx, s.keys.delayed(ref)).Result()
	if err != nil {
		return fmt.Errorf("make partition %d of %s: %w", partition, t.Name, readError(err))
	}
	if n == 0 {
		return nil
	}
	// A Redis that is full must not prevent the healing of the rest.
	if err := s.register(ctx, ref); err != nil && !errors.Is(err, qlog.ErrNoMemory) {
		return fmt.Errorf("make partition %d of %s: %w", partition, t.Name, err)
	}
	return nil
}

// Partition implements qlog.TopicStore.
func (s *Store) Partition(ctx context.Context, topic string, partition int) (qlog.PartitionInfo, error) {
	ref := qlog.Ref{Topic: topic, Partition: partition}
	fail := func(err error) (qlog.PartitionInfo, error) {
		return qlog.PartitionInfo{}, fmt.Errorf("look at partition %d of %s: %w", partition, topic, readError(err))
	}
	fields, err := s.client.HMGet(ctx, s.keys.meta(ref), "uid", "version", "groups", "doc").Result()
	if err != nil {
		return fail(err)
	}
	var info qlog.PartitionInfo
	info.UID, _ = fields[0].(string)
	version, _ := fields[1].(string)
	info.Version, _ = strconv.ParseInt(version, 10, 64)
	list, _ := fields[2].(string)
	info.Groups = strings.Fields(list)
	slices.Sort(info.Groups)
	if doc, ok := fields[3].(string); ok {
		if t, err := decodeCopy(doc); err == nil { // an unreadable copy is as good as none
			info.CreatedAt = t.CreatedAt
		}
	}
	if len(info.Groups) == 0 {
		return info, nil
	}
	states := make([]*redis.BoolCmd, len(info.Groups))
	if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, g := range info.Groups {
			states[i] = p.HExists(ctx, s.keys.state(ref, g), "uid")
		}
		return nil
	}); err != nil {
		return fail(err)
	}
	for i, g := range info.Groups {
		if !states[i].Val() {
			info.Lost = append(info.Lost, g)
		}
	}
	return info, nil
}

// RemovePartition implements qlog.TopicStore.
func (s *Store) RemovePartition(ctx context.Context, t *qlog.Topic, partition int) error {
	ref := t.Ref(partition)
	_, names, err := s.groups(ctx, ref)
	if errors.Is(err, qlog.ErrNoTopic) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove partition %d of %s: %w", partition, t.Name, err)
	}
	for i := range t.Groups {
		names = append(names, t.Groups[i].Name)
	}
	slices.Sort(names)
	keys := []string{
		s.keys.meta(ref), s.keys.main(ref), s.keys.sizes(ref), s.keys.delayed(ref), s.keys.delayedData(ref), s.keys.moved(ref),
		s.keys.deadLetters(ref), s.keys.deadData(ref), s.keys.replayed(ref),
	}
	for _, g := range slices.Compact(names) {
		keys = append(keys, s.groupKeys(qlog.GroupRef{Ref: ref, Group: g})...)
	}
	if _, err := s.write(ctx, dropScript, keys, t.UID); err != nil {
		return fmt.Errorf("remove partition %d of %s: %w", partition, t.Name, err)
	}
	return nil
}

// groupKeys returns all keys of a group in a partition.
func (s *Store) groupKeys(ref qlog.GroupRef) []string {
	return []string{
		s.keys.state(ref.Ref, ref.Group), s.keys.open(ref.Ref, ref.Group), s.keys.rows(ref.Ref, ref.Group), s.keys.due(ref.Ref, ref.Group),
	}
}

// MakeGroup implements qlog.TopicStore.
func (s *Store) MakeGroup(ctx context.Context, ref qlog.GroupRef, start qlog.Start) error {
	return s.group(ctx, ref, "make", start, 0)
}

// SeekGroup implements qlog.TopicStore.
func (s *Store) SeekGroup(ctx context.Context, ref qlog.GroupRef, epoch int64, start qlog.Start) error {
	return s.group(ctx, ref, "seek", start, epoch)
}

// RemoveGroup implements qlog.TopicStore. Where there is no such partition there is no such group.
func (s *Store) RemoveGroup(ctx context.Context, ref qlog.GroupRef) error {
	return s.group(ctx, ref, "remove", qlog.Start{}, 0)
}

func (s *Store) group(ctx context.Context, ref qlog.GroupRef, what string, start qlog.Start, epoch int64) error {
	keys := append([]string{s.keys.main(ref.Ref), s.keys.meta(ref.Ref)}, s.groupKeys(ref)...)
	if _, err := s.write(ctx, groupScript, keys, ref.UID, ref.Group, what, startOf(start), epoch); err != nil {
		return fmt.Errorf("%s group %s in partition %d of %s: %w", what, ref.Group, ref.Partition, ref.Topic, err)
	}
	return nil
}

// startOf returns a place as group.lua takes it.
func startOf(start qlog.Start) string {
	switch {
	case start.End:
		return "$"
	case start.Time.UnixMicro() <= 0:
		return "-"
	default:
		return strconv.FormatInt(ceilMicro(start.Time), 10)
	}
}
