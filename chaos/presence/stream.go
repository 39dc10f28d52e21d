package presence

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// maxAhead is the number of frames that wait for a device or a watcher.
const maxAhead = 256

// stream is an open stream of a device.
type stream struct {
	*device

	conn   *Conn
	client *client
	frames chan received
	cancel context.CancelFunc
	// leave fires when the device ends the stream, and flip when its background flag changes. They
	// are nil for never.
	leave, flip <-chan time.Time
	// synced is set if the server knows the wanted background flag.
	synced bool
}

// session opens a stream, and records it, until it ends. If ctx ends, the device leaves.
func (d *device) session(ctx context.Context) *Conn {
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s := d.open(streamCtx, cancel)
	for s.conn.End == 0 {
		s.next(ctx)
	}
	d.rec.End(true)
	d.rec.conn(s.conn)
	return s.conn
}

// open begins a stream on the device's node.
func (d *device) open(ctx context.Context, cancel context.CancelFunc) *stream {
	if d.token == "" {
		d.login++
	}
	c := d.clients[d.node%len(d.clients)]
	d.wanted = d.spec.habit.flip > 0 && d.rng.IntN(3) == 0
	s := &stream{device: d, client: c, cancel: cancel, frames: make(chan received, maxAhead), synced: true, conn: &Conn{
		ID: d.newID(d.name), Client: d.name, User: d.user, Device: fmt.Sprintf("%s-%d", d.name, d.login),
		Platform: int(d.spec.platform), Addr: c.Addr, Fresh: d.token == "", Background: d.wanted, Begin: d.rec.Now(),
	}}
	d.rec.conn(s.conn)
	d.rec.Begin(true)
	go d.receive(ctx, c, &parleyv1.ConnectRequest{
		Platform: d.spec.platform, DeviceId: s.conn.Device, Background: d.wanted, LoginToken: d.token,
	}, s.frames)
	return s
}

// next handles the next event of the stream. The stream has ended if conn.End is set.
func (s *stream) next(ctx context.Context) {
	select {
	case f := <-s.frames:
		if f.msg == nil {
			s.ended(f)
			return
		}
		s.take(f)
	case <-s.leave:
		if s.leave = nil; !s.isCalm() {
			s.end(ctx, s.rng.IntN(100) < s.spec.habit.leave)
		}
	case <-s.flip:
		s.flipped(ctx)
	case <-ctx.Done():
		s.end(ctx, s.rng.IntN(2) == 0)
	}
}

// take handles a frame.
func (s *stream) take(f received) {
	s.conn.Last = f.at
	if info := f.msg.GetInfo(); info != nil && s.conn.First == 0 {
		s.conn.First, s.conn.Stream = f.at, info.GetStream().GetStreamId()
		s.conn.Connection, s.token = info.GetPresence().GetConnectionId(), info.GetPresence().GetLoginToken()
		s.rec.conn(s.conn)
		h := &s.spec.habit
		s.leave, s.flip = after(s.rng, h.stay), after(s.rng, h.flip)
		s.set(phaseOnline, s.wanted)
	}
	if f.msg.GetReconnect() != nil {
		s.set(phaseBusy, false)
		s.conn.Handover = f.at
		s.rec.conn(s.conn)
	}
}

// after returns a channel that fires after a random time around mean, or nil if mean is 0.
func after(rng *rand.Rand, mean time.Duration) <-chan time.Time {
	if mean == 0 {
		return nil
	}
	return time.After(mean/2 + rand.N(mean) + time.Duration(rng.IntN(1000)))
}

// flipped changes the background flag, or repeats the last change if the server may not know it.
func (s *stream) flipped(ctx context.Context) {
	if s.synced {
		if s.isCalm() {
			s.flip = nil
			return
		}
		s.wanted = !s.wanted
	}
	s.set(phaseBusy, false)
	c := s.any()
	op := &Op{Kind: SetBackground, Client: s.name, Stream: s.conn.ID, Background: s.wanted}
	err := s.call(context.WithoutCancel(ctx), c, op, func(ctx context.Context) error {
		_, err := c.SetBackground(ctx, &parleyv1.SetBackgroundRequest{StreamId: s.conn.Stream, Background: s.wanted})
		return err
	})
	if s.synced = err == nil; s.synced {
		s.set(phaseOnline, s.wanted)
		s.flip = after(s.rng, s.spec.habit.flip)
		return
	}
	s.flip = after(s.rng, chaos.AfterFailure)
}

// any returns the client of a random node.
func (d *device) any() *client { return d.clients[d.rng.IntN(len(d.clients))] }

// end ends the stream on purpose: by a Disconnect, or else by closing it.
func (s *stream) end(ctx context.Context, leave bool) {
	s.set(phaseBusy, false)
	if leave && s.conn.Stream != "" {
		s.conn.Leave = s.rec.Now()
		s.rec.conn(s.conn)
		c := s.any()
		err := s.call(context.WithoutCancel(ctx), c, &Op{Kind: Disconnect, Client: s.name, Stream: s.conn.ID}, func(ctx context.Context) error {
			_, err := c.Disconnect(ctx, &parleyv1.DisconnectRequest{StreamId: s.conn.Stream})
			return err
		})
		if err == nil {
			s.conn.End, s.conn.How = s.rec.Now(), Left
			return
		}
	}
	s.conn.End, s.conn.How = s.rec.Now(), Closed
	s.cancel()
}

// ended records that the server, or a fault, ended the stream.
func (s *stream) ended(f received) {
	s.conn.End, s.conn.Kick = f.at, kickOf(f.err)
	switch {
	case s.conn.Kick != nil:
		s.conn.How = Kicked
	case s.conn.Handover != 0:
		s.conn.How = Drained
	default:
		s.conn.How = Lost
	}
	if f.err != nil {
		s.conn.Err = f.err.Error()
	}
}
