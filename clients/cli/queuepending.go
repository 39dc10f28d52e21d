package cli

import (
	"context"
	"fmt"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/queue"
)

type queuePendingCommand struct {
	watchFlags
	topicArg

	Group string `help:"Only this group. Default: all groups." placeholder:"GROUP"`
	By    string `help:"Sort order: longest idle time first, or most attempts first; ${enum}." enum:"idle,attempts" default:"idle"`
	Limit int64  `help:"Maximum number of deliveries per group, 1 to 10000." default:"50" placeholder:"N"`
}

// pendingJSON is the JSON form of an unsettled delivery.
type pendingJSON struct {
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	MessageID string `json:"message_id"`
	Partition int32  `json:"partition"`
	Consumer  string `json:"consumer"`
	StreamID  string `json:"stream_id"`
	Attempt   int32  `json:"attempt"`
	IdleMS    int64  `json:"idle_ms"`
}

// pendingViewJSON is the JSON form of a group's unsettled deliveries at one time. --watch writes
// it.
type pendingViewJSON struct {
	Event      string        `json:"event"`
	Time       string        `json:"time"`
	Topic      string        `json:"topic"`
	Group      string        `json:"group"`
	Total      int64         `json:"total"`
	Deliveries []pendingJSON `json:"deliveries"`
}

// Run shows unsettled deliveries.
func (c *queuePendingCommand) Run(s *session) error {
	err := firstError(c.topicArg.check(), c.watchFlags.check(), checkOptionalName("--group", c.Group),
		checkRange("--limit", c.Limit, 1, 10_000))
	if err != nil {
		return err
	}
	v := &statsView{watch: c.Watch, history: make(map[string][]int64)}
	return c.repeat(s, "pending", func(ctx context.Context, client *parley.Client, p printer) error {
		admin := queue.NewAdmin(client)
		groups, err := groupsOf(ctx, admin, c.Topic, c.Group)
		if err != nil {
			return err
		}
		now := time.Now()
		v.columns = newScreen(s.stdout).columns()
		if len(groups) == 0 && !p.json {
			return p.print(nil, c.Topic+" has no groups")
		}
		for _, group := range groups {
			deliveries, err := c.load(ctx, admin, group)
			if err != nil {
				return err
			}
			total, err := c.total(ctx, admin, group, int64(len(deliveries)))
			if err != nil {
				return err
			}
			if err := c.write(p, v, now, group, deliveries, total); err != nil {
				return err
			}
		}
		return nil
	})
}

// load returns a group's unsettled deliveries in the order of --by, at most --limit.
func (c *queuePendingCommand) load(ctx context.Context, admin *queue.Admin, group string) ([]pendingJSON, error) {
	deliveries := []pendingJSON{} // a list, not null
	order := queue.ByIdle
	if c.By == "attempts" {
		order = queue.ByAttempts
	}
	for d, err := range admin.Pending(ctx, c.Topic, group, order) {
		if err != nil {
			return nil, err
		}
		deliveries = append(deliveries, pendingJSON{
			Topic: c.Topic, Group: group, MessageID: d.GetMessageId(), Partition: d.GetPartition(), Consumer: d.GetConsumer(),
			StreamID: d.GetStreamId(), Attempt: d.GetAttempt(), IdleMS: d.GetIdle().AsDuration().Milliseconds(),
		})
		if int64(len(deliveries)) == c.Limit {
			break
		}
	}
	return deliveries, nil
}

// total returns the number of a group's unsettled deliveries. listed is the number of those that
// load returned.
func (c *queuePendingCommand) total(ctx context.Context, admin *queue.Admin, group string, listed int64) (int64, error) {
	if listed < c.Limit {
		return listed, nil
	}
	stats, _, err := admin.Stats(ctx, c.Topic)
	for _, g := range stats.GetGroups() {
		if g.GetGroup() == group {
			return max(g.GetPending(), listed), err
		}
	}
	return listed, err
}

func (c *queuePendingCommand) write(p printer, v *statsView, now time.Time, group string, deliveries []pendingJSON, total int64) error {
	if p.json && c.Watch {
		return p.print(pendingViewJSON{
			Event: "pending", Time: now.UTC().Format(timeFormat), Topic: c.Topic, Group: group, Total: total, Deliveries: deliveries,
		}, "")
	}
	if p.json {
		for _, d := range deliveries {
			if err := p.print(d, ""); err != nil {
				return err
			}
		}
		return nil
	}
	head := fmt.Sprintf("%s/%s  %d pending", c.Topic, group, total)
	if trend := v.trend(group, total); trend != "" {
		head += "  " + trend
	}
	if err := p.print(nil, head); err != nil || len(deliveries) == 0 {
		return err
	}
	rows := newTable(p.w, "  ", "MESSAGE", "PARTITION", "ATTEMPT", "IDLE", "CONSUMER")
	for _, d := range deliveries {
		rows.row(d.MessageID, d.Partition, d.Attempt, approxDuration(time.Duration(d.IdleMS)*time.Millisecond), d.Consumer)
	}
	if err := rows.flush(); err != nil {
		return err
	}
	if more := total - int64(len(deliveries)); more > 0 {
		return p.print(nil, fmt.Sprintf("  and %d more", more))
	}
	return nil
}

type queuePartitionsCommand struct {
	watchFlags
	topicArg

	Group string `help:"Only this group. Default: all groups." placeholder:"GROUP"`
}

// ownerJSON is the JSON form of a partition and its consumer.
type ownerJSON struct {
	Topic     string `json:"topic"`
	Group     string `json:"group,omitempty"`
	Partition int32  `json:"partition"`
	StreamID  string `json:"stream_id"`
	Consumer  string `json:"consumer"`
	NodeID    string `json:"node_id"`
	Epoch     int64  `json:"epoch"`
	LeaseMS   int64  `json:"lease_left_ms"`
}

// Run shows the consumer of each partition.
func (c *queuePartitionsCommand) Run(s *session) error {
	if err := firstError(c.topicArg.check(), c.watchFlags.check(), checkOptionalName("--group", c.Group)); err != nil {
		return err
	}
	return c.repeat(s, "partitions", func(ctx context.Context, client *parley.Client, p printer) error {
		admin := queue.NewAdmin(client)
		groups, err := groupsOf(ctx, admin, c.Topic, c.Group)
		if err != nil {
			return err
		}
		if len(groups) == 0 {
			groups = []string{""} // the partitions alone
		}
		rows := newTable(p.w, "", "PARTITION", "GROUP", "CONSUMER", "NODE", "EPOCH", "LEASE")
		for _, group := range groups {
			owners, err := admin.Partitions(ctx, c.Topic, group)
			if err != nil {
				return err
			}
			for _, o := range owners {
				if err := c.owner(p, rows, group, o); err != nil {
					return err
				}
			}
		}
		if p.json {
			return nil
		}
		return rows.flush()
	})
}

// owner writes one partition as JSON, or as a row.
func (c *queuePartitionsCommand) owner(p printer, rows *table, group string, o *queue.PartitionOwner) error {
	left := o.GetLeaseLeft().AsDuration()
	switch {
	case p.json:
		return p.print(ownerJSON{
			Topic: c.Topic, Group: group, Partition: o.GetPartition(), StreamID: o.GetStreamId(), Consumer: o.GetConsumer(),
			NodeID: o.GetNodeId(), Epoch: o.GetEpoch(), LeaseMS: left.Milliseconds(),
		}, "")
	case o.GetStreamId() == "":
		rows.row(o.GetPartition(), group, "nobody")
	default:
		rows.row(o.GetPartition(), group, o.GetConsumer(), o.GetNodeId(), o.GetEpoch(), approxDuration(left))
	}
	return nil
}
