package chaos

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "violations.json")
	want := []Violation{{Name: Crash, Detail: "gone"}}
	if err := WriteReport(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadReport[[]Violation](path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("read (-wrote +read):\n%s", diff)
	}
	if _, err := ReadReport[Plan](path); err == nil {
		t.Error("a list was read as a plan")
	}
}
