package messages

import (
	"os"
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
	first, second := Op{Kind: Send, Channel: "c", Content: "x", Metadata: map[string]string{"a": ""}}, Op{Kind: List, Channel: "c"}
	r.Start(&first)
	r.Start(&second)
	f := chaos.Fault{Name: "node-kill", Target: "n1"}
	r.BeginFault(&f)
	if f.OpenWrites != 1 || f.OpenReads != 1 {
		t.Errorf("a fault met %d writes and %d reads, want 1 and 1", f.OpenWrites, f.OpenReads)
	}
	seen := Copy{Channel: "c", Seq: 1, ChangedSeq: 1, Content: "x", Metadata: map[string]string{"a": ""}}
	again, other := seen, seen
	other.Content = "y"
	if at, same, not := r.Copy(&seen), r.Copy(&again), r.Copy(&other); at != 0 || same != 0 || not != 1 {
		t.Errorf("copies are at %d, %d and %d, want 0, 0 and 1", at, same, not)
	}
	second.Outcome, second.Copies = chaos.OK, []int{0}
	r.Done(&second)
	first.Outcome = chaos.Unknown
	r.Done(&first)
	r.EndFault(&f)
	life := r.Life(Life{Client: "s", Channel: "c", After: unset})
	r.Deliver(Delivery{Life: life, Event: EventSent, Seq: 1})
	r.EndLife(life)
	r.Exit("n1", "why")
	r.Late(Late{Client: "s", Channel: "c", Seq: 1, Head: 2})
	r.Write(line{Mine: &channelList{User: "u", Channels: []UserChannel{{Channel: "c", Last: unset}}}})
	r.Write(line{Generation: &Generation{ID: 1, MsgID: "m", Text: "x"}})
	r.Write(line{Piece: &Piece{Generation: 1, Size: 1, Status: StatusOpen}})
	r.Write(line{Deletion: &Deletion{Channel: goneSession(1), Afters: []After{{Kind: List}}}})
	r.Mark(markWaited)
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
		t.Errorf("read back another history (-want +got):\n%s", diff)
	}

	// A killed run leaves a truncated line.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err = ReadHistory(path); err != nil || len(got.Ops) != 2 || got.Healed != 0 {
		t.Errorf("of a history that is cut off: %d ops, healed %d, %v", len(got.Ops), got.Healed, err)
	}
}
