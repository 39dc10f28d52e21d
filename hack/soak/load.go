package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/cespare/xxhash/v2"

	"github.com/parleyhq/parley/gen/go/parley/next/v1/nextv1connect"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// text is the content of messages and payloads: 1 KiB.
var text = strings.Repeat("a steady load. ", 69)[:1024]

// maxFailures is the share of calls that may fail. More means that the load was not steady.
const maxFailures = 0.01

// load is the clients of a run, on connections that all share. Each device is a user of its own;
// all else is one user.
type load struct {
	http     *http.Client
	messages parleyv1connect.MessageServiceClient
	presence parleyv1connect.PresenceServiceClient
	queues   nextv1connect.QueueServiceClient
	admin    nextv1connect.QueueAdminServiceClient
	// devices are clients of one user each.
	devices []parleyv1connect.PresenceServiceClient
	recent  recent

	running sync.WaitGroup
	mu      sync.Mutex // guards the fields below
	calls   map[string]int
	failed  int
	last    error // of the last failed call
}

// newLoad returns the clients of the server at url. token returns the token of a user.
func newLoad(url string, token func(user string) (string, error)) (*load, error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	shared := &http.Transport{Protocols: protocols}
	var clients []*http.Client
	for i := range 1 + devices {
		t, err := token(user(i))
		if err != nil {
			return nil, err
		}
		clients = append(clients, &http.Client{Transport: bearer{shared, t}})
	}
	h := clients[devices]
	l := &load{
		http: h, calls: map[string]int{},
		messages: parleyv1connect.NewMessageServiceClient(h, url), presence: parleyv1connect.NewPresenceServiceClient(h, url),
		queues: nextv1connect.NewQueueServiceClient(h, url), admin: nextv1connect.NewQueueAdminServiceClient(h, url),
	}
	for _, u := range clients[:devices] {
		l.devices = append(l.devices, parleyv1connect.NewPresenceServiceClient(u, url))
	}
	return l, nil
}

// users are the ids of the users. All are of one shard of the presence log, because each shard
// keeps 1,024 lines, which so few users would not fill in all shards while the server settles. The
// rule is that of ShardOf in server/internal/presence. If it changes, Redis grows during a run.
var users = sync.OnceValue(func() []string {
	const shards = 256
	var ids []string
	for i := 0; len(ids) < 1+devices; i++ {
		if id := fmt.Sprint("user-", i); xxhash.Sum64String(id)%shards == 0 {
			ids = append(ids, id)
		}
	}
	return ids
})

// user returns the id of user i, who has device i.
func user(i int) string { return users()[i] }

// bearer adds a token to each request.
type bearer struct {
	*http.Transport

	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.Transport.RoundTrip(r)
}

// prepare creates the topic of the queues.
func (l *load) prepare(ctx context.Context) error { return l.createTopic(ctx) }

// start starts all clients. They end with ctx; wait waits for that.
func (l *load) start(ctx context.Context) {
	l.startMessages(ctx)
	l.startDevices(ctx)
	l.startJobs(ctx)
}

func (l *load) wait() { l.running.Wait() }

// each calls fn with 0, 1, 2 and so on, once in every interval, until ctx ends. An interval in
// which fn still runs is left out.
func (l *load) each(ctx context.Context, interval time.Duration, fn func(ctx context.Context, i int)) {
	l.running.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				fn(ctx, i)
			case <-ctx.Done():
				return
			}
		}
	})
}

// repeat calls fn with 0, 1, 2 and so on until ctx ends. It begins a second late after a failure.
func (l *load) repeat(ctx context.Context, fn func(ctx context.Context, i int) error) {
	l.running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if fn(ctx, i) == nil {
				continue
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
}

// count counts a call and returns its error. Calls that end with ctx are not counted.
func (l *load) count(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[name]++
	if err != nil {
		l.failed++
		l.last = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// during returns a context that is cancelled after a time. It has no deadline, which clients would
// send to the server.
func during(ctx context.Context, stay time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(stay, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// ended returns nil if a stream ended because its client ended it, and otherwise err.
func ended(ctx context.Context, err error) error {
	if connect.CodeOf(err) == connect.CodeCanceled && ctx.Err() != nil {
		err = nil
	}
	return err
}

// summary returns the number of calls by kind, for people.
func (l *load) summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(l.calls)) {
		fmt.Fprintf(&b, "%d %s, ", l.calls[name], name)
	}
	fmt.Fprintf(&b, "%d failed", l.failed)
	if l.last != nil {
		fmt.Fprintf(&b, ", the last with: %v", l.last)
	}
	return b.String()
}

// failure returns an error if too many calls failed, or if a kind of call was never made: then the
// load was not the one that the run is about.
func (l *load) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0
	for _, n := range l.calls {
		total += n
	}
	for _, name := range kinds {
		if l.calls[name] == 0 {
			return fmt.Errorf("the load made no call %q", name)
		}
	}
	if float64(l.failed) > maxFailures*float64(total) {
		return fmt.Errorf("%d of %d calls failed, the last with: %w", l.failed, total, l.last)
	}
	return nil
}

// kinds are the kinds of calls that every run makes.
var kinds = []string{
	"sends", "edits", "recalls", "lists", "subscriptions", "connections", "disconnections", "presence reads",
	"produced batches", "consumers", "acks", "nacks",
}
