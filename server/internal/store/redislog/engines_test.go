package redislog

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// Every script of the producer side runs on a cluster, where all its keys must be in one slot, and
// on the Redis of `parleyd dev`.
func TestProducersOnOtherEngines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		client    func(testing.TB) redis.UniversalClient
		inProcess bool
	}{
		"cluster":    {client: func(tb testing.TB) redis.UniversalClient { tb.Helper(); return testkit.RedisClusterClient(tb) }},
		"in process": {func(tb testing.TB) redis.UniversalClient { tb.Helper(); return testkit.InProcessRedisClient(tb) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := inputRigWith(t, c.client(t), StoreConfig{InProcess: c.inProcess}, func(topic *qlog.Topic) { topic.Partitions = 5 })
			for p := range r.topic.Partitions {
				r.ref = r.topic.Ref(p)
				r.exercise()
			}
			if names, err := r.s.TopicNames(t.Context()); err != nil || len(names) != 1 {
				t.Fatal(names, err)
			}
			r.lose(r.s.keys.topic("jobs"))
			topic, err := r.s.RestoreTopic(t.Context(), "jobs")
			r.check(err)
			r.check(r.s.UpdateTopic(t.Context(), topic))
			r.check(r.s.RemoveTopic(t.Context(), topic))
		})
	}
}

// exercise calls everything once.
func (r *inputRig) exercise() {
	r.tb.Helper()
	ctx := r.tb.Context()
	r.bounds.MaxMessages = 6
	r.wantResults(r.putAs("p", 1, drafts("a", "b")...), "new, new")
	r.wantResults(r.putAs("p", 1, drafts("a", "b")...), "dup, dup")
	keyed := unique("k", qlog.ConflictReplace)
	keyed.IdempotencyKey, keyed.Delay = "k", time.Millisecond
	r.wantResults(r.put(keyed, keyed, unique("u", qlog.ConflictReject)), "new, dup, "+qlog.ErrUnique.Error())
	r.wantResults(r.putAs("p", 2, later("l", time.Hour), draft("c")), "new, new")
	again := r.putAs("p", 2, later("l", time.Hour), draft("c"))
	r.wantResults(again, "dup, dup")
	changed, err := r.s.Reschedule(ctx, r.ref, []qlog.Reschedule{{MessageID: again[0].MessageID, Delay: time.Minute}})
	r.check(err)
	if left := time.Until(changed[0].Due); left < 50*time.Second || left > 61*time.Second {
		r.tb.Errorf("due in %s", left)
	}
	r.eventually(func() bool { n, _ := r.due(); return n == 1 })
	cancelled, err := r.s.Cancel(ctx, r.ref, []string{again[0].MessageID})
	r.check(err)
	if cancelled[0].Err != nil {
		r.tb.Error(cancelled[0].Err)
	}
	all := r.entries()
	if len(all) != 4 {
		r.tb.Fatalf("%d entries", len(all))
	}
	r.settle("work", all[3].pos)
	r.wantResults(r.put(drafts("d", "e", "f", "g", "h", "i")...), "new, new, new, new, new, new")
	r.check(r.s.MakeGroup(ctx, r.group("end"), qlog.Start{End: true}))
	if cursor, last := r.state("end")["cursor"], r.entries()[5].pos; cursor != last.String() {
		r.tb.Errorf("the group begins after %s, want %s", cursor, last)
	}
	r.check(r.s.SeekGroup(ctx, r.group("end"), 0, qlog.Start{}))
	r.check(r.s.RemoveGroup(ctx, r.group("end")))
	last := r.entries()[5].pos
	r.lose(r.s.keys.meta(r.ref))
	r.check(r.s.MakePartition(ctx, r.topic, r.ref.Partition))
	r.bounds.MaxMessages = 0
	r.wantResults(r.put(draft("j")), "new")
	if got := r.entries()[6].pos; got.ID <= last.ID || got.Ord != last.Ord+1 {
		r.tb.Errorf("%s follows %s", got, last)
	}
	if r.ref.Partition > 0 { // one copy of the settings stays
		r.check(r.s.RemovePartition(ctx, r.topic, r.ref.Partition))
	}
}
