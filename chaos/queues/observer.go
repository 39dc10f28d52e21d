package queues

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// observer repeatedly reads all leases in Redis.
type observer struct {
	out    sink
	client *redis.Client
	spots  []spot
	keys   []string
	open   []Lease
}

// lookEvery is the interval between reads of the leases.
const lookEvery = 15 * time.Millisecond

func newObserver(out sink, client *redis.Client, topics []Topic) *observer {
	o := &observer{out: out, client: client}
	for _, t := range topics {
		for p := range t.Partitions {
			for _, g := range t.Groups {
				o.spots = append(o.spots, spot{t.Name, g, p})
				o.keys = append(o.keys, groupKey(t.Name, p, g))
			}
		}
	}
	o.open = make([]Lease, len(o.spots))
	return o
}

// observeLimit bounds one read of the leases.
const observeLimit = 5 * time.Second

// run observes until ctx ends.
func (o *observer) run(ctx context.Context) {
	for chaos.Sleep(ctx, lookEvery) {
		o.readLeases(ctx)
	}
	for i := range o.open {
		o.recordLease(i)
	}
}

// readLeases reads all leases in one round trip, and records those that have changed since the last
// read.
func (o *observer) readLeases(ctx context.Context) {
	callCtx, cancel := context.WithTimeout(ctx, observeLimit)
	defer cancel()
	before := now()
	states := make([]*redis.SliceCmd, len(o.keys))
	_, err := o.client.Pipelined(callCtx, func(p redis.Pipeliner) error {
		for i, key := range o.keys {
			states[i] = p.HMGet(callCtx, key, "holder", "epoch")
		}
		return nil
	})
	if err != nil {
		if ctx.Err() == nil {
			o.out.write(line{Failure: &Failure{Who: Observing, Addr: "redis", Begin: before, End: now(), Err: err.Error()}})
		}
		return
	}
	after := now()
	for i, s := range o.spots {
		values := states[i].Val()
		holder, _ := values[0].(string)
		epoch, _ := values[1].(string)
		n := number(epoch)
		l := &o.open[i]
		if l.From == 0 || l.Holder != holder || l.Epoch != n {
			o.recordLease(i)
			*l = Lease{Topic: s.topic, Group: s.group, Partition: s.partition, Holder: holder, Epoch: n, From: after}
		}
		l.To = before
	}
}

// recordLease records the lease that was last observed in spot i, if there is one.
func (o *observer) recordLease(i int) {
	if l := o.open[i]; l.From != 0 {
		l.To = max(l.To, l.From)
		o.out.write(line{Lease: &l})
	}
}

// auditor repeatedly requests the counters from AdminService.
type auditor struct {
	out     sink
	clients []*client
	topics  []Topic
}

func (a *auditor) run(ctx context.Context) {
	for n := 0; chaos.Sleep(ctx, 700*time.Millisecond); n++ {
		for _, t := range a.topics {
			a.audit(context.WithoutCancel(ctx), a.clients[n%len(a.clients)], &t)
		}
	}
}

// auditTries is the maximum number of tries for one request. Lost replies alone don't fail that
// many in a row.
const auditTries = 5

// audit records the counters of a topic, according to a node, and each failed try.
func (a *auditor) audit(ctx context.Context, c *client, t *Topic) {
	for try := 1; try <= auditTries; try++ {
		begin := now()
		counts, err := a.counts(ctx, c, t)
		if err == nil {
			for i := range counts {
				a.out.write(line{Count: &counts[i]})
			}
			return
		}
		a.out.write(line{Failure: &Failure{Who: Auditing, Addr: c.Addr, Begin: begin, End: now(), Try: try, Err: err.Error()}})
		chaos.Sleep(ctx, 50*time.Millisecond)
	}
}

// counts returns the counters of a topic, according to a node.
func (a *auditor) counts(ctx context.Context, c *client, t *Topic) ([]Count, error) {
	ctx, cancel := c.call(ctx)
	defer cancel()
	res, err := c.admin.GetTopicStats(ctx, &parleyv1.GetTopicStatsRequest{Topic: t.Name})
	if err != nil {
		return nil, err
	}
	at := now()
	var counts []Count
	for _, p := range res.GetPartitions() {
		for _, g := range p.GetGroups() {
			counts = append(counts, Count{
				At: at, Topic: t.Name, Group: g.GetGroup(), Partition: int(p.GetPartition()), Length: p.GetLength(), Produced: p.GetProduced(),
				Scheduled: p.GetScheduled(), Unscheduled: p.GetCancelled(), Cancelled: g.GetCancelled(), Acked: g.GetAcked(), Dead: g.GetDead(),
				Expired: g.GetExpired(), Trimmed: g.GetTrimmed(), Elsewhere: g.GetElsewhere(), Replayed: g.GetReplayed(),
				Waiting: g.GetWaiting(), Running: g.GetRunning(), Retrying: g.GetRetrying(),
			})
		}
	}
	return counts, nil
}

// letters returns all dead letters of a topic, according to a node.
func (a *auditor) letters(ctx context.Context, c *client, topic string) ([]Stored, error) {
	var letters []Stored
	page := ""
	for {
		callCtx, cancel := c.call(ctx)
		res, err := c.admin.ListDeadLetters(callCtx, &parleyv1.ListDeadLettersRequest{Topic: topic, PageSize: 200, PageToken: page, Full: true})
		cancel()
		if err != nil {
			return nil, err
		}
		for _, d := range res.GetDeadLetters() {
			letters = append(letters, Stored{
				ID: d.GetDeadLetterId(), MessageID: d.GetMessageId(), Mark: markOf(d.GetPayload()), Key: d.GetKey(), Attempts: int(d.GetAttempts()),
				Topic: topic, Partition: int(d.GetPartition()), Group: d.GetGroup(), Reason: d.GetReason(), Code: d.GetCode(),
			})
		}
		if page = res.GetNextPageToken(); page == "" {
			return letters, nil
		}
	}
}
