package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redislog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

var (
	_ Store = (*redislog.Store)(nil)
	_ Fleet = (*consume.Fleet)(nil)
)

// sharedRedis is a server that the tests share, each of which has keys of its own. It ends with the
// process.
var sharedRedis = rig.SharedRedis("keeper")

var prefixes atomic.Int64

// still are the times of a keeper that does nothing unless it is told to.
var still = times{look: time.Hour, forget: time.Hour, again: time.Hour, dirty: time.Hour, round: time.Hour}

// bench is a topic on a real Redis.
type bench struct {
	tb     testing.TB
	client *redis.Client
	prefix string
	store  *redislog.Store
	topic  *qlog.Topic
	hints  *hints
}

// topics is a source of topics that reads the store.
type topics struct{ store *redislog.Store }

func (s topics) Topic(ctx context.Context, name string) (*qlog.Topic, error) {
	t, err := s.store.Topic(ctx, name)
	if errors.Is(err, qlog.ErrNoTopic) {
		return nil, fault.New(fault.NotFound, fault.TopicNotFound, "no topic %s", name)
	}
	return t, err
}

func (s topics) Heal(ctx context.Context, t *qlog.Topic, partition int) error {
	return s.store.MakePartition(ctx, t, partition)
}

func (topics) Forget(string) {}

// hints counts the hints of each partition.
type hints struct {
	mu    sync.Mutex
	ready map[int]int
}

func (h *hints) Ready(_ string, partition int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready[partition]++
}

func (h *hints) count(partition int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready[partition]
}

func newBench(tb testing.TB, partitions int, groups ...string) *bench {
	tb.Helper()
	server, err := sharedRedis()
	if err != nil {
		tb.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{
		Network: "unix", Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	tb.Cleanup(func() { _ = client.Close() })
	b := &bench{tb: tb, client: client, prefix: fmt.Sprintf("keeper%d:", prefixes.Add(1)), hints: &hints{ready: map[int]int{}}}
	b.store = redislog.NewStore(client, redislog.StoreConfig{Prefix: b.prefix})
	b.create("orders", partitions, groups...)
	return b
}

// create creates a topic, which becomes the bench's.
func (b *bench) create(name string, partitions int, groups ...string) {
	b.tb.Helper()
	b.topic = &qlog.Topic{
		Name: name, UID: "AAAAAAAAAAAAA", Version: 1, Partitions: partitions, Partitioner: qlog.ConsistentHash,
		Bounds: qlog.Bounds{Window: time.Minute}, CreatedAt: time.Now(),
	}
	for _, g := range groups {
		b.topic.Groups = append(b.topic.Groups, qlog.Group{Name: g, Retry: qlog.RetryPolicy{MaxAttempts: 3}})
	}
	_, err := b.store.InsertTopic(b.tb.Context(), b.topic)
	b.check(err)
	for p := range partitions {
		b.check(b.store.MakePartition(b.tb.Context(), b.topic, p))
	}
	b.update(func(t *qlog.Topic) { t.State = qlog.Live })
}

func (b *bench) update(change func(*qlog.Topic)) {
	b.tb.Helper()
	change(b.topic)
	b.check(b.store.UpdateTopic(b.tb.Context(), b.topic))
	b.topic.Version++
}

func (b *bench) check(err error) {
	b.tb.Helper()
	if err != nil {
		b.tb.Fatal(err)
	}
}

// config is the configuration of a keeper with times.
func (b *bench) config(t times) Config {
	return Config{Store: b.store, Topics: topics{b.store}, Hints: b.hints, Node: "a", times: t}
}

// start starts a keeper, which stops with the test.
func (b *bench) start(cfg Config) *Keeper {
	b.tb.Helper()
	k := New(cfg)
	lifecycletest.Start(b.tb, k)
	return k
}

// put puts drafts.
func (b *bench) put(partition int, drafts ...qlog.Draft) []qlog.PutResult {
	b.tb.Helper()
	results, err := b.store.Put(b.tb.Context(), b.topic.Ref(partition), b.topic.Bounds, qlog.Put{Drafts: drafts})
	b.check(err)
	for _, r := range results {
		b.check(r.Err)
	}
	return results
}

// drafts makes n messages with a delay.
func drafts(n int, delay time.Duration) []qlog.Draft {
	all := make([]qlog.Draft, n)
	for i := range all {
		all[i] = qlog.Draft{Body: fmt.Appendf(nil, "\x2a\x05%05d", i), Delay: delay}
	}
	return all
}

// length is how many entries a partition's log has.
func (b *bench) length(partition int) int {
	b.tb.Helper()
	n, err := b.client.XLen(b.tb.Context(), b.stream(partition)).Result()
	b.check(err)
	return int(n)
}

// stream is the key of a partition's log.
func (b *bench) stream(partition int) string {
	return fmt.Sprintf("%sstream:topic:{%s:%d}", b.prefix, b.topic.Name, partition)
}

// log reads the entries of a partition.
func (b *bench) log(partition int) (all []qlog.Entry) {
	b.tb.Helper()
	for after := qlog.ID(0); ; {
		page, err := b.store.Read(b.tb.Context(), b.topic.Ref(partition), after, qlog.MaxReadEntries)
		b.check(err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		after = page[len(page)-1].ID
	}
}

// listed is how many partitions are listed as having scheduled messages.
func (b *bench) listed() int {
	b.tb.Helper()
	refs, err := b.store.Scheduled(b.tb.Context())
	b.check(err)
	return len(refs)
}

// eventually waits until a condition holds.
func (b *bench) eventually(what string, holds func() bool) {
	b.tb.Helper()
	testkit.Eventually(b.tb, 20*time.Second, func() error {
		if !holds() {
			return errors.New(what)
		}
		return nil
	})
}

// settle moves a group's mark to a position of the log, and keeps ordinals open, as the group's
// holder would.
func (b *bench) settle(partition int, group string, sent qlog.Pos, open ...int64) {
	b.tb.Helper()
	ref := qlog.GroupRef{Ref: b.topic.Ref(partition), Group: group}
	_, epoch, err := b.store.Lease(b.tb.Context(), ref)
	b.check(err)
	state, err := b.store.Acquire(b.tb.Context(), ref, "node", epoch)
	b.check(err)
	c := &qlog.Commit{
		Epoch: state.Epoch, Acked: state.Ver, Ver: state.Ver + 1, Cursor: state.Cursor, Sent: sent,
		GroupsVersion: state.GroupsVersion, Open: map[int64]string{},
	}
	chunks := map[int64][]int64{}
	for _, o := range open {
		chunks[o/qlog.ChunkOrdinals] = append(chunks[o/qlog.ChunkOrdinals], o)
	}
	for chunk, ordinals := range chunks {
		c.Open[chunk] = qlog.FormatRanges(ordinals)
	}
	entries := b.log(partition)
	for i := range entries {
		if e := &entries[i]; len(open) == 0 && e.Ord <= sent.Ord || len(open) > 0 && e.Ord < open[0] {
			c.Cursor = e.Pos
		}
	}
	_, err = b.store.Commit(b.tb.Context(), ref, c)
	b.check(err)
}
