package main

import (
	"context"
	"errors"
	"time"

	"github.com/parleyhq/parley/hack/internal/user"
	"github.com/parleyhq/parley/hack/internal/verdict"
	parley "github.com/parleyhq/parley/sdk/go"
)

// freezeWait is how long a node that cancels waits for the node with the text.
const freezeWait = time.Second

// generator generates an answer.
type generator struct {
	*replay

	answer  *answer
	session *parley.Session
	message *parley.OpenMessage
	die     context.CancelFunc
}

// open opens the answer.
func (g *generator) open(ctx context.Context) (err error) {
	a := g.answer
	a.mu.Lock()
	a.opened = time.Now()
	a.mu.Unlock()
	g.audience.expect(a)
	role := parley.SessionRoleAssistant
	if g.Break == "role" && chance(g.Seed, "break", a.id)%100 == 0 {
		role = parley.SessionRoleTool
	}
	ctx, g.die = context.WithCancel(ctx)
	g.message, err = g.session.Open(ctx, role, parley.WithClientMsgID(a.id))
	if err != nil {
		g.die()
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := g.message.Receipt()
	a.msgID, a.repeated = r.MsgID, r.Duplicate
	if r.Duplicate {
		g.Add("opens that were repeated", 1)
	}
	return nil
}

// run writes the answer word by word until its fate.
func (g *generator) run(ctx context.Context) error {
	defer g.die()
	a := g.answer
	for i, piece := range a.pieces {
		a.write(piece)
		if _, err := g.message.Write([]byte(piece)); err != nil {
			return err
		}
		if err := verdict.Sleep(ctx, time.Duration(float64(g.Word)/g.Speed)); err != nil {
			return err
		}
		if i+1 == a.late {
			g.audience.join(a)
		}
		if i+1 == a.cut && a.fate == cancelled && g.Break != "cancel" {
			return g.cancelled(ctx, i+1)
		}
		if i+1 == a.cut && a.fate == abandoned {
			return g.abandon(ctx)
		}
	}
	r, err := g.message.Complete(ctx, a.text)
	if errors.Is(err, parley.ErrMessageClosed) {
		g.Wrongf("%s of %s cannot be closed %.1f s after its open: %v; it is %v", a.id, a.session.id, time.Since(a.opened).Seconds(), err, g.current(ctx))
		return nil
	}
	if err == nil && r.Message.GetContent() != a.text {
		g.Wrongf("%s of %s was closed with %q, and became %q", a.id, a.session.id, a.text, r.Message.GetContent())
	}
	a.end()
	g.Add("answers completed", 1)
	return err
}

// cancelled lets the owner cancel the answer, of which n pieces are written. The generator goes on
// until it is told.
func (g *generator) cancelled(ctx context.Context, n int) error {
	a := g.answer
	result := make(chan error, 1)
	go func() {
		a.cancelling()
		owner := g.clients.any(chance(g.Seed, "owner", a.session.id+a.id)).Session(a.session.id)
		r, err := owner.Cancel(user.As(ctx, a.session.owner), g.message.Receipt().MsgID)
		a.cancelDone()
		if err == nil {
			g.audience.compareCancelled(a, r.Message)
		}
		result <- err
	}()
	var err error
	for answered := false; !answered; {
		if n < len(a.pieces) && g.message.Err() == nil {
			a.write(a.pieces[n])
			_, _ = g.message.Write([]byte(a.pieces[n])) // fails once the generator is told
			n++
		}
		select {
		case err = <-result:
			answered = true
		case <-time.After(time.Duration(float64(g.Word) / g.Speed)):
		}
	}
	if err != nil {
		return err
	}
	a.end()
	g.Add("answers cancelled", 1)
	if err := g.message.Err(); err != nil && !errors.Is(err, parley.ErrMessageClosed) {
		return err
	}
	if _, err := g.message.Complete(ctx, a.text); !errors.Is(err, parley.ErrMessageClosed) {
		g.Wrongf("%s of %s was closed after it had been cancelled: %v", a.id, a.session.id, err)
	}
	return nil
}

// abandon lets the generator die: nothing more is sent.
func (g *generator) abandon(ctx context.Context) error {
	if err := g.faults.mayDie(ctx); err != nil {
		return err
	}
	g.die()
	g.answer.mu.Lock()
	g.answer.died = time.Now()
	g.answer.mu.Unlock()
	g.Add("generators killed", 1)
	return nil
}

// current returns the message as it is, for a report.
func (g *generator) current(ctx context.Context) *parley.Message {
	for m, err := range g.session.Messages(ctx) {
		if err != nil || m.GetMsgId() == g.message.Receipt().MsgID {
			return m
		}
	}
	return nil
}
