package parleytest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// group is a consumer group. waiting are the messages to deliver, ordered by seq, including those
// whose retry is not due yet.
type group struct {
	name    string
	topic   *topic
	waiting []*item
	dead    []*deadLetter
	// consumers are the group's live Consume and StreamingConsume streams.
	consumers []*consumer
	acked     int64
	replayed  int64
}

// deadLetter is a dead letter and the message for its replay.
type deadLetter struct {
	*parleyv1.DeadLetter

	item *item
}

// addGroup creates a group that starts to read at a position; nil means the beginning.
func (t *topic) addGroup(name string, start *parleyv1.GroupStart) {
	g := &group{name: name, topic: t}
	g.seek(start)
	t.groups[name] = g
	t.settings.Groups = slices.Sorted(maps.Keys(t.groups))
}

// seek makes the messages from a position on wait for delivery, with no attempts made, and no
// others; nil means the beginning.
func (g *group) seek(start *parleyv1.GroupStart) {
	g.waiting = nil
	if start.GetPosition() == parleyv1.StartPosition_START_POSITION_END {
		return
	}
	for _, i := range g.topic.log {
		if start.GetTime() == nil || !i.at.Before(start.GetTime().AsTime()) {
			g.waiting = append(g.waiting, i.fresh())
		}
	}
}

// drop removes a message from those that wait or are in flight in the group.
func (g *group) drop(i *item) {
	g.waiting = slices.DeleteFunc(g.waiting, func(other *item) bool { return other.id == i.id })
	for _, c := range g.consumers {
		maps.DeleteFunc(c.flight, func(_ string, h *held) bool { return h.id == i.id })
	}
}

// again schedules another attempt of a message, or makes it a dead letter if no attempt is left.
func (g *group) again(i *item, due time.Time, reason, code string) {
	if i.attempt >= g.topic.settings.GetRetry().GetMaxAttempts() {
		g.bury(i, reason, code)
		return
	}
	i.due = due
	g.putBack(i)
}

// putBack inserts a message into the waiting ones, which are ordered by seq.
func (g *group) putBack(i *item) {
	g.waiting = append(g.waiting, i)
	slices.SortStableFunc(g.waiting, func(a, b *item) int { return a.seq - b.seq })
}

func (g *group) bury(i *item, reason, code string) {
	g.dead = append(g.dead, &deadLetter{item: i, DeadLetter: &parleyv1.DeadLetter{
		DeadLetterId: fmt.Sprintf("%d-%d-%d", i.partition, time.Now().UnixMilli(), i.seq), MessageId: i.id,
		Partition: i.partition, Group: g.name, Key: i.msg.GetKey(), Payload: i.msg.GetPayload(), Headers: i.msg.GetHeaders(),
		Attempts: i.attempt, Reason: reason, Code: code, ProduceTime: timestamppb.New(i.at), DeadLetterTime: timestamppb.Now(),
	}})
}

// share assigns each partition of the topic to one of the group's consumers, in turn.
func (g *group) share() {
	for n, c := range g.consumers {
		var parts []int32
		for p := range g.topic.settings.GetPartitions() {
			if int(p)%len(g.consumers) == n {
				parts = append(parts, p)
			}
		}
		if !slices.Equal(parts, c.parts) {
			c.parts, c.told = parts, false
		}
	}
}
