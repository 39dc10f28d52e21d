package messages

import "maps"

// checkCache checks the final contents of the cached sets, which have the newest entries of each
// channel. Every channel got a message after the last fault was mended, so a cached set must reach
// the end of its log.
func (c *checker) checkCache() {
	for channel, values := range c.t.Cache {
		log := c.logs[channel]
		var last int64
		for i := range values {
			v := &values[i]
			e, err := v.decode()
			switch {
			case err != nil:
				c.Reportf(Cache, channel, 0, "the value at %d can't be read: %v: %s", v.Score, err, v.Value)
				return
			case e.Seq != v.Score:
				c.Reportf(Cache, channel, 0, "the value at %d says that it is %d", v.Score, e.Seq)
			case i > 0 && e.Seq != last+1:
				c.Reportf(Hole, channel, 0, "the cached set has %d after %d", e.Seq, last)
			case e.Seq < 1 || e.Seq > int64(len(log)):
				c.Reportf(Cache, channel, 0, "the cached set has %d, the log ends at %d", e.Seq, len(log))
				return
			case c.t.Epoch != "" && e.Epoch != c.t.Epoch:
				c.Reportf(Cache, channel, 0, "the value at %d is of epoch %s, the store is of %s", e.Seq, e.Epoch, c.t.Epoch)
			}
			last = e.Seq
			if e.Seq >= 1 && e.Seq <= int64(len(log)) {
				c.checkCached(&e, &log[e.Seq-1])
			}
		}
		if c.h.Touched != 0 && last != int64(len(log)) {
			c.Reportf(Behind, channel, 0, "the cached set ends at %d, the log at %d", last, len(log))
		}
	}
}

// checkCached compares a cached entry with its entry in the log.
func (c *checker) checkCached(got *cachedEntry, want *Entry) {
	kinds := map[int]string{entrySend: "", entryEdit: "edit", entryRecall: "recall"}
	ok := got.MsgID == want.MsgID && got.EventType == kinds[want.Kind] && got.TargetSeq == want.TargetSeq &&
		got.Count == want.Count
	if want.Kind == entrySend {
		ok = ok && got.From == want.From && got.Type == want.Type && got.ClientMsgID == want.ClientMsgID &&
			got.Time.Equal(want.Time) && got.Status == want.Status && got.ChangedSeq == want.ChangedSeq &&
			got.Content == want.Content && maps.Equal(got.Metadata, want.Metadata)
	}
	if !ok {
		c.Reportf(Cache, want.Channel, 0, "the cached entry %d is %+v; the log has %+v", want.Seq, *got, *want)
	}
}
