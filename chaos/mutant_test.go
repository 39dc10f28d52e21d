package chaos

import (
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
		{false, []Name{"stuck", Blind}},
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
