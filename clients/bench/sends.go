package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// sendTo has callers send one message at a time; channel says where a caller's n-th one goes.
func (e *Env) sendTo(callers int, channel func(caller, n int) string) *work {
	content := e.text()
	return &work{
		callers: callers, procedure: parleyv1connect.MessageServiceSendMessageProcedure,
		request: func(caller, n int) proto.Message {
			return &parleyv1.SendMessageRequest{ChannelId: channel(caller, n), Content: content}
		},
	}
}

// text is what a message holds that nobody reads.
func (e *Env) text() string { return strings.Repeat("x", e.Payload) }

// refusalOf gives the first error of a batch's results.
func refusalOf(answer *parleyv1.SendMessagesResponse) error {
	for _, r := range answer.GetResults() {
		if e := r.GetError(); e != nil {
			return errors.New(e.GetMessage())
		}
	}
	return nil
}

// measureSends takes F4: what is acknowledged of durable sends, against the disk and the store's engine alone.
func measureSends(ctx context.Context, env *Env) ([]Figure, error) {
	target, err := env.Target(ctx)
	if err != nil {
		return nil, err
	}
	senders := cmp.Or(env.Senders, 64)
	load := env.sendTo(senders, func(caller, _ int) string { return fmt.Sprintf("bench-sends-%d", caller) })
	var values, floors, costs []float64
	err = env.Each(ctx,
		func(ctx context.Context) error {
			got, err := load.run(ctx, target, env.Duration)
			values, costs = append(values, got.rate), append(costs, got.cpu)
			return err
		},
		func(ctx context.Context) error {
			rate, err := env.commitFloor(ctx, senders)
			floors = append(floors, rate)
			return err
		})
	if err != nil {
		return nil, err
	}
	setup := env.Setup(map[string]string{
		"senders": strconv.Itoa(senders), "connections": strconv.Itoa(senders) + " (HTTP/1.1, Connect, binary)",
		"duration": env.Duration.String(), "fsync": "every commit, on both sides",
	})
	figure := Figure{ID: "F4", Name: "durable sends, each sender one at a time in its own channel", Unit: "acked/s", Setup: setup}.
		WithFloor("Pebble's own group commit, as many writers, the same bytes, nothing else", values, floors)
	figure.Notes = []string{fmt.Sprintf("server CPU time per send: %s", Summarize(costs).microseconds())}
	if len(env.Addrs) > 0 {
		figure.Notes = append(figure.Notes, "the floor wrote to "+env.Dir+", which should be on the server's disk")
	}
	return []Figure{figure.WithBar("at least 0.5 of the floor", "0.8", figure.Ratio.Median >= 0.5)}, nil
}

// microseconds is a summary of CPU times.
func (s Summary) microseconds() string { return s.text("us") }

// commitFloor runs the floor of sends for as long as a measurement.
func (e *Env) commitFloor(ctx context.Context, writers int) (rate float64, err error) {
	dir, err := os.MkdirTemp(e.Dir, "parley-bench-floor-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	return e.floorRate(ctx, "commits", dir, strconv.Itoa(writers), strconv.Itoa(e.Payload), e.Duration.String())
}

// floorRate runs a floor that tells one rate and ends.
func (e *Env) floorRate(ctx context.Context, kind string, args ...string) (rate float64, err error) {
	floor, err := e.StartFloor(kind, args...)
	if err != nil {
		return 0, err
	}
	if err := floor.Read(ctx, &rate); err != nil {
		_ = floor.Close() // the error above says more
		return 0, err
	}
	return rate, floor.Close()
}
