package redisstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	epoch = "0190f5d1-epoch"
	room  = "room"
)

// testLayout is a layout under test.
type testLayout struct {
	new  func(client redis.UniversalClient, config CacheConfig) (*Cache, error)
	key  func(channelID string) string
	keep int
	ttl  time.Duration
	list bool
}

var layouts = map[string]*testLayout{
	"set":  {new: NewCache, key: keys{}.messages, keep: 150, ttl: 604_800 * time.Second},
	"list": {new: NewSessionCache, key: keys{}.session, keep: 200, ttl: 86_400 * time.Second, list: true},
}

// onLayouts runs a test on both layouts.
func onLayouts(t *testing.T, test func(t *testing.T, l *testLayout)) {
	t.Helper()
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, l)
		})
	}
}

type bundle struct {
	server *testkit.RedisServer
	client *redis.Client
	cache  *Cache
	layout *testLayout
	key    string
}

func setup(t testing.TB, l *testLayout, config CacheConfig, options ...testkit.RedisOption) *bundle {
	t.Helper()
	server := testkit.Redis(t, options...)
	b := &bundle{server: server, client: server.Client(t), layout: l, key: l.key(room)}
	cache, err := l.new(b.client, config)
	if err != nil {
		t.Fatal(err)
	}
	b.cache = cache
	return b
}

var at = time.UnixMilli(1_700_000_000_123).UTC()

// sent returns the message at seq in the log of room, as if all entries before it were messages.
func sent(seq int64, text string) message.Message {
	return message.Message{
		MsgID: fmt.Sprintf("m%d", seq), ChannelID: room, Seq: seq, Count: seq, FromID: "auth0|42", MsgType: "text",
		Content: text, ClientMsgID: fmt.Sprintf("c%d", seq), MsgTime: at, ChangedSeq: seq,
	}
}

func insert(seq int64) feed.CacheChange {
	return feed.CacheChange{Seq: seq, Count: seq, Sent: true, Message: sent(seq, fmt.Sprintf("text of %d", seq))}
}

// change returns the entry at seq that changes the message at target to a text, or that recalls it.
func change(seq, target int64, kind message.Kind, text string) feed.CacheChange {
	m := sent(target, text)
	m.ChangedSeq, m.Status = seq, kind.After()
	if kind == message.KindRecall {
		m.Content = ""
	}
	return feed.CacheChange{Seq: seq, Count: seq - 1, Message: m}
}

func inserts(from, to int64) []feed.CacheChange {
	var changes []feed.CacheChange
	for seq := from; seq <= to; seq++ {
		changes = append(changes, insert(seq))
	}
	return changes
}

func messages(from, to int64) []message.Message {
	var all []message.Message
	for _, c := range inserts(from, to) {
		all = append(all, c.Message)
	}
	return all
}

// logOf returns a log whose last entries are the given messages.
func logOf(all ...message.Message) message.CachedLog {
	last := all[len(all)-1]
	return message.CachedLog{Epoch: epoch, Newest: last.Seq, Count: last.Count, Messages: all}
}

func (b *bundle) append(t testing.TB, wantDone int, changes ...feed.CacheChange) {
	t.Helper()
	done, err := b.cache.Append(t.Context(), []feed.ChannelChanges{{ChannelID: room, Epoch: epoch, Changes: changes}})
	if err != nil {
		t.Fatal(err)
	}
	if done[0] != wantDone {
		t.Fatalf("%d entries done, want %d", done[0], wantDone)
	}
}

func (b *bundle) replace(t testing.TB, all ...message.Message) {
	t.Helper()
	replace(t, b.cache, room, logOf(all...))
}

// replace replaces a channel's set by messages that were read just now.
func replace(t testing.TB, cache feed.CacheWriter, channelID string, log message.CachedLog) {
	t.Helper()
	began, err := cache.Now(t.Context(), channelID)
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Replace(t.Context(), channelID, began, log); err != nil {
		t.Fatal(err)
	}
}

// raw returns the set of room as stored in Redis: members in order, each after its score. The score
// of a message in a list is its seq, and that of the state 0.
func (b *bundle) raw(t testing.TB) []string {
	t.Helper()
	if b.layout.list {
		return b.rawList(t)
	}
	members, err := b.client.ZRangeWithScores(t.Context(), b.key, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	for _, z := range members {
		lines = append(lines, fmt.Sprintf("%.0f %v", z.Score, z.Member))
	}
	return lines
}

func (b *bundle) rawList(t testing.TB) []string {
	t.Helper()
	values, err := b.client.LRange(t.Context(), b.key, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	for i, value := range values {
		var m message.Cached
		if i > 0 {
			if err := m.UnmarshalJSON([]byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		lines = append(lines, fmt.Sprintf("%d %s", m.Message.Seq, value))
	}
	return lines
}

// rawIs fails the test unless the set of room has exactly these messages, and a mark for each that
// was changed.
func (b *bundle) rawIs(t testing.TB, want ...message.Message) {
	t.Helper()
	lines, marks := []string{}, []string{}
	for _, m := range want {
		value, err := json.Marshal(message.Cached{Epoch: epoch, Message: m})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%d %s", m.Seq, value))
		if m.ChangedSeq != m.Seq && !b.layout.list {
			marks = append(marks, fmt.Sprintf("-%d c:%d", m.ChangedSeq, m.Seq))
		}
	}
	var gotMarks, got []string
	for _, line := range b.raw(t) {
		switch line[0] {
		case '-':
			gotMarks = append(gotMarks, line)
		case '0': // the state
		default:
			got = append(got, line)
		}
	}
	if diff := cmp.Diff(lines, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("the set (-want +got):\n%s", diff)
	}
	slices.Sort(marks)
	slices.Sort(gotMarks)
	if diff := cmp.Diff(marks, gotMarks, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("the marks (-want +got):\n%s", diff)
	}
}

// stateIs fails the test unless the state of the set of room is the given one.
func (b *bundle) stateIs(t testing.TB, seq, count, unknown int64) {
	t.Helper()
	p, err := b.cache.Page(t.Context(), room, message.Range{Limit: 1, MessagesOnly: true})
	if err != nil || p.Newest != seq || p.Count != count || p.Unknown != unknown {
		t.Fatalf("the state is %+v, %v, want seq %d, count %d, unknown %d", p, err, seq, count, unknown)
	}
}

// age sets the expiry of the set of room to a recognizable value.
func (b *bundle) age(t testing.TB) {
	t.Helper()
	if !b.client.Expire(t.Context(), b.key, time.Hour).Val() {
		t.Fatal("there is no set")
	}
}

func (b *bundle) expires(t testing.TB, want time.Duration) {
	t.Helper()
	if got := b.client.TTL(t.Context(), b.key).Val(); got > want || got < want-time.Minute {
		t.Fatalf("the set expires in %s, want %s", got, want)
	}
}

func TestAppendExtendsTheSet(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		b.replace(t, messages(1, 3)...)
		b.expires(t, l.ttl)
		b.age(t)
		b.append(t, 2, inserts(4, 5)...)
		b.rawIs(t, messages(1, 5)...)
		b.expires(t, l.ttl)
	})
}

func TestAppendIsIdempotent(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		b.replace(t, messages(1, 3)...)
		changes := append(inserts(4, 5), change(6, 2, message.KindEdit, "edited"), change(7, 4, message.KindRecall, ""), insert(8))
		b.append(t, 5, changes...)
		before := b.raw(t)
		b.age(t)
		b.append(t, 5, changes...)
		b.append(t, 2, changes[1:3]...)
		if diff := cmp.Diff(before, b.raw(t)); diff != "" {
			t.Fatal(diff)
		}
		b.expires(t, time.Hour)
	})
}

func TestAppendToAnAbsentSetDoesNothing(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		b.append(t, 0, insert(1))
		b.append(t, 0, insert(7))
		b.append(t, 1, change(8, 7, message.KindEdit, "x"))
		b.append(t, 1, change(9, 7, message.KindRecall, ""), insert(10))
		b.rawIs(t)
	})
}

func TestHoleEndsTheRunAtTheInsert(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		b.replace(t, messages(1, 3)...)
		b.age(t)
		b.append(t, 1, insert(4), insert(6), insert(7))
		b.rawIs(t, messages(1, 4)...)
		b.expires(t, l.ttl)
	})
}

func TestChangeOverAHoleDeletesTheSet(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		for _, kind := range []message.Kind{message.KindEdit, message.KindRecall} {
			b := setup(t, l, CacheConfig{})
			b.replace(t, messages(1, 3)...)
			b.append(t, 1, change(5, 2, kind, "x"), insert(6))
			b.rawIs(t)
		}
	})
}

func TestAppendOfAnotherEpochDoesNothing(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		old := logOf(messages(1, 9)...)
		old.Epoch = "before"
		replace(t, b.cache, room, old)
		before := b.raw(t)
		b.append(t, 0, insert(10))
		b.append(t, 0, insert(3))
		if diff := cmp.Diff(before, b.raw(t)); diff != "" {
			t.Fatal(diff)
		}
		b.replace(t, messages(1, 3)...) // lower, but of this epoch
		b.rawIs(t, messages(1, 3)...)
		replace(t, b.cache, room, old)
		b.append(t, 1, change(10, 2, message.KindEdit, "x"))
		b.rawIs(t)
	})
}

func TestChangeReplacesItsTargetAndNotTheExpiry(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		b.replace(t, messages(1, 3)...)
		b.age(t)
		edit := change(4, 2, message.KindEdit, "edited")
		recall := change(5, 3, message.KindRecall, "")
		b.append(t, 2, edit, recall)
		b.rawIs(t, sent(1, "text of 1"), edit.Message, recall.Message)
		b.stateIs(t, 5, 4, 0)
		b.expires(t, time.Hour)
	})
}

// TestManyEditsTakeNoRoom checks that edits push no message out of the set, and that a message that
// was edited a thousand times takes as much as one that was edited once.
func TestManyEditsTakeNoRoom(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{Keep: 5})
		b.replace(t, messages(1, 5)...)
		var edits []feed.CacheChange
		for seq := int64(6); seq < 1006; seq++ {
			edits = append(edits, change(seq, seq%3+1, message.KindEdit, "edited"))
		}
		b.append(t, len(edits), edits...)
		want := messages(1, 5)
		for _, e := range edits {
			want[e.Message.Seq-1] = e.Message
		}
		b.rawIs(t, want...)
		next := sent(1006, "next")
		next.Count = 6
		b.append(t, 1, feed.CacheChange{Seq: 1006, Count: 6, Sent: true, Message: next})
		b.stateIs(t, 1006, 6, 1005) // message 1 has left the set, and 1005 changed it
		for seq := int64(1007); seq < 1107; seq++ {
			b.append(t, 1, change(seq, 1, message.KindEdit, "edited"))
		}
		b.rawIs(t, append(want[1:], next)...)
		b.stateIs(t, 1106, 1105, 1106)
	})
}

// TestSetIsBoundedInBytes checks that the set keeps as many of the newest messages as its limit of
// bytes allows, and at least one.
func TestSetIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{MaxBytes: 5000})
		large := func(seq int64, size int) message.Message { return sent(seq, strings.Repeat("x", size)) }
		b.replace(t, large(1, 1000), large(2, 1000), large(3, 1000), large(4, 1000), large(5, 1000))
		b.rawIs(t, large(2, 1000), large(3, 1000), large(4, 1000), large(5, 1000))
		b.append(t, 1, feed.CacheChange{Seq: 6, Count: 6, Sent: true, Message: large(6, 2000)})
		b.rawIs(t, large(4, 1000), large(5, 1000), large(6, 2000))
		edit := change(7, 4, message.KindEdit, strings.Repeat("x", 3000))
		b.append(t, 1, edit)
		b.rawIs(t, large(5, 1000), large(6, 2000))
		b.stateIs(t, 7, 6, 7) // the edited message has left the set
		b.append(t, 1, feed.CacheChange{Seq: 8, Count: 7, Sent: true, Message: large(8, 9000)})
		b.rawIs(t, large(8, 9000))
		b.append(t, 1, feed.CacheChange{Seq: 9, Count: 8, Sent: true, Message: large(9, 10)})
		b.rawIs(t, large(9, 10))
	})
}

func TestRecallLeavesTheTextInNoMember(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		b.replace(t, append(messages(1, 2), sent(3, "s3cr3t"))...)
		b.append(t, 3, change(4, 3, message.KindEdit, "s3cr3t too"), change(5, 3, message.KindRecall, ""),
			// An edit's event may come late with an old text.
			insert(6))
		b.append(t, 1, change(4, 3, message.KindEdit, "s3cr3t too"))
		if all := strings.Join(b.raw(t), "\n"); strings.Contains(all, "s3cr3t") {
			t.Fatal(all)
		}
	})
}

func TestOlderTargetNeverReplacesANewerOne(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		// The message was loaded or published with entry 5 already applied.
		recalled := change(5, 3, message.KindRecall, "").Message
		b.replace(t, append(messages(1, 2), recalled)...)
		b.append(t, 1, change(4, 3, message.KindEdit, "older"))
		b.rawIs(t, sent(1, "text of 1"), sent(2, "text of 2"), recalled)
		b.stateIs(t, 4, 3, 0)
	})
}

func TestTargetOfASetOfOneKeepsTheExpiry(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{Keep: 1})
		b.replace(t, messages(1, 1)...)
		b.age(t)
		edit := change(2, 1, message.KindEdit, "x")
		b.append(t, 1, edit)
		b.rawIs(t, edit.Message)
		b.expires(t, time.Hour)
	})
}

func TestOnlyTheNewestAreKept(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		keep := int64(l.keep)
		b.replace(t, messages(1, 400)...)
		b.rawIs(t, messages(401-keep, 400)...)
		b.append(t, 256, inserts(401, 656)...)
		b.rawIs(t, messages(657-keep, 656)...)
		if n := b.client.MemoryUsage(t.Context(), b.key).Val(); n > 400*keep {
			t.Errorf("%d short messages take %d bytes", keep, n)
		}
	})
}

func TestReplaceNeverGoesBack(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		b.replace(t, messages(1, 10)...)
		b.age(t)
		b.replace(t, messages(1, 10)...)
		b.replace(t, messages(4, 9)...)
		b.rawIs(t, messages(1, 10)...)
		b.expires(t, time.Hour)
		b.replace(t, messages(5, 11)...)
		b.rawIs(t, messages(5, 11)...)
		b.expires(t, l.ttl)
	})
}

func TestValuesAreKeptByteForByte(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		want := messages(1, 1)
		b.replace(t, want...)
		texts := []string{
			"9007199254740993 1e400 -0.0 [] {}", "\u2028\u2029\u0000\x7f\\\"'", `{"epoch":"x","seq":9,"changed_seq":99}`, "日本\U0001F600%d%s",
			strings.Repeat("é", 32_000), "",
		}
		for i, text := range texts {
			m := sent(int64(i+2), text)
			m.Metadata = map[string]string{}
			if i%2 == 1 {
				m.Metadata = map[string]string{"": "", "k": text[:min(len(text), 64)], "n": "18446744073709551616"}
			}
			b.append(t, 1, feed.CacheChange{Seq: m.Seq, Count: m.Count, Sent: true, Message: m})
			want = append(want, m)
		}
		b.rawIs(t, want...)
		edit := change(int64(len(texts)+2), 4, message.KindEdit, texts[1]+texts[2])
		b.append(t, 1, edit)
		want[3] = edit.Message
		b.rawIs(t, want...)
		page, err := b.cache.Page(t.Context(), room, message.Range{Limit: 100, MessagesOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := page.Events[3].Message.Content; got != texts[1]+texts[2] {
			t.Errorf("read %q", got)
		}
	})
}

func TestScriptsAreReloadedAfterFlush(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{}, testkit.RedisAppendOnly())
		b.replace(t, messages(1, 1)...)
		b.append(t, 1, insert(2))
		if err := b.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		b.append(t, 1, insert(3))
		b.server.Kill()
		if _, err := b.cache.Append(t.Context(), []feed.ChannelChanges{{ChannelID: room, Epoch: epoch, Changes: inserts(4, 4)}}); err == nil {
			t.Fatal("appended without a server")
		}
		b.server.Start()
		testkit.Eventually(t, 10*time.Second, func() error {
			began, err := b.cache.Now(t.Context(), room)
			if err != nil {
				return err
			}
			return b.cache.Replace(t.Context(), room, began, logOf(messages(1, 2)...))
		})
		b.append(t, 1, insert(4))
		b.rawIs(t, messages(1, 4)...)
	})
}

func TestRunsOfChannelsAreIndependent(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{Prefix: "p:"})
		var runs []feed.ChannelChanges
		for i := range 100 {
			id := fmt.Sprintf("c%d", i)
			if i%2 == 0 {
				replace(t, b.cache, id, logOf(messages(1, 3)...))
			}
			runs = append(runs, feed.ChannelChanges{ChannelID: id, Epoch: epoch, Changes: inserts(2, 5)})
		}
		done, err := b.cache.Append(t.Context(), runs)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range done {
			if want := []int{4, 0}[i%2]; n != want {
				t.Errorf("channel %d: %d done, want %d", i, n, want)
			}
		}
		if page, err := b.cache.Page(t.Context(), "c0", message.Range{Limit: 9}); err != nil || len(page.Events) != 5 {
			t.Errorf("c0 holds %d, %v", len(page.Events), err)
		}
		if b.client.Exists(t.Context(), "p:"+l.key("c0")).Val() != 1 {
			t.Error("c0 is at another key")
		}
		if err := b.cache.Drop(t.Context(), "c0"); err != nil {
			t.Fatal(err)
		}
		if n := b.client.DBSize(t.Context()).Val(); n != 49 {
			t.Errorf("%d keys", n)
		}
	})
}

func TestReplaceRefusesStaleLoads(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		b.replace(t, messages(1, 2)...)
		now, err := b.cache.Now(t.Context(), room)
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Since(now).Abs(); off > time.Minute {
			t.Errorf("Redis's time is off by %s", off)
		}
		for _, ago := range []time.Duration{loadLife + time.Millisecond, 20 * time.Second, -time.Hour} {
			if err := b.cache.Replace(t.Context(), room, now.Add(-ago), logOf(messages(1, 3)...)); !errors.Is(err, feed.ErrStaleLoad) {
				t.Errorf("what was read %s ago: %v", ago, err)
			}
		}
		b.rawIs(t, messages(1, 2)...)
		if err := b.cache.Replace(t.Context(), room, now.Add(-loadLife/2), logOf(messages(1, 3)...)); err != nil {
			t.Error(err)
		}
		b.rawIs(t, messages(1, 3)...)
	})
}
