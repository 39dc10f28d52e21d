package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/parleyhq/parley/hack/internal/verdict"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// mostFollowed is the number of sessions on a stream, which a server limits to 500.
	mostFollowed = 500
	// addEvery is how often the sessions that have begun are added to the streams.
	addEvery = 200 * time.Millisecond
)

// audience is all subscribers: live ones on each node, which follow a share of the sessions over
// the whole run, and late ones, which join an answer that is being generated and leave with its
// end.
type audience struct {
	*verdict.Findings

	seed    uint64
	share   uint64 // the percentage of the sessions that each node's live subscribers follow
	clients *clients
	faults  *faults
	ctx     context.Context //nolint:containedctx // the life of the subscriptions
	cancel  context.CancelFunc
	work    sync.WaitGroup

	mu      sync.Mutex         // guards the fields below
	answers map[string]*answer // by session and client_msg_id
	queues  [][]*session       // of each node, the sessions that its subscribers do not follow yet
	live    []*subscriber
	late    []*subscriber
}

func newAudience(ctx context.Context, f *verdict.Findings, seed uint64, share int, c *clients, faults *faults) *audience {
	a := &audience{
		Findings: f, seed: seed, share: uint64(max(share, 0)), clients: c, faults: faults,
		answers: make(map[string]*answer), queues: make([][]*session, len(c.nodes)),
	}
	a.ctx, a.cancel = context.WithCancel(ctx)
	for n := range c.nodes {
		a.work.Go(func() { a.extend(n) })
	}
	return a
}

// close ends all subscriptions.
func (a *audience) close() {
	a.cancel()
	a.work.Wait()
}

// expect makes an answer known before it is opened.
func (a *audience) expect(answer *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[answer.session.id+"/"+answer.id] = answer
}

// find returns the answer that a message of a session is, or nil.
func (a *audience) find(channel string, m *parley.Message) *answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answers[strings.TrimPrefix(channel, "~")+"/"+m.GetClientMsgId()]
}

// follow lets the live subscribers follow a session that has begun, if they are to.
func (a *audience) follow(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := range a.queues {
		if chance(a.seed, fmt.Sprintf("follow %d", n), s.id)%100 < a.share {
			a.queues[n] = append(a.queues[n], s)
		}
	}
}

// extend adds the sessions that have begun to the subscriptions of a node.
func (a *audience) extend(node int) {
	var current *subscriber
	for verdict.Sleep(a.ctx, addEvery) == nil {
		a.mu.Lock()
		begun := a.queues[node]
		a.queues[node] = nil
		a.mu.Unlock()
		for len(begun) > 0 {
			if current != nil && current.room == 0 {
				current = nil
			}
			room := mostFollowed
			if current != nil {
				room = current.room
			}
			n := min(room, len(begun))
			starts := make([]parley.Start, n)
			for i, s := range begun[:n] {
				starts[i] = parley.FromStart(s.channel)
			}
			begun = begun[n:]
			if current == nil {
				current = a.subscribe(fmt.Sprintf("a live subscriber of node %d", node), node, nil, starts)
				current.room = mostFollowed - n
				continue
			}
			current.room -= n
			if err := current.sub.Add(a.ctx, starts...); err != nil && a.ctx.Err() == nil {
				a.Wrongf("%s cannot follow %d more sessions: %v", current.name, n, err)
			}
		}
	}
}

// join lets a late subscriber follow the session of an answer until the answer's end.
func (a *audience) join(to *answer) {
	node := int(chance(a.seed, "join", to.session.id+to.id) % uint64(len(a.clients.nodes))) //nolint:gosec // few
	a.subscribe(fmt.Sprintf("a late subscriber of node %d", node), node, to, []parley.Start{parley.FromStart(to.session.channel)})
	a.Add("late subscribers", 1)
}

// subscribe starts a subscriber of a node. until is the answer at whose end it leaves, or nil.
func (a *audience) subscribe(name string, node int, until *answer, starts []parley.Start) *subscriber {
	s := &subscriber{audience: a, name: name, until: until, channels: make(map[string]*followed)}
	opts := make([]parley.SubscribeOption, len(starts))
	for i, start := range starts {
		opts[i] = start
	}
	s.sub = a.clients.nodes[node].Subscribe(a.ctx, opts...)
	a.mu.Lock()
	if until == nil {
		a.live = append(a.live, s)
	} else {
		a.late = append(a.late, s)
	}
	a.mu.Unlock()
	a.work.Go(s.run)
	return s
}

// compareCancelled compares a cancelled answer with what subscribers were shown.
func (a *audience) compareCancelled(answer *answer, m *parley.Message) {
	answer.mu.Lock()
	shown := answer.shownAtCancel
	answer.mu.Unlock()
	text := m.GetContent()
	if !strings.HasPrefix(answer.text, text) {
		a.Wrongf("%s of %s is cancelled with %q, and is %q", answer.id, answer.session.id, text, answer.text)
		return
	}
	if len(text) >= shown {
		return
	}
	if answer.mayLack(a.faults) {
		a.Add("answers cancelled with less than was shown", 1)
		return
	}
	a.Wrongf("%s of %s is cancelled with %d bytes, and %d had been shown", answer.id, answer.session.id, len(text), shown)
}

// snapshot returns the subscribers so far.
func (a *audience) snapshot() (live, late []*subscriber) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append(live, a.live...), append(late, a.late...)
}
