package consume

import "time"

const (
	// offerEvery is the time between two offers that were answered, offerAgain between two that were
	// not.
	offerEvery = time.Millisecond
	offerAgain = 50 * time.Millisecond
	// offerFor is how long a holder waits for the answer before it prefetches, unless the latest offer
	// had none and is younger than unansweredFor.
	offerFor      = 20 * time.Millisecond
	unansweredFor = 250 * time.Millisecond
)

// offerSpare offers messages for which this node has no idle handlers to other nodes. It returns when
// it must be called again, zero for never.
func (t *topic) offerSpare(now time.Time) time.Time {
	if t.alone || t.settings == nil || t.e.svc.cfg.Peers == nil {
		return time.Time{}
	}
	count := 0
	for _, h := range t.e.order {
		if h.ref.Topic == t.name && h.phase == serving {
			count += h.spare
		}
	}
	if count == 0 {
		return time.Time{}
	}
	wait := offerAgain
	if t.answered {
		wait = offerEvery
	}
	if next := t.offered.Add(wait); now.Before(next) {
		return next
	}
	hopeful := t.answered || now.Sub(t.offered) >= unansweredFor
	t.offered, t.answered = now, false
	n := SpareNotice{Group: t.e.group, Topic: t.name, Node: t.e.svc.cfg.Node, Count: count}
	if err := t.e.svc.cfg.Peers.OfferSpare(n); err != nil {
		t.e.trouble("offer", err)
		return now.Add(unansweredFor)
	}
	if hopeful {
		t.e.serving(func(h *holder) {
			if h.ref.Topic == t.name && h.spare > 0 {
				h.d.PrefetchFrom(now.Add(offerFor))
			}
		})
	}
	return now.Add(offerAgain)
}
