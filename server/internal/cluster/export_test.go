package cluster

import "time"

// Exports for the tests of package cluster_test.
const (
	AnnounceEvery   = announceEvery
	ForgetAfter     = forgetAfter
	SettleAfter     = settleAfter
	AbleFor         = ableFor
	ProbeEvery      = probeEvery
	TopicNodes      = topicNodes
	MaxMessageBytes = maxMessageBytes
)

// Rendezvous exports rendezvous.
var Rendezvous = rendezvous

// AgeView makes the roster believe that its ticker last fired that much earlier, as if the process
// had been suspended.
func (r *Roster) AgeView(by time.Duration) {
	v := *r.view.Load()
	v.ticked = v.ticked.Add(-by)
	r.view.Store(&v)
}

// SetView sets the nodes that share the work. ticked is when the ticker last fired.
func (r *Roster) SetView(ticked time.Time, nodes ...string) {
	r.view.Store(&view{ticked: ticked, nodes: nodes, ready: true})
}
