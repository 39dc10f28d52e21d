package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

const (
	// queuePace is the number of messages per second in the figures on latency and delays.
	queuePace = 1000
	// queuePickups is the total number of messages to an idle consumer over all rounds.
	// queueSilence is the pause before each; it is the run's duration if that is less.
	queuePickups = 20
	queueSilence = time.Second
	// queueUnderWay bounds the calls in flight in a paced run.
	queueUnderWay = 256
)

// delays summarizes the latencies of several messages, in milliseconds.
type delays struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	N   int     `json:"n"`
	// Early is the number of messages that came before they were due.
	Early int `json:"early"`
}

func (d delays) middle() float64 { return d.P50 }
func (d delays) tail() float64   { return d.P99 }
func (d delays) worst() float64  { return d.Max }

// stopwatch collects delays: of messages from the stamps in them, and of calls. Safe for concurrent
// use.
type stopwatch struct {
	mu  sync.Mutex
	all []int64
	// arrived receives a value for each arrival, unless nil.
	arrived chan struct{}
}

// stop records the delay of a payload since the time it contains, which is that of sending or its
// due time. It ignores a payload without one.
func (w *stopwatch) stop(payload []byte) {
	now := time.Now().UnixNano()
	at := stampOf(payload)
	if at == 0 {
		return
	}
	w.add(time.Duration(now - at))
	if w.arrived != nil {
		w.arrived <- struct{}{}
	}
}

// add records a delay.
func (w *stopwatch) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, int64(d))
}

// count returns the number of arrivals.
func (w *stopwatch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// forget removes all delays recorded so far.
func (w *stopwatch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = nil
}

// delays returns the summary of all delays, or an error if there are none.
func (w *stopwatch) delays() (delays, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == 0 {
		return delays{}, errors.New("no message arrived")
	}
	slices.Sort(w.all)
	ms := func(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }
	d := delays{
		P50: ms(Quantile(w.all, 0.5)), P99: ms(Quantile(w.all, 0.99)), Max: ms(w.all[len(w.all)-1]), N: len(w.all),
	}
	d.Early, _ = slices.BinarySearch(w.all, 0)
	return d, nil
}

// await waits until n messages have arrived. It returns an error after limit.
func (w *stopwatch) await(ctx context.Context, n int, limit time.Duration) error {
	for end := time.Now().Add(limit); w.count() < n; pause(ctx, time.Millisecond) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d messages arrived", w.count(), n)
		}
	}
	return nil
}

// lap measures single messages that send sends, through Parley or to raw Redis. The stopwatch
// records their arrivals.
type lap struct {
	watch *stopwatch
	send  func(ctx context.Context, payload []byte) error
	size  int
}

// paced sends queuePace messages per second for a duration, each in a concurrent call of its own.
// It returns the delays from the start of a call to the delivery.
func (l *lap) paced(ctx context.Context, duration time.Duration) (delays, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var calls sync.WaitGroup
	underWay := make(chan struct{}, queueUnderWay)
	warm := int(queuePace * min(queueWarm, duration) / time.Second)
	n := int(queuePace*duration/time.Second) + warm
	began := time.Now()
	for i := range n {
		pause(ctx, time.Until(began.Add(time.Duration(i)*time.Second/queuePace)))
		if i == warm {
			calls.Wait()
			if err := l.watch.await(ctx, warm, startTimeout); err != nil {
				return delays{}, err
			}
			l.watch.forget()
			began = time.Now().Add(-time.Duration(i) * time.Second / queuePace)
		}
		underWay <- struct{}{}
		calls.Go(func() {
			defer func() { <-underWay }()
			if err := l.send(ctx, []byte(content(time.Now(), l.size))); err != nil {
				cancel(err)
			}
		})
	}
	calls.Wait()
	if err := errors.Join(context.Cause(ctx), l.watch.await(ctx, n-warm, startTimeout)); err != nil {
		return delays{}, err
	}
	return l.watch.delays()
}

// pickups sends messages one after another to an idle consumer, each after a silence.
func (l *lap) pickups(ctx context.Context, n int, silence time.Duration) (delays, error) {
	l.watch.forget()
	for i := range n {
		pause(ctx, silence)
		if err := l.send(ctx, []byte(content(time.Now(), l.size))); err != nil {
			return delays{}, err
		}
		if err := l.watch.await(ctx, i+1, startTimeout); err != nil {
			return delays{}, err
		}
	}
	return l.watch.delays()
}

// queueLatency is the result of a round of the area queue-latency.
type queueLatency struct {
	Paced  delays `json:"paced"`
	Pickup delays `json:"pickup"`
}

// take runs paced and then pickups, and returns the results of both.
func (l *lap) take(ctx context.Context, duration time.Duration, pickups int) (out queueLatency, err error) {
	if out.Paced, err = l.paced(ctx, duration); err != nil {
		return out, err
	}
	out.Pickup, err = l.pickups(ctx, pickups, min(queueSilence, duration))
	return out, err
}

// latency measures a round of single messages through Parley.
func (s *queueServer) latency(ctx context.Context, env *Env, pickups int) (out queueLatency, err error) {
	topics, remove, err := s.topics(ctx, 1)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	l := &lap{watch: &stopwatch{}, size: env.QueuePayload}
	c, err := s.consume(ctx, topics, func(_ context.Context, d *queue.Delivery) error {
		l.watch.stop(d.Payload)
		return nil
	})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	client, err := parley.New(s.Addrs[0], parley.WithToken(s.Token))
	if err != nil {
		return out, err
	}
	defer client.Close()
	p := queue.NewProducer(client, topics[0])
	l.send = func(ctx context.Context, payload []byte) error {
		return produceAll(ctx, p, []queue.Message{{Payload: payload}})
	}
	return l.take(ctx, env.Duration, pickups)
}

// floorQueueLatency measures single messages through raw Redis streams. After the common arguments
// of floors of queues it takes the number of pickups. It outputs one queueLatency.
func floorQueueLatency(ctx context.Context, args []string, out *json.Encoder) error {
	q, err := openRawQueue(ctx, args)
	if err != nil {
		return err
	}
	defer q.stop()
	pickups, err := strconv.Atoi(args[len(args)-1])
	if err != nil {
		return err
	}
	l := &lap{watch: &stopwatch{}, size: q.payload}
	var turn atomic.Int64
	l.send = func(ctx context.Context, payload []byte) error {
		return q.add(ctx, int(turn.Add(1))%len(q.streams), payload)
	}
	var result queueLatency
	err = q.consuming(ctx, l.watch, func(ctx context.Context) error {
		result, err = l.take(ctx, q.duration, pickups)
		return err
	})
	if err != nil {
		return fmt.Errorf("raw Redis: %w", err)
	}
	return out.Encode(result)
}

// rawLatencyName is the name of the floor of queues with single messages.
const rawLatencyName = "raw go-redis, an XADD for each, blocking XREADGROUP and XACK"

// measureQueueLatency measures the time of single messages from sending to their handler.
func measureQueueLatency(ctx context.Context, env *Env) (figures []Figure, err error) {
	s, err := env.startQueues(ctx, appendOnly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	pickups := max((queuePickups+env.Rounds-1)/env.Rounds, 2)
	var values, floors []queueLatency
	err = env.Each(ctx, func(ctx context.Context) error {
		one, err := s.latency(ctx, env, pickups)
		values = append(values, one)
		return err
	}, func(ctx context.Context) error {
		one, err := floorOf[queueLatency](ctx, env, "queue-latency", appendOnly, env.Duration, strconv.Itoa(pickups))
		floors = append(floors, one)
		return err
	})
	if err != nil {
		return nil, err
	}
	paced := func(number func(delays) float64) func(queueLatency) float64 {
		return func(q queueLatency) float64 { return number(q.Paced) }
	}
	pickup := func(number func(delays) float64) func(queueLatency) float64 {
		return func(q queueLatency) float64 { return number(q.Pickup) }
	}
	setup := env.queueSetup(map[string]string{
		"redis": appendOnly.text(), "rate": strconv.Itoa(queuePace) + " messages/s, a call for each", "batches": "",
	})
	idle := env.queueSetup(map[string]string{
		"redis": appendOnly.text(), "rate": "a message after " + min(queueSilence, env.Duration).String() + " of silence",
		"batches": "", "messages": strconv.Itoa(pickups) + " a round", "duration": "",
	})
	figure := func(id, name string, setup map[string]string, number func(queueLatency) float64) Figure {
		return Figure{ID: "queue-latency/" + id, Name: name, Unit: "ms", Setup: setup}.
			WithFloor(rawLatencyName, each(values, number), each(floors, number))
	}
	return []Figure{
		figure("paced/p99", "queue, paced: from Produce's call to the handler, p99", setup, paced(delays.tail)).withMostBar(3),
		figure("paced/p50", "queue, paced: from Produce's call to the handler, p50", setup, paced(delays.middle)),
		figure("paced/max", "queue, paced: from Produce's call to the handler, longest", setup, paced(delays.worst)),
		figure("idle/p99", "queue: pick-up by an idle worker, p99", idle, pickup(delays.tail)).withMostBar(2),
		figure("idle/p50", "queue: pick-up by an idle worker, p50", idle, pickup(delays.middle)),
	}, nil
}

// withMostBar returns the figure with a bar for its median, in milliseconds.
func (f Figure) withMostBar(most float64) Figure {
	return f.WithBar(fmt.Sprintf("%v ms at most", most), f.Value.Median <= most)
}
