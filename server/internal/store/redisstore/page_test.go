package redisstore

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/message"
)

func TestPages(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		page := func(r message.Range) message.CachedPage {
			t.Helper()
			p, err := b.cache.Page(t.Context(), room, r)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		if diff := cmp.Diff(message.CachedPage{}, page(message.Range{Limit: 5})); diff != "" {
			t.Fatalf("no set: %s", diff)
		}
		all := messages(11, 20)
		recall := change(21, 12, message.KindRecall, "")
		b.replace(t, all...)
		b.append(t, 1, recall)
		all[1] = recall.Message
		events := func(places ...int64) []message.Event {
			out := []message.Event{}
			for _, place := range places {
				e := message.Event{Epoch: epoch, Seq: place}
				if place == 21 {
					e.Kind, e.Message = message.KindRecall, all[1]
				} else {
					e.Message = all[place-11]
				}
				out = append(out, e)
			}
			return out
		}
		size := all[0].Size()
		for name, c := range map[string]struct {
			r    message.Range
			want []message.Event
		}{
			"everything":             {message.Range{Limit: 100}, events(11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)},
			"the messages":           {message.Range{Limit: 100, MessagesOnly: true}, events(11, 12, 13, 14, 15, 16, 17, 18, 19, 20)},
			"from the front":         {message.Range{Limit: 3}, events(11, 12, 13)},
			"after":                  {message.Range{After: 15, Limit: 3}, events(16, 17, 18)},
			"between":                {message.Range{After: 13, Before: 17, Limit: 100}, events(14, 15, 16)},
			"the change":             {message.Range{After: 20, Limit: 100}, events(21)},
			"before the change":      {message.Range{After: 18, Before: 21, Limit: 100}, events(19, 20)},
			"newest":                 {message.Range{Desc: true, Limit: 2, MessagesOnly: true}, events(20, 19)},
			"before, downwards":      {message.Range{Before: 15, Desc: true, Limit: 2, MessagesOnly: true}, events(14, 13)},
			"between, downwards":     {message.Range{After: 18, Before: 21, Desc: true, Limit: 9, MessagesOnly: true}, events(20, 19)},
			"after the end":          {message.Range{After: 21, Limit: 9}, events()},
			"before the start":       {message.Range{Before: 11, Desc: true, Limit: 9, MessagesOnly: true}, events()},
			"nothing between":        {message.Range{After: 15, Before: 16, Limit: 9}, events()},
			"a byte":                 {message.Range{After: 14, Limit: 9, MaxBytes: 1}, events(15)},
			"a byte, downwards":      {message.Range{Desc: true, Limit: 9, MaxBytes: 1, MessagesOnly: true}, events(20)},
			"bytes of some messages": {message.Range{After: 14, Limit: 9, MaxBytes: 20 * size}, events(15)},
		} {
			want := message.CachedPage{Epoch: epoch, Oldest: 11, Newest: 21, Count: 20, Events: c.want, Cut: len(c.want) == c.r.Limit || c.r.MaxBytes == 1}
			got := page(c.r)
			if strings.HasPrefix(name, "bytes of") { // JSON adds to the texts
				if n := len(got.Events); n < 1 || n > 4 {
					t.Errorf("%s: %d messages", name, n)
				}
				continue
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	})
}

func TestInvalidSetsAreIgnored(t *testing.T) {
	t.Parallel()
	good := func(seq int64) redis.Z {
		value, err := json.Marshal(message.Cached{Epoch: epoch, Message: sent(seq, "x")})
		if err != nil {
			t.Fatal(err)
		}
		return redis.Z{Score: float64(seq), Member: string(value)}
	}
	state := redis.Z{Member: message.CachedHead(epoch) + `3,"count":3,"unknown":0,"bytes":300}`}
	foreign := good(2)
	foreign.Member = strings.Replace(foreign.Member.(string), epoch, "other", 1)
	for name, members := range map[string][]redis.Z{
		"garbage in the middle":   {state, good(1), {Score: 2, Member: "{"}, good(3)},
		"garbage at the end":      {state, good(1), good(2), {Score: 3, Member: "null"}},
		"a hole":                  {state, good(1), good(3)},
		"two at one place":        {state, good(1), good(2), {Score: 2, Member: strings.ToUpper("{}")}, good(4)},
		"a wrong score":           {state, good(1), {Score: 2, Member: good(7).Member}, good(3)},
		"another epoch inside":    {state, good(1), foreign, good(3)},
		"a number and not a text": {state, good(1), good(2), {Score: 3, Member: "3"}},
		"no state":                {good(1), good(2), good(3)},
		"a state without numbers": {{Member: "{}"}, good(1), good(2), good(3)},
		"a state that is no JSON": {{Member: "x"}, good(1), good(2), good(3)},
		"only a state":            {state},
		"a mark of no message":    {state, good(1), good(2), good(3), {Score: -3, Member: "c:9"}},
	} {
		b := setup(t, layouts["set"], CacheConfig{})
		if err := b.client.ZAdd(t.Context(), b.key, members...).Err(); err != nil {
			t.Fatal(err)
		}
		page, err := b.cache.Page(t.Context(), room, message.Range{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(message.CachedPage{}, page); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestSetIsAlwaysWhole checks that a cached set always has consecutive messages, with all changes
// up to the entry that it says it includes, even if entries are repeated, late or missing, and sets
// vanish or return to an earlier state.
func TestSetIsAlwaysWhole(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		b := setup(t, l, CacheConfig{Keep: 12})
		// A log of 300 entries, about a quarter of them edits and recalls.
		var log []feed.CacheChange
		texts := map[int64]int64{} // message -> last entry that changed it, as of the entry being created
		var count int64
		for seq := int64(1); seq <= 300; seq++ {
			target := max(1, seq-1-rng.Int64N(15))
			if _, ok := texts[target]; ok && rng.IntN(3) == 0 {
				c := change(seq, target, []message.Kind{message.KindEdit, message.KindRecall, message.KindComplete, message.KindCancel, message.KindFail}[rng.IntN(5)], fmt.Sprintf("by %d", seq))
				c.Count, c.Message.Count = count, log[target-1].Count
				log = append(log, c)
				texts[target] = seq
				continue
			}
			texts[seq] = seq
			count++
			c := insert(seq)
			c.Count, c.Message.Count = count, count
			log = append(log, c)
		}
		var earlier string // the set as it was at some time before
		for range 600 {
			switch rng.IntN(30) {
			case 0: // evicted, or Redis was flushed
				b.client.Del(t.Context(), b.key)
			case 1: // Redis was restored from a backup
				if earlier != "" {
					if err := b.client.RestoreReplace(t.Context(), b.key, time.Hour, earlier).Err(); err != nil {
						t.Fatal(err)
					}
				}
			case 2:
				earlier = b.client.Dump(t.Context(), b.key).Val()
			}
			from := rng.IntN(len(log))
			run := log[from:min(len(log), from+1+rng.IntN(6))]
			before := b.raw(t)
			done, err := b.cache.Append(t.Context(), []feed.ChannelChanges{{ChannelID: room, Epoch: epoch, Changes: run}})
			if err != nil {
				t.Fatal(err)
			}
			if len(before) == 0 && len(b.raw(t)) != 0 {
				t.Fatalf("a set came from nothing by %d", run[0].Seq)
			}
			if done[0] < len(run) {
				if !run[done[0]].Sent {
					t.Fatalf("a change ended the run")
				}
				replace(t, b.cache, room, asStored(log[:run[len(run)-1].Seq], 12))
			}
			checkSet(t, b, log)
		}
	})
}

// asStored returns the newest messages of a log as the store would return them, with their edits
// and recalls applied.
func asStored(log []feed.CacheChange, keep int) message.CachedLog {
	stored := message.CachedLog{Epoch: epoch, Newest: log[len(log)-1].Seq, Count: log[len(log)-1].Count}
	at := map[int64]int{}
	for _, c := range log {
		if c.Sent {
			at[c.Seq] = len(stored.Messages)
			stored.Messages = append(stored.Messages, c.Message)
		} else {
			stored.Messages[at[c.Message.Seq]] = c.Message
		}
	}
	for _, m := range stored.Messages[:max(0, len(stored.Messages)-keep)] {
		if m.ChangedSeq != m.Seq {
			stored.Unknown = max(stored.Unknown, m.ChangedSeq)
		}
	}
	stored.Messages = stored.Messages[max(0, len(stored.Messages)-keep):]
	return stored
}

// checkSet compares the set of room with the log up to the entry that the set says it includes.
func checkSet(t *testing.T, b *bundle, log []feed.CacheChange) {
	t.Helper()
	page, err := b.cache.Page(t.Context(), room, message.Range{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if page.Newest == 0 {
		if raw := b.raw(t); len(raw) > 0 {
			t.Fatalf("the set is no piece of the log: %v", raw)
		}
		return
	}
	want := asStored(log[:page.Newest], 12)
	if page.Count != want.Count || page.Unknown < want.Unknown {
		t.Fatalf("the state is %+v, want %+v", page, want)
	}
	var sends []message.Message
	changes := map[int64]bool{}
	for _, e := range page.Events {
		if e.Kind == message.KindSend {
			sends = append(sends, e.Message)
		} else {
			changes[e.Seq] = true
		}
	}
	if n := len(want.Messages); len(sends) > n || len(sends) == 0 {
		t.Fatalf("the set has %d messages of %d", len(sends), n)
	}
	// Every message has all changes up to the set's last entry, and may have later ones.
	for i, m := range want.Messages[len(want.Messages)-len(sends):] {
		if sends[i].Seq != m.Seq || sends[i].ChangedSeq < m.ChangedSeq {
			t.Fatalf("message %d is as entry %d left it; want message %d as entry %d did", sends[i].Seq, sends[i].ChangedSeq, m.Seq, m.ChangedSeq)
		}
		if c := sends[i].ChangedSeq; c != sends[i].Seq && !changes[c] {
			t.Fatalf("the change of message %d by %d has no event", m.Seq, c)
		}
	}
}

// TestPagesOfEqualValues checks that each entry of a page names the requested channel even if
// another channel has the same cached values.
func TestPagesOfEqualValues(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		b := setup(t, l, CacheConfig{})
		for _, channelID := range []string{room, "another", room} {
			replace(t, b.cache, channelID, logOf(messages(1, 3)...))
			page, err := b.cache.Page(t.Context(), channelID, message.Range{Limit: 3})
			if err != nil || len(page.Events) != 3 {
				t.Fatalf("%s: %d entries, %v", channelID, len(page.Events), err)
			}
			for _, e := range page.Events {
				if e.Message.ChannelID != channelID {
					t.Errorf("a page of %s holds an entry of %s", channelID, e.Message.ChannelID)
				}
			}
		}
	})
}
