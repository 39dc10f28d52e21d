package messages

import (
	"slices"

	"github.com/parleyhq/parley/chaos"
)

// The names of broken promises about messages that expire.
const (
	// SeqReused: two messages were acknowledged with one seq.
	SeqReused chaos.Name = "seq-reused"
	// KeyForgotten: a repeated send was not answered with the seq of the first one.
	KeyForgotten chaos.Name = "key-forgotten"
	// SilentHole: a list or a stream lacks a message that has not expired, and does not say so.
	SilentHole chaos.Name = "silent-hole"
	// KeptTooFew: a message expired that the retention keeps.
	KeptTooFew chaos.Name = "kept-too-few"
	// KeptTooLong: a channel shows more messages than its retention keeps.
	KeptTooLong chaos.Name = "kept-too-long"
	// ExpiredShown: a message was shown after a client had been told that it had expired.
	ExpiredShown chaos.Name = "expired-shown"
)

// checkTrims checks the calls of the channels whose messages expire.
func (c *checker) checkTrims() {
	calls := make(map[string][]*Trim)
	for i := range c.h.Trims {
		calls[c.h.Trims[i].Channel] = append(calls[c.h.Trims[i].Channel], &c.h.Trims[i])
	}
	for _, of := range calls {
		c.checkTrimSends(of)
		asked := firstAsked(of)
		for _, t := range of {
			if t.Kind != Send && t.Outcome == chaos.OK {
				c.checkTrimRead(t, of, asked)
			}
		}
		last := of[len(of)-1]
		if c.h.Touched != 0 && (!last.Final || last.Outcome != chaos.OK) {
			c.Reportf(chaos.Liveness, last.Channel, last.End, "it could not be listed though nothing was broken: %s", last.Err)
		}
		if n := len(last.Seqs); last.Final && n > keep+keepMore {
			c.Reportf(KeptTooLong, last.Channel, last.End, "it shows %d messages, a minute after everything was mended, and keeps %d", n, keep)
		}
	}
}

// checkTrimSends checks the answers to the sends of a channel.
func (c *checker) checkTrimSends(calls []*Trim) {
	seqs, ids := make(map[string]int64), make(map[int64]string)
	for _, t := range calls {
		if t.Kind != Send || t.Outcome != chaos.OK {
			continue
		}
		if id, ok := ids[t.Seq]; ok && id != t.ClientMsgID {
			c.Reportf(SeqReused, t.Channel, t.End, "%d is the seq of %s and of %s", t.Seq, id, t.ClientMsgID)
		}
		if seq, ok := seqs[t.ClientMsgID]; ok && (seq != t.Seq || !t.Duplicate) {
			c.Reportf(KeyForgotten, t.Channel, t.End, "%s is at %d, and was repeated as %d, duplicate %t", t.ClientMsgID, seq, t.Seq, t.Duplicate)
		}
		seqs[t.ClientMsgID], ids[t.Seq] = t.Seq, t.ClientMsgID
	}
}

// firstAsked returns when each message was sent first.
func firstAsked(calls []*Trim) map[string]int64 {
	asked := make(map[string]int64)
	for _, t := range calls {
		if _, ok := asked[t.ClientMsgID]; !ok {
			asked[t.ClientMsgID] = t.Begin
		}
	}
	return asked
}

// checkTrimRead checks a list, or a stream, of a channel with the given calls. asked is the result
// of firstAsked. All entries of such a channel are messages.
func (c *checker) checkTrimRead(t *Trim, calls []*Trim, asked map[string]int64) {
	var owed, head, gone int64
	for _, other := range calls {
		switch {
		case other.Outcome != chaos.OK:
		case other.Kind == Send:
			if other.End < t.Begin-second {
				owed = max(owed, other.Seq)
			}
			if asked[other.ClientMsgID] < t.End { // an earlier call, without an answer, may have stored it
				head = max(head, other.Seq)
			}
		case other.End < t.Begin-second:
			gone = max(gone, other.Oldest)
		}
	}
	if t.Oldest > max(1, head-keep+1) {
		c.Reportf(KeptTooFew, t.Channel, t.End, "%s was told that the oldest entry is %d, and the log ended at %d at most", t.Addr, t.Oldest, head)
	}
	if len(t.Seqs) > 0 && t.Seqs[0] < gone || t.Oldest < gone {
		c.Reportf(ExpiredShown, t.Channel, t.End, "a read at %s begins at %d, after %v; a client had been told that the oldest entry is %d",
			t.Addr, t.Oldest, slices.Concat(t.Seqs[:min(1, len(t.Seqs))]), gone)
	}
	for i, seq := range t.Seqs {
		if i == 0 && seq > t.Oldest || i > 0 && seq != t.Seqs[i-1]+1 {
			c.Reportf(SilentHole, t.Channel, t.End, "a read at %s, from the oldest entry %d on, has %v", t.Addr, t.Oldest, t.Seqs)
			return
		}
	}
	if t.Kind == List && (len(t.Seqs) == 0 && owed > 0 || len(t.Seqs) > 0 && t.Seqs[len(t.Seqs)-1] < owed) {
		c.Reportf(SilentHole, t.Channel, t.End, "a list at %s has %v, and everything up to %d must be shown", t.Addr, t.Seqs, owed)
	}
}

// trimmedSends returns the number of messages in channels whose messages expire.
func (h *History) trimmedSends() int {
	n := 0
	for i := range h.Trims {
		if t := &h.Trims[i]; t.Kind == Send && t.Outcome == chaos.OK && !t.Duplicate {
			n++
		}
	}
	return n
}
