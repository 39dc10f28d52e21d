package redislog

import (
	"testing"
	"time"
)

// TestBeat: a beat returns all nodes with the store's time, a life can be ended, and a node that
// has been dead for more than an hour is forgotten.
func TestBeat(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	old := time.Now().Add(-2 * time.Hour).UnixMilli()
	if err := r.c.HSet(t.Context(), r.s.keys.nodes(), "old", old, "yesterday", old+3600_000+60_000).Err(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.s.Beat(t.Context(), "a", 3*time.Second); err != nil {
		t.Fatal(err)
	}
	now, beats, err := r.s.Beat(t.Context(), "b", 0)
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]time.Duration{}
	for _, b := range beats {
		left[b.Node] = b.Until.Sub(now)
	}
	if len(left) != 3 || left["b"] != 0 || left["a"] <= 0 || left["a"] > 3*time.Second || left["yesterday"] >= 0 {
		t.Errorf("the nodes are %v", left)
	}
	if d := time.Since(now).Abs(); d > time.Minute {
		t.Errorf("the store's time is off by %v", d)
	}
}

// TestCapacities: a node's capacity is stored, changed and removed.
func TestCapacities(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	for node, n := range map[string]int{"a": 3, "b": 5, "c": 1} {
		if err := r.s.SetCapacity(t.Context(), "t", "g", node, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.s.SetCapacity(t.Context(), "t", "g", "c", 0); err != nil {
		t.Fatal(err)
	}
	got, err := r.s.Capacities(t.Context(), "t", "g")
	if err != nil || len(got) != 2 || got["a"] != 3 || got["b"] != 5 {
		t.Errorf("the nodes of the group are %v, %v", got, err)
	}
}
