package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/parleyhq/parley/server/internal/message"
)

var insertContracts = []contract{
	{"InsertStoresABatchInOrder", insertStoresInOrder},
	{"InsertStoresAPrefixUpToATakenSeq", insertTakenSeq},
	{"InsertRefusesTheSameEntryAgain", insertSameAgain},
	{"InsertRefusesAUsedClientKey", insertUsedKey},
	{"InsertRefusesAClientKeyTwiceInABatch", insertKeyTwiceInBatch},
	{"InsertTakesTheSameIdOfOtherSendersAndChannels", insertOtherSenders},
	{"InsertKeepsEveryField", insertKeepsFields},
	{"TheLongestIDs", longestIDs},
}

// longest returns an id of 128 characters that ends with last.
func longest(last byte) string { return strings.Repeat("-_aZ09~", 18) + "x" + string(last) }

// clash inserts a batch that must conflict at its entry n.
func clash(t tester, p *fixture, n int, batch ...message.Entry) {
	t.Helper()
	got, err := p.Insert(t.Context(), message.Shard(batch[0].ChannelID, shards), batch)
	var conflict *message.ConflictError
	if !errors.As(err, &conflict) {
		t.Fatalf("insert of a clashing entry: %d, %v, want a *ConflictError", got, err)
	}
	if got != n {
		t.Fatalf("insert stored %d of the batch, want %d: %v", got, n, err)
	}
	if conflict.ChannelID != batch[n].ChannelID {
		t.Fatalf("conflict in channel %q, want %q", conflict.ChannelID, batch[n].ChannelID)
	}
}

func insertStoresInOrder(t *testing.T, p *fixture) {
	d := draftsOf(1, 2)
	var batch, a, b []message.Entry
	for range 20 {
		ea, eb := d[0].send("to the one"), d[1].send("to the other")
		a, b, batch = append(a, ea), append(b, eb), append(batch, ea, eb)
	}
	p.insert(t, batch[:15]...)
	p.insert(t, batch[15:]...)
	equal(t, "one", a, p.all(t, d[0].channel))
	equal(t, "other", b, p.all(t, d[1].channel))
}

func insertTakenSeq(t *testing.T, p *fixture) {
	d := draftsOf(2, 2)
	a, b := d[0], d[1]
	first := a.sends(3)
	p.insert(t, first...)

	taken := &draft{channel: a.channel, seq: 2, count: 2}
	late := taken.sendAs("bob", "late", "at a taken place")
	b1, a4, b2 := b.send("b1"), a.sendAs("bob", "a4", "a4"), b.send("b2")
	clash(t, p, 1, b1, late, a4, b2)

	equal(t, "channel of the clash", first, p.all(t, a.channel))
	equal(t, "other channel", []message.Entry{b1}, p.all(t, b.channel))
	found, err := p.ByClientKeys(t.Context(), a.channel, []message.ClientKey{keyOf(&late), keyOf(&a4)})
	if err != nil || len(found) != 0 {
		t.Fatalf("found what was refused: %v, %v", found, err)
	}

	// Entries that were refused because of their seq are accepted at the right seq.
	a.back(1)
	late, a4 = a.sendAs("bob", "late", "at the next place"), a.sendAs("bob", "a4", "a4")
	p.insert(t, late, a4, b2)
	equal(t, "after the retry", append(first, late, a4), p.all(t, a.channel))
	equal(t, "other after the retry", []message.Entry{b1, b2}, p.all(t, b.channel))

	clash(t, p, 0, first[0], b.send("behind it"))
}

func insertSameAgain(t *testing.T, p *fixture) {
	d := draftsOf(0, 1)[0]
	batch := d.sends(5)
	p.insert(t, batch...)
	clash(t, p, 0, batch...)
	clash(t, p, 0, batch[4])
	equal(t, "after", batch, p.all(t, d.channel))
}

func insertUsedKey(t *testing.T, p *fixture) {
	d := draftsOf(3, 1)[0]
	first := d.sendAs("ann", "k1", "first")
	edit := d.edit(&first, "edited")
	p.insert(t, first, edit)

	free := d.send("fine")
	again := d.sendAs("ann", "k1", "another text under a used id")
	clash(t, p, 1, free, again, d.send("behind it"))
	equal(t, "prefix", []message.Entry{first, edit, free}, p.all(t, d.channel))

	// A client_msg_id of an edit or recall can't be used for a send.
	d.back(2)
	clash(t, p, 0, d.sendAs(edit.FromID, edit.ClientMsgID, "a send under an edit's id"))
	d.back(1)
	p.reopen(t)
	clash(t, p, 0, d.sendAs("ann", "k1", "after a restart"))
	d.back(1)
	next := d.send("next")
	p.insert(t, next)
	equal(t, "at last", []message.Entry{first, edit, free, next}, p.all(t, d.channel))
}

func insertKeyTwiceInBatch(t *testing.T, p *fixture) {
	d := draftsOf(0, 2)
	a1, b1 := d[0].sendAs("ann", "k", "first"), d[1].sendAs("ann", "k", "the same id elsewhere")
	a2, a3 := d[0].sendAs("bob", "k", "bob's"), d[0].sendAs("ann", "k", "the same id again")
	clash(t, p, 3, a1, b1, a2, a3, d[1].send("behind it"))
	equal(t, "one", []message.Entry{a1, a2}, p.all(t, d[0].channel))
	equal(t, "other", []message.Entry{b1}, p.all(t, d[1].channel))
}

func insertOtherSenders(t *testing.T, p *fixture) {
	d := draftsOf(1, 2)
	// Joined without a separator, the first two would be the same key.
	var want []message.Entry
	for _, k := range []message.ClientKey{{FromID: "a", ClientMsgID: "bc"}, {FromID: "ab", ClientMsgID: "c"}, {FromID: "b", ClientMsgID: "bc"}, {FromID: "auth0|42", ClientMsgID: "$x.y:z/"}} {
		e := d[0].sendAs(k.FromID, k.ClientMsgID, "mine")
		p.insert(t, e)
		want = append(want, e)
	}
	p.insert(t, d[1].sendAs("a", "bc", "elsewhere"))
	equal(t, "log", want, p.all(t, d[0].channel))
}

// longestIDs tests that ids of 128 characters that differ only in the last one are different.
func longestIDs(t *testing.T, p *fixture) {
	for _, channel := range []string{longest('a'), longest('b')} {
		d := &draft{channel: channel}
		var want []message.Entry
		for _, k := range []message.ClientKey{
			{FromID: longest('a'), ClientMsgID: longest('a')}, {FromID: longest('a'), ClientMsgID: longest('b')}, {FromID: longest('b'), ClientMsgID: longest('a')},
		} {
			e := d.sendAs(k.FromID, k.ClientMsgID, "mine")
			e.MsgID = fmt.Sprintf("%064d", len(want))
			want = append(want, e)
		}
		edit := d.edit(&want[0], "new")
		p.insert(t, append(want, edit)...)
		p.apply(t, edit)
		want[0] = changed(want[0], edit)
		equal(t, channel, append(want, applied(edit)), p.all(t, channel))
		again := &draft{channel: channel, seq: d.seq, count: d.count}
		clash(t, p, 0, again.sendAs(longest('b'), longest('a'), "mine"))
		found, err := p.ByClientKeys(t.Context(), channel, []message.ClientKey{keyOf(&want[2]), {FromID: longest('b'), ClientMsgID: longest('b')}})
		if err != nil || len(found) != 1 || found[keyOf(&want[2])].Seq != 3 {
			t.Fatalf("found %v, %v", found, err)
		}
	}
}

func insertKeepsFields(t *testing.T, p *fixture) {
	d := draftsOf(2, 1)[0]
	big := d.send(strings.Repeat("é", 32<<10))
	odd := d.send("emoji 👩‍👩‍👧 combining e\u0301 bidi \u202eabc nul \x00 line\r\nend \ufeff")
	odd.MsgType = "application.x-thing_1"
	odd.Metadata = map[string]string{}
	for i := range 16 {
		odd.Metadata[fmt.Sprintf("key_-%d", i)] = strings.Repeat("ü", 128)
	}
	bare := d.send("")
	bare.MsgType, bare.Metadata, bare.Traceparent = "", nil, ""
	edit := d.edit(&big, strings.Repeat("日本", 10<<10))
	want := []message.Entry{big, odd, bare, edit}
	p.insert(t, want...)
	equal(t, "before", want, p.all(t, d.channel))
	p.reopen(t)
	equal(t, "after a restart", want, p.all(t, d.channel))
	for i := range want[:3] {
		got, ok, err := p.Message(t.Context(), d.channel, want[i].MsgID)
		if err != nil || !ok {
			t.Fatalf("message %s: %v, %v", want[i].MsgID, ok, err)
		}
		if i > 0 {
			equal(t, "message", want[i:i+1], []message.Entry{got})
		}
	}
}
