package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
)

// latency tells how long a message takes from the call of send on one node to a subscriber's hands on another, at 50 a
// second, both in this process and by one clock.
func (b *bench) latency(ctx context.Context) error {
	for _, way := range [][2]int{{0, 0}, {0, 1}, {1, 2}, {2, 0}} {
		took, err := b.way(ctx, way[0], way[1])
		if err != nil {
			return err
		}
		slices.Sort(took)
		ms := func(q float64) float64 {
			return float64(took[min(int(q*float64(len(took))), len(took)-1)].Microseconds()) / 1000
		}
		if err := b.say(figure{
			Name: fmt.Sprintf("send on node %d to receive on node %d, 50 a second", way[0], way[1]), Unit: "ms", Value: ms(0.5),
			More: map[string]float64{"p50": ms(0.5), "p99": ms(0.99), "max": ms(1)},
		}); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) way(ctx context.Context, from, to int) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	channel := fmt.Sprintf("way-%d-%d", from, to)
	receiver, err := parley.New(b.fleet.Node(to).Addr(), parley.WithToken(b.token))
	if err != nil {
		return nil, err
	}
	defer receiver.Close()
	sender, err := parley.New(b.fleet.Node(from).Addr(), parley.WithToken(b.token))
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
	const warm, n = 25, 25 + 500
	var took []time.Duration
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		began := time.Now()
		if _, err := sender.Send(ctx, channel, payload); err != nil {
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

// comeback kills a node that holds a third of the streams and tells when each of those had its next message.
func (b *bench) comeback(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &crowd{bench: b, arrivals: make(chan arrival, 1024), failed: make(chan error, b.Streams)}
	defer c.done.Wait()
	defer cancel()
	for i := range b.Streams {
		client, err := parley.New(strings.Join(b.fleet.Addresses(), ","), parley.WithToken(b.token))
		if err != nil {
			return err
		}
		c.done.Go(func() { c.follow(ctx, client, i) })
	}
	if _, err := c.all(ctx, time.Now(), 0); err != nil {
		return err
	}
	b.fleet.Node(2).Kill()
	// What a stream had in its socket does not say that it is back.
	took, err := c.all(ctx, time.Now(), 20*time.Millisecond)
	if err != nil {
		return err
	}
	s := func(q float64) float64 { return took[min(int(q*float64(len(took))), len(took)-1)].Seconds() }
	return b.say(figure{
		Name: fmt.Sprintf("%d streams on three nodes, kill -9 of one: all have new messages", b.Streams), Unit: "s", Value: s(1),
		More: map[string]float64{"p50": s(0.5), "p99": s(0.99), "max": s(1)},
	})
}

// crowd is many streams of one channel.
type crowd struct {
	*bench
	arrivals chan arrival
	failed   chan error
	done     sync.WaitGroup
}

// arrival is a message in a stream's hands.
type arrival struct {
	stream int
	at     time.Time
}

// follow tells of every message of one stream, and of the first that is not the next one.
func (c *crowd) follow(ctx context.Context, client *parley.Client, stream int) {
	defer client.Close()
	next := int64(1)
	for e, err := range client.Subscribe(ctx, parley.FromStart("comeback")).Events() {
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

// all sends, twenty times a second, until every stream has had something later than slack after a moment, and tells after
// how long each had, sorted.
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
			_, _ = sender.Send(sending, "comeback", payload)
			wait(sending, 50*time.Millisecond)
		}
	}()
	seen := make(map[int]time.Duration)
	deadline := time.After(60 * time.Second)
	for len(seen) < c.Streams {
		select {
		case a := <-c.arrivals:
			if _, ok := seen[a.stream]; !ok && a.at.After(after.Add(slack)) {
				seen[a.stream] = a.at.Sub(after)
			}
		case err := <-c.failed:
			return nil, err
		case <-deadline:
			return nil, fmt.Errorf("%d of %d streams are back", len(seen), c.Streams)
		}
	}
	return slices.Sorted(maps.Values(seen)), nil
}
