package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

const (
	// fanoutWindow bounds the messages in flight to the slowest subscriber in a saturated run, and
	// fanoutWindowBytes roughly their bytes: half of the backlog at which parleyd drops a
	// subscriber.
	fanoutWindow      = 1024
	fanoutWindowBytes = 512 << 10
	// fanoutBatch is the maximum number of messages in a call.
	fanoutBatch = 128
	// fanoutBuffer is the size of a busy stream's read buffer in bytes.
	fanoutBuffer = 16 << 10
	// pacedRate is the messages published per second in a paced run.
	pacedRate = 50
)

// fanoutRun is the result of one run of fan-out.
type fanoutRun struct {
	// perDelivery is the server's CPU time per delivered message in microseconds. rate is
	// deliveries per second.
	perDelivery, rate float64
	// p50 and p99 are latencies in milliseconds, from the scheduled time of sending to the arrival
	// at a subscriber. They are set only for a paced run.
	p50, p99 float64
}

// fanoutLoad configures a run.
type fanoutLoad struct {
	subscribers int
	// channels is the number of channels. Subscribers and messages are spread over them. In a
	// saturated run the messages of one call go to one channel.
	channels int
	// rate is messages per second. 0 sends as many as the subscribers can take.
	rate     int
	payload  int
	duration time.Duration
}

// fanout opens the load's streams, publishes to their channels, and measures the deliveries for the
// load's duration.
func fanout(ctx context.Context, t *Target, load fanoutLoad) (fanoutRun, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	name := "bench-" + rand.Text()[:8] + "-"
	channel := func(i int) string { return name + strconv.Itoa(i%load.channels) }
	var keep atomic.Bool
	crowd, err := openCrowd(ctx, t, load.subscribers, fanoutBuffer, channel, &keep)
	if err != nil {
		return fanoutRun{}, err
	}
	defer crowd.close()
	client, closing := t.Client(0)
	defer closing()
	p := &publisher{client: client, crowd: crowd, channel: channel, load: &load}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := p.run(ctx); err != nil {
			cancel(err)
		}
	}()
	defer func() { <-stopped }()
	defer cancel(nil)

	for crowd.received() == 0 && ctx.Err() == nil {
		pause(ctx, time.Millisecond)
	}
	pause(ctx, load.duration/4) // until caches and the scheduler settle
	before, err := t.Usage(ctx)
	if err != nil {
		return fanoutRun{}, err
	}
	began, from := time.Now(), crowd.received()
	keep.Store(load.rate > 0)
	pause(ctx, load.duration)
	keep.Store(false)
	after, err := t.Usage(ctx)
	if err != nil {
		return fanoutRun{}, errors.Join(context.Cause(ctx), err)
	}
	took, n := time.Since(began), crowd.received()-from
	if err := errors.Join(context.Cause(ctx), crowd.err()); err != nil {
		return fanoutRun{}, err
	}
	cancel(nil)
	<-stopped
	crowd.close()
	if n == 0 {
		return fanoutRun{}, errors.New("nothing was delivered")
	}
	run := fanoutRun{
		perDelivery: float64((after.CPU - before.CPU).Microseconds()) / float64(n), rate: float64(n) / took.Seconds(),
	}
	if load.rate > 0 {
		all := crowd.latencies()
		if len(all) == 0 {
			return fanoutRun{}, errors.New("no message with a timestamp arrived, so there is no latency")
		}
		run.p50, run.p99 = float64(Quantile(all, 0.5))/1000, float64(Quantile(all, 0.99))/1000
	}
	return run, nil
}

// publisher sends the messages of a run, one call at a time.
type publisher struct {
	client  parleyv1connect.MessageServiceClient
	crowd   *crowd
	channel func(i int) string
	load    *fanoutLoad
	// sent counts the messages of a saturated run, over all channels.
	sent int
}

// run sends until ctx ends, which is no error.
func (p *publisher) run(ctx context.Context) error {
	send := p.saturate
	if p.load.rate > 0 {
		send = p.pace
	}
	if err := send(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// window returns the maximum number of messages in flight to the slowest subscriber. It counts
// about 256 bytes of overhead per content.
func (l *fanoutLoad) window() int {
	return min(fanoutWindow, max(4, fanoutWindowBytes/(l.payload+256)))
}

// saturate sends batches until ctx ends or a call fails. It keeps as many messages in flight as the
// window allows.
func (p *publisher) saturate(ctx context.Context) error {
	text := content(time.Now(), p.load.payload)
	window := p.load.window()
	batch := min(fanoutBatch, window/2)
	for ctx.Err() == nil {
		if err := p.crowd.err(); err != nil {
			return err
		}
		if int64(p.sent/p.load.channels) > p.crowd.slowest()+int64(window-batch) {
			pause(ctx, time.Millisecond)
			continue
		}
		messages := make([]*parleyv1.SendMessageRequest, batch)
		for i := range messages {
			messages[i] = &parleyv1.SendMessageRequest{ChannelId: p.channel(p.sent / batch), Content: text}
			p.sent++
		}
		answer, err := p.client.SendMessages(ctx, &parleyv1.SendMessagesRequest{Messages: messages})
		if err != nil {
			return err
		}
		for _, r := range answer.GetResults() {
			if e := r.GetError(); e != nil {
				return errors.New(e.GetMessage())
			}
		}
	}
	return nil
}

// pace sends single messages at the load's rate until ctx ends or a call fails. A content holds its
// scheduled time of sending, so the delay by a late call counts as latency.
func (p *publisher) pace(ctx context.Context) error {
	began := time.Now()
	for i := 0; ; i++ {
		at := began.Add(time.Duration(i) * time.Second / time.Duration(p.load.rate))
		if wait := time.Until(at); wait > 0 {
			pause(ctx, wait)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.crowd.err(); err != nil {
			return err
		}
		if _, err := p.client.SendMessage(ctx, &parleyv1.SendMessageRequest{
			ChannelId: p.channel(i), Content: content(at, p.load.payload),
		}); err != nil {
			return err
		}
	}
}

// bareName is the name of the floor of fan-out.
const bareName = "a bare connect-go server, one Send per event"

// measureFanout measures fan-out, saturated and paced.
func measureFanout(ctx context.Context, env *Env) ([]Figure, error) {
	target, err := env.Target(ctx)
	if err != nil {
		return nil, err
	}
	floor, process, err := env.StartFloorServer(ctx, "fanout")
	if err != nil {
		return nil, err
	}
	figures, err := saturatedAndPaced(ctx, env, target, floor)
	return figures, errors.Join(err, process.Close())
}

func saturatedAndPaced(ctx context.Context, env *Env, target, floor *Target) ([]Figure, error) {
	var runs, floors [2][]fanoutRun
	loads := [2]fanoutLoad{
		{subscribers: env.Subscribers, channels: 1, payload: env.Payload, duration: env.Duration},
		{subscribers: env.Subscribers, channels: 1, payload: env.Payload, duration: env.Duration, rate: pacedRate},
	}
	take := func(t *Target, i int, into *[2][]fanoutRun) func(context.Context) error {
		return func(ctx context.Context) error {
			run, err := fanout(ctx, t, loads[i])
			into[i] = append(into[i], run)
			return err
		}
	}
	err := env.Each(ctx, take(target, 0, &runs), take(floor, 0, &floors), take(target, 1, &runs), take(floor, 1, &floors))
	if err != nil {
		return nil, err
	}
	setup := func(rate string) map[string]string {
		return env.Setup(map[string]string{
			"connections": strconv.Itoa(env.Subscribers), "rate": rate, "duration": env.Duration.String(),
		})
	}
	saturated := setup(fmt.Sprintf("what the slowest subscriber takes, %d messages under way", loads[0].window()))
	paced := setup(strconv.Itoa(pacedRate) + " messages/s")
	saturatedCPU := Figure{
		ID: "fanout/saturated/cpu", Name: "fan-out, saturated: server CPU per delivery", Unit: "us", Setup: saturated,
	}.WithFloor(bareName, each(runs[0], fanoutRun.cost), each(floors[0], fanoutRun.cost))
	saturatedCPU = saturatedCPU.WithRatioBar("at most 1/4 of the floor", atMost(0.25))
	pacedCPU := Figure{
		ID: "fanout/paced/cpu", Name: "fan-out, paced: server CPU per delivery", Unit: "us", Setup: paced,
	}.WithFloor(bareName, each(runs[1], fanoutRun.cost), each(floors[1], fanoutRun.cost))
	pacedCPU = pacedCPU.WithRatioBar("at most the floor", atMost(1))
	p99 := Figure{
		ID: "fanout/paced/p99", Name: "fan-out, paced: from send to receive, p99", Unit: "ms", Setup: paced,
	}.WithFloor(bareName, each(runs[1], fanoutRun.tail), each(floors[1], fanoutRun.tail))
	p99 = p99.WithRatioBar("at most the floor", atMost(1))
	return []Figure{
		saturatedCPU,
		Figure{ID: "fanout/saturated/rate", Name: "fan-out, saturated: deliveries", Unit: "1/s", Setup: saturated}.
			WithFloor(bareName, each(runs[0], fanoutRun.speed), each(floors[0], fanoutRun.speed)),
		pacedCPU, p99,
		Figure{ID: "fanout/paced/p50", Name: "fan-out, paced: from send to receive, p50", Unit: "ms", Setup: paced}.
			WithFloor(bareName, each(runs[1], fanoutRun.middle), each(floors[1], fanoutRun.middle)),
	}, nil
}

func (r fanoutRun) cost() float64   { return r.perDelivery }
func (r fanoutRun) speed() float64  { return r.rate }
func (r fanoutRun) middle() float64 { return r.p50 }
func (r fanoutRun) tail() float64   { return r.p99 }

// each returns number(r) for each round r, in order.
func each[T any](rounds []T, number func(T) float64) []float64 {
	all := make([]float64, len(rounds))
	for i, r := range rounds {
		all[i] = number(r)
	}
	return all
}
