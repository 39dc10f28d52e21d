package keeper

import (
	"slices"
	"testing"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// nodesOf is a Fleet.
type nodesOf []string

func (n nodesOf) Living() []string { return n }

// Each partition is that of one of the living nodes, and a keeper without topics has none.
func TestOwned(t *testing.T) {
	t.Parallel()
	b := newBench(t, 8, "g")
	b.create("other", 3)
	want := map[qlog.Ref]bool{}
	for _, name := range []string{"orders", "other"} {
		topic, err := b.store.Topic(t.Context(), name)
		b.check(err)
		for p := range topic.Partitions {
			want[topic.Ref(p)] = true
		}
	}
	nodes := nodesOf{"n1", "n2", "n3"}
	found := map[qlog.Ref]string{}
	for _, node := range nodes {
		c := b.config(defaultTimes)
		c.Fleet, c.Node = nodes, node
		k := New(c)
		owned := k.Owned(t.Context())
		for _, ref := range owned {
			if other, twice := found[ref]; twice || !want[ref] {
				t.Errorf("%v is of %s and of %q", ref, node, other)
			}
			found[ref] = node
		}
		if again := k.Owned(t.Context()); !slices.Equal(again, owned) {
			t.Errorf("then %v, now %v", owned, again)
		}
	}
	if len(found) != len(want) {
		t.Errorf("%d of %d partitions have a keeper", len(found), len(want))
	}
}
