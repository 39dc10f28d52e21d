package fanout

import "time"

// maxTurnTime bounds what one turn counts for a pace: time in which the log could not be read is
// not the subscriber's.
const maxTurnTime = 5 * time.Second

// pace reports whether a replay comes closer to the end of its log. A replay does not if the client
// reads more slowly than others write: it would go on forever, and its subscriber would believe to
// see the newest entries soon.
type pace struct {
	// least is the smallest distance to the end of the log so far, in entries, and at when a turn
	// last ended.
	least int64
	at    time.Time
	// lost is the time of the turns since least. told is set once the subscriber was told.
	lost time.Duration
	told bool
}

// verdict says what follows from a pace.
type verdict uint8

const (
	goOn verdict = iota
	// tell says that the subscriber must be told where the log ends.
	tell
	// giveUp says that the stream must end.
	giveUp
)

// turned records a turn after which the end of the log is distance entries away. patience is how
// long a replay may go without coming closer; it is told after half of that. A replay that reaches
// the end, and goes on for the changes that its messages show, begins anew.
func (p *pace) turned(distance int64, now time.Time, patience time.Duration) verdict {
	if p.at.IsZero() || distance < p.least || distance <= 0 {
		*p = pace{least: distance, at: now}
		return goOn
	}
	p.lost += min(now.Sub(p.at), maxTurnTime)
	p.at = now
	switch {
	case p.lost >= patience:
		return giveUp
	case p.lost >= patience/2 && !p.told:
		p.told = true
		return tell
	default:
		return goOn
	}
}
