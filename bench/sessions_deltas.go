package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

const (
	// deltaRate is the number of deltas per second of a generation, about as many as the tokens of a
	// fast model.
	deltaRate = 30
	// deltaBytes is the size of a delta.
	deltaBytes = 32
)

// deltaLoad configures a run of generations.
type deltaLoad struct {
	// generations is the number of concurrent open messages, each in its own session and with a
	// connection of its own. subscribers are spread over their sessions.
	generations, subscribers int
	duration                 time.Duration
}

// deltaRun is the result of a run.
type deltaRun struct {
	// perDelta and perDelivery are the server's CPU time in microseconds, for each delta that was
	// appended, and for each that arrived at a subscriber.
	perDelta, perDelivery float64
	// held is the share of the deltas that were appended in time.
	held float64
	// p50 and p99 are latencies in milliseconds, from the time at which a delta was due to its arrival
	// at a subscriber.
	p50, p99 float64
}

// stream runs the load: its generators append deltas at deltaRate, and its subscribers receive
// them.
func (l *deltaLoad) stream(ctx context.Context, t *Target) (deltaRun, error) {
	if err := settle(ctx, t); err != nil {
		return deltaRun{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all, closing, err := openMessages(ctx, t, l.generations)
	if err != nil {
		return deltaRun{}, err
	}
	defer closing()
	var keep atomic.Bool
	// With as many nodes as divide the generations, a subscriber's node is not its generator's.
	channel := func(i int) string { return "~" + all[(i+1)%len(all)].session }
	crowd, err := openCrowd(ctx, t, l.subscribers, fanoutBuffer, channel, &keep)
	if err != nil {
		return deltaRun{}, err
	}
	defer crowd.close()
	var generators sync.WaitGroup
	defer generators.Wait()
	defer cancel(nil)
	var appended atomic.Int64
	began := time.Now()
	for i, g := range all {
		first := began.Add(time.Duration(i) * time.Second / deltaRate / time.Duration(len(all)))
		generators.Go(func() {
			if err := g.generate(ctx, t, first, &appended); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	pause(ctx, max(l.duration/4, 500*time.Millisecond))
	before, err := t.Usage(ctx)
	if err != nil {
		return deltaRun{}, errors.Join(context.Cause(ctx), err)
	}
	start, arrived, sent := time.Now(), crowd.received(), appended.Load()
	keep.Store(true)
	pause(ctx, l.duration)
	keep.Store(false)
	took := time.Since(start)
	arrived, sent = crowd.received()-arrived, appended.Load()-sent
	after, err := t.Usage(ctx)
	if err := errors.Join(context.Cause(ctx), crowd.err(), err); err != nil {
		return deltaRun{}, err
	}
	cancel(nil)
	generators.Wait()
	crowd.close()
	latencies := crowd.latencies()
	if sent == 0 || arrived == 0 || len(latencies) == 0 {
		return deltaRun{}, errors.New("no delta arrived")
	}
	cpu := float64((after.CPU - before.CPU).Microseconds())
	return deltaRun{
		perDelta: cpu / float64(sent), perDelivery: cpu / float64(arrived),
		held: float64(sent) / (took.Seconds() * deltaRate * float64(l.generations)),
		p50:  float64(Quantile(latencies, 0.5)) / 1000, p99: float64(Quantile(latencies, 0.99)) / 1000,
	}, nil
}

// openMessage is an open message whose text grows.
type openMessage struct {
	session, msgID, token string
	node                  int
}

// openMessages opens a message in each of n new sessions, on the nodes in turn. closing closes
// them.
func openMessages(ctx context.Context, t *Target, n int) (all []*openMessage, closing func(), err error) {
	clients := make([]parleyv1connect.MessageServiceClient, len(t.Addrs))
	var disconnect []func()
	for i := range clients {
		client, closing := t.Client(i)
		clients[i], disconnect = client, append(disconnect, closing)
	}
	name := "bench-" + rand.Text()[:8] + "-"
	all = make([]*openMessage, n)
	each := func(ctx context.Context, do func(ctx context.Context, client parleyv1connect.MessageServiceClient, i int) error) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(dialers)
		for i := range all {
			group.Go(func() error { return do(ctx, clients[i%len(clients)], i) })
		}
		return group.Wait()
	}
	err = each(ctx, func(ctx context.Context, client parleyv1connect.MessageServiceClient, i int) error {
		session := name + strconv.Itoa(i)
		if _, err := client.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: session, Content: "Go on."}); err != nil {
			return err
		}
		m, err := client.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: session, Role: "assistant", Open: true})
		if err != nil {
			return err
		}
		all[i] = &openMessage{session: session, msgID: m.GetMsgId(), token: m.GetAppendToken(), node: i % len(clients)}
		return nil
	})
	closing = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		_ = each(ctx, func(ctx context.Context, client parleyv1connect.MessageServiceClient, i int) error {
			if all[i] == nil {
				return nil
			}
			_, err := client.CloseSessionMessage(ctx, &parleyv1.CloseSessionMessageRequest{
				SessionId: all[i].session, MsgId: all[i].msgID, Outcome: parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE, Content: "done",
			})
			return err
		}) // else the server closes them later
		for _, d := range disconnect {
			d()
		}
	}
	if err != nil {
		closing()
		return nil, nil, fmt.Errorf("open messages: %w", err)
	}
	return all, closing, nil
}

// generate appends deltas at deltaRate from a time on, until ctx ends or a call fails. A delta
// holds the time at which it was due.
func (m *openMessage) generate(ctx context.Context, t *Target, first time.Time, appended *atomic.Int64) error {
	c, err := newCaller(ctx, t.Addrs[m.node], parleyv1connect.MessageServiceAppendSessionDeltaProcedure, t.Token)
	if err != nil {
		return err
	}
	closing := context.AfterFunc(ctx, func() { _ = c.conn.Close() }) // ends a pending call
	defer func() {
		if closing() {
			_ = c.conn.Close()
		}
	}()
	for n := int64(0); ; n++ {
		due := first.Add(time.Duration(n) * time.Second / deltaRate)
		pause(ctx, time.Until(due))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		request, err := proto.Marshal(&parleyv1.AppendSessionDeltaRequest{
			SessionId: m.session, MsgId: m.msgID, AppendToken: m.token, Offset: n * deltaBytes, Text: content(due, deltaBytes),
		})
		if err != nil {
			return err
		}
		if _, err := c.call(request); err != nil {
			return fmt.Errorf("AppendSessionDelta: %w", err)
		}
		appended.Add(1)
	}
}

// measureDeltas measures deltas to 1, 10 and many subscribers of a session.
func measureDeltas(ctx context.Context, env *Env) (figures []Figure, err error) {
	target, err := env.Target(ctx)
	if err != nil {
		return nil, err
	}
	floor, process, err := env.StartFloorServer(ctx, "fanout")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Close()) }()
	// More than one generation where one would take too little CPU time to measure.
	for _, each := range []struct{ name, subscribers, generations int }{{1, 1, 20}, {10, 10, 6}, {1000, env.Subscribers, 1}} {
		load := deltaLoad{generations: each.generations, subscribers: each.subscribers * each.generations, duration: env.Duration}
		bare := fanoutLoad{
			subscribers: load.subscribers, channels: load.generations, rate: deltaRate * load.generations,
			payload: deltaBytes, duration: env.Duration,
		}
		var runs []deltaRun
		var floors []fanoutRun
		err := env.Each(ctx, func(ctx context.Context) error {
			run, err := load.stream(ctx, target)
			runs = append(runs, run)
			return err
		}, func(ctx context.Context) error {
			run, err := fanout(ctx, floor, bare)
			floors = append(floors, run)
			return err
		})
		if err != nil {
			return nil, err
		}
		figures = append(figures, load.figures(env, each.name, runs, floors)...)
	}
	return figures, nil
}

// figures returns the figures of a load. name is the number of subscribers in their ids.
func (l *deltaLoad) figures(env *Env, name int, runs []deltaRun, floors []fanoutRun) []Figure {
	each := func(number func(*deltaRun) float64) (values []float64) {
		for i := range runs {
			values = append(values, number(&runs[i]))
		}
		return values
	}
	var cpu, p50, p99 []float64
	for _, f := range floors {
		cpu, p50, p99 = append(cpu, f.perDelivery*float64(l.subscribers)/float64(l.generations)), append(p50, f.p50), append(p99, f.p99)
	}
	setup := env.Setup(map[string]string{
		"generations": strconv.Itoa(l.generations), "subscribers": strconv.Itoa(l.subscribers/l.generations) + " of each",
		"rate": strconv.Itoa(deltaRate) + " deltas/s of each", "payload": strconv.Itoa(deltaBytes) + " bytes", "duration": env.Duration.String(),
		"connections": strconv.Itoa(l.generations + l.subscribers),
	})
	id, to := fmt.Sprintf("sessions-deltas/%d/", name), fmt.Sprintf("a delta to %d subscribers: ", l.subscribers/l.generations)
	delta := Figure{ID: id + "cpu", Name: to + "server CPU per delta", Unit: "us", Setup: setup}.
		WithFloor(bareName, each(func(r *deltaRun) float64 { return r.perDelta }), cpu)
	delta.Notes = []string{
		"server CPU time per delta and subscriber: " + Summarize(each(func(r *deltaRun) float64 { return r.perDelivery })).microseconds(),
		"appended in time: " + Summarize(each(func(r *deltaRun) float64 { return 100 * r.held })).text("%"),
	}
	tail := Figure{ID: id + "p99", Name: to + "from append to receive, p99", Unit: "ms", Setup: setup}.
		WithFloor(bareName, each(func(r *deltaRun) float64 { return r.p99 }), p99)
	return []Figure{
		delta, tail.WithBar("50 ms at most", tail.Value.Median <= 50),
		Figure{ID: id + "p50", Name: to + "from append to receive, p50", Unit: "ms", Setup: setup}.
			WithFloor(bareName, each(func(r *deltaRun) float64 { return r.p50 }), p50),
	}
}

const (
	// generationsHeld is the share of the deltas that must be appended in time, and generationsTail
	// the largest p99 in milliseconds, for a number of generations to count as held.
	generationsHeld = 0.98
	generationsTail = 50
)

// measureGenerations finds the largest number of generations, each with one subscriber, whose
// deltas are appended and delivered in time.
func measureGenerations(ctx context.Context, env *Env) ([]Figure, error) {
	target, err := env.Target(ctx)
	if err != nil {
		return nil, err
	}
	var most, cpu, p99 []float64
	err = env.Each(ctx, func(ctx context.Context) error {
		var best deltaRun
		held := 0
		for n := min(100, env.Streams); n <= env.Streams; n += max(n/4, 1) {
			load := deltaLoad{generations: n, subscribers: n, duration: env.Duration}
			run, err := load.stream(ctx, target)
			if err != nil {
				return err
			}
			env.Progressf("%d generations: %.1f%% of the deltas, p99 %.1f ms", n, 100*run.held, run.p99)
			if run.held < generationsHeld || run.p99 > generationsTail {
				break
			}
			held, best = n, run
		}
		most, cpu, p99 = append(most, float64(held)), append(cpu, best.perDelta), append(p99, best.p99)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []Figure{{
		ID: "sessions-generations/held", Name: fmt.Sprintf("generations at %d deltas/s, each with a subscriber", deltaRate), Unit: "generations",
		Value: Summarize(most),
		Setup: env.Setup(map[string]string{
			"payload": strconv.Itoa(deltaBytes) + " bytes", "duration": env.Duration.String(),
			"held":  fmt.Sprintf("%.0f %% of the deltas appended in time, and p99 from append to receive at most %d ms", 100*generationsHeld, generationsTail),
			"steps": "a quarter more each",
		}),
		Notes: []string{"at that number: server CPU time per delta " + Summarize(cpu).microseconds() + ", p99 " + Summarize(p99).text("ms")},
	}}, nil
}
