package consume

import "time"

const (
	// announceEvery is how often nodes are told who holds a lease while entries are in doubt.
	announceEvery = 250 * time.Millisecond
	// recently is how long after a node's death its consumers may still resume, at least.
	recently = time.Minute
	// unreachable is how much longer than the grace time a node that lives and does not report is
	// waited for. It confirms no contact meanwhile.
	unreachable = 5 * time.Second
)

// beginDoubt decides for how long entries are in doubt: until every node has reported, and consumers of
// nodes that died had the time to resume.
func (h *holder) beginDoubt(now time.Time) {
	t := h.e.topic(h.ref.Topic)
	grace := h.e.groupGrace(t)
	h.awaited, h.deathsUntil = map[string]bool{}, time.Time{}
	if h.e.svc.cfg.Peers != nil {
		for _, node := range h.e.svc.cfg.Fleet.Others() {
			h.awaited[node] = true // also if its first session of the group came after the review
		}
	}
	for _, m := range t.members {
		if m.node == h.e.svc.cfg.Node {
			continue
		}
		until := h.e.svc.cfg.Fleet.Until(m.node)
		switch {
		case until.After(now), until.IsZero(): // alive, or so new that it was not heard of
			if h.e.svc.cfg.Peers != nil {
				h.awaited[m.node] = true
			}
		case now.Sub(until) < max(recently, grace):
			if last := until.Add(grace + lostAfter); last.After(h.deathsUntil) {
				h.deathsUntil = last
			}
		}
	}
	h.doubtUntil = h.deathsUntil
	if wait := now.Add(grace + unreachable); len(h.awaited) > 0 && wait.After(h.doubtUntil) {
		h.doubtUntil = wait
	}
	if h.doubtUntil.Before(now) {
		h.doubtUntil = now
	}
}

// endDoubt ends the doubt if its time is over.
func (h *holder) endDoubt(now time.Time) {
	if h.doubtUntil.IsZero() {
		return
	}
	if len(h.awaited) == 0 && h.deathsUntil.Before(h.doubtUntil) {
		if h.doubtUntil = h.deathsUntil; h.doubtUntil.Before(now) {
			h.doubtUntil = now // not zero: it ends when all is read
		}
	}
	if now.Before(h.doubtUntil) || h.d.Loading() {
		if now.Sub(h.announced) >= announceEvery {
			h.announce(now)
		}
		return
	}
	h.doubtUntil = time.Time{}
	h.d.NobodyHolds(now)
}

// nextDoubt is when endDoubt must be called again, zero for never.
func (h *holder) nextDoubt(now time.Time) time.Time {
	switch {
	case h.doubtUntil.IsZero(), !now.Before(h.doubtUntil): // what is read goes on with it
		return time.Time{}
	default:
		return earliest(h.doubtUntil, h.announced.Add(announceEvery))
	}
}

// announce tells the other nodes that this one holds the lease.
func (h *holder) announce(now time.Time) {
	h.announced = now
	h.tell(h.e.svc.cfg.Node)
}

// tell tells the other nodes who holds the lease; node is empty if it was released.
func (h *holder) tell(node string) {
	if h.e.svc.cfg.Peers == nil {
		return
	}
	n := HolderNotice{Lease{h.ref.Topic, h.ref.Partition, h.epoch}, h.ref.Group, node}
	if err := h.e.svc.cfg.Peers.AnnounceHolder(n); err != nil {
		h.e.trouble("announce", err)
	}
}

// groupGrace is the grace time of the engine's group of a topic.
func (e *engine) groupGrace(t *topic) time.Duration {
	if t.settings != nil {
		if g := t.settings.Group(e.group); g != nil {
			return g.ResumeGrace
		}
	}
	return 0
}
