package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/natsbus"
	"github.com/parleyhq/parley/server/internal/store/embedded"
	"github.com/parleyhq/parley/server/internal/store/redisstore"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 30 * time.Second
	shards   = 4
	keep     = 20
	week     = 604_800 * time.Second
)

// rig is the whole pipeline with real parts: the embedded store, redis-server and the NATS server.
type rig struct {
	t       testing.TB
	store   *embedded.Store
	redis   *testkit.RedisServer
	nats    *testkit.NATSServer
	client  *redis.Client
	bus     *natsbus.Bus
	cache   redisstore.Router
	feeder  *feed.Feeder
	builder *feed.Builder
	// feeds and builds are the configurations of feeder and builder, for restarts.
	feeds  feed.FeederConfig
	builds feed.BuilderConfig

	mu   sync.Mutex // guards logs
	logs map[string]*logEnd
}

// logEnd has the seq of the last entry of a channel's log, and its count. mu is held while an entry
// is appended.
type logEnd struct {
	mu         sync.Mutex
	seq, count int64
}

// newRig starts Redis and NATS, and creates a feeder and a builder, which it does not start.
func newRig(t testing.TB, options ...testkit.RedisOption) *rig {
	t.Helper()
	r := &rig{t: t, redis: testkit.Redis(t, options...), nats: testkit.NATS(t), logs: map[string]*logEnd{}}
	r.client = r.redis.Client(t)
	store, err := embedded.Open(t.TempDir(), embedded.Config{Shards: shards})
	if err != nil {
		t.Fatal(err)
	}
	r.store = store
	t.Cleanup(func() {
		if err := store.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r.bus, err = natsbus.Connect(t.Context(), natsbus.Config{
		URL: r.nats.URL(), Shards: shards, AckWait: 2 * time.Second, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.bus.Close(); err != nil {
			t.Error(err)
		}
	})
	r.cache.Channels, err = redisstore.NewCache(r.client, redisstore.CacheConfig{Keep: keep, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	r.cache.Sessions, err = redisstore.NewSessionCache(r.client, redisstore.CacheConfig{Keep: keep, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	r.newFeeder(r.store, r.bus)
	r.newBuilder(r.bus.Group("redis_cache_group", 256), r.cache, r.store)
	return r
}

// quiet drops the warnings that a test provokes.
var quiet = slog.New(slog.DiscardHandler)

func (r *rig) newFeeder(log feed.FeederStore, publisher feed.Publisher) {
	r.t.Helper()
	r.feeds = feed.FeederConfig{Store: log, Publisher: publisher, Logger: quiet}
	r.remakeFeeder()
}

func (r *rig) remakeFeeder() {
	r.t.Helper()
	feeder, err := feed.NewFeeder(r.feeds)
	if err != nil {
		r.t.Fatal(err)
	}
	r.feeder = feeder
}

func (r *rig) newBuilder(source feed.Source, cache feed.CacheWriter, reader feed.BuilderStore) {
	r.t.Helper()
	r.builds = feed.BuilderConfig{
		Source: source, Cache: cache, Store: reader, LoadTimeout: time.Second, Logger: quiet,
	}
	r.remakeBuilder()
}

func (r *rig) remakeBuilder() {
	r.t.Helper()
	builder, err := feed.NewBuilder(r.builds)
	if err != nil {
		r.t.Fatal(err)
	}
	r.builder = builder
}

// start starts the feeder and the builder.
func (r *rig) start() *rig {
	r.t.Helper()
	lifecycletest.Start(r.t, r.feeder)
	lifecycletest.Start(r.t, r.builder)
	return r
}

// restartFeeder replaces the running feeder with another.
func (r *rig) restartFeeder() {
	r.t.Helper()
	lifecycletest.Stop(r.t, r.feeder)
	r.remakeFeeder()
	lifecycletest.Start(r.t, r.feeder)
}

// restartBuilder replaces the running builder with another.
func (r *rig) restartBuilder() {
	r.t.Helper()
	lifecycletest.Stop(r.t, r.builder)
	r.remakeBuilder()
	lifecycletest.Start(r.t, r.builder)
}

func (r *rig) end(channelID string) *logEnd {
	r.mu.Lock()
	defer r.mu.Unlock()
	end, ok := r.logs[channelID]
	if !ok {
		end = &logEnd{}
		r.logs[channelID] = end
	}
	return end
}

// insert appends one entry and returns it with its seq, as message.Writer would, but leaves
// LogWriter.Apply to the feeder.
func (r *rig) insert(e message.Entry) message.Entry {
	r.t.Helper()
	end := r.end(e.ChannelID)
	end.mu.Lock()
	defer end.mu.Unlock()
	end.seq++
	if e.Kind == message.KindSend {
		end.count++
		e.MsgID = fmt.Sprintf("%s-m%d", e.ChannelID, end.seq)
	}
	e.Seq, e.Count, e.ChangedSeq = end.seq, end.count, end.seq
	e.ClientMsgID = fmt.Sprintf("c%d", end.seq)
	if e.MsgTime.IsZero() {
		e.MsgTime = time.Now().UTC().Truncate(time.Millisecond)
	}
	e.Digest = []byte{1}
	if _, err := r.store.Insert(r.t.Context(), message.Shard(e.ChannelID, shards), []message.Entry{e}); err != nil {
		r.t.Errorf("insert: %v", err)
	}
	return e
}

func (r *rig) send(channelID, text string) message.Entry {
	r.t.Helper()
	return r.insert(message.Entry{Message: message.Message{
		ChannelID: channelID, FromID: "auth0|42", MsgType: "text", Content: text, Metadata: map[string]string{"k": text},
	}})
}

// edit and recall append an entry and apply it to the target, as message.Writer would.
func (r *rig) edit(target message.Entry, text string) message.Entry {
	r.t.Helper()
	return r.apply(r.insert(cacheChangeOf(target, message.KindEdit, text)))
}

func (r *rig) recall(target message.Entry) message.Entry {
	r.t.Helper()
	return r.apply(r.insert(cacheChangeOf(target, message.KindRecall, "")))
}

func cacheChangeOf(target message.Entry, kind message.Kind, text string) message.Entry {
	return message.Entry{
		Kind: kind, TargetSeq: target.Seq,
		Message: message.Message{ChannelID: target.ChannelID, MsgID: target.MsgID, FromID: "auth0|42", Content: text},
	}
}

func (r *rig) apply(change message.Entry) message.Entry {
	r.t.Helper()
	if err := r.store.Apply(r.t.Context(), &change); err != nil {
		r.t.Errorf("apply: %v", err)
	}
	return change
}

func key(channelID string) string {
	if sessionID, ok := ident.SessionOf(channelID); ok {
		return "chat:session:" + sessionID + ":messages"
	}
	return "msg_cache:" + channelID
}

// raw returns the channel's cached set as stored in Redis; empty if there is none. The values of a
// list have their seqs as scores, and its state has 0.
func (r *rig) raw(channelID string) []redis.Z {
	r.t.Helper()
	members, err := r.members(channelID)
	if err != nil {
		r.t.Fatal(err)
	}
	return members
}

func (r *rig) members(channelID string) ([]redis.Z, error) {
	if !ident.IsSession(channelID) {
		return r.client.ZRangeWithScores(r.t.Context(), key(channelID), 0, -1).Result()
	}
	values, err := r.client.LRange(r.t.Context(), key(channelID), 0, -1).Result()
	members := make([]redis.Z, len(values))
	for i, value := range values {
		var m message.Cached
		if i > 0 {
			err = errors.Join(err, m.UnmarshalJSON([]byte(value)))
		}
		members[i] = redis.Z{Score: float64(m.Message.Seq), Member: value}
	}
	return members, err
}

// mirrors returns nil if the channel's cached set has the newest messages of the store's log, byte
// for byte, a mark for each that was changed, and the end of the log.
func (r *rig) mirrors(channelID string) error {
	epoch := r.store.Identity().Epoch
	newest, err := r.store.Entries(r.t.Context(), channelID, message.Range{Desc: true, Limit: keep, MessagesOnly: true})
	if err != nil {
		return err
	}
	head, err := r.store.Head(r.t.Context(), channelID)
	if err != nil {
		return err
	}
	want := map[string]float64{}
	bytes := 0
	for i := range newest {
		value, err := json.Marshal(message.Cached{Epoch: epoch, Message: newest[i].Message})
		if err != nil {
			return err
		}
		want[string(value)] = float64(newest[i].Seq)
		if c := newest[i].ChangedSeq; c != newest[i].Seq && !ident.IsSession(channelID) {
			want[fmt.Sprint("c:", newest[i].Seq)] = -float64(c)
		}
		bytes += len(value)
	}
	if len(newest) > 0 {
		want[fmt.Sprintf(`%s%d,"count":%d,"bytes":%d}`, message.CachedHead(epoch), head.Seq, head.Count, bytes)] = 0
	}
	members, err := r.members(channelID)
	if err != nil {
		return err
	}
	got := map[string]float64{}
	for _, z := range members {
		got[unknownPart.ReplaceAllString(z.Member.(string), "")] = z.Score
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%s: cache differs from store (-store +cache):\n%s", channelID, diff)
	}
	return nil
}

// unknownPart is the part of a set's state that depends on how the set was built.
var unknownPart = regexp.MustCompile(`"unknown":\d+,`)

func (r *rig) waitMirror(channelIDs ...string) {
	r.t.Helper()
	for _, id := range channelIDs {
		testkit.Eventually(r.t, patience, func() error { return r.mirrors(id) })
	}
}

// waitGone waits until the channel has no set in the cache.
func (r *rig) waitGone(channelID string) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, func() error {
		if n := len(r.raw(channelID)); n != 0 {
			return fmt.Errorf("%s has a set of %d", channelID, n)
		}
		return nil
	})
}

// lacks fails the test if any value in Redis contains the text.
func (r *rig) lacks(text string) {
	r.t.Helper()
	keys, err := r.client.Keys(r.t.Context(), "*").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, k := range keys {
		// One of the two commands fails: each is for one type.
		for _, member := range append(r.client.ZRange(r.t.Context(), k, 0, -1).Val(), r.client.LRange(r.t.Context(), k, 0, -1).Val()...) {
			if strings.Contains(member, text) {
				r.t.Errorf("%s holds %s", k, member)
			}
		}
	}
}

// age makes the channel's set expire in an hour, so that a later renewal shows.
func (r *rig) age(channelID string) {
	r.t.Helper()
	if !r.client.Expire(r.t.Context(), key(channelID), time.Hour).Val() {
		r.t.Fatalf("%s has no set", channelID)
	}
}

func (r *rig) expires(channelID string, want time.Duration) {
	r.t.Helper()
	if got := r.client.TTL(r.t.Context(), key(channelID)).Val(); got > want || got < want-time.Minute {
		r.t.Errorf("%s expires in %s, want %s", channelID, got, want)
	}
}

// listener collects the events that live subscribers of a channel receive.
type listener struct {
	mu     sync.Mutex
	events []message.Event
}

func (r *rig) listen(channelID string) *listener {
	r.t.Helper()
	l := &listener{}
	cancel, err := r.bus.Subscribe(channelID, func(e message.Event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, e)
	}, func(string) {})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(cancel)
	return l
}

func (l *listener) all() []message.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]message.Event(nil), l.events...)
}

// wait waits until every seq up to last was received.
func (l *listener) wait(t testing.TB, last int64) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		heard := map[int64]bool{}
		for _, e := range l.all() {
			heard[e.Seq] = true
		}
		for seq := int64(1); seq <= last; seq++ {
			if !heard[seq] {
				return fmt.Errorf("entry %d was not published", seq)
			}
		}
		return nil
	})
}

// fakeSource is a feed.Source that passes on the batches that a test delivers.
type fakeSource struct {
	// only is the one shard that gets batches, or nil: then any shard gets all.
	only    *int
	batches chan []message.Event
	results chan error
}

func newFakeSource() *fakeSource {
	return &fakeSource{batches: make(chan []message.Event), results: make(chan error)}
}

func (s *fakeSource) Consume(ctx context.Context, shard int, fn func(context.Context, []message.Event) error) error {
	if s.only != nil && shard != *s.only {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for {
		select {
		case batch := <-s.batches:
			err := fn(ctx, batch)
			select {
			case s.results <- err:
			case <-ctx.Done():
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// deliver passes a batch to the service that consumes s, and returns the error of its callback.
func (s *fakeSource) deliver(batch ...message.Event) error {
	s.batches <- batch
	return <-s.results
}

// eventOf returns the event that the feeder would publish for an entry now.
func (r *rig) eventOf(e message.Entry) message.Event {
	r.t.Helper()
	ev := message.Event{
		Kind: e.Kind, Epoch: r.store.Identity().Epoch, Seq: e.Seq, Count: e.Count, Time: e.MsgTime, Message: e.Message,
	}
	if e.Kind != message.KindSend {
		targets, err := r.store.Messages(r.t.Context(), []message.Place{{ChannelID: e.ChannelID, Seq: e.TargetSeq}})
		if err != nil || len(targets) != 1 {
			r.t.Fatalf("target: %v, %v", targets, err)
		}
		ev.Message = targets[0].Message
	}
	return ev
}

// builderOnly starts a builder whose events the test delivers.
func (r *rig) builderOnly(cache feed.CacheWriter, reader feed.BuilderStore) *fakeSource {
	r.t.Helper()
	source := newFakeSource()
	r.newBuilder(source, cache, reader)
	lifecycletest.Start(r.t, r.builder)
	return source
}

// builderOf is builderOnly for the events of the channel's shard.
func (r *rig) builderOf(channelID string, cache feed.CacheWriter, reader feed.BuilderStore) *fakeSource {
	r.t.Helper()
	source := newFakeSource()
	shard := message.Shard(channelID, shards)
	source.only = &shard
	r.newBuilder(source, cache, reader)
	lifecycletest.Start(r.t, r.builder)
	return source
}

func (r *rig) mustDeliver(source *fakeSource, batch ...message.Event) {
	r.t.Helper()
	if err := source.deliver(batch...); err != nil {
		r.t.Fatal(err)
	}
}

var errProvoked = errors.New("provoked")

var sameEvents = cmpopts.EquateEmpty()
