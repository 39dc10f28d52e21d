package queues

import "slices"

// checkLeases reports leases whose epoch decreased, and epochs that two nodes held.
func (c *checker) checkLeases() {
	for at, leases := range c.leases {
		holders := make(map[int64]string)
		var last int64
		for _, l := range leases {
			// A lease that Redis has forgotten may return as it was before. A new one must be
			// beyond all earlier ones.
			if _, old := holders[l.Epoch]; l.Epoch < last && (!old || !c.rolledBack(0, l.From)) {
				c.Reportf(Epoch, at.topic, l.From, "partition %d of group %s went back from epoch %d to %d", at.partition, at.group, last, l.Epoch)
			}
			last = max(last, l.Epoch)
			if l.Holder == "" {
				holders[l.Epoch] += ""
				continue
			}
			if h := holders[l.Epoch]; h != "" && h != l.Holder {
				c.Reportf(Epoch, at.topic, l.From, "partition %d of group %s was held in epoch %d by %s and by %s", at.partition, at.group,
					l.Epoch, h, l.Holder)
			}
			holders[l.Epoch] = l.Holder
		}
	}
}

// spots returns the counters in Redis of every group in every partition.
func (t *Truth) spots() map[spot]Count {
	counts := make(map[spot]Count)
	for i := range t.Partitions {
		p := &t.Partitions[i]
		for k := range p.Groups {
			g := &p.Groups[k]
			left := int64(len(p.unsettled(g)))
			counts[spot{p.Topic, g.Group, p.Partition}] = Count{
				Topic: p.Topic, Group: g.Group, Partition: p.Partition, Length: int64(len(p.Entries)),
				Produced: p.Ord - g.Stats["base"] + int64(len(p.Delayed)) + p.Unscheduled, Scheduled: int64(len(p.Delayed)),
				Unscheduled: p.Unscheduled, Cancelled: g.Stats["cancelled"], Acked: g.Stats["acked"], Dead: g.Stats["dead"],
				Expired: g.Stats["expired"], Elsewhere: g.Stats["elsewhere"], Replayed: g.Stats["replayed"],
				// Entries that are gone and that the group has not looked at are counted when it does.
				Trimmed:  g.Stats["trimmed"] + p.Ord - ordinal(g.Sent) - (left - int64(len(g.Open))),
				Waiting:  int64(len(g.Open)) + left - int64(len(g.Open)) - g.Due,
				Retrying: g.Due,
			}
		}
	}
	return counts
}

// sum counts the produces (taken) and acks of a partition for a group. taken and acked count those
// that succeeded, mayTaken and mayAcked also those of unknown outcome.
type sum struct{ taken, mayTaken, acked, mayAcked int64 }

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// checkCounts checks that the counters add up (imbalance), in each recorded count and in the final
// state of Redis. It compares the final counters with the answers.
func (c *checker) checkCounts() {
	for i := range c.h.Counts {
		if n := &c.h.Counts[i]; n.imbalance() != 0 {
			c.Reportf(Conservation, n.Topic, n.At, "AdminService counted in partition %d of group %s %d more taken than it accounts for: %+v",
				n.Partition, n.Group, n.imbalance(), *n)
		}
	}
	answered := make(map[spot]*sum)
	for _, msg := range c.messages {
		for _, group := range c.groups(msg.topic) {
			at := spot{msg.topic, group, msg.partition()}
			if answered[at] == nil {
				answered[at] = new(sum)
			}
			s := answered[at]
			did, may := msg.in(group).acked()
			s.acked, s.mayAcked = s.acked+one(did), s.mayAcked+one(may)
			s.taken, s.mayTaken = s.taken+one(msg.accepted()), s.mayTaken+one(msg.possiblyAccepted())
		}
	}
	// The partition of a message that was never seen is unknown: it may be any of its topic's.
	anywhere := func(at spot) *sum {
		if s := answered[spot{at.topic, at.group, -1}]; s != nil {
			return s
		}
		return new(sum)
	}
	for at, n := range c.t.spots() {
		if n.imbalance() != 0 {
			c.Reportf(Conservation, at.topic, 0, "partition %d of group %s has %d more taken than it accounts for: %+v", at.partition, at.group,
				n.imbalance(), n)
		}
		if gone := c.gone[at]; gone > n.Trimmed {
			c.Reportf(Loss, at.topic, 0, "partition %d of group %s lacks %d messages, and counts %d as trimmed", at.partition, at.group, gone,
				n.Trimmed)
		}
		s := answered[at]
		if s == nil {
			s = new(sum)
		}
		// The number of messages that were cancelled before they were due is lost with the keys.
		lost := slices.ContainsFunc(c.h.Lost, func(l LostKeys) bool { return l.Topic == at.topic && l.Partition == at.partition })
		if n.Produced < s.taken && !lost || n.Produced > s.mayTaken+anywhere(at).mayTaken {
			c.Reportf(Conservation, at.topic, 0, "partition %d counts %d messages taken; %d were acknowledged, %d may have been taken", at.partition,
				n.Produced, s.taken, s.mayTaken+anywhere(at).mayTaken)
		}
		accepted := s.acked
		if t := c.topics[at.topic]; t != nil && t.Drops {
			accepted -= n.Trimmed // an ack of a trimmed message is accepted, but not counted
		}
		if n.Acked < accepted || n.Acked > s.mayAcked+anywhere(at).mayAcked {
			c.Reportf(Conservation, at.topic, 0, "partition %d of group %s counts %d acked; %d acks were accepted, %d may have been", at.partition,
				at.group, n.Acked, s.acked, s.mayAcked+anywhere(at).mayAcked)
		}
	}
	c.checkLetters()
}

// checkLetters compares the counters of dead letters with the letters.
func (c *checker) checkLetters() {
	letters := make(map[spot]int64)
	for i := range c.t.Partitions {
		p := &c.t.Partitions[i]
		for k := range p.Dead {
			letters[spot{p.Topic, p.Dead[k].Group, p.Partition}]++
		}
	}
	for at, n := range c.t.spots() {
		if n.Dead-n.Replayed != letters[at] {
			c.Reportf(Conservation, at.topic, 0, "partition %d of group %s counts %d dead and %d replayed; there are %d dead letters", at.partition,
				at.group, n.Dead, n.Replayed, letters[at])
		}
	}
}

// checkTold compares AdminService's final counters and dead letters with those in Redis.
func (c *checker) checkTold() {
	has := c.t.spots()
	for i := range c.t.Counts {
		n := c.t.Counts[i]
		n.At, n.Waiting, n.Running = 0, n.Waiting+n.Running, 0
		if raw := has[spot{n.Topic, n.Group, n.Partition}]; raw != n {
			c.Reportf(AdminMismatch, n.Topic, 0, "partition %d of group %s is counted as %+v and is %+v", n.Partition, n.Group, n, raw)
		}
	}
	listed, there := make(map[string]*Stored), make(map[string]*Stored)
	for i := range c.t.Letters {
		s := &c.t.Letters[i]
		listed[s.Topic+"/"+s.Group+"/"+s.MessageID] = s
	}
	for i := range c.t.Partitions {
		for k := range c.t.Partitions[i].Dead {
			s := &c.t.Partitions[i].Dead[k]
			there[s.Topic+"/"+s.Group+"/"+s.MessageID] = s
		}
	}
	for id, s := range there {
		switch l := listed[id]; {
		case l == nil:
			c.Reportf(AdminMismatch, s.Topic, 0, "the dead letter %s is not listed", id)
		case l.Mark != s.Mark || l.Attempts != s.Attempts || l.Code != s.Code || l.Reason != s.Reason || l.Partition != s.Partition:
			c.Reportf(AdminMismatch, s.Topic, 0, "the dead letter %s is listed as %+v and is %+v", id, *l, *s)
		}
	}
	for id, s := range listed {
		if there[id] == nil {
			c.Reportf(AdminMismatch, s.Topic, 0, "the dead letter %s is listed and is not there", id)
		}
	}
}
