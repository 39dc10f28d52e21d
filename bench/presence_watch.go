package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// watchers are invisible streams that together watch all users of a set on each of some nodes.
type watchers struct {
	users   *userSet
	links   []*link // one per node
	streams []*watcher
	token   string
	failed  chan error
	cancel  context.CancelFunc
	reading sync.WaitGroup
}

// watcher is one stream. It records every state that it receives.
type watcher struct {
	node  int
	first int // the number of the first watched user
	users *userSet

	mu sync.Mutex // guards the fields below
	// seen holds what is known of each watched user, and online counts those who are online.
	seen   []seenUser
	online int
	// updated is called for every state after the first of a user. It may be nil.
	updated func(w *watcher, user int, online bool, at time.Time)
}

// seenUser is what a watcher has received of one user since the last reset.
type seenUser struct {
	known, online bool
	// onlines and offlines count the states, and offlineAt is when the first offline one came.
	onlines, offlines int
	offlineAt         time.Time
}

// watchAll opens streams at the nodes with these base URLs that watch every user of the set on each
// node. The caller must close the result.
func watchAll(
	ctx context.Context, bases []string, users *userSet, updated func(w *watcher, user int, online bool, at time.Time),
) (*watchers, error) {
	token, err := users.token("bench-watcher")
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &watchers{users: users, token: token, failed: make(chan error, 1), cancel: cancel}
	var opening errgroup.Group
	opening.SetLimit(dialers)
	stop := context.AfterFunc(ctx, cancel)
	for node, base := range bases {
		l := newLink(base)
		w.links = append(w.links, l)
		for first := 0; first < users.n; first += watchedPerStream {
			one := &watcher{
				node: node, first: first, users: users, updated: updated,
				seen: make([]seenUser, min(watchedPerStream, users.n-first)),
			}
			w.streams = append(w.streams, one)
			opening.Go(func() error { return w.open(running, l, one) })
		}
	}
	err = opening.Wait()
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		w.close()
		return nil, fmt.Errorf("watch %d users: %w", users.n, err)
	}
	return w, nil
}

// open opens one stream, and reads it in the background from its second frame.
func (w *watchers) open(ctx context.Context, l *link, one *watcher) error {
	stream, err := l.Connect(authorized(ctx, w.token), &parleyv1.ConnectRequest{
		Invisible: true, Watch: w.users.ids(one.first, one.first+len(one.seen)),
	})
	if err != nil {
		return err
	}
	if !stream.Receive() {
		return errors.Join(stream.Err(), stream.Close())
	}
	one.take(stream.Msg().GetInfo().GetPresence().GetPresence(), time.Now())
	w.reading.Go(func() { w.read(ctx, stream, one) })
	return nil
}

func (w *watchers) read(ctx context.Context, stream *connect.ServerStreamForClient[parleyv1.ConnectResponse], one *watcher) {
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		one.take(stream.Msg().GetPresence(), time.Now())
	}
	if ctx.Err() == nil {
		fail(w.failed, fmt.Errorf("a watching stream ended: %w", stream.Err()))
	}
}

// take records the states of an update.
func (w *watcher) take(u *parleyv1.PresenceUpdate, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range u.GetUsers() {
		number, ok := w.users.number(p.GetUserId())
		if i := number - w.first; ok && i >= 0 && i < len(w.seen) {
			w.saw(i, len(p.GetPlatforms()) > 0, at)
		}
	}
}

// saw records a state of the watched user i. The caller holds w.mu.
func (w *watcher) saw(i int, online bool, at time.Time) {
	s := &w.seen[i]
	known := s.known
	if s.online != online {
		w.online += map[bool]int{true: 1, false: -1}[online]
	}
	s.known, s.online = true, online
	if online {
		s.onlines++
	} else {
		if s.offlines == 0 {
			s.offlineAt = at
		}
		s.offlines++
	}
	if known && w.updated != nil {
		w.updated(w, w.first+i, online, at)
	}
}

// online returns the number of pairs of a node and a user who is shown online.
func (w *watchers) online() (n int) {
	for _, one := range w.streams {
		one.mu.Lock()
		n += one.online
		one.mu.Unlock()
	}
	return n
}

// await waits until n pairs of a node and a user are shown online, up to killLimit.
func (w *watchers) await(ctx context.Context, n int) error {
	return eventually(ctx, killLimit, w.failed, func() string {
		if got := w.online(); got != n {
			return fmt.Sprintf("%d of %d watched states are online, want %d", got, len(w.links)*w.users.n, n)
		}
		return ""
	})
}

// reset forgets which states have been counted. What is known of the users stays.
func (w *watchers) reset() {
	for _, one := range w.streams {
		one.mu.Lock()
		for i := range one.seen {
			s := &one.seen[i]
			s.onlines, s.offlines = 0, 0
		}
		one.mu.Unlock()
	}
}

// each calls fn for every pair of a node and a user.
func (w *watchers) each(fn func(node, user int, s *seenUser)) {
	for _, one := range w.streams {
		one.mu.Lock()
		for i := range one.seen {
			fn(one.node, one.first+i, &one.seen[i])
		}
		one.mu.Unlock()
	}
}

// offlineTimes returns when the users were shown offline, from a time, sorted. It returns an error
// unless every stream has received exactly one offline state of every user, and no online one,
// since the last reset.
func (w *watchers) offlineTimes(from time.Time) (took []time.Duration, err error) {
	var missing, repeated, online int
	w.each(func(_, _ int, s *seenUser) {
		online += s.onlines
		switch s.offlines {
		case 0:
			missing++
		case 1:
			took = append(took, s.offlineAt.Sub(from))
		default:
			repeated++
		}
	})
	if missing+repeated+online > 0 {
		return nil, fmt.Errorf("of %d pairs of a watching node and a user %d were not shown offline, %d more than once; %d were shown online",
			len(w.links)*w.users.n, missing, repeated, online)
	}
	slices.Sort(took)
	return took, nil
}

// readOnline returns the number of users of the set that GetPresence and ListOnlineUsers return as
// online on a node.
func (w *watchers) readOnline(ctx context.Context, node int) (got, listed int, err error) {
	const most = 500 // users of a GetPresence
	ctx = context.WithoutCancel(ctx)
	for first := 0; first < w.users.n; first += most {
		answer, err := w.links[node].GetPresence(authorized(ctx, w.token), &parleyv1.GetPresenceRequest{
			UserIds: w.users.ids(first, min(first+most, w.users.n)),
		})
		if err != nil {
			return 0, 0, fmt.Errorf("node %d: %w", node, err)
		}
		for _, p := range answer.GetPresence() {
			if len(p.GetPlatforms()) > 0 {
				got++
			}
		}
	}
	for token := ""; ; {
		page, err := w.links[node].ListOnlineUsers(authorized(ctx, w.token), &parleyv1.ListOnlineUsersRequest{PageSize: 1000, PageToken: token})
		if err != nil {
			return 0, 0, fmt.Errorf("node %d: %w", node, err)
		}
		for _, p := range page.GetPresence() {
			if _, ok := w.users.number(p.GetUserId()); ok {
				listed++
			}
		}
		if token = page.GetNextPageToken(); token == "" {
			return got, listed, nil
		}
	}
}

// awaitReads waits until GetPresence and ListOnlineUsers of every watching node return n users of
// the set as online.
func (w *watchers) awaitReads(ctx context.Context, within time.Duration, n int) error {
	return eventually(ctx, within, w.failed, func() string {
		for node := range w.links {
			got, listed, err := w.readOnline(ctx, node)
			switch {
			case err != nil:
				return err.Error()
			case got != n || listed != n:
				return fmt.Sprintf("node %d: GetPresence returns %d users as online and ListOnlineUsers %d, want %d", node, got, listed, n)
			}
		}
		return ""
	})
}

// close closes the streams and waits until their readers have ended.
func (w *watchers) close() {
	w.cancel()
	w.reading.Wait()
	for _, l := range w.links {
		l.close()
	}
}
