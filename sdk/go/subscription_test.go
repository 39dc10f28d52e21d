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

func post(s *parleytest.Server, channel string, n int) {
	for i := range n {
		s.Post(channel, "bob", fmt.Sprint(i))
	}
}

// states records a subscription's states.
type states struct {
	mu  sync.Mutex
	all []parley.StateChange
}

func (r *states) option() parley.SubscribeOption {
	return parley.OnState(func(c parley.StateChange) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = append(r.all, c)
	})
}

func (r *states) list() []parley.StateChange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// TestResumeAfterEachWayToEnd ends streams in each way, with entries before, between and after: each entry must come
// once, in order.
func TestResumeAfterEachWayToEnd(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(s *parleytest.Server){
		"broken off": func(s *parleytest.Server) { s.EndStreams(nil) },
		"slow consumer": func(s *parleytest.Server) {
			s.EndStreams(parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_SLOW_CONSUMER))
		},
		"shutting down": func(s *parleytest.Server) {
			s.EndStreams(parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN))
		},
		"a reason of the future": func(s *parleytest.Server) { s.EndStreams(parleytest.Error(connect.CodeUnknown, 999)) },
		"advice":                 func(s *parleytest.Server) { s.Advise(20 * time.Millisecond) },
		"killed":                 func(s *parleytest.Server) { s.Kill(); s.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parleytest.Start(t)
			post(s, "room", 4)
			sub := subscribe(t, newClient(t, s.Addr()), parley.After(parley.Position{ChannelID: "room", Seq: 1}), parley.Live("idle"))
			wantEntries(t, sub, "room", 2, 4)
			next := int64(5)
			for range 3 {
				breakIt(s)
				post(s, "room", 5)
				wantEntries(t, sub, "room", next, next+4)
				next += 5
				waitStreams(t, s, 1)
			}
			wantQuiet(t, sub)
		})
	}
}

// TestRepeatedFramesAreDropped has the server send each frame twice.
func TestRepeatedFramesAreDropped(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetRepeat(true)
	post(s, "room", 10)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"))
	wantEntries(t, sub, "room", 1, 10)
	post(s, "room", 3)
	wantEntries(t, sub, "room", 11, 13)
	wantQuiet(t, sub)
	if n := len(requestsOf[*parleyv1.SubscribeRequest](s)); n != 1 {
		t.Errorf("%d streams, want 1: a repeat is no hole", n)
	}
}

// TestLiveResumesFromWhereItBegan has a live subscription lose its stream before anything was sent on it: what is sent
// meanwhile must come.
func TestLiveResumesFromWhereItBegan(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "room", 3)
	sub := subscribe(t, newClient(t, s.Addr()), parley.Live("room"))
	if e := nextEvent(t, sub, parley.EventChannelState); e.Seq != 3 || e.Channel.GetCount() != 3 {
		t.Fatalf("state: %+v", e)
	}
	s.Kill()
	post(s, "room", 2)
	s.Restart()
	wantEntries(t, sub, "room", 4, 5)
}

// TestSilentStreamIsDead has the server fall silent: after 2.5 heartbeat intervals, and not before, the subscription
// begins another stream.
func TestSilentStreamIsDead(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	const interval = 80 * time.Millisecond
	s.SetHeartbeat(interval)
	var seen states
	sub := subscribe(t, newClient(t, s.Addr()), parley.Live("room"), seen.option())
	nextEvent(t, sub, parley.EventChannelState)
	// With heartbeats, and nothing else, the stream lives.
	<-time.After(4 * interval)
	for _, c := range seen.list() {
		if c.State == parley.StateWaiting {
			t.Fatalf("a stream with heartbeats ended: %v", c.Err)
		}
	}
	s.SetSilent(true)
	s.Post("room", "bob", "unheard")
	eventually(t, func() error {
		for _, c := range seen.list() {
			if c.State == parley.StateWaiting {
				return nil
			}
		}
		return errors.New("still taken for live")
	})
	s.SetSilent(false)
	wantEntries(t, sub, "room", 1, 1)
	var waited error
	for _, c := range seen.list() {
		if c.State == parley.StateWaiting && waited == nil {
			waited = c.Err
		}
	}
	if e := asError(t, waited); e.Code != connect.CodeUnavailable || !e.Retryable {
		t.Errorf("the silent stream ended with %+v", e)
	}
}

// TestSlowProgramIsNoDeadStream has a program that takes no events for longer than a dead stream's silence.
func TestSlowProgramIsNoDeadStream(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	const interval = 40 * time.Millisecond
	s.SetHeartbeat(interval)
	var seen states
	post(s, "room", 100)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"), seen.option())
	waitStreams(t, s, 1)
	<-time.After(8 * interval)
	wantEntries(t, sub, "room", 1, 100)
	for _, c := range seen.list() {
		if c.State == parley.StateWaiting {
			t.Errorf("the stream ended: %v", c.Err)
		}
	}
}

// TestExpiredTokenIsReplacedOnTheStream ends the stream at its token's end, as a server does.
func TestExpiredTokenIsReplacedOnTheStream(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	var minted atomic.Int32
	s.SetTokens("token-1")
	c := newClient(t, s.Addr(), parley.WithTokenSource(func(context.Context) (string, error) {
		return fmt.Sprintf("token-%d", minted.Add(1)), nil
	}))
	sub := subscribe(t, c, parley.Live("room"))
	nextEvent(t, sub, parley.EventChannelState)
	for i := int64(2); i <= 4; i++ {
		s.SetTokens(fmt.Sprintf("token-%d", i))
		s.Post("room", "bob", "after the token's end")
		wantEntries(t, sub, "room", i-1, i-1)
	}
	if got := minted.Load(); got != 4 {
		t.Errorf("%d tokens, want 4", got)
	}
}

func TestFinalErrorsEndTheSubscription(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "room", 2)
	var seen states
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"), seen.option())
	wantEntries(t, sub, "room", 1, 2)
	s.EndStreams(parleytest.Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING))
	var got error
	for _, err := range sub.Events() {
		got = err
	}
	if !errors.Is(got, parley.ErrCapabilityMissing) || !errors.Is(sub.Err(), parley.ErrCapabilityMissing) {
		t.Errorf("ended with %v, Err gives %v", got, sub.Err())
	}
	var names []string
	for _, c := range seen.list() {
		names = append(names, c.State.String())
	}
	if want := []string{"connecting", "live", "ended"}; !slices.Equal(names, want) {
		t.Errorf("states %v, want %v", names, want)
	}
	expired := newClient(t, s.Addr())
	s.SetTokens("another")
	if _, err := subscribe(t, expired, parley.Live("room")).Next(testContext(t)); !errors.Is(err, parley.ErrTokenExpired) {
		t.Errorf("an expired token without a source: %v", err)
	}
}

// TestGapsAreToldAndPassed loses history in each way: the program is told, and the channel and the others go on.
func TestGapsAreToldAndPassed(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		lose   func(s *parleytest.Server)
		from   parley.Position
		reason parleyv1.GapReason
		to     int64
	}{
		"history gone": {
			func(s *parleytest.Server) { s.Trim("room", 4) }, parley.Position{ChannelID: "room", Seq: 1},
			parleyv1.GapReason_GAP_REASON_HISTORY_GONE, 3,
		},
		"epoch changed": {
			func(s *parleytest.Server) { s.Restore("room", "epoch-2", 4) },
			parley.Position{ChannelID: "room", Seq: 2, Epoch: "epoch-1"},
			parleyv1.GapReason_GAP_REASON_EPOCH_CHANGED, 4,
		},
		"ahead of the log": {
			func(*parleytest.Server) {}, parley.Position{ChannelID: "room", Seq: 50, Epoch: "epoch-1"},
			parleyv1.GapReason_GAP_REASON_AHEAD_OF_LOG, 6,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parleytest.Start(t)
			post(s, "room", 6)
			one.lose(s)
			sub := subscribe(t, newClient(t, s.Addr()), parley.After(one.from), parley.FromStart("other"))
			e := nextEvent(t, sub)
			if e.Kind != parley.EventGap || e.Gap.GetReason() != one.reason || e.Seq != one.to || e.Gap.GetFromSeq() != one.from.Seq {
				t.Fatalf("got %s %+v, want the gap up to %d", e.Kind, e.Gap, one.to)
			}
			if p, ok := sub.Position("room"); !ok || p.Seq != one.to || p.Epoch != e.Gap.GetEpoch() {
				t.Errorf("position after the gap: %+v", p)
			}
			next := one.to + 1
			for int64(len(s.Contents("room"))) < 8 {
				s.Post("room", "bob", "after the gap")
			}
			wantEntries(t, sub, "room", next, 8)
			s.Post("other", "bob", "elsewhere")
			wantEntries(t, sub, "other", 1, 1)
		})
	}
}

// TestGapInTheMiddle has the log restored while the subscription is away.
func TestGapInTheMiddle(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "room", 5)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"))
	wantEntries(t, sub, "room", 1, 5)
	s.Kill()
	s.Restore("room", "epoch-2", 2)
	s.Restart()
	if e := nextEvent(t, sub); e.Kind != parley.EventGap || e.Gap.GetReason() != parleyv1.GapReason_GAP_REASON_EPOCH_CHANGED {
		t.Fatalf("got %s, want the gap", e.Kind)
	}
	s.Post("room", "bob", "new life")
	wantEntries(t, sub, "room", 3, 3)
}

// TestSkippedEntries has a broken server pass over entries: the subscription reconnects for them, and after several
// times takes them for lost, and says so.
func TestSkippedEntries(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "room", 6)
	s.Skip("room", 3, 2)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"))
	wantEntries(t, sub, "room", 1, 6)
	post(s, "room", 4)
	wantEntries(t, sub, "room", 7, 10)
	s.Skip("room", 12, 1_000_000)
	post(s, "room", 4)
	wantEntries(t, sub, "room", 11, 11)
	if e := nextEvent(t, sub); e.Kind != parley.EventGap || e.Gap.GetFromSeq() != 11 || e.Gap.GetToSeq() != 12 {
		t.Fatalf("got %s %+v, want a gap of entry 12", e.Kind, e.Gap)
	}
	wantEntries(t, sub, "room", 13, 14)
}

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
	requests := requestsOf[*parleyv1.SubscribeRequest](s)
	var channels []string
	for _, p := range requests[len(requests)-1].GetChannels() {
		channels = append(channels, p.GetChannelId())
	}
	if want := []string{"a", "c"}; !slices.Equal(channels, want) {
		t.Errorf("the last stream began with %v, want %v", channels, want)
	}
}

// TestRemovedChannelsEventsAreDropped removes a channel with an event of it already there.
func TestRemovedChannelsEventsAreDropped(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "a", 2)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("a"))
	wantEntries(t, sub, "a", 1, 1) // The second one came in the same frame.
	if err := sub.Remove(testContext(t), "a"); err != nil {
		t.Fatalf("remove: %v", err)
	}
	wantQuiet(t, sub)
}

// TestAddThatMayNotHaveArrived loses the change or its answer: the subscription makes sure of it by a new stream.
func TestAddThatMayNotHaveArrived(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]parleytest.Fault{
		"lost":        {Drop: true},
		"answer lost": {Drop: true, Applied: true},
		"no session":  {Err: parleytest.Error(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)},
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
	requests := requestsOf[*parleyv1.SubscribeRequest](s)
	if n := len(requests[len(requests)-1].GetChannels()); n != 1 {
		t.Errorf("the next stream asked for %d channels, want 1", n)
	}
}

// hookClient calls a hook before each request of one method.
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

// TestRefusedAddDuringAReconnect has the stream replaced while a change is on its way to be refused: the new stream must
// not stand or fall with the channel.
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
			if n := len(requestsOf[*parleyv1.SubscribeRequest](s)); n < 2 {
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

// TestChangesBeforeTheFirstFrame makes changes when the stream's request is already on its way.
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
	updates := requestsOf[*parleyv1.UpdateSubscriptionRequest](s)
	if len(updates) != 1 || !slices.Equal(updates[0].GetRemove(), []string{"a"}) || len(updates[0].GetAdd()) != 2 {
		t.Errorf("changes %v, want one that adds b and c and removes a", updates)
	}
}

// TestChangesWhileConnecting makes changes from many goroutines while streams come and go.
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
			t.Fatalf("an event of %s: removed, or told twice", e.ChannelID)
		}
		delete(want, e.ChannelID)
	}
	wantQuiet(t, sub)
}

// TestPositionIsWhatWasTaken tells what the program has taken from what has merely arrived.
func TestPositionIsWhatWasTaken(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "room", 9)
	c := newClient(t, s.Addr())
	sub := subscribe(t, c, parley.FromStart("room"), parley.Live("idle"))
	wantEntries(t, sub, "room", 1, 4)
	p, ok := sub.Position("room")
	if want := (parley.Position{ChannelID: "room", Seq: 4, Epoch: "epoch-1"}); !ok || p != want {
		t.Fatalf("position %+v, %v; want %+v", p, ok, want)
	}
	sub.Close()
	if _, err := sub.Next(testContext(t)); !errors.Is(err, parley.ErrClosed) {
		t.Errorf("next after close: %v", err)
	}
	for range sub.Events() {
		t.Errorf("an event after close")
	}
	wantEntries(t, subscribe(t, c, parley.After(p)), "room", 5, 9)
}

func TestSubscriptionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	sub := newClient(t, s.Addr()).Subscribe(ctx, parley.Live("room"))
	nextEvent(t, sub, parley.EventChannelState)
	cancel()
	if _, err := sub.Next(testContext(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("next: %v", err)
	}
	sub.Close()
	if sub.State() != parley.StateEnded {
		t.Errorf("state is %s", sub.State())
	}
	waitStreams(t, s, 0)
}

// TestManyStreamsOneConnection holds a client to one connection for all its streams and calls.
func TestManyStreamsOneConnection(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := newClient(t, s.Addr())
	if _, err := c.Send(testContext(t), "room", "hello"); err != nil {
		t.Fatalf("send: %v", err)
	}
	for range 20 {
		nextEvent(t, subscribe(t, c, parley.FromStart("room")), parley.EventSent)
	}
	if got := s.Connections(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}
