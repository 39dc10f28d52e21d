// Package queues is the fault harness of work queues. It injects faults into a fleet under load and
// checks what producers and consumers observed.
//
// A run has producers, and consumers in this process and in processes of their own (worker). It has
// a schedule of faults (package chaos), an observer that reads all leases in Redis, and an auditor
// that requests all counters. A Recorder keeps the history of every call, answer, delivery and
// fault. At the end the run mends all faults, lets the groups settle all messages, and reads Redis
// directly (Truth). Check then compares the history with it. Every accepted message was delivered
// and settled when due, in order, never early, and never after its ack. A session kept what it held
// as long as the server had contact with its consumer, no two sessions had a key at a time, and
// only the latest delivery of a message was settled. The dead letters are the expected ones, and
// the counters add up.
//
// The package does not use the server's packages, so the server's code never checks itself. Some
// consumers and a producer use the SDK. A tap records their calls on the wire, which are checked
// like those of others; what the SDK reports to its program is checked separately. Tests with
// histories of one fault each, and mutants, show that the checker finds what it must.
package queues

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/internal/rig"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// shortPlan returns the plan of a short run, which takes one to two minutes.
func shortPlan() chaos.Plan {
	return chaos.Plan{Nodes: 2, Targets: processTargets(), Scale: 0.2, Counts: map[chaos.FaultName]int{
		ConsumerKill: 2, ConsumerStop: 1, chaos.NodeKill: 1, chaos.NodeStop: 1, chaos.Roll: 1, chaos.RedisKill: 1, chaos.RedisAway: 1,
		chaos.RedisMemory: 1, KeysLost: 1, chaos.NATSAway: 1,
	}}
}

// longPlan returns the plan of `make chaos`: every fault, the worst ones many times.
func longPlan() chaos.Plan {
	return chaos.Plan{Nodes: 3, Targets: processTargets(), Scale: 0.6, Counts: map[chaos.FaultName]int{
		ConsumerKill: 16, ConsumerStop: 6, chaos.NodeKill: 8, chaos.NodeStop: 5, chaos.NodeIsolate: 2, chaos.Roll: 3, chaos.RedisKill: 5,
		chaos.RedisAway: 2, chaos.RedisMemory: 2, KeysLost: 3, chaos.CutRedis: 3, chaos.StallRedis: 3,
		chaos.NATSAway: 2, chaos.CutNATS: 2, chaos.StallNATS: 2,
	}}
}

// processTargets returns the numbers of targets of the faults of consumers.
func processTargets() map[chaos.FaultName]int {
	return map[chaos.FaultName]int{ConsumerKill: processes, ConsumerStop: processes}
}

// promotionPlan has no faults: the promotion has steps of its own.
func promotionPlan() chaos.Plan { return chaos.Plan{Nodes: 2} }

// dueMessages returns how many messages a run of a size schedules for one second at its end.
func dueMessages(s chaos.Size) int {
	switch s {
	case chaos.Minimal:
		return 0
	case chaos.Short:
		return 4_000
	default:
		return 100_000
	}
}

// The topics of a run. jobs keeps settled messages, steps has strict order, ring drops the oldest,
// and due has the messages that are due in one second.
const (
	jobs  = "jobs"
	steps = "steps"
	ring  = "ring"
	due   = "due"
)

// topics returns the topics of a run.
func topics() []Topic {
	return []Topic{
		{Name: jobs, Partitions: 6, Groups: []string{"a", "b"}, Keeps: true, MaxAttempts: 6},
		{Name: steps, Partitions: 4, Groups: []string{"a"}, Strict: true, MaxAttempts: 8},
		{Name: ring, Partitions: 1, Groups: []string{"a"}, Drops: true, MaxAttempts: 6},
		{Name: due, Partitions: 4, Groups: []string{"a"}, Keeps: true, MaxAttempts: 6},
	}
}

// grace is the resume grace of all groups: how long a session keeps its deliveries without contact.
// It is short, so that a killed consumer loses them within a short run.
const grace = 4 * time.Second

// Harness returns the harness of queues under faults.
func Harness() *chaos.Harness {
	s := spec((*run).breakFleet, dueMessages)
	s.Name, s.Short, s.Long, s.Mutants = "queues", shortPlan, longPlan, mutants
	return chaos.New(s)
}

// spec returns a harness of queues without a name and plans. breakThings injects the faults. due
// returns how many messages are due in one second at the end.
func spec(breakThings func(r *run, ctx context.Context) error, due func(chaos.Size) int) chaos.Spec[History, Truth] {
	return chaos.Spec[History, Truth]{
		Fleet: fleet,
		Drive: func(ctx context.Context, c *chaos.Run) (*History, *Truth, error) {
			r, err := newRun(c, due(c.Size))
			if err != nil {
				return nil, nil, err
			}
			return r.drive(ctx, breakThings)
		},
		Read: ReadHistory, Check: Check, Calls: func(h *History) int { return len(h.Ops) }, Summarize: summarize,
	}
}

func fleet(*chaos.Config) rig.Options {
	return rig.Options{MongoMembers: 1, NATSServers: 1, Env: []string{
		"PARLEY_LIMITS_HEARTBEAT_INTERVAL=1s", "PARLEY_LIMITS_STREAMS_PER_SUBJECT=1000",
	}}
}

// run is one run of the workload.
type run struct {
	*chaos.Run

	rec     *Recorder
	token   string
	clients []*client
	topics  []Topic
	workers []*worker
	nemesis *chaos.Nemesis
	auditor *auditor
	// due is the number of messages that are scheduled for one second at the end.
	due int
	// promotion is the promotion of Redis' replica, or nil if the run has none.
	promotion *promotion
}

func newRun(c *chaos.Run, fallDue int) (*run, error) {
	rec, err := NewRecorder(c.HistoryPath())
	if err != nil {
		return nil, err
	}
	r := &run{Run: c, rec: rec, topics: topics(), due: fallDue}
	if r.token, err = c.Fleet.Token("chaos", nil); err != nil {
		return nil, err
	}
	for _, addr := range c.Fleet.Addresses() {
		r.clients = append(r.clients, newClient(addr, r.token))
	}
	for _, consumer := range r.killable() {
		w := &worker{consumer: consumer, out: rec}
		r.workers = append(r.workers, w)
		r.Cleanup(w.kill)
	}
	r.nemesis = c.NewNemesis(chaos.NemesisConfig{Log: rec, Own: r.breaks(), Lossy: []rig.Engine{rig.EngineRedis}})
	r.auditor = &auditor{out: rec, clients: r.clients, topics: r.topics}
	return r, nil
}

// drive runs the clients, injects faults, waits for the groups, and reads the truth.
func (r *run) drive(ctx context.Context, breakThings func(r *run, ctx context.Context) error) (*History, *Truth, error) {
	lookCtx, looking := r.Group(ctx)
	consumeCtx, consuming := r.Group(ctx)
	produceCtx, producing := r.Group(ctx)
	if err := r.open(ctx); err != nil {
		return nil, nil, err
	}
	r.observe(lookCtx, looking)
	if err := r.consume(consumeCtx, consuming); err != nil {
		return nil, nil, err
	}
	if err := r.produce(produceCtx, producing); err != nil {
		return nil, nil, err
	}
	if err := breakThings(r, ctx); err != nil {
		return nil, nil, err
	}
	producing.Stop()
	r.runDue(ctx)
	r.drain(ctx)
	consuming.Stop()
	for _, w := range r.workers {
		w.stop()
	}
	looking.Stop()
	return r.readAll(ctx)
}

// open creates the topics and their groups.
func (r *run) open(ctx context.Context) error {
	for i := range r.topics {
		t := &r.topics[i]
		r.rec.write(line{Topic: t})
		if err := makeTopic(ctx, r.clients[0], t); err != nil {
			return err
		}
	}
	return nil
}

// ringSize is the maximum number of messages in the topic that drops the oldest.
const ringSize = 200

// setUpLimit bounds the calls that create a topic, which start when the nodes do.
const setUpLimit = 30 * time.Second

// makeTopic creates a topic and its groups.
func makeTopic(ctx context.Context, c *client, t *Topic) error {
	topic := &parleyv1.Topic{
		Name: t.Name, Partitions: int32(t.Partitions), Retention: &parleyv1.TopicRetention{MaxAge: durationpb.New(0)}, //nolint:gosec // few
	}
	if t.Keeps {
		topic.Retention.MaxAge = durationpb.New(24 * time.Hour)
	}
	if t.Drops {
		topic.MaxMessagesPerPartition, topic.DropOldest = ringSize, true
	}
	callCtx, cancel := c.Call(ctx, setUpLimit)
	defer cancel()
	if _, err := c.admin.CreateTopic(callCtx, &parleyv1.CreateTopicRequest{Topic: topic}); err != nil {
		return fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	for _, g := range t.Groups {
		group := &parleyv1.Group{
			Name: g, Order: parleyv1.DeliveryOrder_DELIVERY_ORDER_KEY, ResumeGrace: durationpb.New(grace),
			Retry: &parleyv1.RetryPolicy{
				MaxAttempts: new(int32(t.MaxAttempts)), MinBackoff: durationpb.New(20 * time.Millisecond), //nolint:gosec // few
				MaxBackoff: durationpb.New(300 * time.Millisecond), NonRetryableCodes: []string{rejectCode},
			},
			Start: &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_BEGINNING}},
		}
		if t.Strict {
			group.Order = parleyv1.DeliveryOrder_DELIVERY_ORDER_STRICT
		}
		if _, err := c.admin.CreateGroup(callCtx, &parleyv1.CreateGroupRequest{Topic: t.Name, Group: group}); err != nil {
			return fmt.Errorf("create group %s of %s: %w", g, t.Name, err)
		}
	}
	return nil
}

// processes is the number of consumer processes.
const processes = 6

// tokenTTL is how long the tokens are valid of consumers that renew them.
const tokenTTL = 8 * time.Second

// killable returns the consumers that faults kill and stop. Each runs in a process of its own.
func (r *run) killable() []Consumer {
	all := make([]Consumer, processes)
	for i := range all {
		c := Consumer{
			Name: fmt.Sprintf("proc-%d", i), Token: r.token, Seed: r.Seed, Group: "a", Topic: jobs, Work: 20 * time.Millisecond,
			Addrs: r.Addrs(i), Bidi: i < 3, Reports: i%2 == 0, Forgets: i == 4, Mortal: true,
		}
		switch i {
		case 1:
			c.Name, c.SDK, c.Secret, c.TokenTTL = "sdk-jobs", true, r.Fleet.Secret(), tokenTTL
		case 2, 5:
			c.Topic = steps
		case 3:
			c.Name, c.Topic, c.SDK = "sdk-steps", steps, true
		}
		all[i] = c
	}
	return all
}

// residents returns the consumers that run in this process, so no fault kills or stops them.
func (r *run) residents() []Consumer {
	base := Consumer{Token: r.token, Seed: r.Seed, Group: "a", Topic: jobs, Work: 20 * time.Millisecond}
	var all []Consumer
	add := func(name string, i int, change func(c *Consumer)) {
		c := base
		c.Name, c.Addrs = name, r.Addrs(i)
		change(&c)
		all = append(all, c)
	}
	add("steady", 0, func(c *Consumer) { c.Bidi = true })
	add("slow", 1, func(c *Consumer) {
		c.Bidi, c.Pause, c.InFlight, c.AckTimeout = true, 3*time.Second, 1000, 8*time.Second
	})
	add("other-0", 0, func(c *Consumer) { c.Group = "b" })
	add("other-1", 1, func(c *Consumer) { c.Group, c.Bidi, c.Concurrency, c.InFlight = "b", true, 5, 5 })
	add("step", 1, func(c *Consumer) { c.Topic = steps })
	add("short-lived", 0, func(c *Consumer) { c.Topic, c.Secret, c.TokenTTL = steps, r.Fleet.Secret(), tokenTTL })
	add("ring", 0, func(c *Consumer) { c.Topic, c.Work, c.Concurrency, c.InFlight = ring, 300*time.Millisecond, 5, 10 })
	return all
}

// observe starts the observer, the auditor and the watch of the nodes.
func (r *run) observe(ctx context.Context, g *chaos.Group) {
	redis := r.Fleet.Redis.Client()
	o := newObserver(r.rec, redis, r.topics)
	g.Go(func() { defer redis.Close(); o.run(ctx) })
	g.Go(func() { r.auditor.run(ctx) })
	r.nemesis.Watch(ctx, g)
}

// consume starts all consumers.
func (r *run) consume(ctx context.Context, g *chaos.Group) error {
	for _, w := range r.workers {
		if w.consumer.SDK {
			r.rec.write(line{Worker: w.consumer.Name})
		}
		if err := w.start(); err != nil {
			return fmt.Errorf("start a consumer: %w", err)
		}
	}
	for _, c := range r.residents() {
		g.Go(func() { newConsumer(c, r.rec).run(ctx) })
	}
	return nil
}

// produce starts all producers.
func (r *run) produce(ctx context.Context, g *chaos.Group) error {
	start := func(topic string, i int, every time.Duration) {
		p := r.producer(fmt.Sprintf("%s%d", topic, i), topic, every)
		g.Go(func() { p.run(ctx) })
	}
	for i := range r.Fleet.Nodes() {
		start(jobs, i, 60*time.Millisecond)
		start(steps, i, 120*time.Millisecond)
	}
	start(ring, 0, 80*time.Millisecond)
	client, err := parley.New(strings.Join(r.Addrs(0), ","), parley.WithToken(r.token), parley.WithAttemptTimeout(sdkPatience))
	if err != nil {
		return err
	}
	r.Cleanup(client.Close)
	for _, topic := range []string{jobs, steps} {
		p := r.producer("sdk-"+topic, topic, 150*time.Millisecond)
		p.sdk = queue.NewProducer(client, topic)
		g.Go(func() { p.run(ctx) })
	}
	return nil
}

func (r *run) producer(name, topic string, every time.Duration) *producer {
	return &producer{out: r.rec, name: name, topic: topic, clients: r.clients, rng: chaos.Source(r.Seed, name), every: every}
}

// breakFleet injects the faults of the schedule.
func (r *run) breakFleet(ctx context.Context) error {
	if err := r.nemesis.Run(ctx); err != nil {
		return err
	}
	chaos.Sleep(ctx, time.Second)
	return r.nemesis.Healed(ctx)
}

// drainLimit is the time within which every message must be settled after the last fault was
// mended. Until then leases end, streams reconnect, and retries run.
const drainLimit = 30 * time.Second

// perDue extends drainLimit for each message that is due at the end. It also covers the backlog
// from the faults: that of group b, one of whose consumers has a window of five, took ten minutes
// after a long run on two cores.
const perDue = 8 * time.Millisecond

// drain waits until all groups have settled their messages. If that takes too long, it records the
// unsettled ones as Undrained and returns.
func (r *run) drain(ctx context.Context) {
	redis := r.Fleet.Redis.Client()
	defer redis.Close()
	limit, cancel := context.WithTimeout(ctx, drainLimit+time.Duration(r.due)*perDue)
	defer cancel()
	began, left := time.Now(), "nothing was asked"
	for left != "" {
		t, err := readTruth(ctx, redis, r.topics)
		switch {
		case err != nil:
			left = err.Error()
		default:
			left = t.left()
		}
		if left != "" && !chaos.Sleep(limit, 300*time.Millisecond) {
			r.rec.write(line{Undrained: left})
			return
		}
	}
	r.Logger.InfoContext(ctx, "all is settled", "took", time.Since(began).Round(time.Millisecond))
}

// left describes the unsettled messages of all groups. It returns "" if there are none.
func (t *Truth) left() string {
	var text strings.Builder
	for _, n := range t.spots() {
		if n.unsettled() != 0 {
			fmt.Fprintf(&text, "%+v; ", n)
		}
	}
	return text.String()
}

// readAll closes the history and reads the truth, from Redis and from AdminService.
func (r *run) readAll(ctx context.Context) (*History, *Truth, error) {
	h, err := r.rec.Close()
	if err != nil {
		return nil, nil, err
	}
	redis := r.Fleet.Redis.Client()
	defer redis.Close()
	t, err := readTruth(ctx, redis, r.topics)
	if err != nil {
		return nil, nil, err
	}
	for i := range r.topics {
		counts, err := r.auditor.counts(ctx, r.clients[i%len(r.clients)], &r.topics[i])
		if err != nil {
			return nil, nil, fmt.Errorf("count %s: %w", r.topics[i].Name, err)
		}
		letters, err := r.auditor.letters(ctx, r.clients[i%len(r.clients)], r.topics[i].Name)
		if err != nil {
			return nil, nil, fmt.Errorf("list the dead letters of %s: %w", r.topics[i].Name, err)
		}
		t.Counts, t.Letters = append(t.Counts, counts...), append(t.Letters, letters...)
	}
	return h, t, r.checkPromoted(ctx, h, t)
}
