package queues

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// name identifies a message by its topic and its mark.
type name struct{ topic, mark string }

// spot is a partition of a topic as one group sees it.
type spot struct {
	topic, group string
	partition    int
}

// held names a delivery: sessions of other groups may have equal tokens.
type held struct{ session, token string }

// message is everything known about one message.
type message struct {
	name

	requested []*Op // produces and schedules
	changes   []*Op // cancels and reschedules
	// ids are all ids with which the message was seen. The value is the place where each was first
	// seen.
	ids  map[string]string
	fate map[string]*fate // by group
}

// fate is the history and the final state of a message in a group.
type fate struct {
	deliveries []*Delivery // in order of time
	settled    []*Op       // in order of their begin
	dead       []*Stored
	// places are where Redis has the message at the end, if the group has not settled it.
	places []string
}

// model is a history and a truth, arranged by message.
type model struct {
	h *History
	t *Truth

	topics   map[string]*Topic
	messages map[name]*message
	byID     map[[2]string]*message // by topic and message id
	streams  map[string]*Stream
	sessions map[string]*session
	// byToken are the settlements, extensions and begun marks of each delivery, bySession the
	// requests about all that a session has.
	byToken   map[held][]*Op
	bySession map[string][]*Op
	leases    map[spot][]*Lease // in order of time
}

func newModel(h *History, t *Truth) *model {
	m := &model{
		h: h, t: t, topics: make(map[string]*Topic), messages: make(map[name]*message), byID: make(map[[2]string]*message),
		streams: make(map[string]*Stream), sessions: make(map[string]*session), leases: make(map[spot][]*Lease),
		byToken: make(map[held][]*Op), bySession: make(map[string][]*Op),
	}
	for i := range h.Topics {
		m.topics[h.Topics[i].Name] = &h.Topics[i]
	}
	for i := range h.Streams {
		m.streams[h.Streams[i].ID] = &h.Streams[i]
	}
	m.addSessions()
	for i := range h.Leases {
		l := &h.Leases[i]
		key := spot{l.Topic, l.Group, l.Partition}
		m.leases[key] = append(m.leases[key], l)
	}
	m.addHistory()
	m.addTruth()
	m.doubtLateAcks()
	return m
}

// doubtLateAcks makes the outcome unknown of acks of earlier deliveries that were accepted amid a
// fault. A node that had no answer to its first try, and hears later that the message is settled,
// takes the ack as done.
func (m *model) doubtLateAcks() {
	for _, msg := range m.messages {
		for _, f := range msg.fate {
			for i, op := range f.settled {
				later := slices.ContainsFunc(f.deliveries, func(d *Delivery) bool { return d.Gen > op.Gen && d.At < op.Begin })
				if op.Kind != Ack || op.Outcome != chaos.OK || !later || !m.amidFault(op.Begin, op.End) {
					continue
				}
				doubtful := *op
				doubtful.Outcome = chaos.Unknown
				f.settled[i] = &doubtful
			}
		}
	}
}

// amidFault reports whether something was broken, besides lost replies, between two times.
func (m *model) amidFault(from, to int64) bool {
	return slices.ContainsFunc(m.h.Faults, func(f chaos.Fault) bool {
		return f.Name != string(chaos.LostReplies) && f.Begin <= to && from <= f.End+recovery
	})
}

func (m *model) addHistory() {
	for i := range m.h.Ops {
		op := &m.h.Ops[i]
		if op.Outcome == chaos.OK && m.rolledBack(op.Begin, op.End) {
			forgot := *op
			forgot.Outcome, forgot.MessageID, op = chaos.Unknown, "", &forgot
		}
		if op.Kind.settles() && op.Reason == "DELIVERY_GONE" {
			forgot := *op // it, or an earlier try of the server's, may be what settled the message
			forgot.Outcome, op = chaos.Unknown, &forgot
		}
		switch {
		case op.Kind.produces():
			msg := m.message(op.Topic, op.Mark)
			msg.requested = append(msg.requested, op)
			m.addID(msg, op.MessageID, "answered to "+op.ID)
		case op.Kind == Cancel, op.Kind == Reschedule:
			msg := m.message(op.Topic, op.Mark)
			msg.changes = append(msg.changes, op)
		case op.Kind == Leave, op.Token == "":
			m.bySession[op.Session] = append(m.bySession[op.Session], op)
		default:
			m.byToken[held{op.Session, op.Token}] = append(m.byToken[held{op.Session, op.Token}], op)
			if op.Kind.settles() {
				f := m.message(op.Topic, op.Mark).in(op.Group)
				f.settled = append(f.settled, op)
			}
		}
	}
	for i := range m.h.Deliveries {
		d := &m.h.Deliveries[i]
		msg := m.message(d.Topic, d.Mark)
		if !m.rolledBack(d.At, d.At) {
			m.addID(msg, d.MessageID, "delivered to "+d.Client)
		}
		f := msg.in(d.Group)
		f.deliveries = append(f.deliveries, d)
	}
}

func (m *model) addTruth() {
	for i := range m.t.Partitions {
		p := &m.t.Partitions[i]
		lie := func(list []Stored, group, where string) {
			for k := range list {
				msg := m.message(p.Topic, list[k].Mark)
				m.addID(msg, list[k].MessageID, where)
				groups := []string{group}
				if group == "" {
					groups = m.groups(p.Topic)
				}
				for _, g := range groups {
					msg.in(g).places = append(msg.in(g).places, where)
				}
			}
		}
		lie(p.Delayed, "", "delayed")
		for k := range p.Groups {
			lie(p.unsettled(&p.Groups[k]), p.Groups[k].Group, "unsettled")
		}
		for k := range p.Entries {
			m.addID(m.message(p.Topic, p.Entries[k].Mark), p.Entries[k].MessageID, "in the stream")
		}
		for k := range p.Dead {
			msg := m.message(p.Topic, p.Dead[k].Mark)
			m.addID(msg, p.Dead[k].MessageID, "a dead letter")
			f := msg.in(p.Dead[k].Group)
			f.dead = append(f.dead, &p.Dead[k])
		}
	}
}

func (m *model) groups(topic string) []string {
	if t := m.topics[topic]; t != nil {
		return t.Groups
	}
	return nil
}

// unsettled returns the entries that a group has not settled: the open ones and those that it has
// not looked at.
func (p *Partition) unsettled(g *Group) []Stored {
	var found []Stored
	sent := ordinal(g.Sent)
	for i := range p.Entries {
		ord := ordinal(p.Entries[i].ID)
		_, open := slices.BinarySearch(g.Open, ord)
		if only := p.Entries[i].Group; (open || ord > sent) && (only == "" || only == g.Group) {
			found = append(found, p.Entries[i])
		}
	}
	return found
}

// message returns the message with a name. It creates it if it does not exist.
func (m *model) message(topic, mark string) *message {
	key := name{topic, mark}
	msg := m.messages[key]
	if msg == nil {
		msg = &message{name: key, ids: make(map[string]string), fate: make(map[string]*fate)}
		m.messages[key] = msg
	}
	return msg
}

func (m *model) addID(msg *message, id, where string) {
	if id == "" {
		return
	}
	if _, ok := msg.ids[id]; !ok {
		msg.ids[id] = where
	}
	m.byID[[2]string{msg.topic, id}] = msg
}

// in returns the fate of the message in a group. It creates it if it does not exist.
func (msg *message) in(group string) *fate {
	f := msg.fate[group]
	if f == nil {
		f = new(fate)
		msg.fate[group] = f
	}
	return f
}

// id returns an id of the message, or "" if none is known.
func (msg *message) id() string {
	for id := range msg.ids {
		return id
	}
	return ""
}

func (msg *message) partition() int {
	text, _, _ := strings.Cut(msg.id(), "-")
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// place returns the µs in the message's id, which is its place in the log unless it was scheduled.
func (msg *message) place() int64 {
	_, us, _ := strings.Cut(msg.id(), "-")
	return number(strings.TrimSuffix(us, "d"))
}

func (msg *message) key() string {
	if len(msg.requested) > 0 {
		return msg.requested[0].Key
	}
	return ""
}

// scheduled reports whether the message was produced by Schedule. Such messages have no order
// within their key.
func (msg *message) scheduled() bool {
	return len(msg.requested) > 0 && msg.requested[0].Kind == Schedule
}

// accepted reports whether a call that adds the message succeeded.
func (msg *message) accepted() bool {
	return slices.ContainsFunc(msg.requested, func(op *Op) bool { return op.Outcome == chaos.OK })
}

// possiblyAccepted reports whether the message was or may have been accepted.
func (msg *message) possiblyAccepted() bool {
	return slices.ContainsFunc(msg.requested, func(op *Op) bool { return op.Outcome != chaos.Failed })
}

// cancelled reports whether the message may have been cancelled.
func (msg *message) cancelled() bool {
	return slices.ContainsFunc(msg.changes, func(op *Op) bool {
		// A cancellation that fails in one group may succeed in another one.
		return op.Kind == Cancel && (op.Outcome != chaos.Failed || op.Reason != "MESSAGE_NOT_FOUND")
	})
}

// acked reports whether the message was acknowledged in the group (did) and whether it may have
// been (may).
func (f *fate) acked() (did, may bool) {
	for _, op := range f.settled {
		if op.Kind != Ack {
			continue
		}
		did = did || op.Outcome == chaos.OK
		may = may || op.Outcome != chaos.Failed
	}
	return did, may
}

// possiblyReturned reports whether the message may have been returned to the queue: whether a
// settlement of one of the kinds (Nack, Release) was requested before a time and may have been
// accepted.
func (f *fate) possiblyReturned(before int64, kinds ...Kind) bool {
	return slices.ContainsFunc(f.settled, func(op *Op) bool {
		return op.Begin < before && op.Outcome != chaos.Failed && slices.Contains(kinds, op.Kind)
	})
}

// rolledBack reports whether Redis may have forgotten changes between from and to (History.Past).
func (m *model) rolledBack(from, to int64) bool {
	return slices.ContainsFunc(m.h.Past, func(w Window) bool { return w.From <= to && from <= w.To })
}

// fromRolledBack reports whether a delivery may have been sent in a time that Redis has forgotten,
// though it was read later. That is impossible if its stream began after that time.
func (m *model) fromRolledBack(d *Delivery) bool {
	s := m.streams[d.Stream]
	return slices.ContainsFunc(m.h.Past, func(w Window) bool {
		return w.From <= d.At && (s == nil || s.Begin <= w.To) && m.heldUp(d.Stream, w.From, d.At)
	})
}

// holds are the faults that hold back deliveries to a consumer and release them afterwards.
var holds = []chaos.FaultName{chaos.NodeStop, chaos.NodeIsolate, chaos.StallRedis, ConsumerStop}

// heldUp reports whether deliveries to a stream may have been held back between two times. It
// returns true for an unknown stream, and for one that reads slowly.
func (m *model) heldUp(stream string, from, to int64) bool {
	s := m.streams[stream]
	if s == nil || s.Slow {
		return true
	}
	const grace = int64(2 * time.Second)
	return slices.ContainsFunc(m.h.Faults, func(f chaos.Fault) bool {
		return slices.Contains(holds, chaos.FaultName(f.Name)) && (f.Target == s.Addr || f.Target == s.Client) &&
			f.Begin <= to && from <= f.End+grace
	})
}

// sorted returns the messages sorted by topic and mark.
func (m *model) sorted() []*message {
	all := make([]*message, 0, len(m.messages))
	for _, msg := range m.messages {
		all = append(all, msg)
	}
	slices.SortFunc(all, func(a, b *message) int { return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.mark, b.mark)) })
	return all
}
