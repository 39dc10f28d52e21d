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
	b := setup(t, CacheConfig{})
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
	all := entries(11, 20)
	recall := change(21, 12, message.KindRecall, "")
	b.replace(t, all)
	b.append(t, 1, recall)
	all[1] = *recall.Target
	all = append(all, recall.Entry)
	down := func(from, n int) []message.Cached {
		out := []message.Cached{}
		for i := range n {
			out = append(out, all[from-11-i])
		}
		return out
	}
	for name, c := range map[string]struct {
		r    message.Range
		want []message.Cached
	}{
		"everything":         {message.Range{Limit: 100}, all},
		"from the front":     {message.Range{Limit: 3}, all[:3]},
		"after":              {message.Range{After: 15, Limit: 3}, all[5:8]},
		"between":            {message.Range{After: 13, Before: 17, Limit: 100}, all[3:6]},
		"newest":             {message.Range{Desc: true, Limit: 2}, down(21, 2)},
		"before, downwards":  {message.Range{Before: 15, Desc: true, Limit: 2}, down(14, 2)},
		"between, downwards": {message.Range{After: 18, Before: 21, Desc: true, Limit: 9}, down(20, 2)},
		"after the end":      {message.Range{After: 21, Limit: 9}, []message.Cached{}},
		"before the start":   {message.Range{Before: 11, Desc: true, Limit: 9}, []message.Cached{}},
		"nothing between":    {message.Range{After: 15, Before: 16, Limit: 9}, []message.Cached{}},
	} {
		want := message.CachedPage{Epoch: epoch, Oldest: 11, Newest: 21, Count: 20, Entries: c.want}
		if diff := cmp.Diff(want, page(c.r)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestInvalidSetsAreIgnored(t *testing.T) {
	t.Parallel()
	good := func(seq int64) redis.Z {
		value, err := json.Marshal(sent(seq, "x"))
		if err != nil {
			t.Fatal(err)
		}
		return redis.Z{Score: float64(seq), Member: string(value)}
	}
	foreign := good(2)
	foreign.Member = strings.Replace(foreign.Member.(string), epoch, "other", 1)
	for name, members := range map[string][]redis.Z{
		"garbage in the middle":   {good(1), {Score: 2, Member: "{"}, good(3)},
		"garbage at the end":      {good(1), good(2), {Score: 3, Member: "null"}},
		"a hole":                  {good(1), good(3)},
		"two at one place":        {good(1), good(2), {Score: 2, Member: strings.ToUpper("{}")}, good(4)},
		"a wrong score":           {good(1), {Score: 2, Member: good(7).Member}, good(3)},
		"another epoch inside":    {good(1), foreign, good(3)},
		"an unknown type":         {good(1), good(2), {Score: 3, Member: `{"epoch":"` + epoch + `","seq":3,"event_type":"merge"}`}},
		"a number and not a text": {good(1), good(2), {Score: 3, Member: "3"}},
	} {
		b := setup(t, CacheConfig{})
		if err := b.client.ZAdd(t.Context(), "msg_cache:room", members...).Err(); err != nil {
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

func TestPageBesideAHoleIsAMiss(t *testing.T) {
	t.Parallel()
	b := setup(t, CacheConfig{})
	b.replace(t, entries(1, 9))
	if n := b.client.ZRemRangeByScore(t.Context(), "msg_cache:room", "3", "3").Val(); n != 1 {
		t.Fatal(n)
	}
	page, err := b.cache.Page(t.Context(), room, message.Range{Desc: true, Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(message.CachedPage{}, page); diff != "" {
		t.Error(diff)
	}
}

// TestSetIsAlwaysDense checks that a cached set is always one contiguous part of the log, even if
// entries are repeated, late or missing.
func TestSetIsAlwaysDense(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	b := setup(t, CacheConfig{Keep: 12})
	// A log of 300 entries, about a quarter of them edits and recalls.
	var log []feed.CacheChange
	texts := map[int64]int64{} // message -> last entry that changed it, as of the entry being created
	for seq := int64(1); seq <= 300; seq++ {
		target := max(1, seq-1-rng.Int64N(15))
		if _, ok := texts[target]; ok && rng.IntN(3) == 0 {
			log = append(log, change(seq, target, []message.Kind{message.KindEdit, message.KindRecall}[rng.IntN(2)], fmt.Sprintf("by %d", seq)))
			texts[target] = seq
			continue
		}
		texts[seq] = seq
		log = append(log, insert(seq))
	}
	for range 600 {
		from := rng.IntN(len(log))
		run := log[from:min(len(log), from+1+rng.IntN(6))]
		before := b.raw(t)
		done, err := b.cache.Append(t.Context(), []feed.ChannelChanges{{ChannelID: room, Epoch: epoch, Changes: run}})
		if err != nil {
			t.Fatal(err)
		}
		if len(before) == 0 && len(b.raw(t)) != 0 {
			t.Fatalf("a set came from nothing by %d", run[0].Entry.Seq)
		}
		if done[0] < len(run) {
			if run[done[0]].Target != nil {
				t.Fatalf("a change ended the run")
			}
			// As the store would return it: all messages up to here with their edits and recalls
			// applied.
			last := run[len(run)-1].Entry.Seq
			piece := map[int64]message.Cached{}
			for _, c := range log[:last] {
				piece[c.Entry.Seq] = c.Entry
				if c.Target != nil {
					piece[c.Target.Seq] = *c.Target
				}
			}
			var all []message.Cached
			for seq := max(1, last-11); seq <= last; seq++ {
				all = append(all, piece[seq])
			}
			b.replace(t, all)
		}
		page, err := b.cache.Page(t.Context(), room, message.Range{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Entries) != len(b.raw(t)) {
			t.Fatalf("the set is no piece of the log: %v", b.raw(t))
		}
		// Every message in the set has all changes up to the set's last entry, and may have later ones.
		want := map[int64]int64{}
		for _, c := range log[:page.Newest] {
			if c.Target != nil {
				want[c.Target.Seq] = c.Entry.Seq
			}
		}
		for _, e := range page.Entries {
			if e.Kind == message.KindSend && e.Message.ChangedSeq < want[e.Seq] {
				t.Fatalf("message %d is as entry %d left it, not %d", e.Seq, e.Message.ChangedSeq, want[e.Seq])
			}
		}
	}
}

// TestPagesOfEqualValues checks that each entry of a page names the requested channel even if
// another channel has the same cached values.
func TestPagesOfEqualValues(t *testing.T) {
	t.Parallel()
	b := setup(t, CacheConfig{})
	for _, channelID := range []string{room, "another", room} {
		replace(t, b.cache, channelID, entries(1, 3))
		page, err := b.cache.Page(t.Context(), channelID, message.Range{Limit: 3})
		if err != nil || len(page.Entries) != 3 {
			t.Fatalf("%s: %d entries, %v", channelID, len(page.Entries), err)
		}
		for _, e := range page.Entries {
			if e.Message.ChannelID != channelID {
				t.Errorf("a page of %s holds an entry of %s", channelID, e.Message.ChannelID)
			}
		}
	}
}
