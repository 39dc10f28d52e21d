package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/parleyhq/parley/hack/internal/user"
	"github.com/parleyhq/parley/hack/internal/verdict"
	"github.com/parleyhq/parley/internal/rig"
	parley "github.com/parleyhq/parley/sdk/go"
)

// cost is what a call cost: commands to MongoDB, and round trips to Redis.
type cost struct{ mongo, redis float64 }

// probes counts what the nodes send to the engines while the fleet is otherwise quiet.
type probes struct {
	*job

	members []*mongo.Client
	redis   *redis.Client
	idle    cost // of a second
	budgets map[string]cost
}

// redisRead is the number of bytes that Redis reads from a connection at a time.
const redisRead = 16 << 10

// kept is a channel whose messages never expire.
const kept = "kept"

// settleFor is how long the work that follows a call is waited for.
const settleFor = 400 * time.Millisecond

// newProbes reads the budgets and connects to the engines. The caller must close it.
func newProbes(j *job) (_ *probes, err error) {
	p := &probes{job: j, redis: j.fleet.Redis.Client()}
	if p.budgets, err = readBudgets(); err != nil {
		return nil, err
	}
	for i := range j.fleet.Mongo.Size() {
		client, err := connect1(j.fleet.Mongo.Addr(i))
		if err != nil {
			return nil, err
		}
		p.members = append(p.members, client)
	}
	return p, nil
}

func (p *probes) close(ctx context.Context) error {
	for _, client := range p.members {
		_ = client.Disconnect(ctx)
	}
	return p.redis.Close()
}

// readBudgets reads the commands and round trips of each row of docs/budgets.md.
func readBudgets() (map[string]cost, error) {
	root, err := rig.Root()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "budgets.md"))
	if err != nil {
		return nil, err
	}
	budgets := make(map[string]cost)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 3 {
			continue
		}
		commands, err := strconv.ParseFloat(strings.TrimSpace(cells[1]), 64)
		trips, err2 := strconv.ParseFloat(strings.TrimSpace(cells[2]), 64)
		if err == nil && err2 == nil {
			budgets[strings.TrimSpace(cells[0])] = cost{commands, trips}
		}
	}
	return budgets, nil
}

// total returns what has been counted so far.
func (p *probes) total(ctx context.Context) (cost, error) {
	var c cost
	info, err := p.redis.InfoMap(ctx, "stats").Result()
	if err != nil {
		return c, err
	}
	// A pipeline is read at once, unless it is large: a read takes up to redisRead. One of the
	// reads is this one.
	reads, err := strconv.ParseFloat(info["Stats"]["total_reads_processed"], 64)
	if err != nil {
		return c, fmt.Errorf("the reads of Redis: %w", err)
	}
	size, err := strconv.ParseFloat(info["Stats"]["total_net_input_bytes"], 64)
	if err != nil {
		return c, fmt.Errorf("the bytes read by Redis: %w", err)
	}
	c.redis = reads - size/redisRead
	for _, member := range p.members {
		var status struct {
			Metrics struct {
				Commands map[string]bson.RawValue `bson:"commands"`
			} `bson:"metrics"`
		}
		if err := member.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
			return c, err
		}
		for name, value := range status.Metrics.Commands {
			// Those that wait for changes, and those of drivers and members on their own.
			switch {
			case slices.Contains([]string{"getMore", "hello", "isMaster", "endSessions", "serverStatus", "ping"}, name),
				strings.HasPrefix(name, "replSet"), strings.HasPrefix(name, "_"):
				continue
			}
			if doc, ok := value.DocumentOK(); ok {
				n, _ := doc.Lookup("total").AsInt64OK()
				c.mongo += float64(n)
			}
		}
	}
	return c, nil
}

// probe is a call whose cost has a budget.
type probe struct {
	name    string
	prepare func() error
	call    func(k int) error
}

// run measures all calls, and returns the text of the report.
func (p *probes) run(ctx context.Context) (string, error) {
	if err := verdict.Sleep(ctx, time.Second); err != nil { // what came before
		return "", err
	}
	var err error
	if p.idle, err = p.measureIdle(ctx); err != nil {
		return "", err
	}
	report := []string{fmt.Sprintf("an idle second: %.1f commands to MongoDB and %.1f round trips to Redis", p.idle.mongo, p.idle.redis)}
	for _, row := range p.rows(ctx) {
		want, ok := p.budgets[row.name]
		if !ok {
			return "", fmt.Errorf("docs/budgets.md has no row %q", row.name)
		}
		got, err := p.measure(ctx, &row)
		if err != nil {
			return "", fmt.Errorf("%s: %w", row.name, err)
		}
		report = append(report, fmt.Sprintf("%s: %.0f commands of %.0f to MongoDB, %.0f round trips of %.0f to Redis",
			row.name, got.mongo, want.mongo, got.redis, want.redis))
		if got.mongo > want.mongo || got.redis > want.redis {
			p.Wrongf("%s costs %.0f commands to MongoDB and %.0f round trips to Redis, and may cost %.0f and %.0f",
				row.name, got.mongo, got.redis, want.mongo, want.redis)
		}
	}
	return strings.Join(report, "\n  "), nil
}

// measureIdle returns the lower quartile of what the idle fleet costs in a second.
func (p *probes) measureIdle(ctx context.Context) (cost, error) {
	var mongos, redises []float64
	for range 8 {
		before, err := p.total(ctx)
		if err != nil {
			return cost{}, err
		}
		began := time.Now()
		if err := verdict.Sleep(ctx, settleFor); err != nil {
			return cost{}, err
		}
		after, err := p.total(ctx)
		if err != nil {
			return cost{}, err
		}
		s := time.Since(began).Seconds()
		mongos, redises = append(mongos, (after.mongo-before.mongo)/s), append(redises, (after.redis-before.redis-1)/s)
	}
	return quartiles(mongos, redises), nil
}

// quartiles returns the lower quartile of each number.
func quartiles(mongos, redises []float64) cost {
	slices.Sort(mongos)
	slices.Sort(redises)
	return cost{mongos[len(mongos)/4], redises[len(redises)/4]}
}

// measure returns the lower quartile of what a call costs with the work that follows it, without
// what the idle fleet costs in that time. docs/budgets.md says why.
func (p *probes) measure(ctx context.Context, row *probe) (cost, error) {
	var mongos, redises []float64
	for k := range p.Probes + 1 {
		if row.prepare != nil {
			if err := row.prepare(); err != nil {
				return cost{}, err
			}
		}
		before, err := p.total(ctx)
		if err != nil {
			return cost{}, err
		}
		began := time.Now()
		if err := row.call(k); err != nil {
			return cost{}, err
		}
		if err := verdict.Sleep(ctx, settleFor); err != nil {
			return cost{}, err
		}
		after, err := p.total(ctx)
		if err != nil {
			return cost{}, err
		}
		after.redis-- // the read of total itself
		if s := time.Since(began).Seconds(); k > 0 {
			mongos = append(mongos, max(0, after.mongo-before.mongo-s*p.idle.mongo))
			redises = append(redises, max(0, after.redis-before.redis-s*p.idle.redis))
		}
	}
	return quartiles(mongos, redises), nil
}

// rows returns the calls, each with the budget of its row in docs/budgets.md, whose data is larger.
func (p *probes) rows(ctx context.Context) []probe {
	f := p.finals[0]
	client, node := p.clients.nodes[0], 0
	newest := func(k int) *line { return &p.days.lines[f.messages[len(f.messages)-2-k]] }
	edit := func(k int) error {
		i := f.messages[p.notRecalled(f, k)]
		l, s := &p.days.lines[i], p.states[i]
		text := l.text(edits + 2 + version(k)) //nolint:gosec // small
		_, err := p.clients.nodes[k%len(p.clients.nodes)].Edit(user.As(ctx, l.from), f.name, s.msgID, text)
		return err
	}
	list := func(opts ...parley.HistoryOption) func(int) error {
		return func(int) error {
			for _, err := range client.History(ctx, f.name, opts...) {
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	uncache := func() error {
		return p.redis.Del(ctx, "msg_cache:"+f.name).Err()
	}
	replay := func(after int64) func(int) error {
		return func(int) error { return p.replay(ctx, client, f.name, after) }
	}
	return []probe{
		{name: "SendMessage, 64 KiB", call: func(k int) error {
			_, err := p.clients.nodes[k%len(p.clients.nodes)].Send(ctx, f.name, newest(k).content)
			return err
		}},
		{name: "EditMessage, 64 KiB, the 300th edit", call: edit},
		{name: "GetMessage, 60 KiB, edited 300 times", call: func(k int) error {
			_, _, err := p.clients.nodes[node].Get(ctx, f.name, p.states[f.messages[len(f.messages)-1-k]].msgID)
			return err
		}},
		{name: "ListMessages, 2 messages, one edited 300 times", call: list(parley.PageSize(50), parley.Limit(50))},
		{name: "ListMessages, the same without Redis", prepare: uncache, call: list(parley.PageSize(50), parley.Limit(50))},
		{name: "ListMessages, a page of 1 MiB", call: list(parley.PageSize(1000), parley.Limit(1000))},
		{
			name: "ListMessages, a page of 1 MiB without Redis", prepare: uncache,
			call: list(parley.PageSize(1000), parley.Limit(1000), parley.AfterSeq(f.head/2+f.oldest/2)),
		},
		{name: "Subscribe, replay of 2 messages and 300 edits", call: replay(f.head)},
		{name: "Subscribe, replay of 2.5 MiB", call: replay(0)},
		{name: "MarkRead", call: func(k int) error {
			_, err := client.MarkRead(ctx, f.name, f.head-int64(p.Probes)+int64(k))
			return err
		}},
		{name: "RecallMessage, edited 300 times", call: func(k int) error {
			i := f.messages[p.notRecalled(f, k)]
			_, err := client.Recall(user.As(ctx, p.days.lines[i].from), f.name, p.states[i].msgID)
			return err
		}},
		{name: "GetChannel, 5,000 members", call: func(int) error {
			_, err := client.Channel(ctx, f.name)
			return err
		}},
		// In a channel that keeps all, because 500 messages more make others expire.
		{name: "SendMessages, 500 of 4 KB", prepare: func() error {
			_, err := client.CreateChannel(ctx, kept, parley.WithRetention(&parley.Retention{}), parley.WithIdempotencyKey(kept))
			return err
		}, call: func(int) error {
			batch := make([]parley.Outgoing, 500)
			for n := range batch {
				batch[n] = parley.Outgoing{ChannelID: kept, Content: p.days.lines[n%len(p.days.lines)].content}
			}
			_, err := client.SendBatch(ctx, batch)
			return err
		}},
	}
}

// notRecalled returns the index of the k-th newest message that was edited and not recalled.
func (p *probes) notRecalled(f *final, k int) int {
	for n, i := range slices.Backward(f.messages) {
		if v := p.states[i].version; v > 0 && v != recalled {
			if k == 0 {
				return n
			}
			k--
		}
	}
	return 0
}

// replay subscribes to a channel from a position and reads it to its end.
func (p *probes) replay(ctx context.Context, client *parley.Client, channel string, after int64) error {
	sub := client.Subscribe(ctx, parley.After(parley.Position{ChannelID: channel, Seq: after}))
	defer sub.Close()
	head := int64(0)
	for {
		e, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		if e.Kind == parley.EventChannelState {
			head = e.Channel.GetHeadSeq()
		}
		if e.Seq >= head {
			return nil
		}
	}
}
