package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parleyhq/parley/server/internal/message"
)

var changeContracts = []contract{
	{"TargetIncludesUnappliedChanges", targetFolds},
	{"TargetOfAnotherChannelIsNotFound", targetElsewhere},
	{"ChangesAreThoseOfTheTargets", changesOfTargets},
	{"ApplyEditsTheTarget", applyEdits},
	{"ApplyNeverGoesBack", applyNeverBack},
	{"ApplyOfARecallLeavesNoText", applyRecall},
	{"ApplyOfARecallTouchesNothingElse", applyRecallOthers},
}

// wantTarget fails the test unless Target returns want. While a recall is not applied, the digest
// may be present or absent.
func wantTarget(t tester, p *fixture, want message.Entry) {
	t.Helper()
	got, ok, err := p.Target(t.Context(), want.ChannelID, want.MsgID)
	if err != nil || !ok {
		t.Fatalf("target %s: %v, %v", want.MsgID, ok, err)
	}
	opts := []cmp.Option{cmpopts.EquateEmpty()}
	if want.Status == message.StatusRecalled {
		opts = append(opts, cmpopts.IgnoreFields(message.Entry{}, "Digest"))
	}
	if d := cmp.Diff(want, got, opts...); d != "" {
		t.Fatalf("target (-want +got):\n%s", d)
	}
}

func targetFolds(t *testing.T, p *fixture) {
	d := draftsOf(0, 1)[0]
	sent, other := d.send("first text"), d.send("of another message")
	p.insert(t, sent, other)
	wantTarget(t, p, sent)

	e1 := d.edit(&sent, "second text")
	p.insert(t, e1)
	want := changed(sent, e1)
	wantTarget(t, p, want)
	p.insert(t, d.send("between"), d.edit(&other, "changed too"))
	e2 := d.edit(&sent, "third text")
	p.insert(t, e2)
	want = changed(want, e2)
	wantTarget(t, p, want)
	// Apply only some changes, out of order.
	p.apply(t, e2)
	wantTarget(t, p, want)
	p.apply(t, e1)
	wantTarget(t, p, want)

	recall := d.recall(&sent)
	p.insert(t, recall)
	want = changed(want, recall)
	wantTarget(t, p, want)
	p.apply(t, e2)
	wantTarget(t, p, want)
	p.reopen(t)
	wantTarget(t, p, want)
	p.apply(t, recall)
	wantTarget(t, p, want)
}

func changesOfTargets(t *testing.T, p *fixture) {
	d := draftsOf(3, 1)[0]
	one, two, three := d.send("one"), d.send("two"), d.send("three")
	p.insert(t, one, two, three)
	e1, e3, r1 := d.edit(&one, "one again"), d.edit(&three, "three again"), d.recall(&one)
	p.insert(t, e1, e3, r1)
	for _, c := range []struct {
		targets []int64
		want    []message.Entry
	}{
		{[]int64{one.Seq}, []message.Entry{e1, r1}},
		{[]int64{three.Seq, two.Seq, one.Seq}, []message.Entry{e1, e3, r1}},
		{[]int64{two.Seq}, nil},
		{[]int64{e1.Seq, 99}, nil},
	} {
		got, err := p.Changes(t.Context(), one.ChannelID, c.targets)
		if err != nil {
			t.Fatalf("changes of %v: %v", c.targets, err)
		}
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("changes of %v (-want +got):\n%s", c.targets, diff)
		}
	}
}

func targetElsewhere(t *testing.T, p *fixture) {
	d := draftsOf(2, 2)
	sent := d[0].send("here")
	p.insert(t, sent, d[1].send("there"))
	for channel, id := range map[string]string{d[1].channel: sent.MsgID, d[0].channel: sent.MsgID + "0", "nowhere": sent.MsgID} {
		if e, ok, err := p.Target(t.Context(), channel, id); ok || err != nil {
			t.Fatalf("target %s in %s: %+v, %v, %v", id, channel, e, ok, err)
		}
	}
}

func applyEdits(t *testing.T, p *fixture) {
	d := draftsOf(1, 1)[0]
	sent, other := d.send("first text"), d.send("of another message")
	edit := d.edit(&sent, "second text")
	p.insert(t, sent, other, edit)
	p.apply(t, edit)
	want := []message.Entry{changed(sent, edit), other, edit}
	if want[0].Content != "second text" || want[0].Status != message.StatusEdited || want[0].ChangedSeq != 3 {
		t.Fatalf("the suite's own expectation is off: %+v", want[0])
	}
	equal(t, "after the edit", want, p.all(t, d.channel))
	wantTarget(t, p, want[0])
	p.apply(t, edit, edit)
	equal(t, "after it again", want, p.all(t, d.channel))
	p.reopen(t)
	equal(t, "after a restart", want, p.all(t, d.channel))
}

func applyNeverBack(t *testing.T, p *fixture) {
	d := draftsOf(1, 1)[0]
	sent := d.send("first text")
	e1, e2 := d.edit(&sent, "second text"), d.edit(&sent, "third text")
	p.insert(t, sent, e1, e2)
	p.apply(t, e2)
	want := []message.Entry{changed(sent, e2), e1, e2}
	equal(t, "after the later edit", want, p.all(t, d.channel))
	p.apply(t, e1)
	equal(t, "after the earlier edit", want, p.all(t, d.channel))

	recall := d.recall(&sent)
	p.insert(t, recall)
	p.apply(t, recall, e1, e2)
	want = []message.Entry{changed(want[0], recall), blanked(e1), blanked(e2), recall}
	equal(t, "after the recall and the edits once more", want, p.all(t, d.channel))
}

// wantNoText fails the test if any read still returns text of the recalled message.
func wantNoText(t tester, p *fixture, sent message.Entry, edits ...message.Entry) {
	t.Helper()
	clean := func(what string, e *message.Entry) {
		if e.Content != "" || len(e.Metadata) != 0 || len(e.Digest) != 0 {
			t.Fatalf("%s shows a recalled message's text %q, metadata %v or digest %x at %d", what, e.Content, e.Metadata, e.Digest, e.Seq)
		}
	}
	own := map[int64]bool{sent.Seq: true}
	keys := []message.ClientKey{keyOf(&sent)}
	for i := range edits {
		own[edits[i].Seq] = true
		keys = append(keys, keyOf(&edits[i]))
	}
	seen := 0
	for _, e := range p.all(t, sent.ChannelID) {
		if own[e.Seq] {
			seen++
			clean("Entries", &e)
		}
	}
	if seen != len(own) {
		t.Fatalf("%d of the message's %d entries are there", seen, len(own))
	}
	messages, err := p.Messages(t.Context(), sent.ChannelID, []int64{sent.Seq})
	if err != nil || len(messages) != 1 {
		t.Fatalf("messages: %d, %v", len(messages), err)
	}
	clean("Messages", &messages[0])
	one, ok, err := p.Message(t.Context(), sent.ChannelID, sent.MsgID)
	if err != nil || !ok {
		t.Fatalf("message: %v, %v", ok, err)
	}
	clean("Message", &one)
	target, ok, err := p.Target(t.Context(), sent.ChannelID, sent.MsgID)
	if err != nil || !ok {
		t.Fatalf("target: %v, %v", ok, err)
	}
	clean("Target", &target)
	found, err := p.ByClientKeys(t.Context(), sent.ChannelID, keys)
	if err != nil || len(found) != len(keys) {
		t.Fatalf("by client keys: %d of %d, %v", len(found), len(keys), err)
	}
	for _, e := range found {
		clean("ByClientKeys", &e)
	}
}

func applyRecall(t *testing.T, p *fixture) {
	d := draftsOf(0, 1)[0]
	sent := d.send("secret one")
	applied, pending := d.edit(&sent, "secret two"), d.edit(&sent, "secret three")
	recall := d.recall(&sent)
	p.insert(t, sent, applied)
	p.apply(t, applied)
	p.insert(t, pending, recall)
	p.apply(t, recall)

	want := []message.Entry{changed(changed(sent, applied), recall), blanked(applied), blanked(pending), recall}
	if want[0].Status != message.StatusRecalled || want[0].ChangedSeq != recall.Seq {
		t.Fatalf("the suite's own expectation is off: %+v", want[0])
	}
	check := func(when string) {
		wantNoText(t, p, sent, applied, pending)
		equal(t, when, want, p.all(t, d.channel))
	}
	check("after the recall")
	// A late feed has the edits with their texts in memory and applies them after the recall.
	p.apply(t, applied, pending)
	check("after the late edits")
	p.apply(t, recall, recall)
	check("after the recall again")
	p.reopen(t)
	check("after a restart")
	clash(t, p, 0, (&draft{channel: d.channel, seq: d.seq, count: d.count}).sendAs("ann", sent.ClientMsgID, "the id stays used"))
}

func applyRecallOthers(t *testing.T, p *fixture) {
	d := draftsOf(0, 2)
	a, b := d[0].send("to be recalled"), d[0].send("to stay")
	eb := d[0].edit(&b, "stays, edited")
	elsewhere := d[1].sends(4)
	p.insert(t, append([]message.Entry{a, b, eb}, elsewhere...)...)
	p.apply(t, eb)
	recall := d[0].recall(&a)
	p.insert(t, recall)
	p.apply(t, recall)
	equal(t, "its channel", []message.Entry{changed(a, recall), changed(b, eb), eb, recall}, p.all(t, d[0].channel))
	equal(t, "the other channel", elsewhere, p.all(t, d[1].channel))
}
