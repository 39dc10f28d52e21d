package messages

import (
	"cmp"
	"maps"
	"slices"

	"github.com/parleyhq/parley/chaos"
)

// checkLogs checks the seqs, counts, times and ids of each log, and compares each entry with the
// call that requested it.
func (c *checker) checkLogs() {
	for channel, log := range c.logs {
		ids := make(map[string]int64)
		keys := make(map[clientKey]int64)
		var count int64
		for i := range log {
			e := &log[i]
			if e.Seq != int64(i)+1 {
				c.Reportf(Density, channel, 0, "entry %d of the log has seq %d", i+1, e.Seq)
			}
			if e.Kind == entrySend {
				count++
				if at, ok := ids[e.MsgID]; ok {
					c.Reportf(Duplicate, channel, 0, "message %s is at %d and at %d", e.MsgID, at, e.Seq)
				}
				ids[e.MsgID] = e.Seq
			}
			if e.Count != count {
				c.Reportf(Count, channel, 0, "entry %d counts %d messages, the log holds %d up to it", e.Seq, e.Count, count)
				count = e.Count
			}
			if i > 0 && e.Time.Before(log[i-1].Time) {
				c.Reportf(Order, channel, 0, "msg_time goes back by %s at %d", log[i-1].Time.Sub(e.Time), e.Seq)
			}
			key := clientKey{channel, e.From, e.ClientMsgID}
			if at, ok := keys[key]; ok {
				c.Reportf(Duplicate, channel, 0, "%s of %s is at %d and at %d", e.ClientMsgID, e.From, at, e.Seq)
			}
			keys[key] = e.Seq
			c.checkEntry(e)
		}
	}
}

// checkEntry compares one entry with the call that requested it.
func (c *checker) checkEntry(e *Entry) {
	p := c.payloadOf(e)
	if p == nil && c.abandoned(e) {
		return
	}
	if p == nil {
		c.Reportf(Unsent, e.Channel, 0, "nobody asked for entry %d: %+v", e.Seq, *e)
		return
	}
	kinds := map[int]Kind{
		entrySend: Send, entryEdit: Edit, entryRecall: Recall, entryComplete: CloseMessage, entryCancel: CloseMessage, entryFail: CloseMessage,
	}
	if kinds[e.Kind] != p.kind && (e.Kind != entryCancel || p.kind != CancelMessage) || closedStatus[e.Kind] != p.ops[0].Status {
		c.Reportf(Unsent, e.Channel, 0, "entry %d is a %s, and a %s was asked for", e.Seq, kinds[e.Kind], p.kind)
		return
	}
	if e.Kind == entrySend {
		c.checkMessage(c.messages[messageKey{e.Channel, e.Seq}])
		return
	}
	target := c.messages[messageKey{e.Channel, e.TargetSeq}]
	if target == nil || e.MsgID != p.target || target.entry.MsgID != p.target {
		c.Reportf(Unsent, e.Channel, 0, "entry %d is about %d, %s; it was asked to be about %s", e.Seq, e.TargetSeq, e.MsgID, p.target)
		return
	}
	if open := target.last(e.Seq-1).status == StatusOpen; e.Kind != entryRecall && open != (closedStatus[e.Kind] != 0) {
		c.Reportf(Changed, e.Channel, 0, "entry %d, a %s, changes message %d, which is open: %t", e.Seq, p.kind, e.TargetSeq, open)
	}
	if target.recalled != 0 && e.Seq > target.recalled {
		c.Reportf(Changed, e.Channel, 0, "entry %d changes message %d, which %d recalled", e.Seq, e.TargetSeq, target.recalled)
	}
	// Every change was applied to its message, which has the text.
	switch {
	case e.Content != "" && target.recalled > e.Seq:
		c.Reportf(Recalled, e.Channel, 0, "the edit at %d still has its text, though %d recalled the message", e.Seq, target.recalled)
	case e.Content != "" || e.Pending:
		c.Reportf(Changed, e.Channel, 0, "entry %d is not applied: pending %t, text %q", e.Seq, e.Pending, e.Content)
	}
}

// checkMessage checks the final state of a message in the store.
func (c *checker) checkMessage(s *subject) {
	e, want := s.entry, s.final()
	if e.ChangedSeq != want.seq {
		c.Reportf(Changed, e.Channel, 0, "message %d was changed last by %d, and %d is the last change", e.Seq, e.ChangedSeq, want.seq)
		return
	}
	if e.Status != want.status {
		c.Reportf(Changed, e.Channel, 0, "message %d has the status %d, and %d made it %d", e.Seq, e.Status, want.seq, want.status)
	}
	switch {
	case !want.known:
	case want.status == StatusRecalled:
		if e.Content != "" || len(e.Metadata) > 0 || len(e.Digest) > 0 {
			c.Reportf(Recalled, e.Channel, 0, "message %d was recalled by %d and lies in the store with %q, %v, digest %x", e.Seq,
				s.recalled, e.Content, e.Metadata, e.Digest)
		}
	case e.Content != want.content || !maps.Equal(e.Metadata, want.metadata):
		name := Unsent
		switch {
		case want.status == StatusEdited:
			name = Changed
		case want.status != StatusSent:
			name = WrongFinal
		}
		c.Reportf(name, e.Channel, 0, "message %d is %q %v, and %q %v was asked for at %d", e.Seq, e.Content, e.Metadata,
			want.content, want.metadata, want.seq)
	}
}

// checkWrites compares every answer to a write with the log.
func (c *checker) checkWrites() {
	entries := make(map[clientKey]*Entry)
	for channel, log := range c.logs {
		for i := range log {
			entries[clientKey{channel, log[i].From, log[i].ClientMsgID}] = &log[i]
		}
	}
	for key, p := range c.asked {
		e := entries[key]
		denied := 0
		for _, op := range p.ops {
			switch op.Outcome {
			case chaos.OK:
				c.checkAnswer(op, e)
			case chaos.Failed:
				denied++
			case chaos.Unknown:
			}
		}
		if e != nil && denied == len(p.ops) {
			c.Reportf(StoredAfterError, key.channel, p.ops[0].End, "%s: %s %s; the log has it at %d", p.ops[0].brief(), p.ops[0].Code,
				p.ops[0].Err, e.Seq)
		}
	}
}

// checkAnswer checks the answer to a successful write. e is the entry with its client_msg_id, or
// nil if the log has none.
func (c *checker) checkAnswer(op *Op, e *Entry) {
	c.checkEpoch(op)
	c.checkChanged(op)
	if op.Kind == Recall && op.Duplicate && e == nil {
		s := c.byID[op.MsgID]
		if s == nil || s.recalled != op.Seq {
			c.Reportf(WrongResponse, op.Channel, op.End, "%s was told that %d is the recall; it is not", op.brief(), op.Seq)
			return
		}
		if at := c.logs[op.Channel][op.Seq-1].Time.UnixMilli(); op.TimeMS != 0 && op.TimeMS != at {
			c.Reportf(WrongResponse, op.Channel, op.End, "%s was told the time %d; the recall at %d has %d", op.brief(), op.TimeMS, op.Seq, at)
		}
		return
	}
	switch {
	case e == nil:
		c.Reportf(Loss, op.Channel, op.End, "%s was acknowledged as %d and is not in the log", op.brief(), op.Seq)
	case e.Seq != op.Seq:
		c.Reportf(Duplicate, op.Channel, op.End, "%s was acknowledged as %d and is at %d", op.brief(), op.Seq, e.Seq)
	case op.Kind == Send && op.MsgID != e.MsgID, op.Kind == Send && op.Count != e.Count:
		c.Reportf(WrongResponse, op.Channel, op.End, "%s was told count %d; the log has %s, %d", op.brief(), op.Count, e.MsgID, e.Count)
	case op.TimeMS != 0 && op.TimeMS != e.Time.UnixMilli():
		c.Reportf(WrongResponse, op.Channel, op.End, "%s was told the time %d; the log has %d", op.brief(), op.TimeMS, e.Time.UnixMilli())
	}
}

// checkEpoch reports an answer with an epoch that is not the store's. It ignores answers without
// an epoch, because the SDK does not always report it.
func (c *checker) checkEpoch(op *Op) {
	if op.Epoch != "" && c.t.Epoch != "" && op.Epoch != c.t.Epoch {
		c.Reportf(WrongResponse, op.Channel, op.End, "%s told the epoch %s, the store's is %s", op.brief(), op.Epoch, c.t.Epoch)
	}
}

// checkChanged checks the message in the answer to an edit or a recall: it must be the target, and
// at least as new as the call's entry.
func (c *checker) checkChanged(op *Op) {
	for _, i := range op.Copies {
		cp := &c.h.Copies[i]
		if cp.MsgID != op.MsgID || cp.Channel != op.Channel {
			c.Reportf(WrongCopy, op.Channel, op.End, "%s was answered with %s of %s", op.brief(), cp.MsgID, cp.Channel)
		}
		if cp.ChangedSeq < op.Seq {
			c.Reportf(WrongResponse, op.Channel, op.End, "%s was answered with the message as %d made it, and %d is the change", op.brief(),
				cp.ChangedSeq, op.Seq)
		}
	}
}

// checkRealTime reports writes that precede, in the log, a write that was acknowledged before they
// began.
func (c *checker) checkRealTime() {
	entries := make(map[clientKey]int64)
	for channel, log := range c.logs {
		for i := range log {
			entries[clientKey{channel, log[i].From, log[i].ClientMsgID}] = log[i].Seq
		}
	}
	for key, p := range c.asked {
		seq, ok := entries[key]
		if !ok {
			continue
		}
		// Only the first call with this client_msg_id counts: later ones may find its entry.
		first := slices.MinFunc(p.ops, func(a, b *Op) int { return cmp.Compare(a.Begin, b.Begin) })
		if before := c.acks[key.channel].by(first.Begin); before >= seq {
			c.Reportf(Order, key.channel, first.Begin, "%s stands at %d, and %d was acknowledged before it began", first.brief(), seq, before)
		}
	}
}

// checkBatches checks that the stored items of each batch are a prefix, in order, per channel.
func (c *checker) checkBatches() {
	type part struct {
		batch   int64
		channel string
	}
	parts := make(map[part][]*Op)
	for i := range c.h.Ops {
		if op := &c.h.Ops[i]; op.Batch != 0 && !op.Repeat {
			parts[part{op.Batch, op.Channel}] = append(parts[part{op.Batch, op.Channel}], op)
		}
	}
	seqs := make(map[clientKey]int64)
	for channel, log := range c.logs {
		for i := range log {
			seqs[clientKey{channel, log[i].From, log[i].ClientMsgID}] = log[i].Seq
		}
	}
	for p, ops := range parts {
		slices.SortFunc(ops, func(a, b *Op) int { return cmp.Compare(a.Item, b.Item) })
		var last int64
		var missing *Op
		for _, op := range ops {
			key := clientKey{op.Channel, op.From, op.ClientMsgID}
			if len(c.asked[key].ops) > 1 {
				continue // sent again outside the batch, so its seq says nothing about the batch
			}
			seq, ok := seqs[key]
			switch {
			case !ok:
				missing = op
			case missing != nil:
				c.Reportf(Prefix, p.channel, op.End, "%s is at %d, and %s before it in the batch is nowhere", op.brief(), seq, missing.brief())
			case seq < last:
				c.Reportf(Prefix, p.channel, op.End, "%s is at %d, before an earlier item of its batch at %d", op.brief(), seq, last)
			}
			last = max(last, seq)
		}
	}
}
