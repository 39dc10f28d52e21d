package parley_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

func TestAddAndRemove(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	for _, channel := range []string{"a", "b", "c"} {
		post(s, channel, 3)
	}
	ctx := testContext(t)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("a"))
	wantEntries(t, sub, "a", 1, 3)
	if err := sub.Add(ctx, parley.FromStart("b"), parley.Live("a")); err != nil {
		t.Fatalf("add: %v", err)
	}
	wantEntries(t, sub, "b", 1, 3)
	s.EndStreams(nil)
	post(s, "b", 1)
	wantEntries(t, sub, "b", 4, 4)
	if err := sub.Remove(ctx, "a", "unknown"); err != nil {
		t.Fatalf("remove: %v", err)
	}
	post(s, "a", 2)
	wantQuiet(t, sub)
	if _, ok := sub.Position("a"); ok {
		t.Errorf("a removed channel has a position")
	}
	if err := sub.Add(ctx, parley.After(parley.Position{ChannelID: "a", Seq: 4})); err != nil {
		t.Fatalf("add again: %v", err)
	}
	wantEntries(t, sub, "a", 5, 5)
	s.Kill()
	if err := sub.Add(ctx, parley.FromStart("c")); err != nil {
		t.Fatalf("add while away: %v", err)
	}
	if err := sub.Remove(ctx, "b"); err != nil {
		t.Fatalf("remove while away: %v", err)
	}
	s.Restart()
	wantEntries(t, sub, "c", 1, 3)
	post(s, "b", 1)
	post(s, "a", 1)
	wantEntries(t, sub, "a", 6, 6)
	wantQuiet(t, sub)
	requests := parleytest.RequestsOf[*parleyv1.SubscribeRequest](s)
	var channels []string
	for _, p := range requests[len(requests)-1].GetChannels() {
		channels = append(channels, p.GetChannelId())
	}
	if want := []string{"a", "c"}; !slices.Equal(channels, want) {
		t.Errorf("the last stream began with %v, want %v", channels, want)
	}
}

// TestRemovedChannelsEventsAreDropped removes a channel while one of its events is queued. The
// event must not be delivered.
func TestRemovedChannelsEventsAreDropped(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "a", 2)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("a"))
	wantEntries(t, sub, "a", 1, 1) // the second one came in the same frame
	if err := sub.Remove(testContext(t), "a"); err != nil {
		t.Fatalf("remove: %v", err)
	}
	wantQuiet(t, sub)
}

// TestAddWithUnknownOutcome loses the request of an Add or its answer, or refuses it because the
// stream is unknown. Add must succeed and the channel must be followed, on a new stream.
func TestAddWithUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]parleytest.Fault{
		"lost":        {Drop: true},
		"answer lost": {Drop: true, Applied: true},
		"no stream":   {Err: parleytest.Error(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_STREAM_NOT_FOUND)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parleytest.Start(t)
			post(s, "a", 2)
			sub := subscribe(t, newClient(t, s.Addr()), parley.Live("base"))
			nextEvent(t, sub, parley.EventChannelState)
			s.FaultTimes(1, "UpdateSubscription", fault)
			if err := sub.Add(testContext(t), parley.FromStart("a")); err != nil {
				t.Fatalf("add: %v", err)
			}
			wantEntries(t, sub, "a", 1, 2)
			post(s, "a", 1)
			wantEntries(t, sub, "a", 3, 3)
			wantQuiet(t, sub)
		})
	}
}

// TestLeavingStreamLosesNoEvents makes the client leave its stream while frames are queued. Each
// entry must be delivered once.
func TestLeavingStreamLosesNoEvents(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("a"))
	nextEvent(t, sub, parley.EventChannelState)
	const rounds, each = 10, 60
	for i := range rounds {
		post(s, "a", each)
		s.FaultTimes(1, "UpdateSubscription", parleytest.Fault{Drop: true})
		if err := sub.Add(testContext(t), parley.Live(fmt.Sprint("other-", i))); err != nil {
			t.Fatalf("add: %v", err)
		}
		wantEntries(t, sub, "a", int64(i*each+1), int64((i+1)*each))
	}
	wantQuiet(t, sub)
}

func TestRefusedAddLeavesTheSubscription(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("a"))
	nextEvent(t, sub, parley.EventChannelState)
	s.FaultTimes(1, "UpdateSubscription", parleytest.Fault{
		Err: parleytest.Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING),
	})
	if err := sub.Add(testContext(t), parley.Live("secret")); !errors.Is(err, parley.ErrCapabilityMissing) {
		t.Errorf("add: %v", err)
	}
	s.EndStreams(nil)
	post(s, "a", 1)
	wantEntries(t, sub, "a", 1, 1)
	requests := parleytest.RequestsOf[*parleyv1.SubscribeRequest](s)
	if n := len(requests[len(requests)-1].GetChannels()); n != 1 {
		t.Errorf("the next stream requested %d channels, want 1", n)
	}
}

// hookClient is an HTTP client that calls hook before each request of one RPC method.
type hookClient struct {
	next   connect.HTTPClient
	method string
	hook   func()
}

func (c *hookClient) Do(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/"+c.method) {
		c.hook()
	}
	return c.next.Do(req)
}

// TestRefusedAddDuringAReconnect ends the stream while the request of an Add that will be refused
// is in flight. The next stream must not include the channel.
func TestRefusedAddDuringAReconnect(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	refusal := &parleytest.Fault{
		Err: parleytest.Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING),
	}
	s.Fault(func(_ string, req proto.Message) *parleytest.Fault {
		switch r := req.(type) {
		case *parleyv1.SubscribeRequest:
			if len(r.GetChannels()) > 1 {
				return refusal
			}
		case *parleyv1.UpdateSubscriptionRequest:
			return refusal
		}
		return nil
	})
	hooked := &hookClient{next: h2cClient(t), method: "UpdateSubscription", hook: func() {
		s.EndStreams(nil)
		eventually(t, func() error {
			if n := len(parleytest.RequestsOf[*parleyv1.SubscribeRequest](s)); n < 2 {
				return fmt.Errorf("%d streams", n)
			}
			return nil
		})
	}}
	sub := subscribe(t, newClient(t, s.Addr(), parley.WithHTTPClient(hooked)), parley.FromStart("a"))
	nextEvent(t, sub, parley.EventChannelState)
	if err := sub.Add(testContext(t), parley.Live("secret")); !errors.Is(err, parley.ErrCapabilityMissing) {
		t.Errorf("add: %v", err)
	}
	post(s, "a", 1)
	wantEntries(t, sub, "a", 1, 1)
}

// TestChangesBetweenTwoStreams adds and removes channels while the subscription waits for its next
// stream. No UpdateSubscription may be sent, and the next stream must include the changes.
func TestChangesBetweenTwoStreams(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "b", 1)
	var updates atomic.Int64
	hooked := &hookClient{next: h2cClient(t), method: "UpdateSubscription", hook: func() { updates.Add(1) }}
	made := make(chan *parley.Subscription, 1)
	var once sync.Once
	c := newClient(t, s.Addr(), parley.WithHTTPClient(hooked))
	sub := subscribe(t, c, parley.Live("a"), parley.Live("c"), parley.OnState(func(change parley.StateChange) {
		if change.State != parley.StateWaiting {
			return
		}
		once.Do(func() { // the subscription waits until this returns
			sub := <-made
			if err := errors.Join(sub.Add(testContext(t), parley.FromStart("b")), sub.Remove(testContext(t), "a")); err != nil {
				t.Errorf("change: %v", err)
			}
		})
	}))
	made <- sub
	nextEvent(t, sub, parley.EventChannelState)
	nextEvent(t, sub, parley.EventChannelState)
	s.EndStreams(nil)
	wantEntries(t, sub, "b", 1, 1)
	if n := updates.Load(); n != 0 {
		t.Errorf("%d UpdateSubscription requests, want none", n)
	}
	requests := parleytest.RequestsOf[*parleyv1.SubscribeRequest](s)
	var channels []string
	for _, p := range requests[len(requests)-1].GetChannels() {
		channels = append(channels, p.GetChannelId())
	}
	if want := []string{"c", "b"}; len(requests) != 2 || !slices.Equal(channels, want) {
		t.Errorf("%d streams, the last one with %v, want 2 and %v", len(requests), channels, want)
	}
}

// TestChangesBeforeTheFirstFrame adds and removes channels while the Subscribe request is in
// flight. One UpdateSubscription must then apply all of it.
func TestChangesBeforeTheFirstFrame(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	for _, channel := range []string{"a", "b", "c"} {
		post(s, channel, 1)
	}
	var once sync.Once
	made := make(chan *parley.Subscription, 1)
	hooked := &hookClient{next: h2cClient(t), method: "Subscribe", hook: func() {
		once.Do(func() {
			sub := <-made
			ctx := testContext(t)
			err := errors.Join(sub.Add(ctx, parley.FromStart("b")), sub.Remove(ctx, "a"),
				sub.Remove(ctx, "c"), sub.Add(ctx, parley.FromStart("c")))
			if err != nil {
				t.Errorf("change: %v", err)
			}
		})
	}}
	sub := subscribe(t, newClient(t, s.Addr(), parley.WithHTTPClient(hooked)), parley.FromStart("a"), parley.Live("c"))
	made <- sub
	got := map[string]int64{}
	for range 2 {
		e := nextEvent(t, sub)
		got[e.ChannelID] = e.Seq
	}
	if got["b"] != 1 || got["c"] != 1 {
		t.Errorf("entries %v, want the first of b and of c", got)
	}
	post(s, "a", 1)
	wantQuiet(t, sub)
	updates := parleytest.RequestsOf[*parleyv1.UpdateSubscriptionRequest](s)
	if len(updates) != 1 || !slices.Equal(updates[0].GetRemove(), []string{"a"}) || len(updates[0].GetAdd()) != 2 {
		t.Errorf("changes %v, want one that adds b and c and removes a", updates)
	}
}

// TestRemovalBeforeTheFirstFrame makes only a removal before the first frame. The client must send
// it to the server, not only drop the channel's events.
func TestRemovalBeforeTheFirstFrame(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	made := make(chan *parley.Subscription, 1)
	hooked := &hookClient{next: h2cClient(t), method: "Subscribe", hook: func() {
		if err := (<-made).Remove(testContext(t), "a"); err != nil {
			t.Errorf("remove: %v", err)
		}
	}}
	made <- subscribe(t, newClient(t, s.Addr(), parley.WithHTTPClient(hooked)), parley.Live("a"), parley.Live("b"))
	eventually(t, func() error {
		updates := parleytest.RequestsOf[*parleyv1.UpdateSubscriptionRequest](s)
		if len(updates) != 1 || !slices.Equal(updates[0].GetRemove(), []string{"a"}) {
			return fmt.Errorf("changes %v", updates)
		}
		return nil
	})
}

// TestChangesWhileConnecting adds and removes channels from many goroutines while streams open and
// end. In the end the subscription must follow the channels that were not removed, and no others.
func TestChangesWhileConnecting(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	sub := subscribe(t, newClient(t, s.Addr()))
	stop := make(chan struct{})
	var breaker, changers sync.WaitGroup
	breaker.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(8)) * time.Millisecond):
				s.EndStreams(nil)
			}
		}
	})
	const changersN, rounds = 4, 30
	for n := range changersN {
		changers.Go(func() {
			for i := range rounds {
				id := fmt.Sprintf("c%d-%d", n, i)
				if err := sub.Add(testContext(t), parley.FromStart(id)); err != nil {
					t.Errorf("add: %v", err)
				}
				if i%2 == 0 {
					if err := sub.Remove(testContext(t), id); err != nil {
						t.Errorf("remove: %v", err)
					}
				}
			}
		})
	}
	changers.Wait()
	close(stop)
	breaker.Wait()
	want := make(map[string]bool)
	for n := range changersN {
		for i := range rounds {
			id := fmt.Sprintf("c%d-%d", n, i)
			s.Post(id, "bob", "hello")
			if i%2 == 1 {
				want[id] = true
			}
		}
	}
	for len(want) > 0 {
		e := nextEvent(t, sub)
		if !want[e.ChannelID] {
			t.Fatalf("an event of %s: removed, or delivered twice", e.ChannelID)
		}
		delete(want, e.ChannelID)
	}
	wantQuiet(t, sub)
}

// TestRenewToken checks that a subscription continues on its stream with the next token of the
// source, that a token without the capability loses its channels, and that a refusal changes
// nothing.
func TestRenewToken(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	var minted atomic.Int64
	client := newClient(t, s.Addr(), parley.WithTokenSource(func(context.Context) (string, error) {
		return fmt.Sprint("tester ", minted.Add(1)), nil
	}))
	ctx := testContext(t)
	sub := subscribe(t, client, parley.FromStart("a"))
	nextEvent(t, sub, parley.EventChannelState)
	s.FaultTimes(1, "UpdateSubscription", parleytest.Fault{
		Err: parleytest.Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING),
	})
	if err := sub.RenewToken(ctx); !errors.Is(err, parley.ErrCapabilityMissing) {
		t.Fatalf("a refusal: %v", err)
	}
	if err := sub.RenewToken(ctx); err != nil {
		t.Fatal(err)
	}
	post(s, "a", 1)
	wantEntries(t, sub, "a", 1, 1)
	s.SetActions("tester 4", "send")
	if err := sub.RenewToken(ctx); err != nil {
		t.Fatal(err)
	}
	if e := nextEvent(t, sub, parley.EventLost); e.Seq != 1 || e.Lost.GetReason() != parleyv1.LostReason_LOST_REASON_CAPABILITY_MISSING {
		t.Errorf("lost: %+v", e)
	}
	if got := len(parleytest.RequestsOf[*parleyv1.SubscribeRequest](s)); got != 1 {
		t.Errorf("%d streams were opened, want 1", got)
	}
	s.Kill()
	if err := sub.RenewToken(ctx); err != nil {
		t.Errorf("without a stream: %v", err)
	}
}

// TestRenewTokenFails checks that a source that fails changes nothing.
func TestRenewTokenFails(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	var away atomic.Bool
	client := newClient(t, s.Addr(), parley.WithTokenSource(func(context.Context) (string, error) {
		if away.Load() {
			return "", errors.New("away")
		}
		return "tester 1", nil
	}))
	sub := subscribe(t, client, parley.FromStart("a"))
	nextEvent(t, sub, parley.EventChannelState)
	away.Store(true)
	if err := sub.RenewToken(testContext(t)); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("a source that fails: %v", err)
	}
	if _, err := client.Send(testContext(t), "a", "hello"); err != nil {
		t.Errorf("the token before is gone: %v", err)
	}
	wantEntries(t, sub, "a", 1, 1)
	if got := len(parleytest.RequestsOf[*parleyv1.SubscribeRequest](s)); got != 1 {
		t.Errorf("%d streams were opened, want 1", got)
	}
}

// heldClient holds its first Subscribe request: it closes held when the request comes, and sends it
// when release is closed.
type heldClient struct {
	http.Client

	once          sync.Once
	held, release chan struct{}
}

// Do implements connect.HTTPClient.
func (h *heldClient) Do(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/Subscribe") {
		h.once.Do(func() {
			close(h.held)
			<-h.release
		})
	}
	return h.Client.Do(req)
}

// TestRenewTokenWhileAStreamOpens renews the token while a stream opens with the one before. The
// subscription must not go live with that.
func TestRenewTokenWhileAStreamOpens(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "a", 1)
	var minted atomic.Int64
	held := &heldClient{held: make(chan struct{}), release: make(chan struct{})}
	client := newClient(t, s.Addr(), parley.WithHTTPClient(held), parley.WithTokenSource(func(context.Context) (string, error) {
		return fmt.Sprint("tester ", minted.Add(1)), nil
	}))
	sub := subscribe(t, client, parley.FromStart("a"))
	<-held.held
	if err := sub.RenewToken(testContext(t)); err != nil {
		t.Fatal(err)
	}
	close(held.release)
	wantEntries(t, sub, "a", 1, 1)
	if got := len(parleytest.RequestsOf[*parleyv1.SubscribeRequest](s)); got != 2 || minted.Load() != 2 {
		t.Errorf("%d streams were opened with %d tokens, want 2 with 2", got, minted.Load())
	}
}
