package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// sendTo returns a load of callers that send one message at a time. channel returns the channel of
// a caller's n-th message.
func (e *Env) sendTo(callers int, channel func(caller, n int) string) *work {
	content := e.text()
	return &work{
		callers: callers, procedure: parleyv1connect.MessageServiceSendMessageProcedure,
		request: func(caller, n int) proto.Message {
			return &parleyv1.SendMessageRequest{ChannelId: channel(caller, n), Content: content}
		},
	}
}

// text returns a message content of the configured size.
func (e *Env) text() string { return strings.Repeat("x", e.Payload) }

// refusalOf returns the first error in a batch's results, or nil.
func refusalOf(answer *parleyv1.SendMessagesResponse) error {
	for _, r := range answer.GetResults() {
		if e := r.GetError(); e != nil {
			return errors.New(e.GetMessage())
		}
	}
	return nil
}

// measureSends measures acknowledged durable sends, against the store's engine and the disk alone.
func measureSends(ctx context.Context, env *Env) ([]Figure, error) {
	target, err := env.Target(ctx)
	if err != nil {
		return nil, err
	}
	senders := cmp.Or(env.Senders, 64)
	name := "bench-sends-" + rand.Text()[:8] + "-"
	own := func(caller, _ int) string { return name + strconv.Itoa(caller) }
	var single, batched sendRuns
	var floors []float64
	err = env.Each(ctx,
		single.take(target, env.sendTo(senders, own), env.Duration),
		func(ctx context.Context) error {
			rate, err := env.commitFloor(ctx, senders)
			floors = append(floors, rate)
			return err
		},
		batched.take(target, env.sendBatchesTo(senders, own), env.Duration))
	if err != nil {
		return nil, err
	}
	setup := env.Setup(map[string]string{
		"senders": strconv.Itoa(senders), "connections": strconv.Itoa(senders) + " (HTTP/1.1, Connect, binary)",
		"duration": env.Duration.String(), "fsync": "every commit, on both sides",
	})
	floor := "Pebble's own group commit, as many writers, the same bytes, nothing else"
	one := Figure{ID: "sends/single/rate", Name: "durable sends, each sender one message at a time in its own channel", Unit: "acked/s", Setup: setup}.
		WithFloor(floor, single.rates, floors)
	one.Notes = []string{single.note()}
	if len(env.Addrs) > 0 {
		one.Notes = append(one.Notes, "the floor wrote to "+env.Dir+", which should be on the server's disk")
	}
	many := Figure{
		ID: "sends/batched/rate", Name: fmt.Sprintf("durable sends, each sender %d messages a call", batchMessages),
		Unit: "acked/s", Setup: setup,
	}.WithFloor(floor, batched.rates, floors)
	many.Notes = []string{batched.note()}
	return []Figure{one.WithRatioBar("at least 0.5 of the floor", atLeast(0.5)), many}, nil
}

// sendRuns are the rounds of one load of sends.
type sendRuns struct{ rates, costs []float64 }

// take returns a step for Env.Each that runs the load once and adds its results.
func (r *sendRuns) take(t *Target, load *work, duration time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := load.run(ctx, t, duration)
		r.rates, r.costs = append(r.rates, got.rate), append(r.costs, got.cpu)
		return err
	}
}

func (r *sendRuns) note() string {
	return "server CPU time per message: " + Summarize(r.costs).microseconds()
}

// microseconds formats a summary of CPU times.
func (s Summary) microseconds() string { return s.text("us") }

// commitFloor runs Pebble's own group commit with that many writers for the duration of a
// measurement. It returns the commits per second.
func (e *Env) commitFloor(ctx context.Context, writers int) (rate float64, err error) {
	dir, err := os.MkdirTemp(e.Dir, "parley-bench-floor-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return e.floorRate(ctx, "commits", dir, strconv.Itoa(writers), strconv.Itoa(e.Payload), e.Duration.String())
}

// floorRate runs a floor that writes one rate and ends.
func (e *Env) floorRate(ctx context.Context, kind string, args ...string) (rate float64, err error) {
	floor, err := e.StartFloor(kind, args...)
	if err != nil {
		return 0, err
	}
	if err := floor.Read(ctx, &rate); err != nil {
		_ = floor.Close() // the error above has more details
		return 0, err
	}
	return rate, floor.Close()
}
