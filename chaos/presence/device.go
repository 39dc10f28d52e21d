package presence

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// briefest is the mean of brief absences: from half of it to one and a half times it.
const briefest = 200 * time.Millisecond

// device is a device of a user. It opens one stream after another, on any node, and continues its
// login until it is kicked. Only its user's act begins a new login.
type device struct {
	*world
	status

	name, user string
	spec       deviceSpec
	rng        *rand.Rand
	clients    []*client
	node       int // the index of the node of the next stream
	// login is the number of the current login, and token its login token; empty if it has none.
	login int
	token string
	// stays is set if the device is to be online at the end, unless it is kicked.
	stays bool
	// wanted is the background flag that the device reports.
	wanted bool
}

// run opens streams until ctx ends, then leaves.
func (d *device) run(ctx context.Context) {
	defer closeAll(d.clients)
	chaos.Pause(ctx, d.rng, time.Second)
	for ctx.Err() == nil {
		if d.isCalm() && !d.stays {
			d.stayOut(ctx)
			return
		}
		c := d.session(ctx)
		d.set(phaseBusy, false)
		if ctx.Err() != nil {
			return
		}
		if !d.pause(ctx, c) {
			d.stayOut(ctx)
			return
		}
	}
}

// stayOut blocks until ctx ends.
func (d *device) stayOut(ctx context.Context) {
	d.set(phaseOut, false)
	<-ctx.Done()
}

// pause waits between two streams, and decides on the next one. It reports false if the device
// stays offline until the end.
func (d *device) pause(ctx context.Context, c *Conn) bool {
	h := &d.spec.habit
	switch c.How {
	case Kicked:
		d.token = ""
		return d.rest(ctx, d.rng, h.act)
	case Closed, Left:
		d.node = d.rng.IntN(len(d.clients))
		if c.How == Left && d.rng.IntN(2) == 0 {
			d.token = ""
		}
		if d.isCalm() {
			return d.stays
		}
		if c.How == Closed && d.rng.IntN(100) < h.brief {
			chaos.Pause(ctx, d.rng, briefest)
			return true
		}
		return d.rest(ctx, d.rng, h.away) || d.stays
	case Drained:
		d.node++
		chaos.Pause(ctx, d.rng, briefest)
		return true
	default:
		d.node++
		chaos.Pause(ctx, d.rng, chaos.AfterFailure)
		return true
	}
}
