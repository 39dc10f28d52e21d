package presence

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/stream"
)

// turn is the right of a subject to let members be read for the first time. Each subject has one on
// a node, so that nobody can occupy all of the node's readers. view.channelMu guards users.
type turn struct {
	// taken has an element while a caller has the turn.
	taken chan struct{}
	// users counts the callers that have the turn or wait for it.
	users int
}

// loaded returns the watch of a channel for a stream, with one more reference, once its members and
// their states were read. It waits up to 1 s for the states.
func (v *view) loaded(ctx context.Context, s *Stream, channelID string) (*channelWatch, error) {
	began := time.Now()
	if err := v.channelRefusal(s, channelID); err != nil {
		return nil, err
	}
	c := v.join(channelID)
	if c == nil {
		var err error
		if c, err = v.read(ctx, s, channelID, began); err != nil {
			return nil, err
		}
	}
	err := v.awaitClosed(ctx, c.ready)
	if err == nil {
		err = c.err
	}
	if err != nil {
		v.leave(c)
		return nil, err
	}
	return c, nil
}

// read is loaded for a channel that no stream watches yet. It waits for the turn of the subject,
// but not for the states of the members.
func (v *view) read(ctx context.Context, s *Stream, channelID string, began time.Time) (*channelWatch, error) {
	subject := s.core.Subject
	if err := v.takeTurn(ctx, subject); err != nil {
		return nil, err
	}
	defer v.endTurn(subject)
	// Other channels may have been added meanwhile.
	if err := v.channelRefusal(s, channelID); err != nil {
		return nil, err
	}
	c := v.create(channelID, began)
	if err := v.awaitClosed(ctx, c.read); err != nil {
		v.leave(c)
		return nil, err
	}
	return c, nil
}

// awaitClosed waits until a channel is closed. It returns ctx's error if that ends first, and
// SHUTTING_DOWN if the view stops.
func (v *view) awaitClosed(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-v.ctx.Done():
		return stream.ShuttingDown()
	}
}

// takeTurn waits for the turn of a subject. endTurn returns it.
func (v *view) takeTurn(ctx context.Context, subject string) error {
	v.channelMu.Lock()
	t := v.turns[subject]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		v.turns[subject] = t
	}
	t.users++
	v.channelMu.Unlock()
	var err error
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-v.ctx.Done():
		err = stream.ShuttingDown()
	}
	v.forgoTurn(subject)
	return err
}

// endTurn ends the turn of a subject, so that the next caller has it.
func (v *view) endTurn(subject string) {
	v.channelMu.Lock()
	t := v.turns[subject]
	v.channelMu.Unlock()
	<-t.taken
	v.forgoTurn(subject)
}

// forgoTurn removes one of those that have the turn of a subject or wait for it.
func (v *view) forgoTurn(subject string) {
	v.channelMu.Lock()
	defer v.channelMu.Unlock()
	t := v.turns[subject]
	if t.users--; t.users == 0 {
		delete(v.turns, subject)
	}
}

// join returns the watch of a channel, with one more reference; nil if no stream watches it.
func (v *view) join(channelID string) *channelWatch {
	v.channelMu.Lock()
	defer v.channelMu.Unlock()
	c := v.channels[channelID]
	if c != nil {
		c.refs++
	}
	return c
}

// create is join for a channel that may not be watched yet. If it is not, it requests the members.
// began is when the stream asked for the channel.
func (v *view) create(channelID string, began time.Time) *channelWatch {
	v.channelMu.Lock()
	defer v.channelMu.Unlock()
	c := v.channels[channelID]
	if c == nil {
		c = &channelWatch{
			v: v, id: channelID, began: began, read: make(chan struct{}), ready: make(chan struct{}),
			members: map[string]memberState{}, streams: map[*Stream]struct{}{},
		}
		v.channels[channelID] = c
		v.stats.channels.Add(1)
		v.memberLoads.set(c, time.Now())
	}
	c.refs++
	return c
}
