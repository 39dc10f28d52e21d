package mutants

import (
	"slices"
	"testing"

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
