package stream_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/stream"
)

// bulletins is the hub of a kind of streams that carry texts, called bulletin.
type bulletins struct {
	streams *stream.Registry[*bulletin]
}

// bulletin is one open stream of that kind.
type bulletin struct {
	hub *bulletins

	mu    sync.Mutex // guards the fields below
	core  stream.Core
	texts []string
}

func newBulletins() *bulletins {
	h := &bulletins{streams: stream.NewRegistry[*bulletin](stream.Config{
		Node: "node1", MaxStreams: 1000, MaxPerSubject: 10, Plural: "bulletins",
	})}
	h.streams.Open() // in a server, by the hub's Start
	return h
}

// open creates a stream. A handler of the transport calls it first, and close at the end.
func (h *bulletins) open(subject string, expires time.Time) (*bulletin, error) {
	return h.streams.Admit(subject, expires, func(id stream.Identity) *bulletin {
		b := &bulletin{hub: h}
		b.core = stream.NewCore(id, 15*time.Second, &b.mu, nil)
		return b
	})
}

// endSubject ends all streams of a subject, as the revocation of its tokens does.
func (h *bulletins) endSubject(subject string, cause *fault.Error) {
	for _, b := range h.streams.OfSubject(subject) {
		b.end(cause)
	}
}

// drain lets every stream send its pending texts, and then ends it.
func (h *bulletins) drain(ctx context.Context) error {
	return h.streams.Drain(ctx, func(b *bulletin) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.core.Drain(stream.ShuttingDown())
		b.core.Wake()
	})
}

func (b *bulletin) publish(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.core.State() == stream.Live {
		b.texts = append(b.texts, text)
		b.core.Wake()
	}
}

func (b *bulletin) end(cause *fault.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.core.End(cause)
}

func (b *bulletin) close() {
	b.end(stream.NotFound())
	b.hub.streams.Remove(b.core.ID)
}

// next returns the next text; an empty one is a heartbeat.
func (b *bulletin) next(ctx context.Context) (string, error) {
	for {
		if text, ok, err := b.poll(time.Now()); ok || err != nil {
			return text, err
		}
		select {
		case <-b.core.Wakeup():
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (b *bulletin) poll(now time.Time) (text string, ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.core.Expired(now) {
		b.core.End(stream.TokenExpired())
	}
	switch {
	case b.core.Ended():
		return "", false, b.core.Cause()
	case len(b.texts) > 0:
		text, b.texts = b.texts[0], b.texts[1:]
	case b.core.State() == stream.Draining:
		b.core.End(b.core.Cause())
		return "", false, b.core.Cause()
	case b.core.HeartbeatDue(now):
	default:
		b.core.Await(now)
		return "", false, nil
	}
	b.core.Sent(now)
	return text, true, nil
}

// A kind of streams is a hub with a Registry and a stream type with a Core.
func ExampleRegistry() {
	ctx := context.Background()
	hub := newBulletins()
	live, err := hub.open("ada", time.Now().Add(time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	live.publish("first")
	live.publish("second")
	drained := make(chan error)
	go func() { drained <- hub.drain(ctx) }()
	for {
		text, err := live.next(ctx)
		if err != nil {
			fmt.Println("ended:", err)
			break
		}
		fmt.Println(text)
	}
	live.close()
	fmt.Println("drained:", <-drained)
	_, err = hub.open("ada", time.Time{})
	fmt.Println("refused:", err)
	// Output:
	// first
	// second
	// ended: the server is shutting down
	// drained: <nil>
	// refused: the server is shutting down
}
