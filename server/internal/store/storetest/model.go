package storetest

import (
	"cmp"
	"slices"

	"github.com/parleyhq/parley/server/internal/message"
)

// model implements the contract of message.Store in memory, without durability. A log is in
// ascending order of seq; what Delete removed is missing.
type model struct {
	logs       map[string][]message.Entry
	boundaries map[string]message.Boundary
}

// insert models Insert. conflict is the index of the conflicting entry in the batch, or -1.
func (m *model) insert(batch []message.Entry) (conflict int) {
	for i, e := range batch {
		log := m.logs[e.ChannelID]
		if e.Seq != m.head(e.ChannelID).Seq+1 || slices.ContainsFunc(log, func(o message.Entry) bool { return keyOf(&o) == keyOf(&e) }) {
			return i
		}
		m.logs[e.ChannelID] = append(log, e)
	}
	return -1
}

// at returns the entry at a place of a log, or nil if there is none.
func (m *model) at(channel string, seq int64) *message.Entry {
	log := m.logs[channel]
	i, found := slices.BinarySearchFunc(log, seq, func(e message.Entry, seq int64) int { return cmp.Compare(e.Seq, seq) })
	if !found {
		return nil
	}
	return &log[i]
}

// apply models Apply.
func (m *model) apply(change *message.Entry) {
	if target := m.at(change.ChannelID, change.TargetSeq); target != nil && target.Kind == message.KindSend && change.Seq > target.ChangedSeq {
		whole := *change
		whole.Pending = true
		*target = changed(*target, whole)
		if change.Erases() {
			target.Traceparent = ""
		}
	}
	if own := m.at(change.ChannelID, change.Seq); own != nil {
		*own = applied(*own)
	}
	if change.Kind != message.KindRecall {
		return
	}
	log := m.logs[change.ChannelID]
	for i := range log {
		if e := &log[i]; e.Pending && e.TargetSeq == change.TargetSeq && e.Seq < change.Seq {
			*e = blanked(*e)
		}
	}
}

// head models Head.
func (m *model) head(channel string) message.Head {
	log := m.logs[channel]
	if len(log) == 0 {
		return message.Head{}
	}
	last := log[len(log)-1]
	return message.Head{
		Seq: last.Seq, Count: last.Count, MsgTime: last.MsgTime, Bytes: last.Bytes, Rev: last.Rev, Boundary: m.boundaries[channel],
	}
}

// alter replaces the entries of a log with after < seq < before.
func (m *model) alter(channel string, after, before int64, to func(message.Entry) message.Entry) {
	log := m.logs[channel]
	for i := range log {
		if log[i].Seq > after && log[i].Seq < before {
			log[i] = to(log[i])
		}
	}
}

// delete models Delete.
func (m *model) delete(channel string, after, before int64) {
	m.logs[channel] = slices.DeleteFunc(m.logs[channel], func(e message.Entry) bool { return e.Seq > after && e.Seq < before })
}

// scrub models Scrub.
func (m *model) scrub(channel, userID string, seqs []int64) {
	for _, seq := range seqs {
		if e := m.at(channel, seq); e != nil && e.Kind != message.KindSend && e.FromID == userID {
			e.FromID, e.ClientMsgID, e.Digest, e.Traceparent = message.ErasedUser, message.ErasedKey(seq), nil, ""
		}
	}
}

// target models Target. The bool is false if there is no such message.
func (m *model) target(channel, msgID string) (message.Entry, bool) {
	log := slices.Clone(m.logs[channel])
	message.Fold(log, log)
	for _, e := range log {
		if e.Kind == message.KindSend && e.MsgID == msgID {
			return e, true
		}
	}
	return message.Entry{}, false
}

// pending models Pending.
func (m *model) pending(channel string) []message.Entry {
	return slices.DeleteFunc(slices.Clone(m.logs[channel]), func(e message.Entry) bool { return !e.Pending })
}

// changed models Changed, without limits.
func (m *model) changed(channel string, after, before int64) []message.Entry {
	found := slices.DeleteFunc(slices.Clone(m.logs[channel]), func(e message.Entry) bool {
		return e.Kind != message.KindSend || e.Status <= message.StatusSent || e.ChangedSeq <= after || before > 0 && e.ChangedSeq >= before
	})
	slices.SortFunc(found, func(a, b message.Entry) int { return int(a.ChangedSeq - b.ChangedSeq) })
	return found
}

// changes returns the changes of a log.
func (m *model) changes(channel string) []message.Entry {
	var changes []message.Entry
	for _, e := range m.logs[channel] {
		if e.Kind.Changes() {
			changes = append(changes, e)
		}
	}
	return changes
}

// editable returns a channel's sends that are not recalled, with their changes applied.
func (m *model) editable(channel string) []message.Entry {
	log := slices.Clone(m.logs[channel])
	message.Fold(log, log)
	return slices.DeleteFunc(log, func(e message.Entry) bool {
		return e.Kind != message.KindSend || e.Status == message.StatusRecalled
	})
}
