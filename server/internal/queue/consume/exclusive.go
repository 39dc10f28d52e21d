package consume

import (
	"cmp"
	"slices"
)

// assign spreads the partitions of an exclusive group that the node holds evenly over its sessions, and
// tells them. A partition moves when its present session has nothing of it in flight.
func (t *topic) assign() {
	if !t.exclusive() {
		return
	}
	var sessions []*session
	for s := range t.sessions {
		if s.live() && !s.Loose {
			sessions = append(sessions, s)
		}
	}
	slices.SortFunc(sessions, func(a, b *session) int { return cmp.Compare(a.ID, b.ID) })
	var holders []*holder
	has := map[string]int{}
	for _, h := range t.e.order {
		if h.ref.Topic == t.name && h.phase == serving {
			holders = append(holders, h)
			has[h.d.Bound()]++
		}
	}
	slices.SortFunc(holders, func(a, b *holder) int { return cmp.Compare(a.ref.Partition, b.ref.Partition) })
	if len(sessions) > 0 {
		balance(holders, sessions, has)
	}
	t.tellAssignments(holders, sessions)
}

// balance asks for partitions of sessions that have more than one more than another to be bound to
// that one.
func balance(holders []*holder, sessions []*session, has map[string]int) {
	least := func() *session {
		return slices.MinFunc(sessions, func(a, b *session) int { return cmp.Compare(has[a.ID], has[b.ID]) })
	}
	for _, h := range holders {
		bound := h.d.Bound()
		s := least()
		live := slices.ContainsFunc(sessions, func(s *session) bool { return s.ID == bound })
		if !live || has[bound] > has[s.ID]+1 {
			h.d.Bind(s.ID)
			has[bound]--
			has[s.ID]++
		}
	}
}

// tellAssignments tells each session its partitions, if they changed.
func (t *topic) tellAssignments(holders []*holder, sessions []*session) {
	parts := map[string][]int{}
	for _, h := range holders {
		if bound := h.d.Bound(); bound != "" {
			parts[bound] = append(parts[bound], h.ref.Partition)
		}
	}
	for _, s := range sessions {
		told, ok := t.assigned[s.ID]
		if now := parts[s.ID]; !ok || !slices.Equal(told, now) {
			t.assigned[s.ID] = now
			s.stream.assign(Assignment{Topic: t.name, Partitions: now, Total: t.settings.Partitions})
		}
	}
}
