package messages

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// startGates creates the gated channels and starts their clients: for each a keeper, an aide, a
// stranger that calls, and a stranger's stream on every node.
func (r *run) startGates(writeCtx, followCtx context.Context) error {
	for i := range r.load.Gates {
		house := &gatehouse{channel: gate(i)}
		house.keeper = r.newGatekeeper(i, house)
		if !house.keeper.change(writeCtx, 0) {
			return fmt.Errorf("%s could not be created", house.channel)
		}
		r.keepers = append(r.keepers, house.keeper)
		r.writing.Go(func() { house.keeper.run(writeCtx) })
		for _, user := range []string{aide, stranger} {
			v := r.newVisitor(house, user)
			r.writing.Go(func() { v.run(writeCtx) })
		}
		for _, addr := range r.addrs {
			s := &strangerStream{world: r.world, house: house, client: newRaw(addr, r.guestToken(stranger))}
			house.streams = append(house.streams, s)
			r.following.Go(func() { s.run(followCtx) })
		}
	}
	return nil
}

// visitor is the aide or a stranger: a user who sends to a gated channel, lists it, and recalls
// messages of others, whether that is allowed or not.
type visitor struct {
	*world

	house   *gatehouse
	user    string
	clients []*raw
	rng     *rand.Rand
	n       int
}

func (r *run) newVisitor(house *gatehouse, user string) *visitor {
	v := &visitor{world: r.world, house: house, user: user, rng: chaos.Source(r.Seed, user+"-at-"+house.channel)}
	token := r.guestToken(user)
	if user == aide {
		token = r.aideToken(user)
	}
	for _, addr := range r.addrs {
		v.clients = append(v.clients, newRaw(addr, token))
	}
	return v
}

func (v *visitor) run(ctx context.Context) {
	for chaos.Pause(ctx, v.rng, 150*time.Millisecond) {
		if v.one(context.WithoutCancel(ctx)) == chaos.Unknown {
			chaos.Sleep(ctx, chaos.AfterFailure)
		}
	}
	for _, c := range v.clients {
		c.Close()
	}
}

// one makes one random call and returns its outcome.
func (v *visitor) one(ctx context.Context) chaos.Outcome {
	c := v.clients[v.rng.IntN(len(v.clients))]
	switch v.rng.IntN(4) {
	case 0:
		return v.listAs(ctx, c, v.user, v.house.channel, false).Outcome
	case 1:
		if m, ok := v.house.pick(v.rng); ok {
			return v.recall(ctx, c, m)
		}
	}
	v.n++
	return v.sendAs(ctx, c, v.user, fmt.Sprintf("%s-of-%s-%d", v.user, v.house.channel, v.n), v.house, false)
}

func (v *visitor) recall(ctx context.Context, c *raw, m sentMessage) chaos.Outcome {
	call := &GateCall{Channel: v.house.channel, User: v.user, Addr: c.Addr, Kind: Recall, Name: m.name}
	ctx, cancel := c.Call(ctx, rawLimit)
	defer cancel()
	v.callGate(call, func() error {
		_, err := c.RecallMessage(ctx, &parleyv1.RecallMessageRequest{ChannelId: v.house.channel, MsgId: m.msgID})
		return err
	})
	return call.Outcome
}

// strangerStream follows a gated channel on one node, and returns to it as soon as it is let in.
type strangerStream struct {
	*world

	house  *gatehouse
	client *raw
	after  int64

	mu   sync.Mutex // guards last
	last string
}

// newest returns the client_msg_id of the newest message that the stream has received.
func (s *strangerStream) newest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *strangerStream) run(ctx context.Context) {
	defer s.client.Close()
	for ctx.Err() == nil {
		s.stream(ctx)
		chaos.Sleep(ctx, 200*time.Millisecond)
	}
}

// stream follows the channel until it is lost or the stream ends.
func (s *strangerStream) stream(ctx context.Context) {
	req := &parleyv1.SubscribeRequest{
		Channels: []*parleyv1.ChannelPosition{{ChannelId: s.house.channel, AfterSeq: new(s.after)}},
	}
	s.client.follow(ctx, req, func(_ *time.Timer, res *parleyv1.SubscribeResponse) bool {
		at := s.rec.Now()
		call := &GateCall{
			Channel: s.house.channel, User: stranger, Addr: s.client.Addr, Kind: Stream, Begin: at, End: at, Outcome: chaos.OK,
		}
		lost := false
		for _, e := range res.GetEvents().GetEvents() {
			call.show(e.GetSent(), e.GetEdited())
			s.after = max(s.after, e.GetSeq())
			lost = lost || e.GetLost() != nil
		}
		if n := len(call.Shown); n > 0 {
			s.rec.Write(line{Gate: call})
			s.mu.Lock()
			s.last = call.Shown[n-1]
			s.mu.Unlock()
		}
		return !lost
	})
}
