package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// sharedRedis is a server that all tests of the package share, each of which has keys of its own. It ends with the process.
var sharedRedis = rig.SharedRedis("redisqueue")

// eachRedis runs test against one server and against a cluster of three masters. The keys of its stores begin with a prefix
// of their own, which newStore gives.
func eachRedis(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Helper()
	t.Run("one", func(t *testing.T) {
		t.Parallel()
		test(t, oneClient(t))
	})
	t.Run("in process", func(t *testing.T) {
		t.Parallel()
		test(t, testkit.InProcessRedisClient(t))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, testkit.RedisClusterClient(t))
	})
}

// prefixes numbers the tests' prefixes.
var prefixes atomic.Int64

// newStore makes a store with keys of its own.
func newStore(t *testing.T, client redis.UniversalClient) *Store {
	t.Helper()
	return NewStore(client, StoreConfig{Prefix: fmt.Sprintf("test%d:", prefixes.Add(1))})
}

// oneClient makes a client of the one server.
func oneClient(t *testing.T) *redis.Client {
	t.Helper()
	server, err := sharedRedis()
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{
		Network: "unix", Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newTopic makes a topic of one partition with groups from its beginning, and its partition.
func newTopic(t *testing.T, s *Store, change func(*queue.Topic)) *queue.Topic {
	t.Helper()
	topic := &queue.Topic{
		Name: "jobs", UID: "AAAAAAAAAAAAA", Version: 1, Partitions: 1, Partitioner: queue.Hash, Retry: queue.DefaultRetry(),
		IdempotencyWindow: 10 * time.Minute, CreatedAt: time.UnixMilli(1_700_000_000_000),
	}
	if change != nil {
		change(topic)
	}
	if _, err := s.InsertTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	for p := range topic.Partitions {
		if err := s.MakePartition(t.Context(), topic, p); err != nil {
			t.Fatal(err)
		}
	}
	return topic
}

// dump gives the state of all keys of a store: two of them are equal if nothing has changed in between.
func dump(t *testing.T, s *Store) map[string]string {
	t.Helper()
	var mu sync.Mutex
	all := map[string]string{}
	collect := func(ctx context.Context, c *redis.Client) error {
		keys := c.Scan(ctx, 0, s.keys.prefix+"*", 1000).Iterator()
		for keys.Next(ctx) {
			state, err := stateOf(ctx, c, keys.Val())
			if err != nil {
				return err
			}
			mu.Lock()
			all[strings.TrimPrefix(keys.Val(), s.keys.prefix)] = state
			mu.Unlock()
		}
		return keys.Err()
	}
	var err error
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(t.Context(), collect)
	case *redis.Client:
		err = collect(t.Context(), c)
	default:
		t.Fatalf("the client is a %T", c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// stateOf returns what a key holds: its dump, or for the streams of the server in this process, which has no dump of them, the
// entries and what each group has pending.
func stateOf(ctx context.Context, c *redis.Client, key string) (string, error) {
	state, err := c.Dump(ctx, key).Result()
	if err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		return state, err
	}
	if t, err := c.Type(ctx, key).Result(); err != nil || t != "stream" {
		return t, err
	}
	entries, err := c.XRange(ctx, key, "-", "+").Result()
	if err != nil {
		return "", err
	}
	groups, err := c.XInfoGroups(ctx, key).Result()
	if err != nil {
		return "", err
	}
	slices.SortFunc(groups, func(a, b redis.XInfoGroup) int { return strings.Compare(a.Name, b.Name) })
	text := fmt.Sprint(entries, groups)
	for _, g := range groups {
		pending, err := c.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: g.Name, Start: "-", End: "+", Count: 10_000}).Result()
		if err != nil {
			return "", err
		}
		for i := range pending {
			pending[i].Idle = 0
		}
		text += fmt.Sprint(pending)
	}
	return text, nil
}

// groups gives groups of these names that begin at the beginning.
func groups(names ...string) (all []queue.Group) {
	for _, n := range names {
		all = append(all, queue.Group{Name: n})
	}
	return all
}

// message makes a draft.
func message(key, payload string) queue.Draft {
	return queue.Draft{Message: queue.Message{Key: key, Payload: []byte(payload)}}
}

// produce appends drafts to partition 0 and fails the test if one is refused.
func produce(t *testing.T, s *Store, topic *queue.Topic, drafts ...queue.Draft) (ids []string) {
	t.Helper()
	taken, err := s.Produce(t.Context(), topic, 0, drafts)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range taken {
		if r.Err != nil {
			t.Fatalf("message %d: %v", i, r.Err)
		}
		ids = append(ids, r.MessageID)
	}
	return ids
}

// stat reads a counter of partition 0, or of a group in it.
func stat(t *testing.T, s *Store, topic *queue.Topic, group, name string) int64 {
	t.Helper()
	key := s.keys.meta(topic.Ref(0))
	if group != "" {
		key = s.keys.stats(topic.Ref(0), group)
	}
	n, err := s.client.HGet(t.Context(), key, name).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return n
}

// readGroup reads up to n new entries of partition 0 for a group, as a consumer would, and gives their ids.
func readGroup(t *testing.T, s *Store, topic *queue.Topic, group string, n int) (ids []string) {
	t.Helper()
	streams, err := s.client.XReadGroup(t.Context(), &redis.XReadGroupArgs{
		Group: group, Consumer: "c", Streams: []string{s.keys.main(topic.Ref(0)), ">"}, Count: int64(n), Block: -1,
	}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	for _, stream := range streams {
		for _, e := range stream.Messages {
			ids = append(ids, e.ID)
		}
	}
	if err := s.client.HIncrBy(t.Context(), s.keys.stats(topic.Ref(0), group), "read", int64(len(ids))).Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// markOf gives the mark that a fetch needs: of a holder who was given all that was fetched.
func markOf(t *testing.T, s *Store, lease queue.Lease) int64 {
	t.Helper()
	page, err := s.Claim(t.Context(), lease, queue.Main, queue.EntryID{MS: 1 << 60}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return page.Mark
}

// ack settles entries of partition 0 for a group.
func ack(t *testing.T, s *Store, topic *queue.Topic, group string, ids ...string) {
	t.Helper()
	if n, err := s.client.XAck(t.Context(), s.keys.main(topic.Ref(0)), group, ids...).Result(); err != nil || n != int64(len(ids)) {
		t.Fatalf("%d of %d acknowledged, %v", n, len(ids), err)
	}
}

// length is how many entries partition 0 holds.
func length(t *testing.T, s *Store, topic *queue.Topic) int64 {
	t.Helper()
	n, err := s.client.XLen(t.Context(), s.keys.main(topic.Ref(0))).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// entries reads what a stream of partition 0 holds.
func entries(t *testing.T, s *Store, key string) (all []queue.Entry) {
	t.Helper()
	reply, err := s.client.Do(t.Context(), "XRANGE", key, "-", "+").Slice()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reply {
		e, err := decodeEntry(0, queue.Main, r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// texts gives the payloads of entries.
func texts(all []queue.Entry) (payloads []string) {
	for i := range all {
		payloads = append(payloads, string(all[i].Payload))
	}
	return payloads
}
