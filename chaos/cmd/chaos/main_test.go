package main

import (
	"testing"

	"github.com/parleyhq/parley/internal/rig"
)

// TestMutants checks that every mutant, and every seam, applies to the source, that names are
// unique, and that no mutant counts as caught by a violation that any fleet out of order shows.
func TestMutants(t *testing.T) {
	t.Parallel()
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, h := range harnesses {
		if err := h.Validate(root); err != nil {
			t.Error(err)
		}
		for _, m := range h.Mutants() {
			if names[m.Name] {
				t.Errorf("two mutants are called %s", m.Name)
			}
			names[m.Name] = true
		}
	}
	if len(names) == 0 {
		t.Error("no harness has a mutant")
	}
}
