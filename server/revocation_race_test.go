package server_test

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// latest are, of each node, the times from acknowledgements to the last call that began after them
// and was accepted, one for each revocation; and those to the end of the streams.
type latest struct {
	mu      sync.Mutex
	accept  [3][]time.Duration
	streams [3][]time.Duration
	// unknown counts the calls that were refused because no engine could tell in time.
	unknown atomic.Int64
}

func (l *latest) add(to *[3][]time.Duration, node int, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to[node] = append(to[node], d)
}

// log logs how late calls were accepted on each node, and streams ended.
func (l *latest) log(t *testing.T) {
	t.Helper()
	for what, nodes := range map[string]*[3][]time.Duration{"last accepted call": &l.accept, "end of the stream": &l.streams} {
		for node, all := range nodes {
			slices.Sort(all)
			at := func(q float64) time.Duration {
				return all[min(int(q*float64(len(all))), len(all)-1)].Round(10 * time.Microsecond)
			}
			t.Logf("%s on node %d, after the acknowledgement: p50 %v, p99 %v, max %v of %d revocations", what, node, at(0.5), at(0.99), at(1), len(all))
		}
	}
}

// TestRacingCalls makes calls on three nodes, over HTTP/2, around the acknowledgements of
// sign-outs: a million by `make revocations`, and otherwise fewer. No call that began after the
// acknowledgement may be accepted on the node that acknowledged it, and none that began a second
// after it on any.
func TestRacingCalls(t *testing.T) {
	t.Parallel()
	total := int64(20_000)
	if os.Getenv("PARLEY_TEST_REVOCATIONS") == "all" {
		total = 500_000
	}
	for _, nats := range []bool{true, false} {
		t.Run(fmt.Sprintf("NATS %v", nats), func(t *testing.T) {
			t.Parallel()
			nodes := fleetOf(t, 3)
			if !nats {
				nodes[0].NATS.Stop()
			}
			var calls, accepted atomic.Int64
			l, began := &latest{}, time.Now()
			for round := 0; calls.Load() < total; round++ {
				raceRound(t, nodes, fmt.Sprint("login-", round), l, &calls, &accepted)
			}
			t.Logf("%d calls, of which %d were accepted and %d could not be told, within %v",
				calls.Load(), accepted.Load(), l.unknown.Load(), time.Since(began).Round(time.Second))
			l.log(t)
		})
	}
}

// raceRound uses tokens of a login on all nodes while it is signed out on the first one.
func raceRound(t *testing.T, nodes []*servertest.Server, ssid string, l *latest, calls, accepted *atomic.Int64) {
	t.Helper()
	var acked atomic.Pointer[time.Time]
	var passed [3]atomic.Int64
	var last [3]atomic.Int64 // when the last accepted call began, as Unix nanoseconds
	streams, e := endings(t, nodes, ssid, l)
	const callers = 2
	for i := range callers * len(nodes) {
		node := i % len(nodes)
		client := parleyv1connect.NewServerServiceClient(servertest.HTTPClient(t, login(nodes[0], fmt.Sprint("ann", i), ssid)), nodes[node].URL)
		e.Go(func() {
			for {
				began, at := time.Now(), acked.Load()
				if at != nil && began.Sub(*at) > 1200*time.Millisecond || t.Context().Err() != nil {
					return
				}
				err := callErr(client.GetServerInfo(t.Context(), &parleyv1.GetServerInfoRequest{}))
				calls.Add(1)
				if err != nil {
					switch reason, _ := reasonOf(err); reason {
					case tokenRevoked:
					case parleyv1.ErrorReason_ERROR_REASON_REVOCATION_UNKNOWN: // the engines starve on this machine
						l.unknown.Add(1)
					default:
						t.Errorf("node %d: %v", node, err)
						return
					}
					continue
				}
				accepted.Add(1)
				passed[node].Add(1)
				raise(&last[node], began.UnixNano())
				if at != nil && (node == 0 || began.Sub(*at) > time.Second) {
					t.Errorf("node %d accepts a call that began %v after the acknowledgement", node, began.Sub(*at))
				}
			}
		})
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		for node := range passed {
			if n := passed[node].Load(); n < 50 && !t.Failed() {
				return fmt.Errorf("node %d accepted %d calls", node, n)
			}
		}
		return nil
	})
	leaver := nodes[0].Presence(login(nodes[0], "ann", ssid))
	testkit.Eventually(t, 20*time.Second, func() error {
		err := callErr(leaver.SignOut(t.Context(), &parleyv1.SignOutRequest{}))
		if reason, _ := reasonOf(err); reason == tokenRevoked {
			return nil // the answer to a repeat
		}
		return err
	})
	now := time.Now()
	acked.Store(&now)
	e.Wait()
	for node := range nodes {
		l.add(&l.accept, node, max(0, time.Unix(0, last[node].Load()).Sub(now)))
		l.add(&l.streams, node, max(0, streams[node].Sub(now)))
		if late := streams[node].Sub(now); late > time.Second+slowMachine {
			t.Errorf("the stream on node %d ended %v after the acknowledgement", node, late)
		}
	}
}

// raise sets at to a time, unless it is later already.
func raise(at *atomic.Int64, nano int64) {
	for was := at.Load(); nano > was; was = at.Load() {
		if at.CompareAndSwap(was, nano) {
			return
		}
	}
}

// endings opens a stream with a token of a login on each node. After Wait, the times are when they
// ended.
func endings(t *testing.T, nodes []*servertest.Server, ssid string, l *latest) (at *[3]time.Time, e *sync.WaitGroup) {
	t.Helper()
	at, e = new([3]time.Time), new(sync.WaitGroup)
	for node, s := range nodes {
		var stream *connect.ServerStreamForClient[parleyv1.SubscribeResponse]
		testkit.Eventually(t, 30*time.Second, func() (err error) {
			if stream, err = s.Client(login(nodes[0], "ann", ssid)).Subscribe(t.Context(), &parleyv1.SubscribeRequest{}); err != nil {
				return err
			}
			if !stream.Receive() {
				return cmp.Or(stream.Err(), io.EOF)
			}
			return nil
		})
		e.Go(func() {
			for stream.Receive() {
			}
			at[node] = time.Now()
			if reason, _ := reasonOf(stream.Err()); reason != tokenRevoked && l.unknown.Load() == 0 {
				t.Errorf("the stream on node %d ended: %v", node, stream.Err())
			}
		})
	}
	return at, e
}
