package parley_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// patient makes waits between attempts last for hours, so that a test with it fails if the client
// waits.
var patient = parley.WithBackoff(parley.Backoff{Base: 10 * time.Hour, Max: 10 * time.Hour})

// current returns the node of a fleet that the client uses. It finds it with a Send to the channel
// find.
func current(t *testing.T, c *parley.Client, fleet []*parleytest.Server) *parleytest.Server {
	t.Helper()
	before := make([]int, len(fleet))
	for i, s := range fleet {
		before[i] = len(s.Requests())
	}
	if _, err := c.Send(testContext(t), "find", "the node"); err != nil {
		t.Fatalf("send: %v", err)
	}
	for i, s := range fleet {
		if len(s.Requests()) > before[i] {
			return s
		}
	}
	t.Fatalf("no node was called")
	return nil
}

// streaming waits until the fleet has one Subscribe stream, and returns the stream's node.
func streaming(t *testing.T, fleet []*parleytest.Server) *parleytest.Server {
	t.Helper()
	var found *parleytest.Server
	eventually(t, func() error {
		n := 0
		for _, s := range fleet {
			if s.Streams() > 0 {
				n, found = n+s.Streams(), s
			}
		}
		if n != 1 {
			return fmt.Errorf("%d streams, want 1", n)
		}
		return nil
	})
	return found
}

func refusal(code connect.Code, reason parleyv1.ErrorReason) parleytest.Fault {
	return parleytest.Fault{Err: parleytest.Error(code, reason)}
}

// nodeFull is the fault of a node that serves its maximum number of streams: it refuses a call with
// NODE_FULL.
var nodeFull = refusal(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_NODE_FULL)

// TestFirstRetryFailsOverWithoutWait makes the client's node fail: killed, frozen, full, or with
// one of several errors. The call must be repeated at another node at once, with the same id, and
// later calls must go there too.
func TestFirstRetryFailsOverWithoutWait(t *testing.T) {
	t.Parallel()
	always := func(fault parleytest.Fault) func(*parleytest.Server) {
		return func(s *parleytest.Server) { s.FaultTimes(1_000_000, "SendMessage", fault) }
	}
	applied := refusal(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN)
	applied.Applied = true
	for name, fail := range map[string]func(*parleytest.Server){
		"killed":            (*parleytest.Server).Kill,
		"stopped":           (*parleytest.Server).Freeze,
		"shutting down":     always(refusal(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN)),
		"store unavailable": always(refusal(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)),
		"internal":          always(refusal(connect.CodeInternal, parleyv1.ErrorReason_ERROR_REASON_INTERNAL)),
		"outcome unknown":   always(applied),
		"answers lost":      always(parleytest.Fault{Drop: true, Applied: true}),
		"full":              always(nodeFull),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := parleytest.StartFleet(t, 3)
			c := newClient(t, parleytest.Addrs(fleet...), patient, parley.WithAttemptTimeout(500*time.Millisecond))
			bad := current(t, c, fleet)
			fail(bad)
			if _, err := c.Send(testContext(t), "room", "hello"); err != nil {
				t.Fatalf("send: %v", err)
			}
			if got := fleet[0].Contents("room"); len(got) != 1 {
				t.Errorf("the log holds %q, want one message", got)
			}
			tried := len(bad.Requests())
			if next := current(t, c, fleet); next == bad || len(bad.Requests()) != tried {
				t.Errorf("the next call went to the node that had failed")
			}
		})
	}
}

// TestCallerErrorsDoNotFailOver makes calls fail with RATE_LIMITED and NOT_MEMBER, which every node
// would return. The client must stay with its node.
func TestCallerErrorsDoNotFailOver(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 3)
	c := newClient(t, parleytest.Addrs(fleet...))
	node := current(t, c, fleet)
	node.FaultTimes(3, "SendMessage", refusal(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED))
	if _, err := c.Send(testContext(t), "room", "hello"); err != nil {
		t.Fatalf("send: %v", err)
	}
	node.FaultTimes(1, "SendMessage", refusal(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER))
	if _, err := c.Send(testContext(t), "room", "hello"); !errors.Is(err, parley.ErrNotMember) {
		t.Errorf("send: %v", err)
	}
	if current(t, c, fleet) != node {
		t.Errorf("the client changed nodes")
	}
}

// TestAllNodesUnavailable makes all nodes fail for a while. The client must try them in turn, with
// waits, until one succeeds.
func TestAllNodesUnavailable(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 3)
	c := newClient(t, parleytest.Addrs(fleet...))
	for _, s := range fleet {
		s.FaultTimes(3, "SendMessage", refusal(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE))
	}
	if _, err := c.Send(testContext(t), "room", "hello"); err != nil {
		t.Fatalf("send: %v", err)
	}
	for i, s := range fleet {
		if n := len(s.Requests()); n < 3 || n > 4 {
			t.Errorf("node %d was tried %d times, want them to take turns", i, n)
		}
	}
}

// TestBatchFailsOver makes one node fail an item of a batch with STORE_UNAVAILABLE. The item must
// be sent to the other node at once, before the channel's later items.
func TestBatchFailsOver(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 2)
	c := newClient(t, parleytest.Addrs(fleet...), patient)
	bad := current(t, c, fleet)
	bad.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		if !strings.HasPrefix(method, "SendMessages/b") {
			return nil
		}
		return new(refusal(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE))
	})
	results, err := c.SendBatch(testContext(t), []parley.Outgoing{
		{ChannelID: "room", Content: "one", ClientMsgID: "a"},
		{ChannelID: "room", Content: "two", ClientMsgID: "b"},
		{ChannelID: "room", Content: "three", ClientMsgID: "c"},
	})
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	for i, r := range results {
		if r.Receipt == nil || r.Receipt.Seq != int64(i+1) {
			t.Errorf("result %d: %+v", i, r)
		}
	}
}

// TestStreamFailsOverAndResumes makes the node of a stream fail repeatedly: killed, frozen, silent,
// or shutting down. Entries that are posted before, meanwhile and after must be delivered once, in
// order.
func TestStreamFailsOverAndResumes(t *testing.T) {
	t.Parallel()
	const interval = 100 * time.Millisecond
	for name, one := range map[string]struct {
		fail, mend func(s *parleytest.Server)
	}{
		"killed":  {(*parleytest.Server).Kill, (*parleytest.Server).Restart},
		"stopped": {(*parleytest.Server).Freeze, (*parleytest.Server).Thaw},
		"silent":  {func(s *parleytest.Server) { s.SetSilent(true) }, func(s *parleytest.Server) { s.SetSilent(false) }},
		"drained": {
			func(s *parleytest.Server) { s.Advise(50 * time.Millisecond) }, func(*parleytest.Server) {},
		},
		"shutting down": {
			func(s *parleytest.Server) {
				s.EndStreams(parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN))
			},
			func(*parleytest.Server) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := parleytest.StartFleet(t, 3)
			for _, s := range fleet {
				s.SetHeartbeat(interval)
			}
			c := newClient(t, parleytest.Addrs(fleet...))
			sub := subscribe(t, c, parley.FromStart("room"), parley.Live("idle"))
			next := int64(1)
			for range 4 {
				post(fleet[0], "room", 5)
				wantEntries(t, sub, "room", next, next+4)
				next += 5
				bad := streaming(t, fleet)
				one.fail(bad)
				post(fleet[0], "room", 5)
				wantEntries(t, sub, "room", next, next+4)
				next += 5
				one.mend(bad)
				eventually(t, func() error {
					if n := bad.Streams(); n != 0 {
						return fmt.Errorf("%d streams on the node that failed", n)
					}
					return nil
				})
			}
			wantQuiet(t, sub)
		})
	}
}

// TestStreamFailsOverWithoutWait kills a stream's node. The subscription must continue at the other
// node without a backoff, which would last longer than the test.
func TestStreamFailsOverWithoutWait(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 2)
	sub := subscribe(t, newClient(t, parleytest.Addrs(fleet...), patient), parley.FromStart("room"))
	post(fleet[0], "room", 1)
	wantEntries(t, sub, "room", 1, 1)
	streaming(t, fleet).Kill()
	post(fleet[0], "room", 1)
	wantEntries(t, sub, "room", 2, 2)
}

// TestFullNodeFailsOverWithoutWait makes the client's node refuse streams because it is full. The
// subscription must go to the other node without a wait. If all nodes are full, it must wait.
func TestFullNodeFailsOverWithoutWait(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 2)
	c := newClient(t, parleytest.Addrs(fleet...), patient)
	full := current(t, c, fleet)
	full.FaultTimes(1_000_000, "Subscribe", nodeFull)
	post(fleet[0], "room", 1)
	sub := subscribe(t, c, parley.FromStart("room"))
	wantEntries(t, sub, "room", 1, 1)
	if streaming(t, fleet) == full {
		t.Error("the stream is at the full node")
	}
	if current(t, c, fleet) == full {
		t.Error("the next call went to the full node")
	}
	for _, s := range fleet {
		s.FaultTimes(1_000_000, "Subscribe", nodeFull)
	}
	waits := make(chan parley.StateChange, 10)
	subscribe(t, newClient(t, parleytest.Addrs(fleet...)), parley.FromStart("room"), parley.OnState(func(change parley.StateChange) {
		if change.State == parley.StateWaiting && len(waits) < cap(waits) {
			waits <- change
		}
	}))
	for range 5 {
		if change := <-waits; !errors.Is(change.Err, parley.ErrNodeFull) {
			t.Errorf("waiting for %v", change.Err)
		}
	}
}

// TestCallerLimitIsFinal checks that LIMIT_EXCEEDED ends a subscription: other nodes have the same
// limit.
func TestCallerLimitIsFinal(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 2)
	for _, s := range fleet {
		s.FaultTimes(1, "Subscribe", refusal(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED))
	}
	sub := subscribe(t, newClient(t, parleytest.Addrs(fleet...)), parley.FromStart("room"))
	if _, err := sub.Next(testContext(t)); !errors.Is(err, parley.ErrLimitExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestPingsDetectStoppedNode freezes the node of a stream whose heartbeats are too rare to detect
// that. HTTP/2 pings must detect it, so that the stream moves to another node within 12 s.
func TestPingsDetectStoppedNode(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 2)
	var seen states
	sub := subscribe(t, newClient(t, parleytest.Addrs(fleet...), patient), parley.FromStart("room"), seen.option())
	post(fleet[0], "room", 1)
	wantEntries(t, sub, "room", 1, 1)
	bad := streaming(t, fleet)
	bad.Freeze()
	defer bad.Thaw()
	post(fleet[0], "room", 1)
	began := time.Now()
	wantEntries(t, sub, "room", 2, 2)
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("it took %s, want 8 s", took)
	}
	for _, s := range seen.list() {
		switch bads := strings.HasSuffix(s.Addr, bad.Addr()); {
		case s.State == parley.StateWaiting && !bads:
			t.Errorf("StateWaiting has the node %q, want the stopped one", s.Addr)
		case s.State == parley.StateLive && s.Addr == "":
			t.Errorf("StateLive has no node")
		}
	}
}

// TestStreamIsUpdatedThroughAnotherNode adds a channel while the client calls another node than the
// stream's. That node must change the stream, which stays where it is.
func TestStreamIsUpdatedThroughAnotherNode(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 2)
	c := newClient(t, parleytest.Addrs(fleet...))
	sub := subscribe(t, c, parley.Live("a"))
	nextEvent(t, sub, parley.EventChannelState)
	holder := streaming(t, fleet)
	holder.FaultTimes(1, "SendMessage", refusal(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE))
	if current(t, c, fleet) == holder {
		// The call's first attempt failed at holder and its second went to the other node, but current
		// returns the first node of the list that was called.
		if current(t, c, fleet) == holder {
			t.Fatalf("the client did not change nodes")
		}
	}
	if err := sub.Add(testContext(t), parley.FromStart("b")); err != nil {
		t.Fatalf("add: %v", err)
	}
	post(holder, "b", 1)
	wantEntries(t, sub, "b", 1, 1)
	if n := len(parleytest.RequestsOf[*parleyv1.UpdateSubscriptionRequest](holder)); n != 0 {
		t.Errorf("the change went to the stream's node")
	}
	if streaming(t, fleet) != holder {
		t.Errorf("the stream changed nodes")
	}
}

// TestRollingRestart restarts the nodes of a fleet in turn, with running writers and readers. No
// call may fail, and every reader must see every message once, in the log's order.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 3)
	ctx := testContext(t)
	const writers, each = 4, 60
	readers := make([]*parley.Subscription, 6)
	for i := range readers {
		readers[i] = subscribe(t, newClient(t, parleytest.Addrs(fleet...)), parley.FromStart("room"))
	}
	var work sync.WaitGroup
	for w := range writers {
		c := newClient(t, parleytest.Addrs(fleet...))
		work.Go(func() {
			for i := range each {
				if _, err := c.Send(ctx, "room", fmt.Sprintf("%d-%d", w, i)); err != nil {
					t.Errorf("send: %v", err)
					return
				}
			}
		})
	}
	for i := range 12 {
		node := fleet[i%len(fleet)]
		node.Advise(5 * time.Millisecond)
		<-time.After(10 * time.Millisecond)
		node.Kill()
		<-time.After(10 * time.Millisecond)
		node.Restart()
	}
	work.Wait()
	if got := len(fleet[0].Contents("room")); got != writers*each {
		t.Errorf("the log holds %d messages, want %d", got, writers*each)
	}
	for _, sub := range readers {
		wantEntries(t, sub, "room", 1, writers*each)
	}
}

func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	for _, good := range []string{s.Addr() + "," + s.Addr(), "http://" + s.Addr() + "/, " + s.Addr()} {
		if _, err := newClient(t, good).Send(testContext(t), "room", "hello"); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"a:1,", ",", "http://a,https://b", "a:1,ftp://b"} {
		if _, err := parley.New(bad); err == nil {
			t.Errorf("%q: got a client, want an error", bad)
		}
	}
}
