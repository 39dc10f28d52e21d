package feed_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestRedisRestoredFromOlderSnapshot(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.RedisAppendOnly()).start()
	first := r.send("room", "1")
	r.send("other", "1")
	r.waitMirror("room", "other")
	r.redis.Kill()
	old := t.TempDir()
	aof := filepath.Join(r.redis.Dir(), "appendonlydir")
	if err := os.CopyFS(old, os.DirFS(aof)); err != nil {
		t.Fatal(err)
	}
	r.redis.Start()
	for i := range 5 {
		r.send("room", fmt.Sprint(i))
		r.send("other", fmt.Sprint(i))
	}
	r.waitMirror("room", "other")
	r.redis.Kill()
	heard := r.listen("room")
	live := r.send("room", "while Redis is away") // live delivery goes on
	testkit.Eventually(t, patience, func() error {
		for _, e := range heard.all() {
			if e.Seq == live.Seq {
				return nil
			}
		}
		return errors.New("not heard")
	})
	if err := os.RemoveAll(aof); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(aof, os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	r.redis.Start()
	r.edit(first, "over a hole")
	r.send("room", "last")
	r.waitMirror("room")
	r.edit(r.send("other", "last"), "over no hole")
	r.waitMirror("other")
}

func TestRedisFlushDuringBuild(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	for i := range 200 {
		r.send("room", fmt.Sprint(i))
		if i%20 == 10 {
			if err := r.client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if err := r.client.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.waitMirror("room")
}

func TestRecallDuringNATSOutage(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.send("room", "1")
	r.waitMirror("room")
	l := r.listen("room")
	r.nats.Stop()
	sent := r.send("room", "s3cr3t")
	<-time.After(50 * time.Millisecond) // until the feeder has read it
	r.recall(sent)
	<-time.After(time.Until(sent.MsgTime.Add(1100 * time.Millisecond))) // texts read up to 1 s ago may be published
	r.nats.Start()
	r.waitMirror("room")
	r.lacks("s3cr3t")
	testkit.Eventually(t, patience, func() error {
		if len(l.all()) < 2 {
			return errors.New("not heard")
		}
		return nil
	})
	for _, e := range l.all() {
		if strings.Contains(e.Message.Content+e.Message.Metadata["k"], "s3cr3t") {
			t.Errorf("heard %+v", e)
		}
	}
	// The stream must not have the recalled text either.
	for _, e := range r.streamed() {
		if strings.Contains(string(e), "s3cr3t") {
			t.Errorf("the stream holds %s", e)
		}
	}
}

// jetStream returns a JetStream client of its own, to inspect and damage the change stream.
func (r *rig) jetStream() jetstream.JetStream {
	r.t.Helper()
	nc, err := nats.Connect(r.nats.URL())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	return js
}

// streamed returns the bodies of all messages in the change stream.
func (r *rig) streamed() []json.RawMessage {
	r.t.Helper()
	stream, err := r.jetStream().Stream(r.t.Context(), "message_change_events")
	if err != nil {
		r.t.Fatal(err)
	}
	state := stream.CachedInfo().State
	var all []json.RawMessage
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		msg, err := stream.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, msg.Data)
	}
	return all
}

func TestDeletedStreamIsRefilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lifecycletest.Start(t, r.builder)
	l := r.listen("room")
	for i := range 10 {
		r.send("room", fmt.Sprint(i))
	}
	js := r.jetStream()
	testkit.Eventually(t, patience, func() error { return js.DeleteStream(t.Context(), "message_change_events") })
	lifecycletest.Start(t, r.feeder)
	l.wait(t, 10)
	r.waitMirror("room")
	if n := len(r.streamed()); n != 10 {
		t.Errorf("the new stream holds %d events", n)
	}
	if err := js.DeleteStream(t.Context(), "message_change_events"); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		r.send("room", fmt.Sprint(i))
	}
	l.wait(t, 20)
	r.waitMirror("room")
}

// TestCachedSetsStayConsistentUnderFaults damages Redis, NATS and the services in turn under load.
// No cached set may ever miss an entry or a change, and in the end each equals the store.
func TestCachedSetsStayConsistentUnderFaults(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, testkit.RedisAppendOnly()).start()
	ids := []string{"a", "b", "c", "d", "e", "f"}
	heard := map[string]*listener{}
	for _, id := range ids {
		heard[id] = r.listen(id)
	}
	stop, writing, looking := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go r.write(rand.New(rand.NewPCG(seed, 1)), ids, stop, writing)
	go r.look(ids, stop, looking)
	js := r.jetStream()
	faults := map[string]func(){
		"kill Redis":    func() { r.redis.Kill(); r.redis.Start() },
		"flush Redis":   func() { _ = r.client.FlushAll(t.Context()).Err() },
		"freeze Redis":  func() { r.redis.Stop(); <-time.After(200 * time.Millisecond); r.redis.Cont() },
		"stop NATS":     func() { r.nats.Stop(); <-time.After(100 * time.Millisecond); r.nats.Start() },
		"delete stream": func() { _ = js.DeleteStream(t.Context(), "message_change_events") },
		"delete consumer": func() {
			_ = js.DeleteConsumer(t.Context(), "message_change_events", fmt.Sprintf("redis_cache_group_%d", rng.IntN(shards)))
		},
		"restart feeder":  r.restartFeeder,
		"restart builder": r.restartBuilder,
	}
	var names []string
	for range 2 {
		names = append(names, slices.Sorted(maps.Keys(faults))...)
	}
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		faults[name]()
		<-time.After(time.Duration(rng.IntN(150)) * time.Millisecond)
	}
	close(stop)
	<-writing
	<-looking
	for _, id := range ids {
		last := r.send(id, "the last one")
		r.waitMirror(id)
		heard[id].waitSeq(t, last.Seq)
	}
}

// waitSeq waits until the listener has received the event with this seq.
func (l *listener) waitSeq(t testing.TB, seq int64) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		for _, e := range l.all() {
			if e.Seq == seq {
				return nil
			}
		}
		return fmt.Errorf("entry %d was not heard of", seq)
	})
}

// write appends random sends, edits and recalls to the channels until stop is closed. It then
// closes done.
func (r *rig) write(rng *rand.Rand, ids []string, stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	sent := map[string][]message.Entry{}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		id := ids[rng.IntN(len(ids))]
		mine := sent[id]
		switch {
		case len(mine) > 0 && rng.IntN(4) == 0:
			r.edit(mine[max(0, len(mine)-1-rng.IntN(10))], fmt.Sprint("edit ", n))
		case len(mine) > 0 && rng.IntN(8) == 0:
			r.recall(mine[max(0, len(mine)-1-rng.IntN(10))])
		default:
			sent[id] = append(mine, r.send(id, fmt.Sprint("text ", n)))
		}
	}
}

// look checks the channels' cached sets until stop is closed, and then closes done. A set must have
// consecutive messages, each marked with its last change, and must expire.
func (r *rig) look(ids []string, stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	for {
		for _, id := range ids {
			select {
			case <-stop:
				return
			default:
			}
			// This reads Redis directly, because Cache.Page would hide an invalid set.
			members, err := r.client.ZRangeWithScores(r.t.Context(), key(id), 0, -1).Result()
			if err != nil {
				continue // Redis is away
			}
			var last message.Cached
			marks := map[int64]int64{}
			for _, z := range members {
				member := z.Member.(string)
				if seq, ok := strings.CutPrefix(member, "c:"); ok {
					n, _ := strconv.ParseInt(seq, 10, 64)
					marks[n] = -int64(z.Score)
				}
				if z.Score <= 0 {
					continue
				}
				var e message.Cached
				if err := json.Unmarshal([]byte(member), &e); err != nil {
					r.t.Errorf("%s: %v", id, err)
				}
				if m := e.Message; m.Seq != int64(z.Score) || last.Message.Count > 0 && m.Count != last.Message.Count+1 {
					r.t.Errorf("%s: message %d at %.0f after %+v", id, m.Seq, z.Score, last)
				}
				if c := e.Message.ChangedSeq; c != e.Message.Seq && marks[e.Message.Seq] != c {
					r.t.Errorf("%s: message %d is as entry %d left it, and is marked as changed by %d", id, e.Message.Seq, c, marks[e.Message.Seq])
				}
				last = e
			}
			if ttl := r.client.TTL(r.t.Context(), key(id)).Val(); ttl == -1 {
				r.t.Errorf("%s has a set that never expires", id)
			}
		}
	}
}
