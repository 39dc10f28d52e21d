package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redislog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withRedis{m}) }

// withRedis runs the tests and then ends the server that they shared.
type withRedis struct{ *testing.M }

func (m withRedis) Run() int {
	code := m.M.Run()
	if server, err := sharedRedis(); err == nil {
		server.Close()
	}
	return code
}

// sharedRedis is a server that the tests share, each of which has keys of its own. It ends with the
// process.
var sharedRedis = rig.SharedRedis("topics")

var prefixes atomic.Int64

// fleet is a store of topics on a real Redis, and an Admin and a Catalog of one of its nodes.
type fleet struct {
	*Admin

	t       *testing.T
	client  *redis.Client
	prefix  string
	store   *redislog.Store
	catalog *Catalog
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	server, err := sharedRedis()
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{
		Network: "unix", Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	t.Cleanup(func() { _ = client.Close() })
	f := &fleet{t: t, client: client, prefix: fmt.Sprintf("topics%d:", prefixes.Add(1))}
	f.store = redislog.NewStore(client, redislog.StoreConfig{Prefix: f.prefix, Logger: quiet})
	f.Admin, f.catalog = f.node(f.store)
	return f
}

var quiet = slog.New(slog.DiscardHandler)

// node returns the Admin and the Catalog of another node, whose calls of the store go through one.
func (f *fleet) node(s Store) (*Admin, *Catalog) {
	c := NewCatalog(CatalogConfig{Store: s, Logger: quiet})
	return NewAdmin(AdminConfig{Store: s, Leases: s, Catalog: c, Logger: quiet}), c
}

// Store is what a node needs of a store.
type Store interface {
	qlog.TopicStore
	Leases
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// want fails the test unless err is a fault of the reason; of an empty one, unless it is nil.
func (f *fleet) want(err error, reason fault.Reason) {
	f.t.Helper()
	if reason == "" {
		f.must(err)
	} else if !fault.Is(err, reason) {
		f.t.Fatalf("got %v, want %s", err, reason)
	}
}

// create creates a topic with groups that begin at the start.
func (f *fleet) create(t qlog.Topic, groups ...string) *qlog.Topic {
	f.t.Helper()
	_, err := f.CreateTopic(f.t.Context(), t)
	f.must(err)
	for _, g := range groups {
		_, err := f.CreateGroup(f.t.Context(), t.Name, qlog.Group{Name: g})
		f.must(err)
	}
	return f.read(t.Name)
}

// read returns the settings as they are stored.
func (f *fleet) read(name string) *qlog.Topic {
	f.t.Helper()
	t, err := f.store.Topic(f.t.Context(), name)
	f.must(err)
	return t
}

// put appends messages to a partition.
func (f *fleet) put(t *qlog.Topic, partition, n int) {
	f.t.Helper()
	drafts := make([]qlog.Draft, n)
	for i := range drafts {
		drafts[i].Body = fmt.Append(nil, i)
	}
	results, err := f.store.Put(f.t.Context(), t.Ref(partition), t.Bounds, qlog.Put{Drafts: drafts})
	f.must(err)
	for _, r := range results {
		f.must(r.Err)
	}
}

// unsent is how many messages of a partition a group has not looked at.
func (f *fleet) unsent(t *qlog.Topic, partition int, group string) int64 {
	f.t.Helper()
	ref := qlog.GroupRef{Ref: t.Ref(partition), Group: group}
	_, epoch, err := f.store.Lease(f.t.Context(), ref)
	f.must(err)
	state, err := f.store.Acquire(f.t.Context(), ref, "looker", epoch)
	f.must(err)
	return state.Last.Ord - state.Sent.Ord
}

// whole fails the test unless the topic is Live and its partitions, and no more, are in line with
// its settings.
func (f *fleet) whole(name string, partitions int, groups ...string) *qlog.Topic {
	f.t.Helper()
	t := f.read(name)
	if t.State != qlog.Live || t.Partitions != partitions || !slices.Equal(names(t.Groups), groups) {
		f.t.Fatalf("the settings are %+v", t)
	}
	for p := range MaxPartitions {
		there, err := f.store.Partition(f.t.Context(), name, p)
		f.must(err)
		if p >= partitions {
			if there.UID != "" {
				f.t.Errorf("there is a partition %d", p)
			}
			continue
		}
		if there.UID != t.UID || there.Version != t.Version || len(there.Lost) > 0 || !slices.Equal(there.Groups, groups) {
			f.t.Errorf("partition %d is %+v, the topic is %+v", p, there, t)
		}
	}
	registered, err := f.store.TopicNames(f.t.Context())
	f.must(err)
	if !slices.Contains(registered, name) {
		f.t.Errorf("the topic is not registered")
	}
	return t
}

func names(groups []qlog.Group) (all []string) {
	for i := range groups {
		all = append(all, groups[i].Name)
	}
	return all
}

// keys returns the names of all keys, without the prefix.
func (f *fleet) keys() (all []string) {
	f.t.Helper()
	found, err := f.client.Keys(f.t.Context(), f.prefix+"*").Result()
	f.must(err)
	for _, k := range found {
		all = append(all, strings.TrimPrefix(k, f.prefix))
	}
	slices.Sort(all)
	return all
}

// lose removes the keys that a pattern matches, as a Redis that loses writes does, and fails the
// test if there are none.
func (f *fleet) lose(pattern string) {
	f.t.Helper()
	found, err := f.client.Keys(f.t.Context(), f.prefix+pattern).Result()
	f.must(err)
	if len(found) == 0 {
		f.t.Fatalf("there is no key %s", pattern)
	}
	f.must(f.client.Del(f.t.Context(), found...).Err())
}

var errCrash = errors.New("crashed")

// failing is a store that fails from the at-th change on: its node is dead. If unknown is set it
// executes that change, and returns ErrUnknownOutcome; later ones succeed.
type failing struct {
	*redislog.Store

	at      int64
	unknown bool
	calls   atomic.Int64
	// before is called before each change, if it is set.
	before func(n int64, what string)
}

func (s *failing) call(what string, fn func() error) error {
	n := s.calls.Add(1)
	if s.before != nil {
		s.before(n, what)
	}
	switch {
	case s.at == 0 || n < s.at:
		return fn()
	case !s.unknown:
		return errCrash
	case n == s.at:
		return errors.Join(fn(), qlog.ErrUnknownOutcome)
	default:
		return fn()
	}
}

func (s *failing) InsertTopic(ctx context.Context, t *qlog.Topic) (existing *qlog.Topic, err error) {
	err = s.call("InsertTopic", func() (err error) { existing, err = s.Store.InsertTopic(ctx, t); return err })
	return existing, err
}

func (s *failing) UpdateTopic(ctx context.Context, t *qlog.Topic) error {
	return s.call("UpdateTopic", func() error { return s.Store.UpdateTopic(ctx, t) })
}

func (s *failing) PutGroup(ctx context.Context, t *qlog.Topic, g qlog.Group) error {
	return s.call("PutGroup", func() error { return s.Store.PutGroup(ctx, t, g) })
}

func (s *failing) DeleteGroup(ctx context.Context, t *qlog.Topic, group string) error {
	return s.call("DeleteGroup", func() error { return s.Store.DeleteGroup(ctx, t, group) })
}

func (s *failing) RemoveTopic(ctx context.Context, t *qlog.Topic) error {
	return s.call("RemoveTopic", func() error { return s.Store.RemoveTopic(ctx, t) })
}

func (s *failing) RestoreTopic(ctx context.Context, name string) (t *qlog.Topic, err error) {
	err = s.call("RestoreTopic", func() (err error) { t, err = s.Store.RestoreTopic(ctx, name); return err })
	return t, err
}

func (s *failing) MakePartition(ctx context.Context, t *qlog.Topic, p int) error {
	return s.call("MakePartition", func() error { return s.Store.MakePartition(ctx, t, p) })
}

func (s *failing) RemovePartition(ctx context.Context, t *qlog.Topic, p int) error {
	if p > 4 { // all partitions that a topic could have are removed, and the tests' topics have few
		return s.Store.RemovePartition(ctx, t, p)
	}
	return s.call("RemovePartition", func() error { return s.Store.RemovePartition(ctx, t, p) })
}

func (s *failing) SeekGroup(ctx context.Context, ref qlog.GroupRef, epoch int64, start qlog.Start) error {
	return s.call("SeekGroup", func() error { return s.Store.SeekGroup(ctx, ref, epoch, start) })
}

func (s *failing) Acquire(ctx context.Context, ref qlog.GroupRef, node string, expected int64) (state qlog.State, err error) {
	err = s.call("Acquire", func() (err error) { state, err = s.Store.Acquire(ctx, ref, node, expected); return err })
	return state, err
}

// eventually waits until a condition holds.
func (f *fleet) eventually(holds func() bool) {
	f.t.Helper()
	testkit.Eventually(f.t, 10*time.Second, func() error {
		if !holds() {
			return errors.New("the condition does not hold")
		}
		return nil
	})
}
