// Package queues breaks a running fleet under a load of queues, and judges what producers and consumers saw.
//
// A run has producers, consumers in this process and consumers in processes of their own (worker), a schedule of faults
// (package chaos), an observer that looks at all leases in Redis, an auditor that asks for all counters, and a history of
// all that was asked, answered, delivered and broken (Recorder). In the end everything is mended, the groups do what is
// left, and Redis is read raw (Truth). Check then holds the history against it: what was taken was delivered and settled
// once it could be, in order, never early, never after its ack; nobody settled or was given what was another's; the dead
// letters are those that should be, and everything adds up.
//
// Nothing here uses the server's packages, so nothing of it is judged by its own code. Some consumers and a producer use the SDK:
// what that says on the wire is recorded there (tap) and judged as what others say, and what it tells its program is judged by
// itself. That the checker sees what it should is tested by histories with one fault each, and by mutants (package mutants).
package queues

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/internal/rig"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/queue"
)

// Config says what Run does.
type Config struct {
	// Dir gets the history, what Redis holds, the violations and the nodes' logs.
	Dir string
	// Seed gives the schedule and the clients' choices.
	Seed uint64
	// Plan is what is broken, in an order of the seed's.
	Plan chaos.Plan
	// Steps replace Plan's, unless nil.
	Steps []chaos.Step
	// KeepReplies leaves all of Redis' replies where they are, instead of losing every hundredth.
	KeepReplies bool
	// Due is how many messages fall due in one second, once all was mended: 0 is none.
	Due int
	// Binary is the parleyd to run; empty builds it from this source.
	Binary   string
	Settings Settings
	Logger   *slog.Logger

	// promote has a replica take Redis' place, instead of faults.
	promote bool
}

// ShortPlan is for a run of less than a minute.
func ShortPlan() chaos.Plan {
	return chaos.Plan{Nodes: 2, Clients: processes, Scale: 0.2, Counts: map[chaos.FaultName]int{
		ConsumerKill: 2, ConsumerStop: 1, chaos.NodeKill: 1, chaos.NodeStop: 1, chaos.RedisKill: 1, chaos.NATSAway: 1,
	}}
}

// LongPlan is what `make chaos` does: every fault, the worst of them many times.
func LongPlan() chaos.Plan {
	return chaos.Plan{Nodes: 3, Clients: processes, Scale: 0.6, Counts: map[chaos.FaultName]int{
		ConsumerKill: 16, ConsumerStop: 6, chaos.NodeKill: 8, chaos.NodeStop: 5, chaos.NodeIsolate: 2, chaos.Roll: 3, chaos.RedisKill: 5,
		chaos.CutRedis: 3, chaos.StallRedis: 3, chaos.NATSAway: 2, chaos.CutNATS: 2, chaos.StallNATS: 2,
	}}
}

// The due messages of a run.
const (
	ShortDue = 4_000
	LongDue  = 100_000
)

// Result is what a run showed.
type Result struct {
	Violations []chaos.Violation
	History    *History
	Truth      *Truth
	// Lost counts the replies that were lost, by engine.
	Lost map[string]int64
}

// The topics of a run: jobs keeps what was settled, steps is of strict order, ring drops the oldest, due has what falls due
// in one second.
const (
	jobs  = "jobs"
	steps = "steps"
	ring  = "ring"
	due   = "due"
)

// topics are what a run makes.
func topics() []Topic {
	return []Topic{
		{Name: jobs, Partitions: 6, Groups: []string{"a", "b"}, Keeps: true, MaxAttempts: 6},
		{Name: steps, Partitions: 4, Groups: []string{"a"}, Strict: true, MaxAttempts: 8},
		{Name: ring, Partitions: 1, Groups: []string{"a"}, Drops: true, MaxAttempts: 6},
		{Name: due, Partitions: 4, Groups: []string{"a"}, Keeps: true, MaxAttempts: 6},
	}
}

// leaseTTL is the nodes' setting: short, so that a stopped node loses its leases within a short run.
const leaseTTL = 2 * time.Second

// Env is the configuration of the nodes.
func Env() []string {
	return []string{
		"PARLEY_LIMITS_HEARTBEAT_INTERVAL=1s", "PARLEY_LIMITS_STREAMS_PER_SUBJECT=1000", "PARLEY_QUEUES_LEASE_TTL=" + leaseTTL.String(),
	}
}

// Run starts a fleet, breaks it, and judges it. The error is that of a run that could not be made: it says nothing of the
// server. The process must run in a network namespace of its own, see rig.RunInNamespace, and its main must know
// ConsumeFlag.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		return nil, err
	}
	fleet, err := rig.Start(ctx, rig.Options{
		Nodes: c.Plan.Nodes, MongoMembers: 1, NATSServers: 1, Namespaced: true, Binary: c.Binary, Logger: c.Logger, Env: Env(),
	})
	if err != nil {
		return nil, fmt.Errorf("start the fleet: %w", err)
	}
	r, err := newRun(&c, fleet)
	if err != nil {
		return nil, errors.Join(err, fleet.Close())
	}
	res, err := r.do(ctx)
	r.keepLogs()
	return res, errors.Join(err, fleet.Close())
}

// run is one Run under way.
type run struct {
	c       *Config
	fleet   *rig.Fleet
	rec     *Recorder
	token   string
	clients []*client
	topics  []Topic
	workers []*worker
	nemesis *chaos.Nemesis
	auditor *auditor
	// undo ends what the run has started beside the fleet, in reverse.
	undo []func()

	// promotion is what was seen of one; promoted are the violations that it showed.
	promotion *promotion
	promoted  []chaos.Violation

	producing, consuming, looking sync.WaitGroup
}

func newRun(c *Config, fleet *rig.Fleet) (*run, error) {
	rec, err := NewRecorder(filepath.Join(c.Dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	r := &run{c: c, fleet: fleet, rec: rec, topics: topics()}
	if r.token, err = fleet.Token("chaos", nil); err != nil {
		return nil, err
	}
	for _, addr := range fleet.Addresses() {
		r.clients = append(r.clients, newClient(addr, r.token))
	}
	for _, consumer := range r.killable() {
		r.workers = append(r.workers, &worker{consumer: consumer, out: rec})
	}
	r.nemesis = chaos.NewNemesis(chaos.NemesisConfig{
		Fleet: fleet, Log: rec, Scale: c.Plan.Scale, Logger: c.Logger, Own: breaks(r.workers), Lossy: []rig.Engine{rig.EngineRedis},
	})
	r.auditor = &auditor{out: rec, clients: r.clients, topics: r.topics}
	return r, nil
}

// do runs the clients and the schedule, mends, waits for the groups, reads the truth and judges.
func (r *run) do(ctx context.Context) (*Result, error) {
	defer func() {
		for _, w := range r.workers {
			w.kill()
		}
		for _, undo := range slices.Backward(r.undo) {
			undo()
		}
	}()
	produceCtx, stopProducing := context.WithCancel(ctx)
	consumeCtx, stopConsuming := context.WithCancel(ctx)
	lookCtx, stopLooking := context.WithCancel(ctx)
	defer r.looking.Wait()
	defer r.consuming.Wait()
	defer r.producing.Wait()
	defer stopLooking()
	defer stopConsuming()
	defer stopProducing()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	if err := r.start(produceCtx, consumeCtx, lookCtx); err != nil {
		return nil, err
	}
	breakThings := r.breakThings
	if r.c.promote {
		breakThings = r.promote
	}
	if err := breakThings(ctx); err != nil {
		return nil, err
	}
	stopProducing()
	r.producing.Wait()
	r.fall(ctx)
	r.drain(ctx)
	stopConsuming()
	for _, w := range r.workers {
		w.stop()
	}
	r.consuming.Wait()
	stopLooking()
	r.looking.Wait()
	return r.judge(ctx)
}

// open makes the topics and their groups.
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

// ringSize is how many messages the topic that drops the oldest holds.
const ringSize = 200

// makeTopic makes a topic and its groups.
func makeTopic(ctx context.Context, c *client, t *Topic) error {
	topic := &parleyv1.Topic{
		Name: t.Name, Partitions: int32(t.Partitions), StrictOrder: t.Strict, //nolint:gosec // few
		Retry: &parleyv1.RetryPolicy{
			MaxAttempts: new(int32(t.MaxAttempts)), MinBackoff: durationpb.New(20 * time.Millisecond), //nolint:gosec // few
			MaxBackoff: durationpb.New(300 * time.Millisecond), NonRetryableCodes: []string{rejectCode},
		},
		Retention: &parleyv1.TopicRetention{MaxAge: durationpb.New(0)},
	}
	if t.Keeps {
		topic.Retention.MaxAge = durationpb.New(24 * time.Hour)
	}
	if t.Drops {
		topic.MaxMessagesPerPartition, topic.DropOldest = ringSize, true
	}
	callCtx, cancel := c.call(ctx)
	defer cancel()
	if _, err := c.admin.CreateTopic(callCtx, &parleyv1.CreateTopicRequest{Topic: topic}); err != nil {
		return fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	for _, g := range t.Groups {
		if _, err := c.admin.CreateGroup(callCtx, &parleyv1.CreateGroupRequest{Topic: t.Name, Group: g}); err != nil {
			return fmt.Errorf("create group %s of %s: %w", g, t.Name, err)
		}
	}
	return nil
}

// addrs gives all addresses, beginning with node i's.
func (r *run) addrs(i int) []string {
	all := r.fleet.Addresses()
	i %= len(all)
	return append(append([]string(nil), all[i:]...), all[:i]...)
}

// processes is how many consumers are processes of their own.
const processes = 6

// killable are the consumers that are killed and stopped: each a process of its own.
func (r *run) killable() []Consumer {
	all := make([]Consumer, processes)
	for i := range all {
		c := Consumer{
			Name: fmt.Sprintf("proc-%d", i), Token: r.token, Seed: r.c.Seed, Group: "a", Topic: jobs, Work: 20 * time.Millisecond,
			Addrs: r.addrs(i), Bidi: i < 3,
		}
		switch i {
		case 1:
			c.Name, c.SDK = "sdk-jobs", true
		case 2, 5:
			c.Topic = steps
		case 3:
			c.Name, c.Topic, c.SDK = "sdk-steps", steps, true
		}
		all[i] = c
	}
	return all
}

// residents are the consumers of this process.
func (r *run) residents() []Consumer {
	base := Consumer{Token: r.token, Seed: r.c.Seed, Group: "a", Topic: jobs, Work: 20 * time.Millisecond}
	var all []Consumer
	add := func(name string, i int, change func(c *Consumer)) {
		c := base
		c.Name, c.Addrs = name, r.addrs(i)
		change(&c)
		all = append(all, c)
	}
	add("steady", 0, func(c *Consumer) { c.Bidi = true })
	add("slow", 1, func(c *Consumer) { c.Bidi, c.Pause, c.Credits = true, 3*time.Second, 1000 })
	add("other-0", 0, func(c *Consumer) { c.Group = "b" })
	add("other-1", 1, func(c *Consumer) { c.Group, c.Bidi, c.Credits = "b", true, 5 })
	add("step", 1, func(c *Consumer) { c.Topic = steps })
	add("ring", 0, func(c *Consumer) { c.Topic, c.Work, c.Credits = ring, 300*time.Millisecond, 10 })
	return all
}

// start starts all clients.
func (r *run) start(produceCtx, consumeCtx, lookCtx context.Context) error {
	redis := r.fleet.Redis.Client()
	o := newObserver(r.rec, redis, r.topics)
	r.looking.Go(func() { defer redis.Close(); o.run(lookCtx) })
	r.looking.Go(func() { r.auditor.run(lookCtx) })
	for _, w := range r.workers {
		if w.consumer.SDK {
			r.rec.write(line{Worker: w.consumer.Name})
		}
		if err := w.start(); err != nil {
			return fmt.Errorf("start a consumer: %w", err)
		}
	}
	for _, c := range r.residents() {
		r.consuming.Go(func() { newConsumer(c, r.rec).run(consumeCtx) })
	}
	for i := range r.fleet.Nodes() {
		r.looking.Go(func() { r.nemesis.Watch(lookCtx, i) })
		r.produce(produceCtx, jobs, i, 60*time.Millisecond)
		r.produce(produceCtx, steps, i, 120*time.Millisecond)
	}
	r.produce(produceCtx, ring, 0, 80*time.Millisecond)
	client, err := parley.New(strings.Join(r.addrs(0), ","), parley.WithToken(r.token), parley.WithAttemptTimeout(sdkPatience))
	if err != nil {
		return err
	}
	r.undo = append(r.undo, client.Close)
	for _, topic := range []string{jobs, steps} {
		p := r.producer("sdk-"+topic, topic, 150*time.Millisecond)
		p.sdk = queue.NewProducer(client, topic)
		r.producing.Go(func() { p.run(produceCtx) })
	}
	return nil
}

func (r *run) produce(ctx context.Context, topic string, i int, every time.Duration) {
	p := r.producer(fmt.Sprintf("%s%d", topic, i), topic, every)
	r.producing.Go(func() { p.run(ctx) })
}

func (r *run) producer(name, topic string, every time.Duration) *producer {
	return &producer{out: r.rec, name: name, topic: topic, clients: r.clients, rng: source(r.c.Seed, name), every: every}
}

// breakThings does the schedule.
func (r *run) breakThings(ctx context.Context) error {
	keepReplies := func() {}
	if !r.c.KeepReplies {
		keepReplies = r.nemesis.LoseReplies()
	}
	steps := r.c.Steps
	if steps == nil {
		steps = chaos.Schedule(r.c.Seed, r.c.Plan)
	}
	err := r.nemesis.Run(ctx, steps)
	keepReplies()
	if err != nil {
		return err
	}
	chaos.Sleep(ctx, time.Second)
	for _, node := range r.fleet.Nodes() {
		if err := node.Ready(ctx); err != nil {
			return fmt.Errorf("node %d does not come back: %w", node.Index(), err)
		}
	}
	r.rec.mark("healed")
	return nil
}

// drainLimit is how soon everything must be settled once all is mended: leases end, streams come back, what waits for a
// retry is tried.
const drainLimit = 30 * time.Second

// perDue is how much longer that is for each message that falls due in the end. Beside them there is the backlog of the faults: that of
// group b, one of whose consumers has a window of five, took ten minutes after a long run on two cores.
const perDue = 8 * time.Millisecond

// drain waits until no group has anything to do, and records it if that takes too long.
func (r *run) drain(ctx context.Context) {
	redis := r.fleet.Redis.Client()
	defer redis.Close()
	limit, cancel := context.WithTimeout(ctx, drainLimit+time.Duration(r.c.Due)*perDue)
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
	r.c.Logger.InfoContext(ctx, "all is settled", "took", time.Since(began).Round(time.Millisecond))
}

// left says what a group has still to do; empty if none has.
func (t *Truth) left() string {
	var text strings.Builder
	for _, n := range t.spots() {
		if n.waiting() != 0 {
			fmt.Fprintf(&text, "%+v; ", n)
		}
	}
	return text.String()
}

// judge reads the truth, writes all down, and checks.
func (r *run) judge(ctx context.Context) (*Result, error) {
	h, err := r.rec.Close()
	if err != nil {
		return nil, err
	}
	redis := r.fleet.Redis.Client()
	defer redis.Close()
	t, err := readTruth(ctx, redis, r.topics)
	if err != nil {
		return nil, err
	}
	for i := range r.topics {
		counts, err := r.auditor.counts(ctx, r.clients[i%len(r.clients)], &r.topics[i])
		if err != nil {
			return nil, fmt.Errorf("count %s: %w", r.topics[i].Name, err)
		}
		letters, err := r.auditor.letters(ctx, r.clients[i%len(r.clients)], r.topics[i].Name)
		if err != nil {
			return nil, fmt.Errorf("list the dead letters of %s: %w", r.topics[i].Name, err)
		}
		t.Counts, t.Letters = append(t.Counts, counts...), append(t.Letters, letters...)
	}
	if err := r.checkPromoted(ctx, h, t); err != nil {
		return nil, err
	}
	if err := chaos.WriteReport(filepath.Join(r.c.Dir, "truth.json"), t); err != nil {
		return nil, err
	}
	res := &Result{History: h, Truth: t, Lost: r.nemesis.Lost(), Violations: append(Check(h, t, r.c.Settings), r.promoted...)}
	for _, text := range r.nemesis.Panics() {
		res.Violations = append(res.Violations, chaos.Violation{Name: Crash, Detail: text})
	}
	return res, chaos.WriteReport(filepath.Join(r.c.Dir, "violations.json"), res.Violations)
}

// keepLogs copies what the nodes logged.
func (r *run) keepLogs() {
	for _, node := range r.fleet.Nodes() {
		if data, err := node.Log(); err == nil {
			_ = os.WriteFile(filepath.Join(r.c.Dir, fmt.Sprintf("node-%d.log", node.Index())), data, 0o600)
		}
	}
}
