package presence

import (
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// heldEvery is the interval between the times at which the states that a watcher has are checked.
const heldEvery = int64(time.Second)

// watchedUser is what a watcher has received of a user on one stream.
type watchedUser struct {
	// interest are the times at which the stream surely watched the user.
	interest spans
	// frame is the state in the last frame, and frameAt when it arrived; 0 before the first.
	frame   Seen
	frameAt int64
	// held is the state with the highest revision, and heldAt when it arrived; 0 before the first.
	held   Seen
	heldAt int64
	// reported is set if a violation was reported for the held state.
	reported bool
}

// checkWatches checks the states that each watcher received, in their order, and those that it had
// meanwhile.
func (c *checker) checkWatches() {
	byWatch := make(map[string][]*Frame)
	for i := range c.h.Frames {
		f := &c.h.Frames[i]
		byWatch[f.Watch] = append(byWatch[f.Watch], f)
	}
	for i := range c.h.Watches {
		w := &c.h.Watches[i]
		if w.Err != "" && w.How == Lost && !c.broken(w.Begin, w.End) {
			c.Reportf(chaos.Liveness, "", w.End, "the stream of %s to %s [%s to %s] broke although nothing is broken: %s", w.Client, w.Addr,
				seconds(w.Begin), seconds(w.End), w.Err)
		}
		c.checkWatch(w, byWatch[w.ID])
	}
}

func (c *checker) checkWatch(w *Watch, frames []*Frame) {
	users := make(map[string]*watchedUser)
	lagging := false
	for _, f := range frames {
		if f.Lagging != nil {
			lagging = *f.Lagging
		}
		for _, s := range f.Users {
			u := users[s.User]
			if u == nil {
				u = &watchedUser{interest: c.interest(w, s.User)}
				users[s.User] = u
			}
			if f.Via != ViaAnswer {
				c.checkOrder(w, u, f, s)
				u.frame, u.frameAt = s, f.At
			}
			if u.heldAt != 0 && s.Revision < u.held.Revision {
				continue // the answer of an UpdateWatch and the frames overtake each other
			}
			c.checkHeld(w, u, f.At)
			u.held, u.heldAt, u.reported = s, f.At, false
			c.checkTold(w, s, f.At)
		}
	}
	for _, u := range users {
		c.checkHeld(w, u, w.Last)
	}
	if w.First != 0 && c.h.Leaving != 0 && w.Begin < c.h.Settled && (w.End == 0 || w.End >= c.h.Leaving) {
		c.checkWatchSettled(w, frames, lagging)
	}
}

// interest returns the times at which a stream surely watched a user.
func (c *checker) interest(w *Watch, user string) spans {
	var all []span
	from := int64(forever)
	if slices.Contains(w.Users, user) {
		from = w.First
	}
	for _, op := range c.updates[w.ID] {
		switch {
		case slices.Contains(op.Add, user):
			if op.Outcome == chaos.OK {
				from = min(from, op.End)
			}
		case slices.Contains(op.Remove, user):
			all = append(all, span{from, op.Begin})
			from = forever
		}
	}
	return spansOf(append(all, span{from, w.Last + 1})...)
}

// checkOrder checks that the states of a user in the frames of a stream are newer and newer, and
// differ.
func (c *checker) checkOrder(w *Watch, u *watchedUser, f *Frame, s Seen) {
	if u.frameAt == 0 {
		return
	}
	again := slices.ContainsFunc(c.updates[w.ID], func(op *Op) bool {
		return (slices.Contains(op.Add, s.User) || slices.Contains(op.Remove, s.User)) &&
			op.Begin <= f.At && op.End >= u.frameAt-int64(delivery)
	})
	if s.Revision < u.frame.Revision || s.Revision == u.frame.Revision && !again {
		c.Reportf(Backwards, s.User, f.At, "stream %s of %s: %q with revision %d came after %q with revision %d", w.ID, w.Addr, s.State, s.Revision,
			u.frame.State, u.frame.Revision)
	}
	if s.State == u.frame.State && !again {
		c.Reportf(Repeat, s.User, f.At, "stream %s of %s: %q with revision %d came again with revision %d, after %s", w.ID, w.Addr, s.State,
			u.frame.Revision, s.Revision, time.Duration(f.At-u.frameAt))
	}
}

// checkTold checks that a state was right a short time before it arrived.
func (c *checker) checkTold(w *Watch, s Seen, at int64) {
	from := c.nodes[w.Addr].read.since(at, late)
	for _, platform := range c.platforms[s.User] {
		online, offline := c.possible(place{s.User, platform}, from, at)
		switch {
		case s.State.has(platform) && !online:
			c.Reportf(Ghost, s.User, at, "%s of %s was told %q, and platform %d is offline since %s or longer%s", w.ID, w.Addr, s.State, platform,
				seconds(from), c.story(s.User, at))
		case !s.State.has(platform) && !offline:
			c.Reportf(FalseOffline, s.User, at, "%s of %s was told %q without platform %d%s", w.ID, w.Addr, s.State, platform,
				c.story(s.User, at))
		}
	}
}

// checkHeld checks the state that a watcher had from u.heldAt to a time: every second it must have
// been right a short time before, if the stream has watched the user since then. The state of a
// user that is watched again may arrive later than the answer.
func (c *checker) checkHeld(w *Watch, u *watchedUser, to int64) {
	if u.heldAt == 0 {
		return
	}
	s := u.held
	for at := u.heldAt + heldEvery; at < to && !u.reported; at += heldEvery {
		from := c.nodes[w.Addr].read.since(at, late)
		if !u.interest.covers(from, at) {
			continue
		}
		for _, platform := range c.platforms[s.User] {
			online, offline := c.possible(place{s.User, platform}, from, at)
			if s.State.has(platform) && !online || !s.State.has(platform) && !offline {
				u.reported = true
				c.Reportf(Missed, s.User, at, "%s of %s still has %q, received at %s; platform %d has changed before %s%s", w.ID, w.Addr, s.State,
					seconds(u.heldAt), platform, seconds(from), c.story(s.User, at))
				break
			}
		}
	}
}

// checkWatchSettled checks that a watcher had the right state of every user at the end.
func (c *checker) checkWatchSettled(w *Watch, frames []*Frame, lagging bool) {
	held := make(map[string]Seen)
	for _, f := range frames {
		if f.At > c.h.Leaving {
			break
		}
		for _, s := range f.Users {
			if old, ok := held[s.User]; !ok || s.Revision >= old.Revision {
				held[s.User] = s
			}
		}
	}
	if lagging {
		c.Reportf(Missed, "", c.h.Settled, "the stream %s of %s is lagging although all is mended", w.ID, w.Addr)
	}
	for user := range c.platforms {
		want, stable := c.expected(user)
		if s, ok := held[user]; stable && c.interest(w, user).covers(c.h.Settled, c.h.Leaving) && (!ok || s.State != want) {
			c.Reportf(Missed, user, c.h.Settled, "at the end %s of %s has %q, and the devices are %q%s", w.ID, w.Addr, s.State, want,
				c.story(user, c.h.Settled))
		}
	}
}
