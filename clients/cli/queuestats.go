package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

type queueStatsCommand struct {
	watchFlags

	Topics     []string `arg:"" optional:"" help:"The topics. Default: all."`
	Partitions bool     `help:"Also show each partition."`
}

// Run shows the counts of topics.
func (c *queueStatsCommand) Run(s *session) error {
	if err := firstError(checkNames("<topics>", c.Topics), c.check()); err != nil {
		return err
	}
	v := &statsView{partitions: c.Partitions, watch: c.Watch, lastCounts: make(map[string]countSample), history: make(map[string][]int64)}
	return c.repeat(s, "stats", func(ctx context.Context, client *parley.Client, p printer) error {
		admin := queue.NewAdmin(client)
		topics, err := c.topics(ctx, admin)
		if err != nil {
			return err
		}
		now := time.Now()
		v.columns = newScreen(s.stdout).columns()
		if len(topics) == 0 && !p.json {
			return p.print(nil, "there are no topics")
		}
		for _, name := range topics {
			total, partitions, err := admin.Stats(ctx, name)
			if len(c.Topics) == 0 && errors.Is(err, parley.ErrTopicNotFound) {
				continue // deleted since it was listed
			}
			if err != nil {
				return err
			}
			if p.json {
				err = p.print(statsToJSON(name, now, total, partitions, c.Partitions), "")
			} else {
				err = v.topic(p, name, now, total, partitions)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// topics returns the topics of the arguments, or all topics.
func (c *queueStatsCommand) topics(ctx context.Context, admin *queue.Admin) ([]string, error) {
	if len(c.Topics) > 0 {
		return c.Topics, nil
	}
	var names []string
	for t, err := range admin.Topics(ctx) {
		if err != nil {
			return nil, err
		}
		names = append(names, t.GetName())
	}
	return names, nil
}

const (
	// minSparkline and maxSparkline are the minimum and maximum number of values in a sparkline.
	minSparkline = 8
	maxSparkline = 30
	// tableWidth is the approximate width of the table beside a sparkline, in columns.
	tableWidth = 80
)

// countSample is the value of a counter at a time.
type countSample struct {
	at    time.Time
	count int64
}

// statsView writes stats for humans. With --watch it also writes rates, and draws the past values
// of depth and of waiting messages.
type statsView struct {
	partitions, watch bool
	// columns is the number of columns of the output.
	columns int

	lastCounts map[string]countSample
	history    map[string][]int64
}

// rate returns the rate of the counter `of` since the last call for it, as ` (12.5/s)`. It returns
// an empty string if the rate is 0 or unknown.
func (v *statsView) rate(of string, now time.Time, count int64) string {
	last, known := v.lastCounts[of]
	v.lastCounts[of] = countSample{at: now, count: count}
	elapsed := now.Sub(last.at).Seconds()
	if !v.watch || !known || elapsed <= 0 || count <= last.count {
		return ""
	}
	perSecond := float64(count-last.count) / elapsed
	if perSecond >= 10 {
		return fmt.Sprintf(" (%.0f/s)", perSecond)
	}
	return fmt.Sprintf(" (%.1f/s)", perSecond)
}

// trend draws the past values of the number `of` and this one. It returns an empty string without
// --watch, and if there are no past values.
func (v *statsView) trend(of string, value int64) string {
	if !v.watch {
		return ""
	}
	v.history[of] = append(v.history[of], value)
	past := v.history[of][max(0, len(v.history[of])-maxSparkline):]
	if v.history[of] = past; len(past) < 2 {
		return ""
	}
	drawn := min(max(v.columns-tableWidth, minSparkline), len(past))
	return sparkline(past[len(past)-drawn:])
}

// topic writes one topic: a line for the topic, a row for each group, and with --partitions a row
// for each partition and group.
func (v *statsView) topic(
	p printer, name string, now time.Time, total *queue.TopicStats, partitions []*queue.PartitionStats,
) error {
	head := fmt.Sprintf("%s  depth %d, %d scheduled, %s, %d produced%s", name, total.GetLength(), total.GetScheduled(),
		count(total.GetDeadLetters(), "dead letter", "dead letters"), total.GetProduced(), v.rate(name, now, total.GetProduced()))
	if len(total.GetGroups()) == 0 {
		head += ", no groups"
	}
	if trend := v.trend(name, total.GetLength()); trend != "" {
		head += "  " + trend
	}
	if err := p.print(nil, head); err != nil {
		return err
	}
	if len(total.GetGroups()) > 0 {
		rows := newTable(p.w, "  ", "GROUP", "WAITING", "RUNNING", "RETRYING", "OLDEST", "CONSUMERS", "DISPATCHED", "ACKED", "DEAD")
		for _, g := range total.GetGroups() {
			id := name + "/" + g.GetGroup()
			waiting := fmt.Sprint(g.GetWaiting())
			if trend := v.trend(id, g.GetWaiting()); trend != "" {
				waiting += " " + trend
			}
			rows.row(g.GetGroup(), waiting, g.GetRunning(), g.GetRetrying(), oldest(g), g.GetSessions(),
				fmt.Sprintf("%d/%d", g.GetDispatchedPartitions(), len(partitions)),
				fmt.Sprint(g.GetAcked())+v.rate(id, now, g.GetAcked()), g.GetDead())
		}
		if err := rows.flush(); err != nil {
			return err
		}
	}
	if !v.partitions {
		return nil
	}
	rows := newTable(
		p.w, "  ", "PARTITION", "DEPTH", "SCHEDULED", "PRODUCED", "GROUP", "WAITING", "RUNNING", "RETRYING", "OLDEST", "ACKED", "DEAD")
	for _, one := range partitions {
		if len(one.GetGroups()) == 0 {
			rows.row(one.GetPartition(), one.GetLength(), one.GetScheduled(), one.GetProduced(), "-")
		}
		for _, g := range one.GetGroups() {
			rows.row(one.GetPartition(), one.GetLength(), one.GetScheduled(), one.GetProduced(), g.GetGroup(), g.GetWaiting(), g.GetRunning(),
				g.GetRetrying(), oldest(g), g.GetAcked(), g.GetDead())
		}
	}
	return rows.flush()
}

// oldest returns the age of a group's oldest unsettled message, or `-` if there is none.
func oldest(g *queue.GroupStats) string {
	if g.GetWaiting()+g.GetRunning()+g.GetRetrying() == 0 {
		return "-"
	}
	return approxDuration(g.GetOldestAge().AsDuration())
}

// countsJSON is the JSON form of the counts that topics and partitions share.
type countsJSON struct {
	Length      int64            `json:"length"`
	Scheduled   int64            `json:"scheduled"`
	Produced    int64            `json:"produced"`
	Cancelled   int64            `json:"cancelled"`
	DeadLetters int64            `json:"dead_letters"`
	FirstID     string           `json:"first_id,omitempty"`
	LastID      string           `json:"last_id,omitempty"`
	Groups      []groupStatsJSON `json:"groups"`
}

// partitionStatsJSON is the JSON form of a partition's counts.
type partitionStatsJSON struct {
	Partition int32 `json:"partition"`
	countsJSON
}

// topicStatsJSON is the JSON form of a topic's counts.
type topicStatsJSON struct {
	Topic string `json:"topic"`
	Time  string `json:"time"`
	countsJSON

	Partitions []partitionStatsJSON `json:"partitions,omitempty"`
}

// groupStatsJSON is the JSON form of a group's counts.
type groupStatsJSON struct {
	Group                string `json:"group"`
	Waiting              int64  `json:"waiting"`
	Running              int64  `json:"running"`
	Retrying             int64  `json:"retrying"`
	Acked                int64  `json:"acked"`
	Dead                 int64  `json:"dead"`
	Cancelled            int64  `json:"cancelled"`
	Expired              int64  `json:"expired"`
	Trimmed              int64  `json:"trimmed"`
	Elsewhere            int64  `json:"elsewhere"`
	Retried              int64  `json:"retried"`
	Redelivered          int64  `json:"redelivered"`
	Replayed             int64  `json:"replayed"`
	OldestAgeMS          int64  `json:"oldest_age_ms"`
	Consumers            int32  `json:"consumers"`
	DispatchedPartitions int32  `json:"dispatched_partitions"`
}

func statsToJSON(
	topic string, at time.Time, total *queue.TopicStats, partitions []*queue.PartitionStats, each bool,
) topicStatsJSON {
	value := topicStatsJSON{Topic: topic, Time: at.UTC().Format(timeFormat), countsJSON: countsToJSON(total)}
	if each {
		for _, one := range partitions {
			value.Partitions = append(value.Partitions, partitionStatsJSON{Partition: one.GetPartition(), countsJSON: countsToJSON(one)})
		}
	}
	return value
}

// counts is implemented by the stats of a topic and by those of a partition.
type counts interface {
	GetLength() int64
	GetScheduled() int64
	GetProduced() int64
	GetCancelled() int64
	GetDeadLetters() int64
	GetFirstId() string
	GetLastId() string
	GetGroups() []*queue.GroupStats
}

func countsToJSON(c counts) countsJSON {
	value := countsJSON{
		Length: c.GetLength(), Scheduled: c.GetScheduled(), Produced: c.GetProduced(), Cancelled: c.GetCancelled(),
		DeadLetters: c.GetDeadLetters(), FirstID: c.GetFirstId(), LastID: c.GetLastId(), Groups: []groupStatsJSON{},
	}
	for _, g := range c.GetGroups() {
		value.Groups = append(value.Groups, groupStatsJSON{
			Group: g.GetGroup(), Waiting: g.GetWaiting(), Running: g.GetRunning(), Retrying: g.GetRetrying(), Acked: g.GetAcked(),
			Dead: g.GetDead(), Cancelled: g.GetCancelled(), Expired: g.GetExpired(), Trimmed: g.GetTrimmed(), Elsewhere: g.GetElsewhere(),
			Retried: g.GetRetried(), Redelivered: g.GetRedelivered(), Replayed: g.GetReplayed(),
			OldestAgeMS: millis(g.GetOldestAge()), Consumers: g.GetSessions(), DispatchedPartitions: g.GetDispatchedPartitions(),
		})
	}
	return value
}
