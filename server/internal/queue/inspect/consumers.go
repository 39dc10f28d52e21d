package inspect

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Partition says which node dispatches a partition to a group.
type Partition struct {
	Partition int
	// Node is the holder of the lease, empty if there is none. Epoch increases with every change of
	// it.
	Node  string
	Epoch int64
	// Consumer is the consumer that gets the messages, in an exclusive group.
	Consumer string
	// Cursor and Sent are message IDs: see qlog.State. Empty at the beginning of the log.
	Cursor, Sent string
}

// Partitions returns a topic's partitions by number, and, if group is not empty, what the group has
// of each.
func (s *Service) Partitions(ctx context.Context, topic, group string) ([]Partition, error) {
	t, err := s.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	partitions := make([]Partition, t.Partitions)
	for p := range partitions {
		partitions[p].Partition = p
	}
	if group == "" {
		return partitions, nil
	}
	g := t.Group(group)
	if g == nil {
		return nil, noGroup()
	}
	err = each(ctx, len(partitions), func(ctx context.Context, p int) error {
		ref := qlog.GroupRef{Ref: t.Ref(p), Group: group}
		holder, epoch, err := s.cfg.Store.Lease(ctx, ref)
		var states qlog.EntryStates
		if err == nil {
			states, err = s.cfg.Store.States(ctx, ref, nil)
		}
		if errors.Is(err, qlog.ErrNoGroup) {
			return nil // its state was lost, and comes back with the next lease
		}
		partitions[p].Node, partitions[p].Epoch = holder, epoch
		partitions[p].Cursor, partitions[p].Sent = markOf(p, states.Cursor), markOf(p, states.Sent)
		return err
	})
	if err != nil {
		return nil, lookFault(err)
	}
	if g.Mode != qlog.Exclusive {
		return partitions, nil
	}
	sessions, _, err := s.cfg.Consumers.Sessions(ctx, topic, group)
	if err != nil {
		return nil, lookFault(err)
	}
	for i := range sessions {
		for _, l := range sessions[i].Loads {
			if l.Assigned && l.Partition >= 0 && l.Partition < len(partitions) {
				partitions[l.Partition].Consumer = sessions[i].Consumer
			}
		}
	}
	return partitions, nil
}

// markOf returns a mark as a message ID.
func markOf(partition int, at qlog.Pos) string {
	if at.ID == 0 {
		return ""
	}
	return qlog.MessageID(partition, at.ID, false)
}

// Consumer is a session of a group.
type Consumer struct {
	qlog.SessionInfo

	// Running and InFlight count what it holds of the topic: what a handler began, and all.
	Running, InFlight int
	// Oldest is the oldest delivery that it holds, nil if it holds none.
	Oldest *qlog.HeldInfo
}

// Consumers returns up to n sessions of a group that have the topic, in the order of their digests,
// from behind the cursor, and the nodes that did not answer.
func (s *Service) Consumers(ctx context.Context, topic, group, cursor string, n int) (
	page []Consumer, next string, missing []string, err error,
) {
	if _, err := s.group(ctx, topic, group); err != nil {
		return nil, "", nil, err
	}
	sessions, missing, err := s.cfg.Consumers.Sessions(ctx, topic, group)
	if err != nil {
		return nil, "", nil, lookFault(err)
	}
	slices.SortFunc(sessions, func(a, b qlog.SessionInfo) int { return strings.Compare(a.Session, b.Session) })
	first, _ := slices.BinarySearchFunc(sessions, cursor, func(i qlog.SessionInfo, after string) int {
		if i.Session <= after {
			return -1
		}
		return 1
	})
	if cursor == "" {
		first = 0
	}
	rest := sessions[first:]
	some := rest[:min(len(rest), pageSize(n))]
	for i := range some {
		page = append(page, consumerOf(&some[i]))
	}
	if len(some) < len(rest) {
		next = some[len(some)-1].Session
	}
	slices.Sort(missing)
	return page, next, slices.Compact(missing), nil
}

func consumerOf(info *qlog.SessionInfo) Consumer {
	c := Consumer{SessionInfo: *info}
	for _, l := range info.Loads {
		c.Running += l.Running
		c.InFlight += l.Running + l.Sent
	}
	if len(info.Held) > 0 {
		oldest := slices.MinFunc(info.Held, func(a, b qlog.HeldInfo) int { return cmp.Compare(a.ID, b.ID) })
		c.Oldest = &oldest
	}
	return c
}
