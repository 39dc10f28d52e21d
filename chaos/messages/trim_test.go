package messages

import (
	"fmt"
	"slices"
	"testing"

	"github.com/parleyhq/parley/chaos"
)

// trimStory is a correct history of a channel whose messages expire: 400 sends, a repeat of the
// first one, and a list and a stream of the newest 250.
func trimStory() []Trim {
	var calls []Trim
	for seq := int64(1); seq <= 400; seq++ {
		calls = append(calls, Trim{
			Channel: trimmed(0), Kind: Send, Begin: seq, End: seq + 1, Outcome: chaos.OK, ClientMsgID: fmt.Sprint("id-", seq), Seq: seq,
		})
	}
	again := calls[0]
	again.Begin, again.End, again.Repeat, again.Duplicate = 500, 501, true, true
	calls = append(calls, again)
	for i, kind := range []Kind{Update, List} {
		at := int64(i+1) * 10 * sec
		calls = append(calls, Trim{Channel: trimmed(0), Kind: kind, Begin: at, End: at + 1, Outcome: chaos.OK, Oldest: 151, Seqs: between(151, 400)})
	}
	calls[len(calls)-1].Final = true
	return calls
}

func between(from, to int64) []int64 {
	var all []int64
	for seq := from; seq <= to; seq++ {
		all = append(all, seq)
	}
	return all
}

// TestCheckTrims checks that a correct history of a channel whose messages expire passes, and that
// each broken promise is found.
func TestCheckTrims(t *testing.T) {
	t.Parallel()
	list, stream, repeat := 402, 401, 400
	for _, tt := range []struct {
		name   string
		want   chaos.Name // none if empty
		change func(calls []Trim)
	}{
		{"as it is", "", func([]Trim) {}},
		{"a send without an answer that is repeated", "", func(c []Trim) {
			c[1].ClientMsgID, c[1].Outcome, c[1].Seq, c[2].ClientMsgID, c[2].Seq = "id-2", chaos.Unknown, 0, "id-2", 2
		}},
		{"a read that was not answered", "", func(c []Trim) { c[stream].Outcome, c[stream].Seqs = chaos.Unknown, nil }},
		{"two messages at one seq", SeqReused, func(c []Trim) { c[7].Seq = 7 }},
		{"a repeat at another seq", KeyForgotten, func(c []Trim) { c[repeat].Seq = 401 }},
		{"a repeat is stored again", KeyForgotten, func(c []Trim) { c[repeat].Duplicate = false }},
		{"a list has a hole", SilentHole, func(c []Trim) { c[list].Seqs = slices.Delete(c[list].Seqs, 5, 6) }},
		{"a list does not begin with the oldest entry", SilentHole, func(c []Trim) { c[list].Seqs = c[list].Seqs[1:] }},
		{"a list does not reach the end", SilentHole, func(c []Trim) { c[list].Seqs = c[list].Seqs[:200] }},
		{"a list is empty", SilentHole, func(c []Trim) { c[list].Seqs = nil }},
		{"a stream has a hole", SilentHole, func(c []Trim) { c[stream].Seqs = slices.Delete(c[stream].Seqs, 5, 6) }},
		{"the newest 199 messages are kept", KeptTooFew, func(c []Trim) { c[list].Oldest, c[list].Seqs = 202, between(202, 400) }},
		{"301 messages are shown at the end", KeptTooLong, func(c []Trim) {
			c[stream].Oldest, c[list].Oldest, c[list].Seqs = 100, 100, between(100, 400)
		}},
		{"a message is shown again", ExpiredShown, func(c []Trim) { c[list].Oldest, c[list].Seqs = 150, between(150, 400) }},
		{"the list at the end failed", chaos.Liveness, func(c []Trim) { c[list].Outcome = chaos.Unknown }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			s.h.Trims = trimStory()
			tt.change(s.h.Trims)
			wantFound(t, s, tt.want)
		})
	}
}
