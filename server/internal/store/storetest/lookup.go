package storetest

import (
	"fmt"
	"testing"

	"github.com/parleyhq/parley/server/internal/message"
)

var lookupContracts = []contract{
	{"ByClientKeysReturnsExistingEntries", byClientKeys},
	{"MessagesReturnsSendsOnly", messagesBySeq},
	{"MessageIsFoundInItsChannelOnly", messageByID},
}

func byClientKeys(t *testing.T, p *fixture) {
	d := draftsOf(1, 2)
	log := d[0].sends(250)
	log = append(log, d[0].edit(&log[0], "edited"), d[0].recall(&log[1]))
	elsewhere := d[1].sendAs("ann", "only-there", "text")
	p.insert(t, log...)
	p.insert(t, elsewhere)

	keys := []message.ClientKey{
		{FromID: "ann", ClientMsgID: "none"},
		{FromID: "none", ClientMsgID: "send-1"},
		keyOf(&elsewhere),
		{FromID: "ann", ClientMsgID: "send-"},
		{FromID: "an", ClientMsgID: "send-1"},
		keyOf(&log[0]),
	}
	for i := range log {
		keys = append(keys, keyOf(&log[i]))
	}
	check := func(when string) {
		t.Helper()
		found, err := p.ByClientKeys(t.Context(), d[0].channel, keys)
		if err != nil || len(found) != len(log) {
			t.Fatalf("%s: found %d, want %d: %v", when, len(found), len(log), err)
		}
		for i := range log {
			equal(t, when, log[i:i+1], []message.Entry{found[keyOf(&log[i])]})
		}
	}
	check("after the insert")
	p.reopen(t)
	check("after a restart")
	for _, channel := range []string{d[1].channel, "nowhere"} {
		found, err := p.ByClientKeys(t.Context(), channel, []message.ClientKey{keyOf(&log[0])})
		if err != nil || len(found) != 0 {
			t.Fatalf("found in %s what is of another channel: %v, %v", channel, found, err)
		}
	}
}

func messagesBySeq(t *testing.T, p *fixture) {
	d := draftsOf(0, 2)
	log := d[0].sends(10)
	edit := d[0].edit(&log[2], "edited")
	log = append(log, edit, d[0].send("behind it"))
	p.insert(t, log...)
	p.insert(t, d[1].sends(40)...)
	p.apply(t, edit)
	p.settle(t, d[0].channel)

	got, err := p.Messages(t.Context(), places(d[0].channel, 12, 3, 11, 1, 13, 40, 1<<50))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "messages", []message.Entry{log[0], changed(log[2], edit), log[11]}, bySeq(got))
	// Of several channels, of one shard and of several.
	far := draftsOf(3, 1)[0]
	last := far.sends(50)
	p.insert(t, last...)
	p.settle(t, far.channel)
	if got, err = p.Messages(t.Context(), append(places(d[1].channel, 40, 11), places(far.channel, 50, 99)...)); err != nil || len(got) != 3 {
		t.Fatalf("messages of two channels: %d, %v", len(got), err)
	}
	for _, e := range got {
		if e.Seq == 50 != (e.ChannelID == far.channel) {
			t.Fatalf("message %d of %s", e.Seq, e.ChannelID)
		}
	}
	if got, err = p.Messages(t.Context(), nil); err != nil || len(got) != 0 {
		t.Fatalf("messages at no places: %d, %v", len(got), err)
	}
	if got, err = p.Messages(t.Context(), places("nowhere", 1)); err != nil || len(got) != 0 {
		t.Fatalf("messages of an empty log: %d, %v", len(got), err)
	}
}

// places returns places of a channel.
func places(channel string, seqs ...int64) []message.Place {
	all := make([]message.Place, len(seqs))
	for i, seq := range seqs {
		all[i] = message.Place{ChannelID: channel, Seq: seq}
	}
	return all
}

func messageByID(t *testing.T, p *fixture) {
	d := draftsOf(2, 2)
	a, b := d[0].send("here"), d[1].send("there")
	edit := d[0].edit(&a, "edited")
	p.insert(t, a, b, edit)
	p.apply(t, edit)
	p.settle(t, d[0].channel)
	got, ok, err := p.Message(t.Context(), a.ChannelID, a.MsgID)
	if err != nil || !ok {
		t.Fatalf("message: %v, %v", ok, err)
	}
	equal(t, "message", []message.Entry{changed(a, edit)}, []message.Entry{got})
	for _, q := range [][2]string{
		{b.ChannelID, a.MsgID},
		{a.ChannelID, b.MsgID},
		{"nowhere", a.MsgID},
		{a.ChannelID, a.MsgID + "0"},
		{a.ChannelID, a.MsgID[:len(a.MsgID)-1]},
		{a.ChannelID, "$x"},
	} {
		if e, ok, err := p.Message(t.Context(), q[0], q[1]); ok || err != nil {
			t.Fatalf("message %s of %s: %v, %v, %v", q[1], q[0], fmt.Sprintf("%+v", e), ok, err)
		}
	}
}
