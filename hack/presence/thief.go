package main

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// workers is the number of thieves of one node, and pursuers of those who try the tokens of users
	// that have just signed out.
	workers, pursuers = 6, 4
	// glance is how long a stream with a valid token is kept open, and chaseFor how long, and how
	// often, a token is tried again right after its sign-out.
	glance, chaseFor, chaseEvery = 500 * time.Millisecond, 2 * time.Second, 50 * time.Millisecond
	// newest is the number of the last sign-outs whose tokens are tried more often than others.
	newest = 50
	// endWait is how long the end of a stream is waited for: a node may be stopped meanwhile, and the
	// client then needs some time to notice.
	endWait = 25 * time.Second
)

// thieves try tokens on all nodes, at a bounded rate: those of logins that were signed out, and
// others.
type thieves struct {
	ledger *ledger
	faults *faults
	http   *http.Client
	nodes  []*nodeCalls
	// chases has, for each node, the logins that have just been signed out.
	chases [maxNodes]chan chase
	// streams are the streams that are waited for.
	streams sync.WaitGroup

	cancel context.CancelFunc
	done   sync.WaitGroup
}

type chase struct {
	login *login
	phase phase
}

// maxChases bounds the logins that wait for a pursuer.
const maxChases = 10_000

func newThieves(addrs []string, g *ledger, f *faults) *thieves {
	t := &thieves{ledger: g, faults: f, http: newHTTP(addrs), cancel: func() {}}
	for node, addr := range addrs {
		t.nodes = append(t.nodes, newNodeCalls(t.http, node, addr))
		t.chases[node] = make(chan chase, maxChases)
	}
	return t
}

// start starts the thieves, which make rate tries a second on each node.
func (t *thieves) start(ctx context.Context, rate float64) {
	ctx, t.cancel = context.WithCancel(ctx)
	for _, n := range t.nodes {
		for range workers {
			t.done.Go(func() { t.steal(ctx, n, time.Duration(workers/rate*float64(time.Second))) })
		}
		for range pursuers {
			t.done.Go(func() { t.pursue(ctx, n) })
		}
	}
}

// close ends the thieves and waits for the streams that are open.
func (t *thieves) close() {
	t.cancel()
	t.done.Wait()
	t.streams.Wait()
	t.http.CloseIdleConnections()
}

// signedOut makes pursuers try a login that has just been signed out.
func (t *thieves) signedOut(l *login, p phase) {
	for _, chases := range t.chases {
		select {
		case chases <- chase{l, p}:
		default:
			t.ledger.count("sign-outs that no pursuer was free for")
		}
	}
}

// steal tries tokens on a node, one each interval.
func (t *thieves) steal(ctx context.Context, n *nodeCalls, interval time.Duration) {
	rng := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	unary, streaming := slices.Sorted(maps.Keys(calls)), slices.Sorted(maps.Keys(openers))
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		l, token := t.ledger.pick(rng)
		switch {
		case l == nil:
		case rng.IntN(10) < 3:
			t.tryStream(ctx, n, l, token, streaming[rng.IntN(len(streaming))])
		default:
			t.tryCall(ctx, n, l, token, unary[rng.IntN(len(unary))])
		}
	}
}

// pick returns a login and one of its tokens; nil if there is none. More than half are of logins
// that were signed out, and half of these of the newest.
func (g *ledger) pick(rng *rand.Rand) (*login, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := g.logins
	if rng.IntN(10) < 6 {
		if from = g.revoked; rng.IntN(2) == 0 {
			from = from[max(0, len(from)-newest):]
		}
	}
	if len(from) == 0 {
		return nil, ""
	}
	l := from[rng.IntN(len(from))]
	if len(l.tokens) == 0 {
		return nil, ""
	}
	return l, l.tokens[rng.IntN(len(l.tokens))]
}

// tryCall makes a unary call with a token and has its answer judged.
func (t *thieves) tryCall(ctx context.Context, n *nodeCalls, l *login, token, kind string) (answer, time.Time) {
	bounded, cancel := context.WithTimeout(as(ctx, token), answerWait)
	defer cancel()
	one := trial{login: l, kind: kind, node: n.node, sent: time.Now()}
	a := answerOf(calls[kind](bounded, n, l.user))
	at := time.Now()
	if ctx.Err() == nil {
		t.ledger.judge(&one, a, at, t.faults.present())
	}
	return a, at
}

// tryStream opens a stream with a token and has the answer judged, and the end of the stream if the
// token is revoked.
func (t *thieves) tryStream(ctx context.Context, n *nodeCalls, l *login, token, kind string) {
	one := trial{login: l, kind: kind, node: n.node, sent: time.Now()}
	h, a, _ := n.open(ctx, one, token)
	if ctx.Err() != nil {
		if h != nil {
			h.wait(0)
		}
		return
	}
	t.ledger.judge(&one, a, time.Now(), t.faults.present())
	if h == nil {
		return
	}
	limit := glance
	if t.ledger.isOver(l) {
		limit = endWait
	}
	t.streams.Go(func() { t.await(ctx, h, limit) })
}

// await waits for the end of a stream, and releases it after the limit. It has the end judged
// unless the stream was released before endWait or ctx has ended.
func (t *thieves) await(ctx context.Context, h *held, limit time.Duration) {
	a, at, released := h.wait(limit)
	if ctx.Err() != nil || released && limit < endWait {
		return
	}
	began, _ := t.ledger.times(h.trial.login)
	works := !began.IsZero() && t.faults.worksSince(h.trial.node, began)
	t.ledger.judgeEnd(&h.trial, a, at, works, t.faults.current())
}

// pursue tries the tokens of those who have just signed out until the node refuses them.
func (t *thieves) pursue(ctx context.Context, n *nodeCalls) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-t.chases[n.node]:
			t.chase(ctx, n, c)
		}
	}
}

func (t *thieves) chase(ctx context.Context, n *nodeCalls, c chase) {
	_, returned := t.ledger.times(c.login)
	token := t.ledger.lastToken(c.login)
	for time.Since(returned) < chaseFor {
		a, at := t.tryCall(ctx, n, c.login, token, "GetPresence")
		switch {
		case ctx.Err() != nil:
			return
		case a == refused:
			t.ledger.refusedAfter(c.login, at, c.phase)
			return
		}
		if sleep(ctx, chaseEvery) != nil {
			return
		}
	}
	t.ledger.count("sign-outs whose token a node did not refuse within 2 s, because it did not answer or the machine was slow")
}

// lastToken returns the newest token of a login.
func (g *ledger) lastToken(l *login) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return l.tokens[len(l.tokens)-1]
}
