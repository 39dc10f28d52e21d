package storetest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/message"
)

// drawRange draws exclusive bounds of a range that ends before the limit.
func drawRange(t *rapid.T, limit int64) (after, before int64) {
	before = rapid.Int64Range(1, limit).Draw(t, "before")
	return rapid.Int64Range(0, before-1).Draw(t, "after"), before
}

// moveTo moves the boundary of a log.
func (m *machine) moveTo(t *rapid.T, id string, oldest int64) {
	// The entry before the boundary is there: only what is below an earlier boundary was deleted.
	to := message.Boundary{Oldest: oldest, Expired: m.model.at(id, oldest-1).Count}
	m.rows.ensure(t, id, 1)
	// Each deletion and each creation after it changes the settings.
	m.rows.moveBoundary(t, id, 2*m.deleted[id], to)
	m.model.boundaries[id] = to
}

func (m *machine) expireRandom(t *rapid.T) {
	id := m.channel(t)
	head := m.model.head(id)
	lowest := max(head.Oldest, 1) + 1
	if lowest > head.Seq+1 {
		t.Skip("all entries have expired")
	}
	m.moveTo(t, id, rapid.Int64Range(lowest, head.Seq+1).Draw(t, "oldest"))
}

func (m *machine) stripRandom(t *rapid.T) {
	id := m.channel(t)
	after, before := drawRange(t, max(m.model.head(id).Oldest, 1))
	must(t, m.Strip(t.Context(), id, after, before))
	m.model.alter(id, after, before, restripped)
}

// restripped is stripped, except that it leaves what was stripped before as it is.
func restripped(e message.Entry) message.Entry {
	if e.Kind == message.KindExpired {
		return e
	}
	return stripped(e)
}

// deleteRandom deletes entries before the first one that was not stripped, and not the last one.
func (m *machine) deleteRandom(t *rapid.T) {
	id := m.channel(t)
	limit := max(m.model.head(id).Seq, 1)
	for _, e := range m.model.logs[id] {
		if e.Kind != message.KindExpired {
			limit = min(limit, e.Seq)
		}
	}
	after, before := drawRange(t, limit)
	must(t, m.Delete(t.Context(), id, after, before))
	m.model.delete(id, after, before)
}

// recreateRandom deletes a channel and creates it again.
func (m *machine) recreateRandom(t *rapid.T) {
	id := m.channel(t)
	head := m.model.head(id)
	if head.Seq == 0 || rapid.IntRange(0, 3).Draw(t, "recreate at 0") != 0 {
		t.Skip("not deleted")
	}
	m.rows.ensure(t, id, 1)
	m.rows.delete(t, id, 2*m.deleted[id])
	if head.Oldest <= head.Seq {
		to := message.Boundary{Oldest: head.Seq + 1, Expired: head.Count}
		m.rows.moveBoundary(t, id, 2*m.deleted[id]+1, to)
		m.model.boundaries[id] = to
	}
	after, before := drawRange(t, head.Seq+1)
	for _, r := range [][2]int64{{after, before}, {0, head.Seq + 1}} {
		must(t, m.Clear(t.Context(), id, r[0], r[1]))
		m.model.alter(id, r[0], r[1], func(e message.Entry) message.Entry {
			e = restripped(e)
			e.FromID, e.ClientMsgID = message.ErasedUser, message.ErasedKey(e.Seq)
			return e
		})
	}
	m.rows.finish(t, id)
	_, err := m.rows.Create(t.Context(), channel.Row{ChannelID: id, CreatedAt: at(30)}, m.users[:1])
	must(t, err)
	m.deleted[id]++
}

func (m *machine) scrubRandom(t *rapid.T) {
	id, user := m.channel(t), rapid.SampledFrom(m.users).Draw(t, "user")
	seqs := rapid.SliceOfN(rapid.Int64Range(1, m.model.head(id).Seq+1), 0, 20).Draw(t, "seqs")
	must(t, m.Scrub(t.Context(), id, user, seqs))
	m.model.scrub(id, user, seqs)
}

func (m *machine) checkSender(t *rapid.T) {
	user := rapid.SampledFrom(m.users).Draw(t, "user")
	var want, got []string
	for _, id := range m.channels {
		for _, e := range m.model.logs[id] {
			if e.FromID == user {
				want = append(want, fmt.Sprint(id, " ", e.Seq))
			}
		}
	}
	found, err := m.BySender(t.Context(), user, 1000)
	must(t, err)
	for i := range found {
		got = append(got, fmt.Sprint(found[i].ChannelID, " ", found[i].Seq))
	}
	slices.Sort(want)
	slices.Sort(got)
	same(t, "by sender", want, got)
}

// checkExpired checks that a stripped message is not found.
func (m *machine) checkExpired(t *rapid.T, e *message.Entry) {
	if _, ok, err := m.Message(t.Context(), e.ChannelID, e.MsgID); ok && e.TargetSeq == 0 || err != nil {
		t.Fatalf("stripped message %s: %v, %v", e.MsgID, ok, err)
	}
	if _, ok, err := targetOf(t.Context(), m, e.ChannelID, e.MsgID); ok && e.TargetSeq == 0 || err != nil {
		t.Fatalf("target %s: %v, %v", e.MsgID, ok, err)
	}
}
