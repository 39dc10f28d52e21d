package chaos

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCaught(t *testing.T) {
	t.Parallel()
	m := &Mutant{Shows: []Name{"fence", "two-owners"}}
	for _, c := range []struct {
		want  bool
		names []Name
	}{
		{false, nil},
		{false, []Name{"stuck", Unobserved}},
		{true, []Name{"stuck", "two-owners"}},
	} {
		var found []Violation
		for _, name := range c.names {
			found = append(found, Violation{Name: name})
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

// TestValidate checks that mutants that would test nothing are invalid.
func TestValidate(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "f.go"), []byte("once twice twice"), 0o600); err != nil {
		t.Fatal(err)
	}
	edit := func(old string) []Edit { return []Edit{{File: "f.go", Old: old, New: "x"}} }
	for _, c := range []struct {
		name  string
		valid bool
		m     Mutant
	}{
		{"valid", true, Mutant{Edits: edit("once"), Shows: []Name{"fence"}}},
		{"the text is not there", false, Mutant{Edits: edit("never"), Shows: []Name{"fence"}}},
		{"the text is there twice", false, Mutant{Edits: edit("twice"), Shows: []Name{"fence"}}},
		{"no such file", false, Mutant{Edits: []Edit{{File: "g.go", Old: "once"}}, Shows: []Name{"fence"}}},
		{"it does not say how it shows", false, Mutant{Edits: edit("once")}},
		{"it shows by what any fleet may show", false, Mutant{Edits: edit("once"), Shows: []Name{"fence", Liveness}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := c.m.Validate(root); (err == nil) != c.valid {
				t.Errorf("%v, want valid %t", err, c.valid)
			}
		})
	}
}
