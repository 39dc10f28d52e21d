package redislog

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/consume"
)

var _ consume.FleetStore = (*Store)(nil)

var (
	beatScript     = newScript("beat", 1)
	capacityScript = newScript("capacity", 1)
)

func (k keys) nodes() string { return k.prefix + "streaming:mq:nodes" }

func (k keys) capacities(topic, group string) string {
	return k.prefix + "streaming:mq:topic:" + topic + ":group:" + group + ":nodes"
}

// Beat implements consume.FleetStore.
func (s *Store) Beat(ctx context.Context, node string, ttl time.Duration) (time.Time, []consume.Beat, error) {
	reply, err := s.write(ctx, beatScript, []string{s.keys.nodes()}, node, ttl.Milliseconds())
	if err != nil {
		return time.Time{}, nil, err
	}
	flat, ok := reply.([]any)
	if !ok || len(flat)%2 == 0 {
		return time.Time{}, nil, fmt.Errorf("a beat was answered with %v", reply)
	}
	now, err := milliseconds(flat[0])
	if err != nil {
		return time.Time{}, nil, err
	}
	beats := make([]consume.Beat, 0, len(flat)/2)
	for i := 1; i < len(flat); i += 2 {
		until, err := milliseconds(flat[i+1])
		if err != nil {
			return time.Time{}, nil, err
		}
		beats = append(beats, consume.Beat{Node: fmt.Sprint(flat[i]), Until: until})
	}
	return now, beats, nil
}

// milliseconds reads a time as scripts return it.
func milliseconds(reply any) (time.Time, error) {
	ms, err := strconv.ParseInt(fmt.Sprint(reply), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%v is not a time in milliseconds", reply)
	}
	return time.UnixMilli(ms), nil
}

// SetCapacity implements consume.FleetStore.
func (s *Store) SetCapacity(ctx context.Context, topic, group, node string, capacity int) error {
	key := s.keys.capacities(topic, group)
	var err error
	if capacity == 0 {
		err = s.client.HDel(ctx, key, node).Err()
	} else {
		_, err = s.write(ctx, capacityScript, []string{key}, node, capacity)
		return err
	}
	if err != nil {
		return writeError(err)
	}
	return nil
}

// Capacities implements consume.FleetStore.
func (s *Store) Capacities(ctx context.Context, topic, group string) (map[string]int, error) {
	all, err := s.client.HGetAll(ctx, s.keys.capacities(topic, group)).Result()
	if err != nil {
		return nil, writeError(err)
	}
	capacities := make(map[string]int, len(all))
	for node, text := range all {
		n, err := strconv.Atoi(text)
		if err != nil || n == 0 {
			continue // another version's, or damaged: the node says it again
		}
		capacities[node] = n
	}
	return capacities, nil
}
