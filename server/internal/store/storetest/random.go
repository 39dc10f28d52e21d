package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/parleyhq/parley/server/internal/message"
)

var randomContracts = []channelContract{
	{"RandomOperationsAgreeWithTheModel", randomOperations},
}

// machine runs random operations on a store and on the model. Its names end in the number of the
// run, so that runs share a store without interfering. rapid prints the seed of a failed run.
type machine struct {
	*fixture
	rows     *channels
	model    model
	shard    int
	channels []string
	// users are the senders. BySender finds the entries of all runs.
	users []string
	// deleted counts how often each channel was deleted.
	deleted map[string]int64
	// asked holds edits and recalls as they were first inserted. A late feed applies them in this
	// form.
	asked []message.Entry
}

func randomOperations(t *testing.T, c *channels) {
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := &machine{
			fixture: c.place, rows: c, shard: run % shards, deleted: map[string]int64{},
			model: model{logs: map[string][]message.Entry{}, boundaries: map[string]message.Boundary{}},
			users: []string{fmt.Sprint("ann", run), fmt.Sprint("bob", run), fmt.Sprint("ann", run, "-")},
		}
		for i := 0; len(m.channels) < 3; i++ {
			if name := fmt.Sprintf("c%d-%d", i, run); message.Shard(name, shards) == m.shard {
				m.channels = append(m.channels, name)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"insert":   m.insertRandom,
			"insert2":  m.insertRandom,
			"apply":    m.applyRandom,
			"range":    m.checkRange,
			"lookup":   m.checkLookups,
			"changes":  m.checkTargets,
			"pending":  m.checkPending,
			"reopen":   m.reopenRarely,
			"":         m.checkHeads,
			"original": m.applyOriginal,
			"expire":   m.expireRandom,
			"strip":    m.stripRandom,
			"delete":   m.deleteRandom,
			"recreate": m.recreateRandom,
			"scrub":    m.scrubRandom,
			"sender":   m.checkSender,
			"open":     m.checkOpen,
		})
	})
}

func (m *machine) channel(t *rapid.T) string { return rapid.SampledFrom(m.channels).Draw(t, "channel") }

// randomEntry draws an entry for the channel's next seq, according to the model including the batch
// so far. Sometimes the entry conflicts.
func (m *machine) randomEntry(t *rapid.T, ahead *model, channel string) message.Entry {
	head := ahead.head(channel)
	d := &draft{channel: channel, seq: head.Seq, count: head.Count}
	if log := ahead.logs[channel]; len(log) > 0 && rapid.IntRange(0, 19).Draw(t, "wrong place") == 0 {
		d.seq = rapid.SampledFrom(log).Draw(t, "taken").Seq - 1
	}
	from := rapid.SampledFrom(m.users).Draw(t, "from")
	key := fmt.Sprint(rapid.IntRange(0, 60).Draw(t, "key"))
	content := rapid.StringN(0, 20, 60).Draw(t, "content")
	targets := ahead.editable(channel)
	kind := rapid.SampledFrom([]message.Kind{message.KindSend, message.KindSend, message.KindEdit, message.KindRecall}).Draw(t, "kind")
	if kind == message.KindSend || len(targets) == 0 {
		e := d.sendAs(from, key, content)
		if rapid.IntRange(0, 2).Draw(t, "open at 0") == 0 {
			e.Status = message.StatusOpen
		}
		return e
	}
	target := rapid.SampledFrom(targets).Draw(t, "target")
	var e message.Entry
	switch {
	case kind == message.KindRecall && rapid.IntRange(0, 2).Draw(t, "erase at 0") == 0:
		return d.erase(&target)
	case kind == message.KindRecall:
		e = d.recall(&target)
	case target.Status == message.StatusOpen:
		kind = rapid.SampledFrom([]message.Kind{message.KindComplete, message.KindCancel, message.KindFail}).Draw(t, "close")
		e = d.closing(kind, &target, content)
	default:
		e = d.edit(&target, content)
	}
	e.FromID, e.ClientMsgID = from, key
	return e
}

func (m *machine) insertRandom(t *rapid.T) {
	ahead := model{logs: map[string][]message.Entry{}, boundaries: m.model.boundaries}
	for _, c := range m.channels {
		ahead.logs[c] = append([]message.Entry(nil), m.model.logs[c]...)
	}
	var batch []message.Entry
	for range rapid.IntRange(1, 6).Draw(t, "batch") {
		e := m.randomEntry(t, &ahead, m.channel(t))
		batch = append(batch, e)
		ahead.insert([]message.Entry{e})
	}
	want := m.model.insert(batch)
	n, err := m.Insert(t.Context(), m.shard, batch)
	var conflict *message.ConflictError
	switch {
	case want < 0 && (err != nil || n != len(batch)):
		t.Fatalf("insert: %d of %d, %v", n, len(batch), err)
	case want < 0:
		want = len(batch)
	case !errors.As(err, &conflict) || conflict.ChannelID != batch[want].ChannelID || n != want:
		t.Fatalf("insert: %d, %v, want a conflict at %d in %s", n, err, want, batch[want].ChannelID)
	}
	for _, e := range batch[:want] {
		if e.Kind != message.KindSend {
			m.asked = append(m.asked, e)
		}
	}
}

func (m *machine) applyRandom(t *rapid.T) {
	changes := m.model.changes(m.channel(t))
	if len(changes) == 0 {
		t.Skip("nothing to apply")
	}
	change := rapid.SampledFrom(changes).Draw(t, "change")
	m.apply(t, change)
	m.model.apply(&change)
}

// applyOriginal applies a random edit or recall as it was first inserted, even if its stored entry
// has changed since.
func (m *machine) applyOriginal(t *rapid.T) {
	if len(m.asked) == 0 {
		t.Skip("nothing to apply")
	}
	change := rapid.SampledFrom(m.asked).Draw(t, "change")
	m.apply(t, change)
	m.model.apply(&change)
}

// same fails the test unless every entry is as in the model, possibly with later changes already
// folded in.
func (m *machine) same(t *rapid.T, what string, want, got []message.Entry) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%s: %d entries, want %d", what, len(got), len(want))
	}
	for i := range want {
		if reflect.DeepEqual(want[i], got[i]) || cmp.Equal(want[i], got[i], cmpopts.EquateEmpty()) {
			continue
		}
		if folded, ok := m.model.target(want[i].ChannelID, want[i].MsgID); ok && want[i].Kind == message.KindSend &&
			cmp.Equal(folded, got[i], cmpopts.EquateEmpty(), cmpopts.IgnoreFields(message.Entry{}, "Digest")) {
			continue
		}
		t.Fatalf("%s, entry %d (-want +got):\n%s", what, want[i].Seq, cmp.Diff(want[i], got[i], cmpopts.EquateEmpty()))
	}
}

func (m *machine) checkRange(t *rapid.T) {
	channel := m.channel(t)
	log := m.model.logs[channel]
	r := message.Range{
		After:  rapid.Int64Range(0, m.model.head(channel).Seq+1).Draw(t, "after"),
		Before: rapid.Int64Range(0, m.model.head(channel).Seq+2).Draw(t, "before"),
		Desc:   rapid.Bool().Draw(t, "desc"),
		Limit:  rapid.IntRange(1, 40).Draw(t, "limit"),

		MessagesOnly: rapid.Bool().Draw(t, "messages only"), HeadersOnly: rapid.Bool().Draw(t, "headers only"),
	}
	// Contents may or may not be folded, so their total size can't be compared with a limit.
	m.same(t, fmt.Sprintf("entries %+v", r), pick(log, r), m.entries(t, channel, r))
}

func (m *machine) checkLookups(t *rapid.T) {
	channel := m.channel(t)
	log := m.model.logs[channel]
	keys := []message.ClientKey{{FromID: m.users[0], ClientMsgID: "none"}}
	var seqs []int64
	var sends []message.Entry
	for i := range log {
		keys, seqs = append(keys, keyOf(&log[i])), append(seqs, log[i].Seq)
		switch log[i].Kind {
		case message.KindSend:
			sends = append(sends, log[i])
		case message.KindExpired:
			m.checkExpired(t, &log[i])
		case message.KindEdit, message.KindRecall, message.KindComplete, message.KindCancel, message.KindFail, message.KindAccess:
		}
	}
	found, err := m.ByClientKeys(t.Context(), channel, keys)
	if err != nil {
		t.Fatalf("by client keys: %v", err)
	}
	var got []message.Entry
	for _, e := range found {
		got = append(got, e)
	}
	m.same(t, "by client keys", log, bySeq(got))
	m.settle(t, channel)
	if got, err = m.Messages(t.Context(), places(channel, seqs...)); err != nil {
		t.Fatalf("messages: %v", err)
	}
	m.same(t, "messages", sends, bySeq(got))
	for _, want := range sends {
		one, ok, err := m.Message(t.Context(), channel, want.MsgID)
		if err != nil || !ok {
			t.Fatalf("message %s: %v, %v", want.MsgID, ok, err)
		}
		m.same(t, "message", []message.Entry{want}, []message.Entry{one})
	}
}

func (m *machine) checkTargets(t *rapid.T) {
	for _, e := range m.model.logs[m.channel(t)] {
		if e.Kind == message.KindSend {
			want, _ := m.model.target(e.ChannelID, e.MsgID)
			wantTarget(t, m.fixture, want)
		}
	}
}

func (m *machine) checkPending(t *rapid.T) {
	channel := m.channel(t)
	wantPending(t, m.fixture, channel, m.model.pending(channel)...)
	end := m.model.head(channel).Seq + 2
	after, before := rapid.Int64Range(0, end).Draw(t, "after"), rapid.Int64Range(0, end).Draw(t, "before")
	got, err := m.Changed(t.Context(), channel, after, before, 1000, 0)
	if err != nil {
		t.Fatalf("changed after %d and before %d: %v", after, before, err)
	}
	equal(t, "changed", m.model.changed(channel, after, before), got)
}

func (m *machine) checkHeads(t *rapid.T) {
	for _, c := range m.channels {
		if d := cmp.Diff(m.model.head(c), m.head(t, c)); d != "" {
			t.Fatalf("head of %s (-want +got):\n%s", c, d)
		}
	}
}

func (m *machine) reopenRarely(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "reopen at 0") == 0 {
		m.rows.reopen(t)
	}
}
