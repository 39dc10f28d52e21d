package storetest

import (
	"slices"

	"github.com/parleyhq/parley/server/internal/message"
)

// model implements the contract of message.Store in memory, without durability.
type model struct {
	logs map[string][]message.Entry
}

// insert models Insert. conflict is the index of the conflicting entry in the batch, or -1.
func (m *model) insert(batch []message.Entry) (conflict int) {
	for i, e := range batch {
		log := m.logs[e.ChannelID]
		if e.Seq != int64(len(log))+1 || slices.ContainsFunc(log, func(o message.Entry) bool { return keyOf(&o) == keyOf(&e) }) {
			return i
		}
		m.logs[e.ChannelID] = append(log, e)
	}
	return -1
}

// apply models Apply.
func (m *model) apply(change *message.Entry) {
	log := m.logs[change.ChannelID]
	target := &log[change.TargetSeq-1]
	if change.Seq > target.ChangedSeq {
		whole := *change
		whole.Pending = true
		*target = changed(*target, whole)
	}
	log[change.Seq-1] = applied(log[change.Seq-1])
	if change.Kind != message.KindRecall {
		return
	}
	for i := range log {
		if e := &log[i]; e.Pending && e.TargetSeq == target.Seq && e.Seq < change.Seq {
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
	return message.Head{Seq: last.Seq, Count: last.Count, MsgTime: last.MsgTime, Bytes: last.Bytes, Rev: last.Rev}
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
		return e.Status == message.StatusSent || e.ChangedSeq <= after || before > 0 && e.ChangedSeq >= before
	})
	slices.SortFunc(found, func(a, b message.Entry) int { return int(a.ChangedSeq - b.ChangedSeq) })
	return found
}

// changes returns the edits and recalls of a log.
func (m *model) changes(channel string) []message.Entry {
	var changes []message.Entry
	for _, e := range m.logs[channel] {
		if e.Kind != message.KindSend {
			changes = append(changes, e)
		}
	}
	return changes
}

// editable returns a channel's sends that are not recalled, with their edits applied.
func (m *model) editable(channel string) []message.Entry {
	log := slices.Clone(m.logs[channel])
	message.Fold(log, log)
	return slices.DeleteFunc(log, func(e message.Entry) bool {
		return e.Kind != message.KindSend || e.Status == message.StatusRecalled
	})
}
