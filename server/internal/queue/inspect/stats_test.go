package inspect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const testTimeout = 10 * time.Second

// accounted fails the test if a group's messages are not all accounted for.
func accounted(t *testing.T, stats TopicStats) {
	t.Helper()
	for _, p := range append(stats.Partitions, stats.Total) {
		for _, g := range p.Groups {
			if sum := g.Acked + g.Dead + g.Cancelled + g.Expired + g.Trimmed + g.Elsewhere + g.Waiting + g.Running + g.Retrying; sum != g.Appended {
				t.Errorf("%d messages, accounted for are %d: %+v", g.Appended, sum, g)
			}
		}
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, func(topic *qlog.Topic) { topic.Groups[1].Mode = qlog.Exclusive })
	first := r.put(0, 8, 10, nil)[0]
	r.settle(0, "g1", "adborl")
	last := r.put(1, 4, 10, nil)[3]
	r.settle(1, "g2", "bss")
	r.put(1, 2, 10, func(d *qlog.Draft) { d.Delay = time.Hour })
	r.sessions["g1"] = []qlog.SessionInfo{
		{Session: "a", Loads: []qlog.PartitionLoad{{Partition: 0, Sent: 1, Running: 1}, {Partition: 9, Sent: 3}}},
		{Session: "b", Loads: []qlog.PartitionLoad{{Partition: 0, Running: 1}}},
	}
	// It says more than is stored.
	r.sessions["g2"] = []qlog.SessionInfo{{Session: "c", Loads: []qlog.PartitionLoad{{Partition: 1, Sent: 2, Running: 1}, {Partition: 0, Running: 2}}}}
	stats, err := r.s.Stats(t.Context(), "jobs", true)
	r.check(err)
	accounted(t, stats)
	total := stats.Total
	if total.Length != 12 || total.Scheduled != 2 || total.Produced != 14 || total.DeadLetters != 1 || total.First != first || total.Last != last {
		t.Errorf("%+v", total)
	}
	describe := func(g GroupStats) string {
		return fmt.Sprintf("waiting %d running %d retrying %d sessions %d dispatched %d", g.Waiting, g.Running, g.Retrying, g.Sessions, g.Dispatched)
	}
	for i, want := range []string{
		"waiting 6 running 3 retrying 1 sessions 2 dispatched 1", "waiting 11 running 1 retrying 0 sessions 1 dispatched 1",
	} {
		if got := describe(total.Groups[i]); got != want {
			t.Errorf("%s: %s, want %s", total.Groups[i].Group, got, want)
		}
	}
	if g := stats.Partitions[0].Groups[0]; g.OldestAge <= 0 || g.OldestAge > time.Minute || g.Acked != 1 || g.Dead != 1 {
		t.Errorf("%+v", g)
	}
	r.failing = true
	stats, err = r.s.Stats(t.Context(), "jobs", true)
	r.check(err)
	if accounted(t, stats); stats.Total.Groups[0].Running != 0 {
		t.Errorf("%+v", stats.Total.Groups[0])
	}
	if _, err := r.s.Stats(t.Context(), "none", false); !fault.Is(err, fault.TopicNotFound) {
		t.Error(err)
	}
}

// An hour of samples is kept of a topic that somebody looked at within an hour, or that has
// consumers here.
func TestHistory(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	now := time.Now()
	sample := func() {
		r.s.sample(t.Context(), now)
		now = now.Add(sampleEvery)
	}
	history := func() []Sample {
		t.Helper()
		stats, err := r.s.Stats(t.Context(), "jobs", true)
		r.check(err)
		return stats.History
	}
	sample()
	if got := history(); len(got) != 0 {
		t.Errorf("%d samples of a topic that nobody looked at", len(got))
	}
	asked := r.asked
	sample()
	if r.asked != asked {
		t.Error("sessions were asked for of an idle group")
	}
	r.put(0, 3, 10, nil)
	r.settle(0, "g1", "adr")
	sample()
	got := history()
	want := []GroupSample{{Group: "g1", Acked: 1, Dead: 1, Retrying: 1}, {Group: "g2", Waiting: 3}}
	if len(got) != 2 || got[0].Produced != 0 || got[1].Produced != 3 || !slices.Equal(got[1].Groups, want) || got[1].Time.Sub(got[0].Time) != sampleEvery {
		t.Errorf("%+v", got)
	}
	for range keptSamples + 3 {
		r.s.history.add(r.topic, Sample{Time: now})
	}
	if got := history(); len(got) != keptSamples {
		t.Errorf("%d samples", len(got))
	}
	now = time.Now().Add(watchFor)
	sample()
	if got := history(); len(got) != 0 {
		t.Errorf("%d samples of a topic that nobody looked at for an hour", len(got))
	}
	r.s.cfg.Local = func() []string { return []string{"jobs", "gone"} }
	now = now.Add(2 * watchFor)
	sample()
	if got := history(); len(got) != 1 {
		t.Errorf("%d samples of a topic with consumers", len(got))
	}
	r.topic.UID = "CCCCCCCCCCCCC"
	r.check(r.c.FlushDB(t.Context()).Err())
	r.check(r.store.MakePartition(t.Context(), r.topic, 0))
	if got := history(); len(got) != 0 {
		t.Errorf("%d samples of an earlier topic of the name", len(got))
	}
}

// What is recorded is bounded by bytes and, of topics that nobody looks at, by partitions.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	topic := func(name string, partitions, groups int) *qlog.Topic {
		return &qlog.Topic{Name: name, UID: name, Partitions: partitions, Groups: make([]qlog.Group, groups)}
	}
	var h history
	now := time.Now()
	h.look(now.Add(-time.Minute), topic("seen", 200, 1))
	h.look(now, topic("latest", 200, 1))
	local := []*qlog.Topic{topic("big", 100, 1), topic("small", 1, 1), topic("tiny", 1, 1)}
	if got := h.choose(now, local); !slices.Equal(got, []string{"latest", "seen"}) {
		t.Errorf("chosen %v", got)
	}
	if got := h.choose(now.Add(watchFor), local); !slices.Equal(got, []string{"big", "small", "tiny"}) {
		t.Errorf("chosen %v", got)
	}
	h = history{}
	for i := range 3 {
		h.look(now.Add(time.Duration(i)), topic(fmt.Sprint("wide", i), 1, 170))
	}
	h.look(now, topic("narrow", 1, 1))
	if got := h.choose(now, nil); !slices.Equal(got, []string{"wide2", "wide1", "narrow"}) || len(h.topics) != 3 {
		t.Errorf("chosen %v", got)
	}
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	lifecycletest.Stress[*Service](t, func(*testing.T) *Service { return New(r.s.cfg) })
}

func TestPartitionsAndConsumers(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, func(topic *qlog.Topic) { topic.Groups[0].Mode = qlog.Exclusive })
	r.put(1, 3, 10, nil)
	at := r.settle(1, "g1", "abb")
	for i := range 5 {
		r.sessions["g1"] = append(r.sessions["g1"], qlog.SessionInfo{Session: fmt.Sprint("s", (i*3)%5), Consumer: fmt.Sprint("w", i)})
	}
	busy := &r.sessions["g1"][0]
	busy.Loads = []qlog.PartitionLoad{{Partition: 1, Running: 2, Sent: 1, Assigned: true}}
	busy.Held = []qlog.HeldInfo{{ID: 9, MessageID: "1-9"}, {ID: 4, MessageID: "1-4"}}
	r.missing = []string{"n3", "n2", "n3"}
	partitions, err := r.s.Partitions(t.Context(), "jobs", "g1")
	r.check(err)
	if p := partitions[0]; p.Node != "" || p.Cursor == "" {
		t.Errorf("%+v", p)
	}
	if p := partitions[1]; p.Node != "n1" || p.Epoch == 0 || p.Consumer != "w0" || p.Sent != qlog.MessageID(1, at[2].ID, false) ||
		p.Cursor != qlog.MessageID(1, at[1].ID-1, false) {
		t.Errorf("%+v", p)
	}
	if all, err := r.s.Partitions(t.Context(), "jobs", ""); err != nil || len(all) != 2 {
		t.Error(all, err)
	}
	if _, err := r.s.Partitions(t.Context(), "jobs", "none"); !fault.Is(err, fault.GroupNotFound) {
		t.Error(err)
	}
	var got []string
	for cursor := ""; ; {
		page, next, missing, err := r.s.Consumers(t.Context(), "jobs", "g1", cursor, 2)
		if r.check(err); len(page) > 2 || !slices.Equal(missing, []string{"n2", "n3"}) {
			t.Fatal(page, missing)
		}
		for _, c := range page {
			got = append(got, c.Session)
			if c.Consumer == "w0" && (c.Running != 2 || c.InFlight != 3 || c.Oldest.MessageID != "1-4") {
				t.Errorf("%+v", c)
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if fmt.Sprint(got) != "[s0 s1 s2 s3 s4]" {
		t.Errorf("consumers %v", got)
	}
}

func TestTrim(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	for p := range 2 {
		r.put(p, 250, 10, nil)
		r.settle(p, "g1", string(slices.Repeat([]byte("a"), 220))+"oo")
		r.settle(p, "g2", string(slices.Repeat([]byte("a"), 100)))
	}
	trim := func(keep qlog.Cut, force bool, removed, lost int) {
		t.Helper()
		r1, l, err := r.s.Trim(t.Context(), "jobs", keep, force)
		if err != nil || r1 != removed || l != lost {
			t.Errorf("%d removed, %d lost, want %d, %d: %v", r1, l, removed, lost, err)
		}
		stats, err := r.s.Stats(t.Context(), "jobs", false)
		r.check(err)
		accounted(t, stats)
	}
	trim(qlog.Cut{Keep: 240, Age: -1}, false, 20, 0)
	trim(qlog.Cut{Age: time.Hour}, false, 0, 0)
	trim(qlog.Cut{Age: 0}, false, 180, 0)
	trim(qlog.Cut{Age: time.Hour}, true, 0, 0)
	trim(qlog.Cut{Keep: 29, Age: -1}, true, 242, 121*2+2)
	trim(qlog.Cut{Age: 0}, true, 58, 29*2*2)
}
