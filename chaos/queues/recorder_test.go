package queues

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/chaos"
)

// TestReadHistory checks that a history read from its file equals the recorded one.
func TestReadHistory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	r, err := NewRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	s := newStory()
	for i := range s.h.Ops {
		begun := s.h.Ops[i]
		begun.End, begun.Outcome = 0, ""
		r.write(line{Op: &begun})
		if i > 0 { // the first op has no end
			r.write(line{Op: &s.h.Ops[i]})
		}
	}
	for i := range s.h.Handled {
		r.write(line{Handled: &s.h.Handled[i]})
	}
	for _, w := range s.h.Workers {
		r.write(line{Worker: w})
	}
	f := &chaos.Fault{Name: string(ConsumerKill), Target: "w-1"}
	r.BeginFault(f)
	r.EndFault(f)
	r.write(line{Failure: &Failure{Who: Auditing, Addr: "n1", Begin: at(1), End: at(2), Try: 2, Err: "refused"}})
	r.Mark("healed")
	want, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read (-recorded +read):\n%s", diff)
	}
	if len(got.Handled) != 3 || len(got.Failures) != 1 || len(got.Workers) != 1 || got.Ops[0].Outcome != chaos.Unknown {
		t.Errorf("%d handled, %d failures, workers %v, the first op %s", len(got.Handled), len(got.Failures), got.Workers, got.Ops[0].Outcome)
	}
}
