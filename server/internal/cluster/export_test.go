package cluster

import "time"

// What the tests of package cluster_test see of the inside.
const (
	AnnounceEvery   = announceEvery
	ForgetAfter     = forgetAfter
	SettleAfter     = settleAfter
	AbleFor         = ableFor
	ProbeEvery      = probeEvery
	TopicNodes      = topicNodes
	MaxMessageBytes = maxMessageBytes
)

// Rendezvous is rendezvous.
var Rendezvous = rendezvous

// AgeView makes the view older, as when the process was stopped for that long.
func (r *Roster) AgeView(by time.Duration) {
	v := *r.view.Load()
	v.ticked = v.ticked.Add(-by)
	r.view.Store(&v)
}

// SetView has the roster know these nodes, as of a time.
func (r *Roster) SetView(ticked time.Time, nodes ...string) {
	r.view.Store(&view{ticked: ticked, nodes: nodes, settled: true})
}
