package remote

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/presence"
	"github.com/parleyhq/parley/server/internal/stream"
)

// presenceHub fakes a node's PresenceCalls, with one stream of subject ann. The channel `unknown`
// has no known state, and `broken` makes a call fail with an error that is no fault.
type presenceHub struct {
	node  string
	calls []string
}

func (h *presenceHub) NotAfter(_ string, timeout time.Duration) time.Time {
	return time.Now().Add(timeout)
}

func (h *presenceHub) Passed(_ string, notAfter time.Time) bool { return time.Now().After(notAfter) }

func (h *presenceHub) do(streamID, subject string, call ...string) error {
	if streamID != streamPrefix+h.node || subject != "ann" {
		return stream.NotFound()
	}
	if slices.Contains(call, "broken") {
		return errors.New("secret")
	}
	h.calls = append(h.calls, strings.Join(call, " "))
	return nil
}

func (h *presenceHub) UpdateWatch(_ context.Context, id, subject string, add, remove []string) ([]presence.UserState, error) {
	err := h.do(id, subject, "watch", strings.Join(add, "+"), strings.Join(remove, "-"))
	return []presence.UserState{{UserID: "bo b", State: presence.State(0).With(presence.Web, true), Revision: 1 << 40}, {UserID: "cy"}}, err
}

func (h *presenceHub) WatchChannel(_ context.Context, id, subject string, ch presence.ChannelRef) (*presence.ChannelState, error) {
	call := "channel"
	if ch.Exempt {
		call = "any channel"
	}
	err := h.do(id, subject, call, ch.ID)
	if err != nil || ch.ID == "unknown" {
		return nil, err
	}
	return &presence.ChannelState{
		ChannelID: ch.ID, Online: 1, Members: 900, Complete: true, Revision: 7, Users: []presence.UserState{{UserID: "bob", State: 2}},
	}, nil
}

func (h *presenceHub) UnwatchChannel(_ context.Context, id, subject, channelID string) error {
	return h.do(id, subject, "unwatch", channelID)
}

func (h *presenceHub) SetBackground(_ context.Context, id, subject string, background bool) error {
	return h.do(id, subject, "background", map[bool]string{true: "on", false: "off"}[background])
}

func (h *presenceHub) Disconnect(_ context.Context, id, subject string) error {
	return h.do(id, subject, "disconnect")
}

func presenceStreamsOf(t *testing.T, net *clustertest.Net, node string) (*PresenceStreams, *presenceHub) {
	t.Helper()
	local := &presenceHub{node: node}
	s := NewPresenceStreams(endpointOf(net, node), local)
	lifecycletest.Start(t, s)
	return s, local
}

func TestPresenceCallsReachTheStream(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	a, atA := presenceStreamsOf(t, net, nodeA)
	_, atB := presenceStreamsOf(t, net, nodeB)
	ctx, room := t.Context(), presence.ChannelRef{ID: "room"}
	for _, at := range []*presenceHub{atA, atB} {
		id := streamPrefix + at.node
		want, _ := at.UpdateWatch(ctx, id, "ann", nil, nil)
		users, err := a.UpdateWatch(ctx, id, "ann", []string{"x", "y"}, []string{"z"})
		if diff := cmp.Diff(want, users); diff != "" || err != nil {
			t.Errorf("%s: %v %s", at.node, err, diff)
		}
		channel, _ := at.WatchChannel(ctx, id, "ann", room)
		got, err := a.WatchChannel(ctx, id, "ann", room)
		if diff := cmp.Diff(channel, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", at.node, err, diff)
		}
		at.calls = at.calls[2:3:3]
		if none, err := a.WatchChannel(ctx, id, "ann", presence.ChannelRef{ID: "unknown", Exempt: true}); none != nil || err != nil {
			t.Errorf("%s: a channel without a known state: %v, %v", at.node, none, err)
		}
		err = errors.Join(a.UnwatchChannel(ctx, id, "ann", "room"), a.SetBackground(ctx, id, "ann", true),
			a.SetBackground(ctx, id, "ann", false), a.Disconnect(ctx, id, "ann"))
		calls := []string{
			"channel room", "any channel unknown", "unwatch room", "background on", "background off", "disconnect",
		}
		if diff := cmp.Diff(calls, at.calls); diff != "" || err != nil {
			t.Errorf("%s: %v %s", at.node, err, diff)
		}
		if err := a.SetBackground(ctx, id, "bob", true); !fault.Is(err, fault.StreamNotFound) {
			t.Errorf("another's stream on %s: %v", at.node, err)
		}
	}
	if err := a.UnwatchChannel(ctx, streamPrefix+nodeB, "ann", "broken"); !fault.Is(err, fault.InternalError) || strings.Contains(err.Error(), "secret") {
		t.Errorf("an error that is no fault: %v", err)
	}
	// The node of these streams is gone, or there never was one.
	for _, id := range []string{"", "x", nodeB, streamPrefix, streamPrefix + nodeC, "*" + nodeC, streamPrefix + "*"} {
		_, watch := a.UpdateWatch(ctx, id, "ann", nil, nil)
		_, channel := a.WatchChannel(ctx, id, "ann", room)
		for _, err := range []error{watch, channel, a.UnwatchChannel(ctx, id, "ann", "room"), a.SetBackground(ctx, id, "ann", true)} {
			if !fault.Is(err, fault.StreamNotFound) {
				t.Errorf("stream %q: %v", id, err)
			}
		}
		if err := a.Disconnect(ctx, id, "ann"); err != nil {
			t.Errorf("disconnecting stream %q: %v", id, err)
		}
	}
}

// TestLatePresenceCall checks that a call that arrives after its caller has given up does not undo
// a newer one.
func TestLatePresenceCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet(clustertest.Delayed)
		a, _ := presenceStreamsOf(t, net, nodeA)
		_, atB := presenceStreamsOf(t, net, nodeB)
		if err := a.SetBackground(t.Context(), streamPrefix+nodeB, "ann", true); !fault.Is(err, fault.OutcomeUnknown) {
			t.Fatalf("a call without an answer: %v", err)
		}
		if err := a.SetBackground(t.Context(), streamPrefix+nodeB, "ann", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		net.Deliver()
		if diff := cmp.Diff([]string{"background off"}, atB.calls); diff != "" {
			t.Error(diff)
		}
	})
}

func TestUnreachablePresenceStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate clustertest.Fate
		node string
		want fault.Reason
	}{
		"lost":        {clustertest.Lost, nodeB, fault.OutcomeUnknown},
		"answer lost": {clustertest.AnswerLost, nodeB, fault.OutcomeUnknown},
		"garbled":     {clustertest.Garbled, nodeB, fault.OutcomeUnknown},
		"cut off":     {clustertest.CutOff, nodeC, fault.StoreUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, call := range []func(a *PresenceStreams) error{
					func(a *PresenceStreams) error {
						_, err := a.UpdateWatch(t.Context(), streamPrefix+c.node, "ann", nil, nil)
						return err
					},
					func(a *PresenceStreams) error { return a.Disconnect(t.Context(), streamPrefix+c.node, "ann") },
				} {
					net := clustertest.NewNet(c.fate)
					a, _ := presenceStreamsOf(t, net, nodeA)
					presenceStreamsOf(t, net, nodeB)
					if e, ok := fault.As(call(a)); !ok || e.Kind != fault.Unavailable || e.Reason != c.want {
						t.Errorf("got %+v", e)
					}
				}
			})
		})
	}
}
