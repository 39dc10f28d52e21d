package storetest

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parleyhq/parley/server/internal/message"
)

var changeContracts = []contract{
	{"TargetsIncludeUnappliedChanges", targetFolds},
	{"TargetsOfAnotherChannelAreNotFound", targetElsewhere},
	{"PendingAreThoseNotApplied", pendingChanges},
	{"ChangedAreInTheOrderOfTheirChange", changedMessages},
	{"ApplyEditsTheTarget", applyEdits},
	{"ApplyClosesTheTarget", applyCloses},
	{"ApplyNeverGoesBack", applyNeverBack},
	{"ApplyOfARecallLeavesNoText", applyRecall},
	{"ApplyOfARecallTouchesNothingElse", applyRecallOthers},
	{"ApplyOfSeveralIsThatOfEach", applySeveral},
}

// targetOf returns one of the Targets. ok is false if there is no such message.
func targetOf(ctx context.Context, p message.LogWriter, channelID, msgID string) (target message.Entry, ok bool, err error) {
	found, err := p.Targets(ctx, channelID, []string{msgID})
	target, ok = found[msgID]
	return target, ok, err
}

// wantTarget fails the test unless Target returns want. While a recall is not applied, the digest
// may be present or absent.
func wantTarget(t tester, p *fixture, want message.Entry) {
	t.Helper()
	got, ok, err := targetOf(t.Context(), p, want.ChannelID, want.MsgID)
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

func wantPending(t tester, p *fixture, channel string, want ...message.Entry) {
	t.Helper()
	got, err := p.Pending(t.Context(), channel)
	if err != nil {
		t.Fatalf("pending: %v", err)
	}
	equal(t, "pending", want, got)
}

func pendingChanges(t *testing.T, p *fixture) {
	d := draftsOf(3, 2)
	one, two := d[0].send("one"), d[0].send("two")
	other := d[1].send("of another channel")
	p.insert(t, one, two, other, d[1].edit(&other, "pending there"))
	wantPending(t, p, d[0].channel)
	e1, e2 := d[0].edit(&two, "two again"), d[0].edit(&one, "one again")
	recall := d[0].recall(&two)
	p.insert(t, e1, e2, recall)
	wantPending(t, p, d[0].channel, e1, e2, recall)
	p.apply(t, e2)
	wantPending(t, p, d[0].channel, e1, recall)
	p.apply(t, recall)
	wantPending(t, p, d[0].channel, blanked(e1))
	p.reopen(t)
	wantPending(t, p, d[0].channel, blanked(e1))
	p.apply(t, e1)
	wantPending(t, p, d[0].channel)
	elsewhere := draftsOf(0, 1)[0]
	far := elsewhere.send("far")
	p.insert(t, far, elsewhere.edit(&far, "pending"))
	if got, err := p.Pending(t.Context(), d[0].channel, d[1].channel, far.ChannelID); err != nil || len(got) != 2 {
		t.Fatalf("pending of three channels: %d, %v", len(got), err)
	}
}

func changedMessages(t *testing.T, p *fixture) {
	d := draftsOf(2, 1)[0]
	log := d.sends(6) // 1 to 6
	p.insert(t, log...)
	want := func(after, before int64, limit, maxBytes int, want ...message.Entry) {
		t.Helper()
		got, err := p.Changed(t.Context(), d.channel, after, before, limit, maxBytes)
		if err != nil {
			t.Fatalf("changed after %d and before %d: %v", after, before, err)
		}
		equal(t, "changed", want, got)
	}
	want(0, 1<<40, 10, 0)
	e5, e2, e5b, r1 := d.edit(&log[4], "five"), d.edit(&log[1], "two"), d.edit(&log[4], "five again"), d.recall(&log[0])
	p.insert(t, e5, e2, e5b, r1) // 7 to 10
	want(0, 1<<40, 10, 0)
	p.apply(t, e5b, e5, e2, r1)
	two, five, gone := changed(log[1], e2), changed(log[4], e5b), changed(log[0], r1)
	want(0, 1<<40, 10, 0, two, five, gone)
	want(7, 10, 10, 0, two, five)
	want(8, 11, 10, 0, five, gone)
	want(0, 1<<40, 2, 0, two, five)
	want(0, 1<<40, 10, 1, two)
	p.reopen(t)
	want(0, 1<<40, 10, 0, two, five, gone)
}

func targetElsewhere(t *testing.T, p *fixture) {
	d := draftsOf(2, 2)
	sent := d[0].send("here")
	p.insert(t, sent, d[1].send("there"))
	for channel, id := range map[string]string{d[1].channel: sent.MsgID, d[0].channel: sent.MsgID + "0", "nowhere": sent.MsgID} {
		if e, ok, err := targetOf(t.Context(), p, channel, id); ok || err != nil {
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
	want := []message.Entry{changed(sent, edit), other, applied(edit)}
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

// applyCloses closes open messages in each way, and recalls one that is closed and one that is
// open.
func applyCloses(t *testing.T, p *fixture) {
	d := draftsOf(0, 1)[0]
	var want []message.Entry
	for _, kind := range []message.Kind{message.KindComplete, message.KindCancel, message.KindFail} {
		open := d.opened("begin")
		p.insert(t, open)
		wantTarget(t, p, open)
		end := d.closing(kind, &open, "the whole text")
		p.insert(t, end)
		after := changed(open, end)
		if after.Status != kind.After() || after.Content != "the whole text" || after.LastChange() != kind {
			t.Fatalf("closed: %+v", after)
		}
		wantTarget(t, p, after)
		p.apply(t, end)
		wantTarget(t, p, after)
		got := p.entries(t, d.channel, message.Range{After: end.Seq - 1, Limit: 1})
		same(t, "the close", []message.Entry{applied(end)}, got)
		want = append(want, after)
	}
	open := d.opened("")
	p.insert(t, open)
	changes, err := p.Changed(t.Context(), d.channel, 0, 0, 10, 0)
	must(t, err)
	same(t, "the changed messages", want, changes)
	for _, target := range []message.Entry{want[0], open} {
		recall := d.recall(&target)
		p.insert(t, recall)
		p.apply(t, recall)
		wantTarget(t, p, changed(target, recall))
	}
}

func applyNeverBack(t *testing.T, p *fixture) {
	d := draftsOf(1, 1)[0]
	sent := d.send("first text")
	e1, e2 := d.edit(&sent, "second text"), d.edit(&sent, "third text")
	p.insert(t, sent, e1, e2)
	p.apply(t, e2)
	want := []message.Entry{changed(sent, e2), e1, applied(e2)}
	equal(t, "after the later edit", want, p.all(t, d.channel))
	p.apply(t, e1)
	want[1] = applied(e1)
	equal(t, "after the earlier edit", want, p.all(t, d.channel))

	recall := d.recall(&sent)
	p.insert(t, recall)
	p.apply(t, recall, e1, e2)
	want = []message.Entry{changed(want[0], recall), applied(e1), applied(e2), applied(recall)}
	equal(t, "after the recall and the edits once more", want, p.all(t, d.channel))
}

func applySeveral(t *testing.T, p *fixture) {
	d := draftsOf(1, 2)
	a, b := d[0].sends(3), d[1].sends(2)
	pending := d[0].edit(&a[1], "secret")
	a1, a1again, a2 := d[0].edit(&a[0], "one"), d[0].edit(&a[0], "one again"), d[0].recall(&a[1])
	b1, b2, b2gone := d[1].edit(&b[0], "one"), d[1].edit(&b[1], "two"), d[1].recall(&b[1])
	p.insert(t, append(append(a, b...), pending, a1, a1again, a2, b1, b2, b2gone)...)
	if err := p.Apply(t.Context(), &b2, &a1, &a[2], &a1again, &b1, &b2gone, &a2); err != nil {
		t.Fatal(err)
	}
	equal(t, "the first channel", []message.Entry{
		changed(a[0], a1again), changed(a[1], a2), a[2], blanked(pending), applied(a1), applied(a1again), applied(a2),
	}, p.all(t, d[0].channel))
	equal(t, "the second channel", []message.Entry{
		changed(b[0], b1), changed(changed(b[1], b2), b2gone), applied(b1), applied(b2), applied(b2gone),
	}, p.all(t, d[1].channel))
	wantPending(t, p, d[0].channel, blanked(pending))
	wantPending(t, p, d[1].channel)
	if err := p.Apply(t.Context()); err != nil {
		t.Fatalf("apply of nothing: %v", err)
	}
}

// wantNoText fails the test if any read still returns text of the recalled message.
func wantNoText(t tester, p *fixture, sent message.Entry, edits ...message.Entry) {
	t.Helper()
	clean := func(what string, e *message.Entry) {
		if e.Content != "" || len(e.Metadata) != 0 || e.Kind == message.KindSend && len(e.Digest) != 0 {
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
	messages, err := p.Messages(t.Context(), places(sent.ChannelID, sent.Seq))
	if err != nil || len(messages) != 1 {
		t.Fatalf("messages: %d, %v", len(messages), err)
	}
	clean("Messages", &messages[0])
	one, ok, err := p.Message(t.Context(), sent.ChannelID, sent.MsgID)
	if err != nil || !ok {
		t.Fatalf("message: %v, %v", ok, err)
	}
	clean("Message", &one)
	target, ok, err := targetOf(t.Context(), p, sent.ChannelID, sent.MsgID)
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
	first, pending := d.edit(&sent, "secret two"), d.edit(&sent, "secret three")
	recall := d.recall(&sent)
	p.insert(t, sent, first)
	p.apply(t, first)
	p.insert(t, pending, recall)
	p.apply(t, recall)

	want := []message.Entry{changed(changed(sent, first), recall), applied(first), blanked(pending), applied(recall)}
	if want[0].Status != message.StatusRecalled || want[0].ChangedSeq != recall.Seq {
		t.Fatalf("the suite's own expectation is off: %+v", want[0])
	}
	check := func(when string) {
		wantNoText(t, p, sent, first, pending)
		equal(t, when, want, p.all(t, d.channel))
	}
	check("after the recall")
	// A late feed has the edits with their texts in memory and applies them after the recall.
	p.apply(t, first, pending)
	want[2] = applied(pending)
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
	equal(t, "its channel", []message.Entry{changed(a, recall), changed(b, eb), applied(eb), applied(recall)}, p.all(t, d[0].channel))
	equal(t, "the other channel", elsewhere, p.all(t, d[1].channel))
}
