package redispresence

import (
	"fmt"

	"github.com/parleyhq/parley/server/internal/presence"
)

const (
	maxUserID = 128
	// maxWord is the maximum length of a node, epoch, slot, connection or device.
	maxWord = 64
	// maxGeneration is the highest generation: scripts calculate exactly up to one more.
	maxGeneration = 1<<53 - 1
)

// checks collects the first error of a call's arguments.
type checks struct{ err error }

func (c *checks) thatf(ok bool, format string, args ...any) {
	if c.err == nil && !ok {
		c.err = fmt.Errorf("presence: "+format, args...)
	}
}

// word checks a field that is stored between spaces.
func (c *checks) word(field, value string, least, most int) {
	if c.err != nil {
		return
	}
	ok := len(value) >= least && len(value) <= most
	for i := range len(value) {
		ok = ok && value[i] > ' ' && value[i] <= '~'
	}
	c.thatf(ok, "%s %.140q must have %d to %d printable ASCII characters without spaces", field, value, least, most)
}

func (c *checks) shard(shard int) {
	c.thatf(shard >= 0 && shard < presence.Shards, "shard %d must be from 0 to %d", shard, presence.Shards-1)
}

func (c *checks) user(id string)    { c.word("user id", id, 1, maxUserID) }
func (c *checks) node(id string)    { c.word("node", id, 1, maxWord) }
func (c *checks) epoch(text string) { c.word("epoch", text, 1, maxWord) }

func (c *checks) count(what string, n, least, most int) {
	c.thatf(n >= least && n <= most, "%s %d must be from %d to %d", what, n, least, most)
}
