package parley_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

var errFull = parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_NODE_FULL)

// rooms creates n members-only channels of the users, and returns their ids.
func rooms(t *testing.T, s *parleytest.Server, n int) []string {
	t.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("room-%02d", i))
	}
	adminOf(t, s, ids...)
	return ids
}

// wantLost takes events until n channels are lost, each with the error.
func wantLost(t *testing.T, p *parley.Presence, n int, want error) {
	t.Helper()
	for n > 0 {
		e, err := p.Next(testContext(t))
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		if e.Kind != parley.PresenceChannelLost {
			continue
		}
		if n--; !errors.Is(e.Err, want) {
			t.Errorf("%s is lost with %v, want %v", e.Channel.GetChannelId(), e.Err, want)
		}
	}
}

// TestTooManyChannels watches more channels than the server allows. The presence is online with as
// many as possible, and reports the others.
func TestTooManyChannels(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			t.Parallel()
			s := parleytest.Start(t)
			ids := rooms(t, s, 22)
			c := userClient(t, s, "bob", patient)
			if shared {
				subscribe(t, c, parley.Live("open"))
				waitStreams(t, s, 1)
			}
			p := online(t, c, parley.WatchChannels(ids...))
			wantLost(t, p, 2, parley.ErrLimitExceeded)
			for _, id := range ids[:20] {
				eventually(t, func() error {
					if _, ok := p.Channel(id); !ok {
						return fmt.Errorf("%s has no state", id)
					}
					return nil
				})
			}
			s.EndStreams(parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN))
			waitLive(t, p)
			if n := s.LiveStreams(); n != 1 {
				t.Errorf("%d streams", n)
			}
		})
	}
}

// TestOpenChannelBetweenStreams watches an open channel while there is no stream. It is lost with
// the server's error, and the others stay.
func TestOpenChannelBetweenStreams(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ids := rooms(t, s, 1)
	gate := make(chan struct{})
	waiting := make(chan struct{}, 10)
	p := online(t, userClient(t, s, "bob"), parley.WatchChannels(ids...), parley.OnState(func(c parley.StateChange) {
		if c.State == parley.StateWaiting {
			waiting <- struct{}{}
			<-gate
		}
	}))
	s.EndStreams(parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN))
	<-waiting
	if err := p.WatchChannel(testContext(t), "open"); err != nil {
		t.Fatalf("watch: %v", err)
	}
	close(gate)
	wantLost(t, p, 1, parley.ErrChannelOpen)
	waitLive(t, p)
	if _, ok := p.Channel(ids[0]); !ok {
		t.Error("the other channel has no state")
	}
}

// TestChannelOnFullNode has a node refuse channels as full. The only node of a client refuses the
// call after some attempts, and the presence stays. If there is another one, the stream moves.
func TestChannelOnFullNode(t *testing.T) {
	t.Parallel()
	t.Run("one node", func(t *testing.T) {
		t.Parallel()
		s := parleytest.Start(t)
		ids := rooms(t, s, 2)
		p := online(t, userClient(t, s, "bob"), parley.WatchChannels(ids[0]))
		s.FaultTimes(1000, "WatchChannel", parleytest.Fault{Err: errFull})
		if err := p.WatchChannel(testContext(t), ids[1]); !errors.Is(err, parley.ErrNodeFull) {
			t.Errorf("got %v", err)
		}
		if n := len(parleytest.RequestsOf[*parleyv1.WatchChannelRequest](s)); n != 5 {
			t.Errorf("%d attempts", n)
		}
		if err := p.SetBackground(testContext(t), true); err != nil {
			t.Errorf("background: %v", err)
		}
		if n := len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s)); n != 1 {
			t.Errorf("%d streams were opened", n)
		}
	})
	t.Run("two nodes", func(t *testing.T) {
		t.Parallel()
		fleet := parleytest.StartFleet(t, 2)
		ids := rooms(t, fleet[0], 2)
		for _, s := range fleet {
			s.SetUser("token of bob", "bob")
		}
		c := newClient(t, parleytest.Addrs(fleet...), parley.WithToken("token of bob"))
		p := online(t, c, parley.WatchChannels(ids[0]))
		at := slices.IndexFunc(fleet, func(s *parleytest.Server) bool {
			return len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s)) == 1
		})
		for _, s := range fleet { // any node passes on the answer of the stream's node
			s.FaultTimes(5, "WatchChannel", parleytest.Fault{Err: errFull})
		}
		if err := p.WatchChannel(testContext(t), ids[1]); err != nil {
			t.Fatalf("watch: %v", err)
		}
		eventually(t, func() error {
			requests := parleytest.RequestsOf[*parleyv1.ConnectRequest](fleet[1-at])
			if len(requests) != 1 || !slices.Equal(requests[0].GetWatchChannels(), ids) {
				return fmt.Errorf("the other node has got %v", requests)
			}
			return nil
		})
		if n := len(parleytest.RequestsOf[*parleyv1.WatchChannelRequest](fleet[1-at])); n != 0 {
			t.Errorf("%d attempts went to the other node", n)
		}
	})
}

// TestStreamOnFullNode has the only node refuse streams with channels, and the channels, as full.
// The presence is online without them.
func TestStreamOnFullNode(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ids := rooms(t, s, 1)
	s.Fault(func(_ string, m proto.Message) *parleytest.Fault {
		switch req := m.(type) {
		case *parleyv1.ConnectRequest:
			if len(req.GetWatchChannels()) == 0 {
				return nil
			}
		case *parleyv1.WatchChannelRequest:
		default:
			return nil
		}
		return &parleytest.Fault{Err: errFull}
	})
	p := online(t, userClient(t, s, "bob"), parley.WatchUsers("ann"), parley.WatchChannels(ids...))
	wantStates(t, p, "ann")
	wantLost(t, p, 1, parley.ErrNodeFull)
	if n := len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s)); n != 2 {
		t.Errorf("%d streams were opened", n)
	}
}
