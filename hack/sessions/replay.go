package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/hack/internal/user"
	"github.com/parleyhq/parley/hack/internal/verdict"
	parley "github.com/parleyhq/parley/sdk/go"
)

// replay makes the calls of the users and of the assistant.
type replay struct {
	*flags
	*verdict.Findings

	script   *script
	clients  *clients
	audience *audience
	faults   *faults
	work     *errgroup.Group
	done     atomic.Int64 // the steps that were begun

	mu      sync.Mutex    // guards the fields below
	late    time.Duration // the longest from the time of a step to its acknowledgement
	slowest time.Duration // the longest call of a step
	what    string        // the step of the slowest call
}

// run replays all days and waits until all answers are over, except for those whose generators
// died.
func (r *replay) run(ctx context.Context) error {
	var lanes errgroup.Group
	lanes.SetLimit(r.Lanes)
	r.work, ctx = errgroup.WithContext(ctx)
	for _, d := range r.script.days {
		if ctx.Err() != nil {
			break
		}
		lanes.Go(func() error { return r.day(ctx, d) })
	}
	err := lanes.Wait()
	return errors.Join(r.work.Wait(), err)
}

// day replays a day.
func (r *replay) day(ctx context.Context, d *day) error {
	began := time.Now()
	for i := range d.steps {
		s := &d.steps[i]
		at := began.Add(time.Duration(float64(s.at) / r.Speed))
		if err := verdict.Sleep(ctx, time.Until(at)); err != nil {
			return err
		}
		before, after := s.session.tail, make(chan struct{})
		s.session.tail = after
		r.work.Go(func() error {
			defer close(after)
			select {
			case <-before:
			case <-ctx.Done():
				return ctx.Err()
			}
			began, err := time.Now(), r.take(ctx, s)
			r.timed(s, at, began)
			return err
		})
		r.done.Add(1)
	}
	return verdict.Sleep(ctx, time.Until(began.Add(time.Duration(float64(d.span)/r.Speed))))
}

// timed takes the time of a step that was due at a time, and whose call began when the session's
// earlier ones had ended.
func (r *replay) timed(s *step, at, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = max(r.late, time.Since(at))
	if took := time.Since(began); took > r.slowest {
		r.slowest, r.what = took, fmt.Sprintf("%s of %s at %s", s.id, s.session.id, began.Format(time.TimeOnly))
	}
}

// take makes the call of a step. An answer goes on in the background.
func (r *replay) take(ctx context.Context, s *step) error {
	client := r.clients.any(chance(r.Seed, "client", s.session.id+s.id))
	session := client.Session(s.session.id)
	if s.answer == nil {
		content := s.content
		if r.Break == "text" && chance(r.Seed, "break", s.id)%500 == 0 {
			content += "!"
		}
		_, err := session.Append(user.As(ctx, s.session.owner), parley.SessionRoleUser, content, parley.WithClientMsgID(s.id))
		if err != nil {
			return fmt.Errorf("%s of %s: %w", s.id, s.session.id, err)
		}
		s.session.follow.Do(func() { r.audience.follow(s.session) })
		return nil
	}
	g := &generator{replay: r, answer: s.answer, session: session}
	if err := g.open(ctx); err != nil {
		return fmt.Errorf("open %s of %s: %w", s.id, s.session.id, err)
	}
	r.work.Go(func() error {
		if err := g.run(ctx); err != nil {
			return fmt.Errorf("answer %s of %s: %w", s.id, s.session.id, err)
		}
		return nil
	})
	return nil
}
