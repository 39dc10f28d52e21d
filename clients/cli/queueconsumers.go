package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// groupViewFlags are the arguments of a command that shows groups of a topic.
type groupViewFlags struct {
	watchFlags
	topicArg

	Group string `help:"Only this group. Default: all groups." placeholder:"GROUP"`
}

func (c *groupViewFlags) check() error {
	return firstError(c.topicArg.check(), c.watchFlags.check(), checkOptionalName("--group", c.Group))
}

type queueConsumersCommand struct{ groupViewFlags }

// consumerJSON is the JSON form of a consumer's session.
type consumerJSON struct {
	Topic           string `json:"topic"`
	Group           string `json:"group"`
	Consumer        string `json:"consumer"`
	Session         string `json:"session"`
	NodeID          string `json:"node_id"`
	Subject         string `json:"subject"`
	State           string `json:"state"`
	SinceTime       string `json:"since_time,omitempty"`
	Concurrency     int32  `json:"concurrency"`
	Running         int32  `json:"running"`
	InFlight        int32  `json:"in_flight"`
	OldestMessageID string `json:"oldest_message_id,omitempty"`
	OldestTime      string `json:"oldest_time,omitempty"`
}

// Run shows the consumers of groups.
func (c *queueConsumersCommand) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.repeat(s, "consumers", func(ctx context.Context, client *parley.Client, p printer) error {
		admin, now := queue.NewAdmin(client), time.Now()
		groups, err := groupsOf(ctx, admin, c.Topic, c.Group)
		if err != nil {
			return err
		}
		rows := newTable(p.w, "", "GROUP", "CONSUMER", "STATE", "SINCE", "RUNNING", "HOLDS", "OLDEST", "FOR", "NODE", "SUBJECT")
		var missing []string
		shown := 0
		for _, group := range groups {
			consumers, notAnswered, err := admin.Consumers(ctx, c.Topic, group)
			if err != nil {
				return err
			}
			missing, shown = notAnswered, shown+len(consumers)
			for _, one := range consumers {
				if err := c.consumer(p, rows, now, group, one); err != nil {
					return err
				}
			}
		}
		if len(missing) > 0 {
			_, _ = fmt.Fprintln(p.stderr, "parley: consumers are missing: no answer from "+oneLine(strings.Join(missing, ", ")))
		}
		switch {
		case p.json:
			return nil
		case shown == 0:
			return p.print(nil, "nobody consumes "+c.Topic+unless(c.Group == "", "", " as "+c.Group))
		default:
			return rows.flush()
		}
	})
}

// consumer writes one session as JSON, or as a row.
func (c *queueConsumersCommand) consumer(p printer, rows *table, now time.Time, group string, one *queue.ConsumerInfo) error {
	state := lowerName(one.GetState().String(), "SESSION_STATE_")
	if p.json {
		return p.print(consumerJSON{
			Topic: c.Topic, Group: group, Consumer: one.GetConsumer(), Session: one.GetSession(), NodeID: one.GetNodeId(),
			Subject: one.GetSubject(), State: state, SinceTime: timeToJSON(one.GetSinceTime()), Concurrency: one.GetConcurrency(),
			Running: one.GetRunning(), InFlight: one.GetInFlight(), OldestMessageID: one.GetOldestMessageId(),
			OldestTime: timeToJSON(one.GetOldestTime()),
		}, "")
	}
	rows.row(group, one.GetConsumer(), state, ago(now, one.GetSinceTime()), fmt.Sprintf("%d/%d", one.GetRunning(), one.GetConcurrency()),
		one.GetInFlight(), one.GetOldestMessageId(), ago(now, one.GetOldestTime()), one.GetNodeId(), one.GetSubject())
	return nil
}

type queuePartitionsCommand struct{ groupViewFlags }

// leaseJSON is the JSON form of a partition and the node that dispatches it to a group.
type leaseJSON struct {
	Topic     string `json:"topic"`
	Group     string `json:"group,omitempty"`
	Partition int32  `json:"partition"`
	NodeID    string `json:"node_id"`
	Epoch     int64  `json:"epoch"`
	Consumer  string `json:"consumer,omitempty"`
	Cursor    string `json:"cursor,omitempty"`
	Sent      string `json:"sent,omitempty"`
}

// Run shows the node that dispatches each partition.
func (c *queuePartitionsCommand) Run(s *session) error {
	if err := c.check(); err != nil {
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
		rows := newTable(p.w, "", "PARTITION", "GROUP", "NODE", "EPOCH", "CONSUMER", "CURSOR", "SENT")
		for _, group := range groups {
			leases, err := admin.Partitions(ctx, c.Topic, group)
			if err != nil {
				return err
			}
			for _, one := range leases {
				if err := c.lease(p, rows, group, one); err != nil {
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

// lease writes one partition as JSON, or as a row.
func (c *queuePartitionsCommand) lease(p printer, rows *table, group string, one *queue.PartitionLease) error {
	if p.json {
		return p.print(leaseJSON{
			Topic: c.Topic, Group: group, Partition: one.GetPartition(), NodeID: one.GetNodeId(), Epoch: one.GetEpoch(),
			Consumer: one.GetConsumer(), Cursor: one.GetCursor(), Sent: one.GetSent(),
		}, "")
	}
	rows.row(one.GetPartition(), group, unless(one.GetNodeId() == "", "nobody", one.GetNodeId()), one.GetEpoch(), one.GetConsumer(),
		one.GetCursor(), one.GetSent())
	return nil
}
