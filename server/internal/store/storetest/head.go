package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/message"
)

var headContracts = []contract{
	{"HeadOfAnEmptyLogIsZero", headEmpty},
	{"HeadShowsTheLastEntry", headLast},
	{"HeadsAreThoseOfAllLogs", headsOfMany},
}

// wantHead fails the test unless last is the end of the log.
func wantHead(t tester, p *fixture, last *message.Entry) {
	t.Helper()
	got := p.head(t, last.ChannelID)
	want := message.Head{Seq: last.Seq, Count: last.Count, MsgTime: last.MsgTime, Bytes: last.Bytes, Rev: last.Rev}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("head of %s (-want +got):\n%s", last.ChannelID, d)
	}
	if got.MsgTime.Location() != time.UTC {
		t.Fatalf("head's msg_time is in %s, want UTC", got.MsgTime.Location())
	}
}

func headEmpty(t *testing.T, p *fixture) {
	d := draftsOf(1, 2)
	p.insert(t, d[0].sends(2)...)
	if d := cmp.Diff(message.Head{}, p.head(t, d[1].channel)); d != "" {
		t.Fatalf("head of an empty log (-want +got):\n%s", d)
	}
	// Names with a common prefix, or adjacent in sort order, are unrelated.
	for _, name := range []string{d[0].channel + "0", d[0].channel[:len(d[0].channel)-1], d[0].channel + "-", d[0].channel + "_"} {
		if got := p.head(t, name); got.Seq != 0 {
			t.Fatalf("head of %q, which is empty: %+v", name, got)
		}
		if got := p.all(t, name); len(got) != 0 {
			t.Fatalf("entries of %q, which is empty: %d", name, len(got))
		}
	}
}

func headsOfMany(t *testing.T, p *fixture) {
	want := map[string]message.Head{}
	ids := []string{"nowhere"}
	for b := range shards {
		for _, d := range draftsOf(b, 30) {
			log := d.sends(1 + len(ids)%7)
			if len(ids)%3 == 0 {
				log = append(log, d.edit(&log[0], "edited"))
			}
			p.insert(t, log...)
			ids = append(ids, d.channel)
			want[d.channel] = message.Head{Seq: d.seq, Count: d.count, MsgTime: log[len(log)-1].MsgTime, Bytes: log[len(log)-1].Bytes, Rev: log[len(log)-1].Rev}
		}
	}
	got, err := p.Heads(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	if got["nowhere"] != (message.Head{}) {
		t.Fatalf("head of an empty log: %+v", got["nowhere"])
	}
	delete(got, "nowhere")
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("heads (-want +got):\n%s", d)
	}
	if got, err = p.Heads(t.Context(), nil); err != nil || len(got) != 0 {
		t.Fatalf("heads of no logs: %v, %v", got, err)
	}
}

func headLast(t *testing.T, p *fixture) {
	d := draftsOf(3, 2)
	for _, n := range []int{1, 3, 300} {
		batch := d[0].sends(n)
		p.insert(t, batch...)
		wantHead(t, p, &batch[n-1])
	}
	target := d[0].send("soon edited")
	edit := d[0].edit(&target, "edited")
	p.insert(t, target, edit, d[1].send("elsewhere"))
	wantHead(t, p, &edit)
	if got := p.head(t, d[0].channel); got.Count != got.Seq-1 {
		t.Fatalf("an edit was counted as a message: %+v", got)
	}
	recall := d[0].recall(&target)
	p.insert(t, recall)
	wantHead(t, p, &recall)
	p.apply(t, edit, recall)
	wantHead(t, p, &recall)
	p.reopen(t)
	wantHead(t, p, &recall)
}
