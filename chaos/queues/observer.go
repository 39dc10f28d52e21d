package queues

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// observer looks at all leases in Redis, over and over.
type observer struct {
	out    sink
	client *redis.Client
	spots  []spot
	keys   []string
	open   []Lease
}

// lookEvery is how often the leases are looked at.
const lookEvery = 15 * time.Millisecond

func newObserver(out sink, client *redis.Client, topics []Topic) *observer {
	o := &observer{out: out, client: client}
	for _, t := range topics {
		for p := range t.Partitions {
			for _, g := range t.Groups {
				o.spots = append(o.spots, spot{t.Name, g, p})
				o.keys = append(o.keys, groupKey(t.Name, p, g)+":lease", groupKey(t.Name, p, g)+":epoch")
			}
		}
	}
	o.open = make([]Lease, len(o.spots))
	return o
}

// run looks until ctx ends.
func (o *observer) run(ctx context.Context) {
	for chaos.Sleep(ctx, lookEvery) {
		o.look(ctx)
	}
	for i := range o.open {
		o.keep(i)
	}
}

// look asks for all at one moment, which lies between two that are known.
func (o *observer) look(ctx context.Context) {
	callCtx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	before := now()
	values, err := o.client.MGet(callCtx, o.keys...).Result()
	if err != nil {
		if ctx.Err() == nil {
			o.out.write(line{Failure: &Failure{Who: Observing, Addr: "redis", Begin: before, End: now(), Err: err.Error()}})
		}
		return
	}
	after := now()
	for i, s := range o.spots {
		lease, _ := values[2*i].(string)
		epoch, _ := values[2*i+1].(string)
		holder, held, _ := strings.Cut(lease, " ")
		n := number(epoch)
		if held != "" {
			n = number(held)
		}
		l := &o.open[i]
		if l.From == 0 || l.Holder != holder || l.Epoch != n {
			o.keep(i)
			*l = Lease{Topic: s.topic, Group: s.group, Partition: s.partition, Holder: holder, Epoch: n, From: after}
		}
		l.To = before
	}
}

// keep records a lease that was seen.
func (o *observer) keep(i int) {
	if l := o.open[i]; l.From != 0 {
		l.To = max(l.To, l.From)
		o.out.write(line{Lease: &l})
	}
}

// auditor asks AdminService what there is, over and over.
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

// auditTries is how often the auditor asks for one thing: so often in a row no replies are lost by chance.
const auditTries = 5

// audit records what a topic holds, as a node says.
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

// counts asks a node for what a topic holds.
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
				At: at, Topic: t.Name, Group: g.GetGroup(), Partition: int(p.GetPartition()), Produced: p.GetProduced(),
				Cancelled: p.GetCancelled(), Acked: g.GetAcked(), Dead: g.GetDead(), Replayed: g.GetReplayed(), Unread: g.GetUnread(),
				Pending: g.GetPending(), Retrying: g.GetRetrying(), Parked: g.GetParked(), Delayed: p.GetDelayed(),
				Trimmed: g.GetTrimmed(), Skipped: g.GetSkipped(),
			})
		}
	}
	return counts, nil
}

// letters asks a node for all dead letters of a topic.
func (a *auditor) letters(ctx context.Context, c *client, topic string) ([]Stored, error) {
	var letters []Stored
	page := ""
	for {
		callCtx, cancel := c.call(ctx)
		res, err := c.admin.ListDeadLetters(callCtx, &parleyv1.ListDeadLettersRequest{Topic: topic, PageSize: 200, PageToken: page})
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
