package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// growthFactor is the factor by which channels and users grow.
const growthFactor = 10

// measureGrowth measures the server's CPU time of a delivery and of a send, against the same with a
// tenth of the channels and users.
func measureGrowth(ctx context.Context, env *Env) ([]Figure, error) {
	target, err := env.Target(ctx)
	if err != nil {
		return nil, err
	}
	few, many := max(env.Channels/growthFactor, 1), env.Channels
	fewSends, err := env.sendsAcross(ctx, target, few)
	if err != nil {
		return nil, err
	}
	manySends, err := env.sendsAcross(ctx, target, many)
	if err != nil {
		return nil, err
	}
	var fewSent, manySent []float64
	var fewDelivered, manyDelivered []fanoutRun
	deliver := func(subscribers int, into *[]fanoutRun) func(context.Context) error {
		return func(ctx context.Context) error {
			run, err := fanout(ctx, target, fanoutLoad{
				subscribers: subscribers, channels: channelsFor(subscribers), payload: env.Payload, duration: env.Duration,
			})
			*into = append(*into, run)
			return err
		}
	}
	send := func(load *work, into *[]float64) func(context.Context) error {
		return func(ctx context.Context) error {
			got, err := load.run(ctx, target, env.Duration)
			*into = append(*into, got.cpu)
			return err
		}
	}
	subscribers := max(env.Subscribers/growthFactor, 1)
	if err := env.Each(ctx, send(fewSends, &fewSent), send(manySends, &manySent),
		deliver(subscribers, &fewDelivered), deliver(env.Subscribers, &manyDelivered)); err != nil {
		return nil, err
	}
	setup := env.Setup(map[string]string{
		"senders": strconv.Itoa(fewSends.callers), "connections": "one per sender or subscriber", "duration": env.Duration.String(),
	})
	sends := Figure{
		ID: "growth/send/cpu", Name: fmt.Sprintf("a send to one of %d channels, each from a user of its own: server CPU", many), Unit: "us", Setup: setup,
	}.WithFloor(fmt.Sprintf("to one of %d", few), manySent, fewSent)
	deliveries := Figure{
		ID: "growth/delivery/cpu", Name: fmt.Sprintf("a delivery to one of %d subscribers of %d channels: server CPU", env.Subscribers,
			channelsFor(env.Subscribers)), Unit: "us", Setup: setup,
	}.WithFloor(fmt.Sprintf("to one of %d of %d", subscribers, channelsFor(subscribers)),
		each(manyDelivered, fanoutRun.cost), each(fewDelivered, fanoutRun.cost))
	return []Figure{
		deliveries.WithRatioBar(growthBar, atMost(1.2)),
		sends.WithRatioBar(growthBar, atMost(1.2)),
	}, nil
}

const growthBar = "at most 1.2 times as much as with a tenth of both"

// channelsFor returns the number of channels for that many subscribers: one for every ten, and at
// least 1.
func channelsFor(subscribers int) int { return max(subscribers/10, 1) }

// sendsAcross returns a load of sends to a number of channels, with a user of its own as the sender
// in each channel. It creates all channels before it returns.
func (e *Env) sendsAcross(ctx context.Context, t *Target, channels int) (*work, error) {
	const most = 500 // messages in a call
	name := "bench-growth-" + rand.Text()[:8] + "-"
	message := func(i int, content string) *parleyv1.SendMessageRequest {
		n := strconv.Itoa(i % channels)
		return &parleyv1.SendMessageRequest{ChannelId: name + n, FromId: "user-" + n, Content: content}
	}
	senders := cmp.Or(e.Senders, 64)
	load, content := e.sendTo(senders, nil), e.text()
	load.request = func(caller, n int) proto.Message { return message(caller+n*senders, content) }
	client, closing := t.Client(0)
	defer closing()
	for from := 0; from < channels; from += most {
		var first parleyv1.SendMessagesRequest
		for i := from; i < min(from+most, channels); i++ {
			first.Messages = append(first.Messages, message(i, content))
		}
		answer, err := client.SendMessages(ctx, &first)
		if err != nil {
			return nil, err
		}
		if err := refusalOf(answer); err != nil {
			return nil, err
		}
	}
	return load, nil
}
