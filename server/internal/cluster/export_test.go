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

// AgeView ages the view, as if the process had been suspended for that long.
func (r *Roster) AgeView(by time.Duration) {
	v := *r.view.Load()
	v.ticked = v.ticked.Add(-by)
	r.view.Store(&v)
}

// SetView sets the nodes that the roster knows, as of a time.
func (r *Roster) SetView(ticked time.Time, nodes ...string) {
	r.view.Store(&view{ticked: ticked, nodes: nodes, ready: true})
}
