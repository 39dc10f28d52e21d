package redispresence

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/internal/presence"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestMain(m *testing.M) {
	// A step of the model takes milliseconds, so run fewer checks than rapid would, unless the
	// command line says otherwise.
	if err := flag.Set("rapid.checks", "20"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m)
}

// sharedRedis is a server that all tests of the package share. Each has keys of its own. It ends
// with the process.
var sharedRedis = sync.OnceValues(func() (*rig.Redis, error) {
	dir, err := rig.TempDir("redispresence")
	if err != nil {
		return nil, err
	}
	// Unwatched, because a goroutine that waits for its end would count as a leak.
	return rig.StartRedis(context.Background(), rig.RedisConfig{Dir: dir, Addr: filepath.Join(dir, "redis.sock"), Unwatched: true})
})

// oneClient returns a client of the shared server.
func oneClient(tb testing.TB) *redis.Client {
	tb.Helper()
	server, err := sharedRedis()
	if err != nil {
		tb.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{
		Network: "unix", Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// kinds are the kinds of Redis that the store works on.
var kinds = map[string]func(tb testing.TB) redis.UniversalClient{
	"one":        func(tb testing.TB) redis.UniversalClient { tb.Helper(); return oneClient(tb) },
	"cluster":    func(tb testing.TB) redis.UniversalClient { tb.Helper(); return testkit.RedisClusterClient(tb) },
	"in process": func(tb testing.TB) redis.UniversalClient { tb.Helper(); return testkit.InProcessRedisClient(tb) },
}

// eachRedis runs a test on each kind of Redis.
func eachRedis(t *testing.T, test func(t *testing.T, b *bundle)) {
	t.Helper()
	for name, client := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newBundle(t, client(t)))
		})
	}
}

// movedClock is a clock that the test sets: the key next to KEYS[1], which every script has in the
// slot of the others.
const movedClock = `local function now_us()
  return tonumber(redis.call('GET', KEYS[1] .. ':clock'))
end`

var (
	movedScripts = newScripts(movedClock)
	prefixes     atomic.Int64
)

const (
	shard = 7
	ttl   = 30 * time.Minute
)

// bundle is a store with keys of its own, and a clock that stands unless the test moves it.
type bundle struct {
	*Store

	tb  tester
	now time.Time
	// epoch is the epoch of calls that name none. It stays after a flush, until begin.
	epoch  string
	epochs int
}

// tester is a *testing.T, *testing.B or *rapid.T.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// newBundle returns a bundle whose shard has an epoch.
func newBundle(tb tester, client redis.UniversalClient) *bundle {
	tb.Helper()
	b := &bundle{
		Store: New(client, Config{Prefix: fmt.Sprintf("test%d:", prefixes.Add(1)), TTL: ttl, LogLength: 20}),
		tb:    tb, now: time.UnixMilli(1_800_000_000_000),
	}
	b.scripts = movedScripts
	b.move(0)
	b.begin()
	return b
}

// begin begins an epoch of the shard, which must have none, and uses it from now on.
func (b *bundle) begin() {
	b.tb.Helper()
	b.epochs++
	b.epoch = fmt.Sprint("epoch", b.epochs)
	if h, err := b.Open(b.tb.Context(), shard, "", b.epoch); err != nil || h.Epoch != b.epoch {
		b.tb.Fatalf("the epoch is %q, %v", h.Epoch, err)
	}
}

// move moves the clock of the shard and of the leases.
func (b *bundle) move(d time.Duration) {
	b.tb.Helper()
	b.now = b.now.Add(d)
	for _, key := range []string{b.keys.meta(shard), b.keys.nodes()} {
		if err := b.client.Set(b.tb.Context(), key+":clock", b.now.UnixMicro(), 0).Err(); err != nil {
			b.tb.Fatal(err)
		}
	}
}

// soon returns a NotAfter that has not passed.
func (b *bundle) soon() time.Time { return b.now.Add(time.Second) }

// st returns the state that text names; see the package comment.
func st(text string) presence.State {
	s, ok := parseState(text)
	if !ok {
		panic("no state: " + text)
	}
	return s
}

// part returns a part for mode normal.
func part(user, state string) presence.Part {
	return presence.Part{UserID: user, State: st(state), Cause: presence.Connected}
}

// set sets parts of a node, and fails the test unless that is done.
func (b *bundle) set(node string, parts ...presence.Part) presence.SetResult {
	b.tb.Helper()
	r := b.try(presence.SetCall{Shard: shard, Node: node, NotAfter: b.soon(), Users: parts})
	if r.Outcome != presence.Done {
		b.tb.Fatalf("outcome %d", r.Outcome)
	}
	return r
}

// try makes a call that must get a reply. It sets the epoch if the call has none.
func (b *bundle) try(call presence.SetCall) presence.SetResult {
	b.tb.Helper()
	call.Epoch = cmp.Or(call.Epoch, b.epoch)
	r := b.Set(b.tb.Context(), []presence.SetCall{call})[0]
	if r.Err != nil {
		b.tb.Fatal(r.Err)
	}
	if !r.Now.Equal(b.now) {
		b.tb.Fatalf("the time is %v, want %v", r.Now, b.now)
	}
	return r
}

// put sets one user's part and returns what changed.
func (b *bundle) put(node, user, state string) presence.SetChange {
	b.tb.Helper()
	return b.set(node, part(user, state)).Changes[0]
}

// state reads the state of a user.
func (b *bundle) state(user string) string {
	b.tb.Helper()
	r := b.Get(b.tb.Context(), []presence.GetCall{{Shard: shard, Users: []string{user}}})[0]
	if r.Err != nil {
		b.tb.Fatal(r.Err)
	}
	return formatState(r.States[0])
}

// head reads the head of the shard.
func (b *bundle) head() presence.Head {
	b.tb.Helper()
	r := b.Heads(b.tb.Context(), []int{shard})[0]
	if r.Err != nil {
		b.tb.Fatal(r.Err)
	}
	return r.Head
}

// log returns the log after a position as text, without times.
func (b *bundle) log(after int64) (lines []string) {
	b.tb.Helper()
	r := b.Since(b.tb.Context(), []presence.SinceCall{{Shard: shard, Epoch: b.head().Epoch, Seq: after, Limit: 1000}})[0]
	if r.Err != nil || r.Reset {
		b.tb.Fatalf("reset %t, %v", r.Reset, r.Err)
	}
	for _, e := range r.Entries {
		line := fmt.Sprintf("%d %s %q %d", e.Seq, e.UserID, formatState(e.State), e.Cause)
		if e.Login != nil {
			line = fmt.Sprintf("%d %s %+v", e.Seq, e.UserID, *e.Login)
		}
		lines = append(lines, line)
	}
	return lines
}

// online lists the users who are online, read in pages of 2.
func (b *bundle) online() (users []string) {
	b.tb.Helper()
	for after := ""; ; {
		p, err := b.Page(b.tb.Context(), shard, after, 2)
		if err != nil {
			b.tb.Fatal(err)
		}
		if len(p.Users) == 0 {
			return users
		}
		if p.Users[0] <= after {
			b.tb.Fatalf("after %q: %q", after, p.Users)
		}
		users = append(users, p.Users...)
		after = users[len(users)-1]
	}
}

// members lists the users of whom a node has a part, sorted.
func (b *bundle) members(node string) (users []string) {
	b.tb.Helper()
	for cursor := uint64(0); ; {
		some, next, err := b.Members(b.tb.Context(), shard, node, cursor)
		if err != nil {
			b.tb.Fatal(err)
		}
		users = append(users, some...)
		if cursor = next; cursor == 0 {
			slices.Sort(users)
			return slices.Compact(users)
		}
	}
}

// flush removes all keys of the shard and of the leases, as FLUSHALL would.
func (b *bundle) flush() {
	b.tb.Helper()
	for _, key := range b.allKeys() {
		if err := b.client.Unlink(b.tb.Context(), key).Err(); err != nil {
			b.tb.Fatal(err)
		}
	}
}

// allKeys returns the keys of the store, without the clocks.
func (b *bundle) allKeys() (keys []string) {
	b.tb.Helper()
	var mu sync.Mutex
	scan := func(ctx context.Context, c *redis.Client) error {
		found := c.Scan(ctx, 0, b.keys.prefix+"*", 1000).Iterator()
		for found.Next(ctx) {
			if !strings.HasSuffix(found.Val(), ":clock") {
				mu.Lock()
				keys = append(keys, found.Val())
				mu.Unlock()
			}
		}
		return found.Err()
	}
	var err error
	switch c := b.client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(b.tb.Context(), scan)
	case *redis.Client:
		err = scan(b.tb.Context(), c)
	default:
		b.tb.Fatalf("the client is a %T", c)
	}
	if err != nil {
		b.tb.Fatal(err)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// dump returns what the keys hold, as text.
func (b *bundle) dump() string {
	b.tb.Helper()
	ctx := b.tb.Context()
	var text strings.Builder
	for _, key := range b.allKeys() {
		var value any
		switch kind := b.client.Type(ctx, key).Val(); kind {
		case "hash":
			value = b.client.HGetAll(ctx, key).Val() // fmt sorts maps
		case "set":
			value = slices.Sorted(slices.Values(b.client.SMembers(ctx, key).Val()))
		case "zset":
			value = b.client.ZRangeWithScores(ctx, key, 0, -1).Val()
		case "list":
			value = b.client.LRange(ctx, key, 0, -1).Val()
		default:
			b.tb.Fatalf("%s is a %s", key, kind)
		}
		fmt.Fprintf(&text, "%s %v\n", strings.TrimPrefix(key, b.keys.prefix), value)
	}
	return text.String()
}

// unchanged fails the test if f changes any key.
func (b *bundle) unchanged(what string, f func()) {
	b.tb.Helper()
	before := b.dump()
	f()
	if after := b.dump(); after != before {
		b.tb.Errorf("%s changed\n%sto\n%s", what, before, after)
	}
}

// same reports whether two results, of which none has an error, are equal.
func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// userNames returns n user ids.
func userNames(n int) (ids []string) {
	for i := range n {
		ids = append(ids, "user"+strconv.Itoa(1000+i))
	}
	return ids
}
