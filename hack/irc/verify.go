package main

import (
	"context"
	"fmt"
	"slices"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// final is how a channel must be at the end.
type final struct {
	channel      int
	name         string
	oldest, head int64
	// messages are the lines that can be read, in order, and counts the number of messages up to each
	// entry of the log.
	messages []int32
	counts   []int64
}

// settled returns how a channel must be, according to the journal, if its log begins at oldest.
func (j *journal) settled(channel int, oldest int64) *final {
	j.mu.Lock()
	defer j.mu.Unlock()
	log := j.logs[channel]
	f := &final{
		channel: channel, name: j.days.channels[channel], oldest: oldest, head: int64(len(log) - 1), counts: make([]int64, len(log)),
	}
	for seq := 1; seq < len(log); seq++ {
		f.counts[seq] = f.counts[seq-1]
		if e := log[seq]; e.line != noLine && e.version == 0 {
			f.counts[seq]++
			if int64(seq) >= oldest {
				f.messages = append(f.messages, e.line)
			}
		}
	}
	return f
}

// statusOf returns the status of a message in a version.
func statusOf(v version) parleyv1.MessageStatus {
	switch v {
	case 0:
		return parleyv1.MessageStatus_MESSAGE_STATUS_SENT
	case recalled:
		return parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED
	default:
		return parleyv1.MessageStatus_MESSAGE_STATUS_EDITED
	}
}

// checkCopy checks that a copy is a message in one of its versions.
func (j *journal) checkCopy(by string, c *copied) {
	if c.line == noLine {
		return // reported before
	}
	l, s := &j.days.lines[c.line], &j.states[c.line]
	log := j.logs[l.channel]
	if int(c.changed) >= len(log) || log[c.changed].line != c.line || c.seq != s.seq {
		j.Wrongf("%s got %s as entry %d, changed by %d", by, l.id, c.seq, c.changed)
		return
	}
	if v := log[c.changed].version; c.hash != hashOf(l.text(v)) || c.status != statusOf(v) {
		j.Wrongf("%s got %s with a wrong text or status %v as of entry %d, which is version %d", by, l.id, c.status, c.changed, v)
	}
}

// checkCopies checks what a reader read meanwhile.
func (r *reader) checkCopies() {
	for i := range r.copies {
		r.checkCopy(fmt.Sprintf("a reader of node %d", r.node), &r.copies[i])
	}
}

// check compares everything that the subscriber got of a channel with the journal: every entry has
// an event, or is covered by a later one because it was replaced, or is gone because it expired.
func (s *subscriber) check(f *final) {
	by := s.name + ", " + f.name
	got, latest := &s.channels[f.channel], make(map[int32]int32)
	log := s.logs[f.channel]
	for i := range got.events {
		d := &got.events[i]
		s.checkCopy(by, &d.copied)
		if d.line == noLine || int(d.seq) >= len(log) {
			s.Wrongf("%s got entry %d of a log that ends at %d", by, d.seq, len(log)-1)
			continue
		}
		e := log[d.seq]
		if e.line != d.line || e.version == 0 != (d.kind == parley.EventSent) || d.changed < d.seq || d.changed < latest[d.line] {
			s.Wrongf("%s got entry %d as %s of %s, changed by %d; it is version %d of %s", by, d.seq, d.kind,
				s.days.lines[d.line].id, d.changed, e.version, s.lineID(e.line))
		}
		latest[d.line] = d.changed
		for seq := d.first; seq < d.seq; seq++ {
			s.checkCovered(by, f, seq)
		}
	}
	for _, g := range got.covered {
		for seq := g.after + 1; seq <= g.to; seq++ {
			s.checkCovered(by, f, int32(seq)) //nolint:gosec // far fewer entries
		}
	}
	for _, g := range got.gaps {
		if g.to >= f.oldest {
			s.Wrongf("%s was told that entries up to %d are gone, and the log begins at %d", by, g.to, f.oldest)
		}
	}
	for _, i := range f.messages {
		if latest[i] != s.states[i].changed {
			s.Wrongf("%s has %s as of entry %d, not of %d", by, s.days.lines[i].id, latest[i], s.states[i].changed)
		}
	}
}

// checkCovered checks an entry that has no event of its own: it is a change, which a later one of
// the same message replaced, or whose message has expired. A message never goes without an event or
// a gap.
func (s *subscriber) checkCovered(by string, f *final, seq int32) {
	e := s.logs[f.channel][seq]
	if e.line == noLine {
		return
	}
	if st := &s.states[e.line]; e.version == 0 || st.changed <= seq && int64(st.seq) >= f.oldest {
		s.Wrongf("%s got no event of entry %d, which is version %d of %s", by, seq, e.version, s.lineID(e.line))
	}
}

func (j *journal) lineID(i int32) string {
	if i == noLine {
		return "nothing known"
	}
	return j.days.lines[i].id
}

// checkMessage compares a message with its last version.
func (j *journal) checkMessage(by string, f *final, i int32, m *parley.Message) {
	l, s := &j.days.lines[i], &j.states[i]
	if m.GetMsgId() != s.msgID || m.GetClientMsgId() != l.id || m.GetFromId() != l.from || m.GetChannelId() != f.name ||
		m.GetContent() != l.text(s.version) || m.GetStatus() != statusOf(s.version) || m.GetChangedSeq() != int64(s.changed) ||
		m.GetSeq() != int64(s.seq) || m.GetCount() != f.counts[s.seq] {
		j.Wrongf("%s has %v; it must be version %d of %s, message %d, changed by %d", by, m, s.version, l.id, f.counts[s.seq], s.changed)
	}
}

// checkPages reads a channel from a node in both directions, and some messages one by one.
func (j *job) checkPages(ctx context.Context, node int, f *final) error {
	for _, up := range []bool{true, false} {
		if err := j.checkList(ctx, node, f, up); err != nil {
			return err
		}
	}
	for k := 0; k < len(f.messages); k += 1 + len(f.messages)/messagesRead {
		i := f.messages[k]
		res, err := j.clients.raw[node].GetMessage(ctx, &parleyv1.GetMessageRequest{ChannelId: f.name, MsgId: j.states[i].msgID})
		if err != nil {
			return fmt.Errorf("node %d does not find %s: %w", node, j.days.lines[i].id, err)
		}
		j.checkMessage(fmt.Sprintf("node %d, a message", node), f, i, res.GetMessage())
	}
	return j.checkExpired(ctx, node, f)
}

// messagesRead is the number of messages that are read one by one of each channel and node.
const messagesRead = 100

// checkList lists a whole channel.
func (j *job) checkList(ctx context.Context, node int, f *final, up bool) error {
	req := &parleyv1.ListMessagesRequest{ChannelId: f.name, PageSize: 1000}
	want := slices.Clone(f.messages)
	by := fmt.Sprintf("node %d, the list of %s", node, f.name)
	if up {
		req.AfterSeq = new(int64)
	} else {
		slices.Reverse(want)
		by += " from its end"
	}
	n := 0
	for {
		page, err := j.clients.list(ctx, node, req)
		if err != nil {
			return fmt.Errorf("%s: %w", by, err)
		}
		if page.GetOldestSeq() != f.oldest || page.GetHeadSeq() != f.head {
			j.Wrongf("%s is from %d to %d, not from %d to %d", by, page.GetOldestSeq(), page.GetHeadSeq(), f.oldest, f.head)
		}
		for _, m := range page.GetMessages() {
			if n < len(want) {
				j.checkMessage(by, f, want[n], m)
			}
			n++
		}
		if page.GetNextPageToken() == "" {
			break
		}
		req.PageToken = page.GetNextPageToken()
	}
	if n != len(want) {
		j.Wrongf("%s has %d messages, not %d", by, n, len(want))
	}
	j.Add("messages listed at the end", n)
	return nil
}

// checkExpired checks that what is before the boundary is gone and said to be.
func (j *job) checkExpired(ctx context.Context, node int, f *final) error {
	if f.oldest < 3 {
		return nil
	}
	after := int64(1)
	_, err := j.clients.raw[node].ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: f.name, AfterSeq: &after})
	if reasonOf(err) != parleyv1.ErrorReason_ERROR_REASON_HISTORY_GONE {
		j.Wrongf("node %d, a list of %s from an expired entry: %v", node, f.name, err)
	}
	log := j.logs[f.channel]
	for seq := int64(1); seq < f.oldest; seq += 1 + f.oldest/messagesRead {
		e := log[seq]
		if e.line == noLine {
			continue
		}
		_, err := j.clients.raw[node].GetMessage(ctx, &parleyv1.GetMessageRequest{ChannelId: f.name, MsgId: j.states[e.line].msgID})
		if reasonOf(err) != parleyv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND {
			j.Wrongf("node %d, %s, which has expired: %v", node, j.days.lines[e.line].id, err)
		}
		j.Add("expired messages looked for", 1)
	}
	return nil
}

// mostRetained is the maximum number of messages of a channel that is trimmed: those that are
// retained, and a tenth or 100 more.
func (j *job) mostRetained() int { return j.Retain + max(j.Retain/10, 100) }

// checkRetained checks that a channel has as many messages as are retained, or up to mostRetained.
func (j *job) checkRetained(f *final) {
	sent := int(f.counts[len(f.counts)-1])
	least, most := min(sent, j.Retain), j.mostRetained()
	if n := len(f.messages); n < least || n > most {
		j.Wrongf("%s has %d messages of %d, and must have %d to %d", f.name, n, sent, least, most)
	}
}
