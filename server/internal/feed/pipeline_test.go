package feed_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
)

func TestEveryEntryReachesSubscribersAndCache(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	const channels, each = 12, 60
	var ids []string
	heard := map[string]*listener{}
	for i := range channels {
		id := fmt.Sprintf("channel-%d", i)
		ids = append(ids, id)
		heard[id] = r.listen(id)
	}
	var work sync.WaitGroup
	for i, id := range ids {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			var sent []message.Entry
			for n := range each {
				switch {
				case len(sent) > 0 && rng.IntN(4) == 0:
					r.edit(sent[rng.IntN(len(sent))], fmt.Sprintf("edited %d \u2028 9007199254740993", n))
				case len(sent) > 0 && rng.IntN(8) == 0:
					r.recall(sent[rng.IntN(len(sent))])
				default:
					sent = append(sent, r.send(id, fmt.Sprintf("text %d <&>", n)))
				}
			}
		})
	}
	work.Wait()
	for _, id := range ids {
		heard[id].wait(t, each)
	}
	for _, id := range ids {
		r.waitMirror(id)
	}
	// Each event has its message as of the event's own entry or a later one.
	for _, id := range ids {
		for _, e := range heard[id].all() {
			if e.Message.ChangedSeq < e.Seq || e.Message.ChannelID != id || e.Epoch != r.store.Identity().Epoch {
				t.Errorf("entry %d of %s came as %+v", e.Seq, id, e)
			}
		}
	}
}

func TestEventHasCurrentMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.listen("room")
	traced := cacheChangeOf(message.Entry{}, message.KindSend, "")
	traced.Message = message.Message{ChannelID: "room", FromID: "ann", MsgType: "text", Content: "one", Metadata: map[string]string{"a": "b"}}
	traced.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	sent := r.insert(traced)
	lifecycletest.Start(t, r.feeder)
	l.wait(t, 1)
	edit := r.edit(sent, "two")
	l.wait(t, 2)
	recall := r.recall(sent)
	l.wait(t, 3)

	epoch := r.store.Identity().Epoch
	edited, recalled := sent.Message, sent.Message
	edited.Content, edited.Status, edited.ChangedSeq = "two", message.StatusEdited, 2
	recalled.Content, recalled.Metadata, recalled.Status, recalled.ChangedSeq = "", nil, message.StatusRecalled, 3
	want := []message.Event{
		{Kind: message.KindSend, Epoch: epoch, Seq: 1, Count: 1, Time: sent.MsgTime, Message: sent.Message, Traceparent: traced.Traceparent},
		{Kind: message.KindEdit, Epoch: epoch, Seq: 2, Count: 1, Time: edit.MsgTime, Message: edited},
		{Kind: message.KindRecall, Epoch: epoch, Seq: 3, Count: 1, Time: recall.MsgTime, Message: recalled},
	}
	if diff := cmp.Diff(want, l.all(), sameEvents); diff != "" {
		t.Error(diff)
	}
}

func TestOnlySendsRenewExpiry(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	sent := r.send("room", "one")
	r.waitMirror("room")
	r.expires("room", week)
	r.age("room")
	r.edit(sent, "two")
	r.waitMirror("room")
	r.expires("room", time.Hour)
	r.recall(sent)
	r.waitMirror("room")
	r.expires("room", time.Hour)
	if _, err := r.cache.Page(t.Context(), "room", message.Range{Limit: 10}); err != nil {
		t.Fatal(err)
	}
	r.expires("room", time.Hour)
	r.send("room", "three")
	r.waitMirror("room")
	r.expires("room", week)
}

func TestRecallRemovesTextFromCache(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.send("room", "before")
	sent := r.send("room", "s3cr3t")
	r.waitMirror("room")
	r.edit(sent, "s3cr3t again")
	r.waitMirror("room")
	r.recall(sent)
	r.waitMirror("room")
	r.lacks("s3cr3t")
}

func TestOnlySendsRecreateExpiredSet(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	l := r.listen("room")
	sent := r.send("room", "one")
	other := r.send("room", "two")
	r.waitMirror("room")
	// The first send's rebuild may have cached the second one too. Its event must not come late.
	r.waitProcessed("room", "before")
	if err := r.client.PExpire(t.Context(), key("room"), time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	r.waitGone("room")
	r.edit(sent, "uno")
	r.recall(other)
	l.wait(t, 4)
	if _, err := r.cache.Page(t.Context(), "room", message.Range{Limit: 10}); err != nil {
		t.Fatal(err)
	}
	r.waitProcessed("room", "after")
	if n := len(r.raw("room")); n != 0 {
		t.Fatalf("a read, an edit or a recall built a set of %d", n)
	}
	r.send("room", "three")
	r.waitMirror("room")
	r.expires("room", week)
}

// waitProcessed waits until the builder has processed every event of a channel. It does so by a
// message in a new channel of its shard, whose id begins with prefix: the events of a shard are
// processed in order.
func (r *rig) waitProcessed(channelID, prefix string) {
	r.t.Helper()
	for i := 0; ; i++ {
		id := fmt.Sprintf("%s-%d", prefix, i)
		if message.Shard(id, shards) == message.Shard(channelID, shards) {
			r.send(id, "x")
			r.waitMirror(id)
			return
		}
	}
}

// otherShard returns the id of a channel in another shard than that of channelID.
func otherShard(channelID string) string {
	for i := 0; ; i++ {
		id := fmt.Sprintf("%s-%d", channelID, i)
		if message.Shard(id, shards) != message.Shard(channelID, shards) {
			return id
		}
	}
}

func TestServicesStartAndStop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lifecycletest.Stress[*feed.Feeder](t, func(t *testing.T) *feed.Feeder {
		feeder, err := feed.NewFeeder(r.feeds)
		if err != nil {
			t.Fatal(err)
		}
		return feeder
	})
	lifecycletest.Stress[*feed.Builder](t, func(t *testing.T) *feed.Builder {
		builder, err := feed.NewBuilder(r.builds)
		if err != nil {
			t.Fatal(err)
		}
		return builder
	})
	lifecycletest.Stress[*feed.Advancer](t, func(*testing.T) *feed.Advancer {
		return feed.NewAdvancer(feed.AdvancerConfig{
			Source: r.bus.Group("channel_group", 1024), Rows: &rowRecorder{rows: map[string]channel.Advance{}},
			Identity: r.store.Identity(), Logger: quiet,
		})
	})
}

// TestFeedResumesAfterRestart restarts the feeder and the builder between sends. The cache must
// have every message in the end.
func TestFeedResumesAfterRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	for range 3 {
		r.send("room", "x")
		r.restartFeeder()
		r.send("room", "x")
		r.restartBuilder()
	}
	r.waitMirror("room")
}
