package consume_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// deploy is a fleet whose nodes are replaced while consumers work.
type deploy struct {
	*bench

	mu    sync.Mutex // guards the fields below
	alive []*node
	begun map[string]int
	acked int
}

// pick returns a node that does not stop.
func (d *deploy) pick() *node {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.alive[rand.IntN(len(d.alive))]
}

// replace stops the oldest node, after another one was started.
func (d *deploy) replace(name string) {
	added := d.start(name)
	d.mu.Lock()
	old := d.alive[0]
	d.alive = append(slices.Clone(d.alive[1:]), added)
	d.mu.Unlock()
	d.stopNode(old, false)
}

// roamer is a consumer that resumes its session on another node when its stream ends.
type roamer struct {
	*deploy

	id      string
	resumes int64
	mu      sync.Mutex // guards held
	// held says of each delivery whether its ack is under way.
	held map[consume.Token]bool
	work sync.WaitGroup
}

// run consumes until ctx ends.
func (r *roamer) run(ctx context.Context) {
	defer r.work.Wait()
	for ctx.Err() == nil {
		req := consume.OpenRequest{
			Subject: "alice", Topics: []string{"orders"}, Group: "work", Consumer: "c", Concurrency: 4, MaxInFlight: 4, MaxBytes: 1 << 20,
			Expires: time.Now().Add(time.Second + rand.N(3*time.Second)), // so that it also comes back to nodes
		}
		if r.id != "" {
			r.resumes++
			req.Resume = &consume.Resume{SessionID: r.id, Resumes: r.resumes}
			r.mu.Lock()
			for token, settling := range r.held {
				if settling {
					req.Resume.Unanswered = append(req.Resume.Unanswered, consume.Settlement{Token: token, Verdict: dispatch.Ack})
					continue
				}
				req.Resume.Held = append(req.Resume.Held, consume.HeldDelivery{Token: token, Begun: true})
			}
			r.mu.Unlock()
		}
		n := r.pick()
		s, started, err := n.Open(ctx, req)
		if err != nil {
			if fault.Is(err, fault.SessionLost) {
				r.t.Errorf("the session was lost: %v", err)
				return
			}
			<-time.After(10 * time.Millisecond)
			continue
		}
		if r.id == "" { // it stays the same, and handlers read it
			r.id = started.SessionID
		}
		r.lose(started.Lost)
		r.read(ctx, s)
		n.Close(s)
	}
}

// read handles what a stream sends until it ends.
func (r *roamer) read(ctx context.Context, s *consume.Stream) {
	for {
		f, err := s.Next(ctx)
		if err != nil {
			return
		}
		if f.Lost != nil {
			r.lose(f.Lost.Tokens)
		}
		for _, one := range f.Deliveries {
			r.deploy.mu.Lock()
			r.begun[one.MessageID]++
			r.deploy.mu.Unlock()
			r.mu.Lock()
			r.held[one.Token] = false
			r.mu.Unlock()
			r.work.Go(func() { r.handle(ctx, one.Token) })
		}
	}
}

// lose complains about lost deliveries, but not about those whose ack is under way.
func (r *roamer) lose(tokens []consume.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, token := range tokens {
		if settling, held := r.held[token]; held && !settling {
			r.t.Errorf("lost %v", token)
		}
	}
}

// handle works on a delivery for a while and acknowledges it until there is an answer.
func (r *roamer) handle(ctx context.Context, token consume.Token) {
	takes := rand.N(30 * time.Millisecond)
	if rand.IntN(20) == 0 {
		takes = rand.N(5 * time.Second)
	}
	<-time.After(takes)
	r.mu.Lock()
	r.held[token] = true
	r.mu.Unlock()
	for ctx.Err() == nil {
		errs, err := r.pick().Settle(ctx, "alice", r.id, []consume.Settlement{{Token: token, Verdict: dispatch.Ack}})
		if err == nil {
			err = errs[0]
		}
		switch {
		case err == nil, fault.Is(err, fault.DeliveryGone):
			r.mu.Lock()
			delete(r.held, token)
			r.mu.Unlock()
			r.deploy.mu.Lock()
			r.acked++
			r.deploy.mu.Unlock()
			return
		case fault.Is(err, fault.DeliveryLost), fault.Is(err, fault.SessionLost):
			if ctx.Err() == nil {
				r.t.Errorf("ack of %v: %v", token, err)
			}
			return
		default:
			<-time.After(20 * time.Millisecond)
		}
	}
}

// TestDeploy: while every node of a fleet is replaced twice, nothing comes again and nothing is lost.
func TestDeploy(t *testing.T) {
	t.Parallel()
	d := &deploy{bench: newBench(t, 4, 3, func(g *qlog.Group) { g.ResumeGrace = 4 * time.Second }), begun: map[string]int{}}
	d.alive = slices.Clone(d.nodes)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var workers sync.WaitGroup
	for range 9 {
		r := &roamer{deploy: d, held: map[consume.Token]bool{}}
		workers.Go(func() { r.run(ctx) })
	}
	total := 0
	put := func() {
		for p := range 4 {
			d.put(p, 60, 20)
		}
		total += 240
	}
	for i := range 6 {
		put()
		d.replace(fmt.Sprint("new", i))
	}
	put()
	acked := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.acked
	}
	for ctx.Err() == nil && acked() < total && !t.Failed() {
		<-time.After(20 * time.Millisecond)
	}
	t.Logf("%d of %d messages were acknowledged", acked(), total)
	cancel()
	workers.Wait()
	if len(d.begun) != total {
		t.Errorf("%d of %d messages were delivered", len(d.begun), total)
	}
	for id, n := range d.begun {
		if n > 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
	}
}
