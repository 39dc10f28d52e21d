package presence

import (
	"context"
	"errors"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

const (
	// callLimit is the timeout of one call.
	callLimit = 5 * time.Second
	// deadAfter is how long a stream may be silent before it is closed. Runs set the heartbeat to a
	// second.
	deadAfter = 5 * time.Second
)

// client is the generated client for one node, with a user's token. It does not retry, so the
// answers are the server's own.
type client struct {
	*chaos.Conn
	parleyv1connect.PresenceServiceClient
}

func newClient(addr, token string) *client {
	c := chaos.NewConn(addr, token)
	return &client{Conn: c, PresenceServiceClient: parleyv1connect.NewPresenceServiceClient(c.HTTP, c.URL(), connect.WithGRPC())}
}

// clientsOf returns a user's clients for all nodes, in order.
func (w *world) clientsOf(user string) []*client {
	clients := make([]*client, len(w.addrs))
	for i, addr := range w.addrs {
		clients[i] = newClient(addr, w.token(user))
	}
	return clients
}

func closeAll(clients []*client) {
	for _, c := range clients {
		c.Close()
	}
}

// call makes a unary call and records it. op has the fields of the request; call sets the others.
// do may add the answer to op. It returns the error of do.
func (w *world) call(ctx context.Context, c *client, op *Op, do func(ctx context.Context) error) error {
	ctx, cancel := c.Call(ctx, callLimit)
	defer cancel()
	write := op.Kind != GetPresence && op.Kind != ListOnline
	op.Addr, op.Begin = c.Addr, w.rec.Now()
	w.rec.Begin(write)
	err := do(ctx)
	w.rec.End(write)
	e := chaos.EndingOf(err)
	op.End, op.Outcome, op.Err = w.rec.Now(), e.Outcome, e.String()
	w.rec.Write(line{Op: op})
	return err
}

// seenOf returns the states of users as the history records them.
func seenOf(users []*parleyv1.UserPresence) []Seen {
	all := make([]Seen, len(users))
	for i, u := range users {
		all[i] = Seen{User: u.GetUserId(), State: stateOf(u), Revision: u.GetRevision()}
	}
	return all
}

// stateOf returns the state in a UserPresence, in the order of its platforms. A list that is not
// ascending is no valid State, so that the checks report it.
func stateOf(u *parleyv1.UserPresence) State {
	var b strings.Builder
	for _, p := range u.GetPlatforms() {
		flag := byte('f')
		if p.GetBackground() {
			flag = 'b'
		}
		b.WriteByte(byte('0' + p.GetPlatform())) //nolint:gosec // platforms are 1 to 9
		b.WriteByte(flag)
	}
	return State(b.String())
}

// kickOf returns the kick in an error. It returns nil if the error is not KICKED.
func kickOf(err error) *Kick {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil
	}
	for _, d := range ce.Details() {
		v, err := d.Value()
		if err != nil {
			continue
		}
		detail, ok := v.(*parleyv1.ErrorDetail)
		if ok && detail.GetReason() == parleyv1.ErrorReason_ERROR_REASON_KICKED {
			k := detail.GetKick()
			return &Kick{
				Cause: strings.TrimPrefix(k.GetCause().String(), "KICK_CAUSE_"), Device: k.GetDeviceId(), Platform: int(k.GetPlatform()),
			}
		}
	}
	return nil
}

// received is a frame of a stream, or its end.
type received struct {
	at  int64
	msg *parleyv1.ConnectResponse // nil at the end
	err error
}

// receive opens a stream and sends its frames, and then its end, to out, until ctx ends. It closes
// a stream that is silent for deadAfter.
func (w *world) receive(ctx context.Context, c *client, req *parleyv1.ConnectRequest, out chan<- received) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := func(err error) {
		select {
		case out <- received{at: w.rec.Now(), err: err}:
		case <-ctx.Done():
			// A silent stream has to be reported too. There is room, or nobody reads any more.
			select {
			case out <- received{at: w.rec.Now(), err: err}:
			default:
			}
		}
	}
	watchdog := time.AfterFunc(deadAfter, cancel)
	defer watchdog.Stop()
	stream, err := c.Connect(c.Authorize(ctx), req)
	if err != nil {
		end(err)
		return
	}
	defer func() {
		cancel()
		_ = stream.Close()
	}()
	for stream.Receive() {
		watchdog.Reset(deadAfter)
		select {
		case out <- received{at: w.rec.Now(), msg: stream.Msg()}:
		case <-ctx.Done():
		}
	}
	end(stream.Err())
}
