package messages

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// checkCache checks the final contents of the cached sets, which have the newest messages of each
// channel. Every channel got a message after the last fault was mended, so a cached set must
// include the end of its log.
func (c *checker) checkCache() {
	for channel, values := range c.t.Cache {
		c.checkSet(channel, values)
	}
}

// checkSet checks one cached set: its state at score 0, the messages above, and the marks of
// changed messages below, in ascending order of score.
func (c *checker) checkSet(channel string, values []CachedValue) {
	log := c.logs[channel]
	var state *cachedEntry
	marks := make(map[int64]int64) // the mark's changed_seq by the seq of its message
	var last int64                 // the count of the last message
	for i := range values {
		v := &values[i]
		if v.Score < 0 {
			seq, err := strconv.ParseInt(strings.TrimPrefix(v.Value, "c:"), 10, 64)
			if err != nil {
				c.Reportf(Cache, channel, 0, "the mark at %d can't be read: %s", v.Score, v.Value)
			}
			marks[seq] = -v.Score
			continue
		}
		e, err := v.decode()
		switch {
		case err != nil:
			c.Reportf(Cache, channel, 0, "the value at %d can't be read: %v: %s", v.Score, err, v.Value)
			return
		case c.t.Epoch != "" && e.Epoch != c.t.Epoch:
			c.Reportf(Cache, channel, 0, "the value at %d is of epoch %s, the store is of %s", v.Score, e.Epoch, c.t.Epoch)
		}
		if v.Score == 0 {
			state = &e
			continue
		}
		if e.Seq != v.Score {
			c.Reportf(Cache, channel, 0, "the value at %d says that it is %d", v.Score, e.Seq)
		}
		if last > 0 && e.Count != last+1 {
			c.Reportf(Hole, channel, 0, "the cached set has message %d of the log after message %d", e.Count, last)
		}
		if last = e.Count; e.Seq < 1 || e.Seq > int64(len(log)) {
			c.Reportf(Cache, channel, 0, "the cached set has %d, the log ends at %d", e.Seq, len(log))
			return
		}
		c.checkCached(&e, &log[e.Seq-1])
		if marks[e.Seq] != e.ChangedSeq && (marks[e.Seq] != 0 || e.ChangedSeq != e.Seq) {
			c.Reportf(Cache, channel, 0, "the cached message %d was changed by %d and is marked as changed by %d", e.Seq, e.ChangedSeq, marks[e.Seq])
		}
	}
	c.checkCacheState(channel, state, last)
}

// checkCacheState checks the state of a cached set. count is the count of its last message.
func (c *checker) checkCacheState(channel string, state *cachedEntry, count int64) {
	log := c.logs[channel]
	switch {
	case state == nil:
		c.Reportf(Cache, channel, 0, "the cached set has no state")
		return
	case state.Seq < 1 || state.Seq > int64(len(log)):
		c.Reportf(Cache, channel, 0, "the cached set says that it ends at %d, the log ends at %d", state.Seq, len(log))
		return
	case state.Count != log[state.Seq-1].Count:
		c.Reportf(Cache, channel, 0, "the cached set counts %d messages up to %d, the log %d", state.Count, state.Seq, log[state.Seq-1].Count)
	case state.Count != count:
		c.Reportf(Hole, channel, 0, "the cached set ends with message %d of the log, and says that it has %d", count, state.Count)
	}
	if c.h.Touched != 0 && state.Seq != int64(len(log)) {
		c.Reportf(Behind, channel, 0, "the cached set ends at %d, the log at %d", state.Seq, len(log))
	}
	oldest := int64(1)
	if i := slices.IndexFunc(c.t.Cache[channel], func(v CachedValue) bool { return v.Score > 0 }); i >= 0 {
		oldest = c.t.Cache[channel][i].Score
	}
	// A change of a message that is not in the set must be known to be unknown.
	for i := range log[:state.Seq] {
		if e := &log[i]; e.Kind != entrySend && e.TargetSeq < oldest && e.Seq > max(state.Unknown, oldest) && !c.replaced(channel, e.Seq) {
			c.Reportf(Cache, channel, 0, "the cached set does not know of the change at %d of message %d, which it lacks; it says %d",
				e.Seq, e.TargetSeq, state.Unknown)
		}
	}
}

// checkCached compares a cached message with its entry in the log.
func (c *checker) checkCached(got *cachedEntry, want *Entry) {
	if got.differs(want) {
		c.Reportf(Cache, want.Channel, 0, "the cached message %d is %+v; the log has %+v", want.Seq, *got, *want)
	}
}

// differs reports whether a cached message is not the one of an entry of the log.
func (e *cachedEntry) differs(want *Entry) bool {
	return want.Kind != entrySend || e.MsgID != want.MsgID || e.Count != want.Count ||
		e.From != want.From || e.Type != want.Type || e.ClientMsgID != want.ClientMsgID ||
		!e.Time.Equal(want.Time) || e.Status != want.Status || e.ChangedSeq != want.ChangedSeq ||
		e.Content != want.Content || !maps.Equal(e.Metadata, want.Metadata)
}
