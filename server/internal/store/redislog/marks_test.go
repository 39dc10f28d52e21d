package redislog

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// What the keeper reads, on every engine.
func TestMarksLengthsAndNext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		client    func(testing.TB) redis.UniversalClient
		inProcess bool
	}{
		"a server": {client: func(tb testing.TB) redis.UniversalClient {
			tb.Helper()
			return newInputRig(tb, nil).c
		}},
		"cluster":    {client: func(tb testing.TB) redis.UniversalClient { tb.Helper(); return testkit.RedisClusterClient(tb) }},
		"in process": {func(tb testing.TB) redis.UniversalClient { tb.Helper(); return testkit.InProcessRedisClient(tb) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := inputRigWith(t, c.client(t), StoreConfig{InProcess: c.inProcess}, func(topic *qlog.Topic) {
				topic.Partitions = 3
				topic.Groups = append(topic.Groups, qlog.Group{Name: "audit"})
			})
			r.put(drafts("a", "b", "c")...)
			r.put(later("l", time.Hour))
			log := r.entries()
			r.settle("audit", log[1].pos)
			r.marks(log)
			lengths, err := r.s.Lengths(t.Context(), r.topic, []int{1, 0, 2})
			if err != nil || !slices.Equal(lengths, []int64{0, 3, 0}) {
				t.Errorf("lengths %v, %v", lengths, err)
			}
			r.ref = r.topic.Ref(2)
			r.put(later("l", time.Millisecond))
			r.eventually(func() bool {
				next, err := r.s.Next(t.Context(), []qlog.Ref{{Topic: "jobs"}, {Topic: "jobs", Partition: 1}, {Topic: "jobs", Partition: 2}})
				return err == nil && next[0] > 59*time.Minute && next[0] <= time.Hour && next[1] == qlog.Never && next[2] == 0
			})
		})
	}
}

// marks checks the marks of the rig's partition, of which the group audit has settled two entries.
func (r *inputRig) marks(log []entry) {
	r.tb.Helper()
	m, err := r.s.Marks(r.tb.Context(), r.ref)
	r.check(err)
	if m.Ord != log[2].pos.Ord || m.Length != 3 || len(m.Groups) != 2 {
		r.tb.Fatalf("marks %+v", m)
	}
	for _, g := range m.Groups {
		want := qlog.Pos{}
		if g.Group == "audit" {
			want = log[1].pos
		}
		if g.Sent.Ord != want.Ord || g.Cursor.Ord != want.Ord || g.Open != 0 {
			r.tb.Errorf("marks of a group %+v, want %s", g, want)
		}
	}
	other := r.ref
	other.UID = "BBBBBBBBBBBBB"
	if _, err := r.s.Marks(r.tb.Context(), other); !errors.Is(err, qlog.ErrNoTopic) {
		r.tb.Errorf("marks of another topic: %v", err)
	}
	state := r.s.keys.state(r.ref, "work")
	saved := r.c.HGet(r.tb.Context(), state, "sent").Val()
	r.check(r.c.HDel(r.tb.Context(), state, "sent").Err())
	if m, err := r.s.Marks(r.tb.Context(), r.ref); err != nil || m.Groups != nil {
		r.tb.Errorf("marks although a state is lost: %+v, %v", m, err)
	}
	r.check(r.c.HSet(r.tb.Context(), state, "sent", saved).Err())
}
