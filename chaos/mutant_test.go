package mutants

import (
	"slices"
	"testing"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/chaos/queues"
	"github.com/parleyhq/parley/internal/rig"
)

// TestMutantsApply holds that the mutants keep up with the source.
func TestMutantsApply(t *testing.T) {
	t.Parallel()
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	all := slices.Concat(All, Queues)
	for i := range all {
		m := &all[i]
		if _, err := m.apply(root); err != nil {
			t.Error(err)
		}
		if names[m.Name] {
			t.Errorf("two mutants are called %s", m.Name)
		}
		names[m.Name] = true
	}
}

// TestMutantsSayHowTheyShow holds that each mutant is caught by what it breaks: not by what a harness that does not work finds.
func TestMutantsSayHowTheyShow(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Concat(All, Queues) {
		if len(m.Shows) == 0 {
			t.Errorf("%s does not say how it shows", m.Name)
		}
		for _, name := range []chaos.Name{queues.Blind, chaos.Liveness, chaos.Crash} {
			if slices.Contains(m.Shows, name) {
				t.Errorf("%s shows by %s, as any fleet may that can't be used", m.Name, name)
			}
		}
	}
}

func TestCaught(t *testing.T) {
	t.Parallel()
	m := &Mutant{Shows: []chaos.Name{queues.Fence, queues.Both}}
	for _, c := range []struct {
		want  bool
		names []chaos.Name
	}{
		{false, nil},
		{false, []chaos.Name{queues.Stuck, queues.Blind}},
		{true, []chaos.Name{queues.Stuck, queues.Both}},
	} {
		var found []chaos.Violation
		for _, name := range c.names {
			found = append(found, chaos.Violation{Name: name})
		}
		if m.Caught(found) != c.want {
			t.Errorf("found %v: want caught %v", c.names, c.want)
		}
	}
	control := m.Control()
	if len(control.Edits) != 0 || control.Schedule() != m.Schedule() {
		t.Errorf("the control is %+v", control)
	}
}
