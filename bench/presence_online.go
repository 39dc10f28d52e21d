package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// openTimeout bounds the time in which all users come online.
const openTimeout = 5 * time.Minute

// onlineUsers are the users of a set who are online, each by one Connect stream of the generated
// client. streamsPerConn streams share a connection.
type onlineUsers struct {
	users   *userSet
	links   []*link
	devices []*device
	// failed has room for the first unexpected end of a stream.
	failed  chan error
	closing atomic.Bool
	reading sync.WaitGroup
}

// device is one stream of onlineUsers.
type device struct {
	link   *link
	token  string
	stream *connect.ServerStreamForClient[parleyv1.ConnectResponse]
	id     string // of the stream
	cancel context.CancelFunc
	// leaving is set before the stream is closed on purpose.
	leaving atomic.Bool
}

// bringOnline opens a stream for every user at the node with a base URL, and waits until all have
// their first frame. The caller must close the result.
func bringOnline(ctx context.Context, base string, users *userSet) (*onlineUsers, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	o := &onlineUsers{users: users, devices: make([]*device, users.n), failed: make(chan error, 1)}
	for range (users.n + streamsPerConn - 1) / streamsPerConn {
		o.links = append(o.links, newLink(base))
	}
	// The first stream of each link opens its connection, before others could open more.
	for _, part := range [][2]int{{0, len(o.links)}, {len(o.links), users.n}} {
		var opening errgroup.Group
		opening.SetLimit(dialers)
		for i := part[0]; i < part[1]; i++ {
			opening.Go(func() error { return o.open(ctx, i) })
		}
		if err := opening.Wait(); err != nil {
			o.close()
			return nil, fmt.Errorf("%d users: %w", users.n, err)
		}
	}
	return o, nil
}

// open opens the stream of user i, and reads it in the background from its second frame.
func (o *onlineUsers) open(ctx context.Context, i int) error {
	token, err := o.users.token(o.users.id(i))
	if err != nil {
		return err
	}
	d := &device{link: o.links[i%len(o.links)], token: token}
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.cancel = cancel
	stop := context.AfterFunc(ctx, cancel)
	d.stream, err = d.link.Connect(authorized(streamCtx, token), &parleyv1.ConnectRequest{
		Platform: parleyv1.Platform_PLATFORM_WEB, DeviceId: benchDevice,
	})
	if err == nil && !d.stream.Receive() {
		err = errors.Join(d.stream.Err(), d.stream.Close())
	}
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		return err
	}
	d.id = d.stream.Msg().GetInfo().GetStream().GetStreamId()
	o.devices[i] = d
	o.reading.Go(func() { o.read(i, d) })
	return nil
}

// read reads a stream until it ends.
func (o *onlineUsers) read(i int, d *device) {
	defer d.cancel()
	for d.stream.Receive() {
	}
	err := d.stream.Err()
	_ = d.stream.Close()
	if !o.closing.Load() && !d.leaving.Load() {
		fail(o.failed, fmt.Errorf("the stream of %s ended: %w", o.users.id(i), err))
	}
}

// expectEnd makes the ends of all streams no failure from now on.
func (o *onlineUsers) expectEnd() { o.closing.Store(true) }

// connections returns the number of connections that were opened.
func (o *onlineUsers) connections() (n int) {
	for _, l := range o.links {
		n += int(l.dialed.Load())
	}
	return n
}

// close closes all streams and waits until their readers have ended.
func (o *onlineUsers) close() {
	o.expectEnd()
	for _, d := range o.devices {
		if d != nil {
			d.cancel()
		}
	}
	o.reading.Wait()
	for _, l := range o.links {
		l.close()
	}
}
