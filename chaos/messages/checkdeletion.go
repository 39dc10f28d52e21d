package messages

import (
	"strings"

	"github.com/parleyhq/parley/chaos"
)

const (
	// goneIn is the time after the deletion of a session within which its texts must be removed from
	// the store, and goneAgain that after the last fault was mended.
	goneIn, goneAgain = 75 * second, 30 * second
	// uncachedIn is the same for Redis, in both cases.
	uncachedIn = int64(redelivery) - second
)

// checkDeletions checks that deleted sessions and their texts are gone.
func (c *checker) checkDeletions() {
	for i := range c.h.Deletions {
		gone := &c.h.Deletions[i]
		if gone.End == 0 {
			continue
		}
		for _, a := range gone.Afters {
			switch {
			case a.Outcome != chaos.OK:
			case a.Kind == Send:
				c.Reportf(DeletedText, gone.Channel, a.End, "%s took a message %.1fs after the deletion", a.Addr, seconds(a.Begin-gone.End))
			case a.Begin > gone.End+second && !c.held(a.Addr, gone.End, a.End):
				c.Reportf(DeletedText, gone.Channel, a.End, "%s listed the session %.1fs after its deletion; with texts: %t", a.Addr,
					seconds(a.Begin-gone.End), a.Shown)
			}
		}
		if late := gone.Seen - gone.End; late > int64(liveSlack) && !c.held(gone.Addr, gone.End, gone.Seen) {
			c.Reportf(DeletedText, gone.Channel, gone.Seen, "a stream at %s showed a text %.1fs after the deletion", gone.Addr, seconds(late))
		}
		cached := max(gone.End, c.h.Healed) + uncachedIn
		stored := max(gone.End+goneIn, c.h.Healed+goneAgain)
		for _, mark := range gone.Marks {
			for _, where := range c.t.Marks[mark] {
				due := stored
				if strings.HasPrefix(where, "Redis") {
					due = cached
				}
				if c.h.Waited < due || c.restored(where, gone.Begin) {
					continue
				}
				c.Reportf(DeletedText, gone.Channel, 0, "the text %q of the session, deleted at %.3fs, still lies in %s", mark, seconds(gone.End), where)
			}
		}
	}
}
