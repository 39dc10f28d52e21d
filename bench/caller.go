package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
)

// caller calls one procedure repeatedly on a connection of its own, with Connect's unary protocol
// and binary bodies over HTTP/1.1. It is not safe for concurrent use. A full client would take as
// much CPU time from the server, on shared cores, as the server needs for the call.
type caller struct {
	conn net.Conn
	in   *bufio.Reader
	head []byte
	out  []byte
}

// newCaller connects to the server at a base URL.
func newCaller(ctx context.Context, base, procedure, token string) (*caller, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/proto\r\nConnect-Protocol-Version: 1\r\n"+
		"Authorization: Bearer %s\r\nContent-Length: ", procedure, u.Host, token)
	return &caller{conn: conn, in: bufio.NewReader(conn), head: []byte(head)}, nil
}

// call makes one call and returns the body of the answer, which stays valid after the next call. A
// status other than 200 is an error.
func (c *caller) call(request []byte) ([]byte, error) {
	c.out = append(c.out[:0], c.head...)
	c.out = fmt.Appendf(c.out, "%d\r\n\r\n", len(request))
	c.out = append(c.out, request...)
	if _, err := c.conn.Write(c.out); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(body))
	}
	return body, nil
}

// work is a load of concurrent callers.
type work struct {
	// callers is the number of concurrent callers, distributed over the addresses of the target.
	callers   int
	procedure string
	// request returns the n-th request of a caller. Both count from 0.
	request func(caller, n int) proto.Message
	// answered returns the number of units in an answer, such as messages. If it is nil, each
	// answer counts as one.
	answered func(body []byte) (int, error)
	// warm is the time before units count. 0 means 500 ms.
	warm time.Duration
	// store returns the CPU time that the target's store has used so far. It may be nil.
	store func(ctx context.Context) (time.Duration, error)
	// times records how long the calls of a measurement take. It may be nil.
	times *stopwatch
}

// worked is the result of a load.
type worked struct {
	// rate is units per second, and cpu the target's CPU time per unit in microseconds. store is
	// the store's CPU time per unit in microseconds, or 0 if it was not measured.
	rate, cpu, store float64
}

// settle waits until the target has finished the work of an earlier load: it publishes and caches
// acknowledged messages later. It gives up after 20 seconds, because a server with other users is
// never quiet.
func settle(ctx context.Context, t *Target) error {
	const look, quiet, most = 250 * time.Millisecond, 25 * time.Millisecond, 20 * time.Second
	last, err := t.Usage(ctx)
	for began := time.Now(); err == nil && time.Since(began) < most; {
		pause(ctx, look)
		now, failure := t.Usage(ctx)
		if failure != nil {
			return errors.Join(context.Cause(ctx), failure)
		}
		if now.CPU-last.CPU <= quiet*time.Duration(len(t.Ops)) {
			break
		}
		last = now
	}
	return err
}

// run starts all callers and, after a warm-up, measures the rate and cost of their answers for
// duration. The first failed call ends the run with its error.
func (w *work) run(ctx context.Context, t *Target, duration time.Duration) (worked, error) {
	if err := settle(ctx, t); err != nil {
		return worked{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done sync.WaitGroup
	defer done.Wait()
	defer cancel(nil)
	var units atomic.Int64
	for i := range w.callers {
		c, err := newCaller(ctx, t.Addrs[i%len(t.Addrs)], w.procedure, t.Token)
		if err != nil {
			return worked{}, errors.Join(context.Cause(ctx), err)
		}
		done.Go(func() {
			closing := context.AfterFunc(ctx, func() { _ = c.conn.Close() }) // ends a pending call
			defer func() {
				if closing() {
					_ = c.conn.Close()
				}
			}()
			if err := w.keepCalling(ctx, c, i, &units); err != nil {
				cancel(err) // has no effect after ctx has ended
			}
		})
	}
	warm := w.warm
	if warm == 0 {
		warm = 500 * time.Millisecond
	}
	pause(ctx, warm)
	before, err := t.Usage(ctx)
	if err != nil {
		return worked{}, errors.Join(context.Cause(ctx), err)
	}
	storeBefore, err := w.storeCPU(ctx)
	if err != nil {
		return worked{}, errors.Join(context.Cause(ctx), err)
	}
	began, first := time.Now(), units.Load()
	if w.times != nil {
		w.times.forget()
	}
	pause(ctx, duration)
	n, took := float64(units.Load()-first), time.Since(began)
	storeAfter, err1 := w.storeCPU(ctx)
	after, err2 := t.Usage(ctx)
	if err := errors.Join(context.Cause(ctx), err1, err2); err != nil {
		return worked{}, err
	}
	if n == 0 {
		return worked{}, fmt.Errorf("no call of %s was answered within %s", w.procedure, took.Round(time.Millisecond))
	}
	return worked{
		rate: n / took.Seconds(), cpu: float64((after.CPU - before.CPU).Microseconds()) / n,
		store: float64((storeAfter - storeBefore).Microseconds()) / n,
	}, nil
}

func (w *work) storeCPU(ctx context.Context) (time.Duration, error) {
	if w.store == nil {
		return 0, nil
	}
	return w.store(ctx)
}

// keepCalling calls until ctx ends or a call fails. It may return an error or nil when ctx ends.
func (w *work) keepCalling(ctx context.Context, c *caller, number int, units *atomic.Int64) error {
	for n := 0; ctx.Err() == nil; n++ {
		request, err := proto.Marshal(w.request(number, n))
		if err != nil {
			return err
		}
		began := time.Now()
		body, err := c.call(request)
		if err != nil { // also if ctx has ended, which closes the connection
			return fmt.Errorf("%s: %w", w.procedure[strings.LastIndexByte(w.procedure, '/')+1:], err)
		}
		if w.times != nil {
			w.times.add(time.Since(began))
		}
		worth := 1
		if w.answered != nil {
			if worth, err = w.answered(body); err != nil {
				return err
			}
		}
		units.Add(int64(worth))
	}
	return nil
}
