package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parleyhq/parley/bench"
	parley "github.com/parleyhq/parley/sdk/go"
)

// latency measures the time from the call of Send on one node to the arrival at a subscriber of the
// same or another node, at 50 messages per second. Sender and subscriber are in this process and
// use one clock.
func (m *measures) latency(ctx context.Context, env *bench.Env) ([]bench.Figure, error) {
	ways := [][2]int{{0, 0}, {0, 1}, {1, 2}, {2, 0}}
	medians, tails := make([][]float64, len(ways)), make([][]float64, len(ways))
	err := env.Each(ctx, func(ctx context.Context) error {
		for i, w := range ways {
			took, err := m.way(ctx, env, w[0], w[1])
			if err != nil {
				return err
			}
			medians[i] = append(medians[i], milliseconds(took, 0.5))
			tails[i] = append(tails[i], milliseconds(took, 0.99))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var figures []bench.Figure
	for i, w := range ways {
		name := fmt.Sprintf("send on node %d to receive on node %d, 50 a second", w[0], w[1])
		id := fmt.Sprintf("latency/node%d-node%d", w[0], w[1])
		setup := env.Setup(map[string]string{"rate": "50 messages/s", "duration": env.Duration.String()})
		figures = append(figures,
			bench.Figure{ID: id + "/p50", Name: name + ", p50", Unit: "ms", Value: bench.Summarize(medians[i]), Setup: setup},
			bench.Figure{ID: id + "/p99", Name: name + ", p99", Unit: "ms", Value: bench.Summarize(tails[i]), Setup: setup})
	}
	return figures, nil
}

// milliseconds returns the quantile q, from 0 to 1, of a list that is not empty. It sorts the list.
func milliseconds(took []time.Duration, q float64) float64 {
	slices.Sort(took)
	return float64(bench.Quantile(took, q).Microseconds()) / 1000
}

// every is the interval between the messages whose latency is measured. warm is the number of first
// messages that are not counted.
const (
	every = 20 * time.Millisecond
	warm  = 25
)

func (m *measures) way(ctx context.Context, env *bench.Env, from, to int) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	channel := fmt.Sprintf("way-%d-%d-%s", from, to, rand.Text()[:8])
	receiver, err := parley.New(m.fleet.Node(to).Addr(), parley.WithToken(m.token))
	if err != nil {
		return nil, err
	}
	defer receiver.Close()
	sender, err := parley.New(m.fleet.Node(from).Addr(), parley.WithToken(m.token))
	if err != nil {
		return nil, err
	}
	defer sender.Close()
	sub := receiver.Subscribe(ctx, parley.FromStart(channel))
	defer sub.Close()
	arrived := make(chan time.Time, 1)
	go func() {
		for e, err := range sub.Events() {
			if err != nil {
				return
			}
			if e.Kind == parley.EventSent {
				arrived <- time.Now()
			}
		}
	}()
	var took []time.Duration
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range warm + max(int(env.Duration/every), 1) {
		<-tick.C
		began := time.Now()
		if _, err := sender.Send(ctx, channel, strings.Repeat("x", env.Payload)); err != nil {
			return nil, err
		}
		select {
		case at := <-arrived:
			if i >= warm {
				took = append(took, at.Sub(began))
			}
		case <-time.After(10 * time.Second):
			return nil, errors.New("a message did not arrive within 10 s")
		}
	}
	return took, nil
}

// comeback kills a node with a third of the streams and measures the time until each stream gets
// its next message.
func (m *measures) comeback(ctx context.Context, env *bench.Env) ([]bench.Figure, error) {
	var last, median []float64
	err := env.Each(ctx, func(ctx context.Context) error {
		took, err := m.kill(ctx)
		if err != nil {
			return err
		}
		last, median = append(last, milliseconds(took, 1)), append(median, milliseconds(took, 0.5))
		return m.fleet.Node(2).Restart(ctx)
	})
	if err != nil {
		return nil, err
	}
	return []bench.Figure{{
		ID: "comeback/time", Name: fmt.Sprintf("%d streams on three nodes, kill -9 of one: until all have new messages", m.streams), Unit: "ms",
		Value: bench.Summarize(last), Setup: env.Setup(nil),
		Notes: []string{fmt.Sprintf("half of them had one after %.0f ms", bench.Summarize(median).Median)},
	}}, nil
}

// kill kills node 2 and returns the time until each stream got its next message.
func (m *measures) kill(ctx context.Context) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &crowd{
		measures: m, channel: "comeback-" + rand.Text()[:8],
		arrivals: make(chan arrival, 1024), failed: make(chan error, m.streams),
	}
	defer c.done.Wait()
	defer cancel()
	for i := range m.streams {
		client, err := parley.New(strings.Join(m.fleet.Addresses(), ","), parley.WithToken(m.token))
		if err != nil {
			return nil, err
		}
		c.done.Go(func() { c.follow(ctx, client, i) })
	}
	if _, err := c.all(ctx, time.Now(), 0); err != nil {
		return nil, err
	}
	m.fleet.Node(2).Kill()
	// A message that was already in a stream's socket does not show that the stream is back.
	return c.all(ctx, time.Now(), 20*time.Millisecond)
}

// crowd is a set of streams of one channel.
type crowd struct {
	*measures
	channel  string
	arrivals chan arrival
	failed   chan error
	done     sync.WaitGroup
}

// arrival is the arrival of a message on a stream.
type arrival struct {
	stream int
	at     time.Time
}

// follow reports the arrival of every message on one stream, and the first message out of order.
func (c *crowd) follow(ctx context.Context, client *parley.Client, stream int) {
	defer client.Close()
	next := int64(1)
	for e, err := range client.Subscribe(ctx, parley.FromStart(c.channel)).Events() {
		if err != nil {
			return
		}
		if e.Kind != parley.EventSent {
			continue
		}
		if e.Seq != next {
			c.failed <- fmt.Errorf("stream %d got entry %d for %d", stream, e.Seq, next)
			return
		}
		next++
		select {
		case c.arrivals <- arrival{stream, time.Now()}:
		case <-ctx.Done():
			return
		}
	}
}

// all sends 20 messages per second until every stream has received one later than after
// plus slack. It returns the times from after, sorted.
func (c *crowd) all(ctx context.Context, after time.Time, slack time.Duration) ([]time.Duration, error) {
	addrs := c.fleet.Addresses()
	sender, err := parley.New(addrs[0]+","+addrs[1], parley.WithToken(c.token))
	if err != nil {
		return nil, err
	}
	defer sender.Close()
	sending, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for sending.Err() == nil {
			_, _ = sender.Send(sending, c.channel, "here")
			select {
			case <-time.After(50 * time.Millisecond):
			case <-sending.Done():
			}
		}
	}()
	seen := make(map[int]time.Duration)
	deadline := time.After(60 * time.Second)
	for len(seen) < c.streams {
		select {
		case a := <-c.arrivals:
			if _, ok := seen[a.stream]; !ok && a.at.After(after.Add(slack)) {
				seen[a.stream] = a.at.Sub(after)
			}
		case err := <-c.failed:
			return nil, err
		case <-deadline:
			return nil, fmt.Errorf("%d of %d streams are back", len(seen), c.streams)
		}
	}
	return slices.Sorted(maps.Values(seen)), nil
}
