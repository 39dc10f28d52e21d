package chaos

import (
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	t.Parallel()
	ops := make(Tally[string])
	for kind, outcomes := range map[string][]Outcome{"send": {OK, OK, Unknown}, "list": {Failed}} {
		for _, o := range outcomes {
			ops.Add(kind, o)
		}
	}
	var out strings.Builder
	ops.Write(&out)
	var rows []string
	for row := range strings.Lines(out.String()) {
		rows = append(rows, strings.Join(strings.Fields(row), " "))
	}
	if got, want := strings.Join(rows, "; "), "op ok failed unknown; list 0 1 0; send 2 0 1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
