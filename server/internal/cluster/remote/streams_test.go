package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

const (
	nodeA, nodeB, nodeC = "AAAAAAAAAAAAA", "BBBBBBBBBBBBB", "CCCCCCCCCCCCC"
	streamPrefix        = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// strangeStreamIDs are ids that no stream has: ill-formed ones, and one of a node that is unknown.
var strangeStreamIDs = []string{"", "x", nodeB, streamPrefix, streamPrefix + nodeC, "*" + nodeB, streamPrefix + "*"}

// endpointOf creates the endpoint of a node in a fleet of A and B.
func endpointOf(net *clustertest.Net, node string) *cluster.Endpoint {
	return cluster.NewEndpoint(clustertest.Peers{Node: node, Nodes: []string{nodeA, nodeB}}, net.Link(), nil)
}

// oneStream is a node's StreamHub with one stream of subject ann. It records the positions added to
// the stream.
type oneStream struct {
	node  string
	added []fanout.Position
}

func (o *oneStream) Update(id, subject string, c fanout.Change) error {
	switch {
	case id != streamPrefix+o.node || subject != "ann":
		return fault.New(fault.NotFound, fault.StreamNotFound, "none")
	case len(c.Remove) > 0:
		return errors.New("secret")
	}
	o.added = append(o.added, c.Add...)
	return nil
}

// streamsOf creates a node's Streams whose channels everybody may read.
func streamsOf(t *testing.T, net *clustertest.Net, node string) (*Streams, *oneStream) {
	t.Helper()
	return guardedStreamsOf(t, net, node, func(context.Context, string, []fanout.Position) error { return nil })
}

func guardedStreamsOf(t *testing.T, net *clustertest.Net, node string, check CheckAdd) (*Streams, *oneStream) {
	t.Helper()
	hub := &oneStream{node: node}
	s := NewStreams(endpointOf(net, node), hub, check)
	lifecycletest.Start(t, s)
	return s, hub
}

func TestUpdateRunsOnStreamNode(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	a, atA := streamsOf(t, net, nodeA)
	_, atB := streamsOf(t, net, nodeB)
	seq := int64(0)
	add := []fanout.Position{{ChannelID: "room", After: &seq, Epoch: "e", Exempt: true}, {ChannelID: "hall"}, {ChannelID: "ours", Member: true}}
	for _, node := range []string{nodeA, nodeB} {
		if err := a.Update(t.Context(), streamPrefix+node, "ann", fanout.Change{Add: add}); err != nil {
			t.Errorf("%s: %v", node, err)
		}
		if err := a.Update(t.Context(), streamPrefix+node, "bob", fanout.Change{Add: add}); !fault.Is(err, fault.StreamNotFound) {
			t.Errorf("another's stream on %s: %v", node, err)
		}
	}
	if diff := cmp.Diff(add, atA.added) + cmp.Diff(add, atB.added); diff != "" {
		t.Error(diff)
	}
	if e, ok := fault.As(a.Update(t.Context(), streamPrefix+nodeB, "ann", fanout.Change{Remove: []string{"x"}})); !ok ||
		e.Reason != fault.InternalError || strings.Contains(e.Msg, "secret") {
		t.Errorf("an error that is no fault: %+v", e)
	}
	for _, id := range strangeStreamIDs {
		if e, ok := fault.As(a.Update(t.Context(), id, "ann", fanout.Change{Add: add})); !ok || e.Kind != fault.NotFound || e.Reason != fault.StreamNotFound {
			t.Errorf("stream %q: %+v", id, e)
		}
	}
}

// The node that holds the stream checks again whether the subject may read the channels, because
// the request may have been delayed.
func TestUpdateIsCheckedOnStreamNode(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	a, _ := streamsOf(t, net, nodeA)
	var asked []string
	away := false
	_, atB := guardedStreamsOf(t, net, nodeB, func(_ context.Context, subject string, add []fanout.Position) error {
		for _, at := range add {
			asked = append(asked, fmt.Sprintf("%s %s %t %t", subject, at.ChannelID, at.Exempt, at.Member))
		}
		switch {
		case away:
			return fault.New(fault.Unavailable, fault.StoreUnavailable, "away")
		case add[len(add)-1].Exempt:
			return nil
		default:
			return fault.NotMemberOf("closed")
		}
	})
	update := func(add ...fanout.Position) error {
		return a.Update(t.Context(), streamPrefix+nodeB, "ann", fanout.Change{Add: add})
	}
	if err := update(fanout.Position{ChannelID: "hall"}, fanout.Position{ChannelID: "closed", Member: true}); !refuses(err, "closed") {
		t.Errorf("a channel that is lost: %#v", err)
	}
	if err := update(fanout.Position{ChannelID: "closed", Exempt: true}); err != nil {
		t.Errorf("one who need not be a member: %v", err)
	}
	away = true
	if err := update(fanout.Position{ChannelID: "hall"}); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("nobody can tell: %v", err)
	}
	if diff := cmp.Diff([]string{"ann hall false false", "ann closed false true", "ann closed true false", "ann hall false false"}, asked); diff != "" {
		t.Error(diff)
	}
	if len(atB.added) != 1 {
		t.Errorf("added %v", atB.added)
	}
}

// refuses reports whether err is NOT_MEMBER and names exactly this channel.
func refuses(err error, channelID string) bool {
	e, ok := fault.As(err)
	return ok && e.Reason == fault.NotMember && len(e.Positions) == 1 && e.Positions[0].ChannelID == channelID
}

func TestUnreachableStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate clustertest.Fate
		node string
		want fault.Reason
		wait time.Duration
	}{
		"lost":        {clustertest.Lost, nodeB, fault.OutcomeUnknown, holderWait},
		"answer lost": {clustertest.AnswerLost, nodeB, fault.OutcomeUnknown, holderWait},
		"garbled":     {clustertest.Garbled, nodeB, fault.OutcomeUnknown, 0},
		"cut off":     {clustertest.CutOff, nodeC, fault.StoreUnavailable, 0}, // this node knows no other
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := clustertest.NewNet(c.fate)
				a, _ := streamsOf(t, net, nodeA)
				streamsOf(t, net, nodeB)
				began := time.Now()
				e, ok := fault.As(a.Update(t.Context(), streamPrefix+c.node, "ann", fanout.Change{}))
				if !ok || e.Kind != fault.Unavailable || e.Reason != c.want || !e.Retryable() {
					t.Errorf("got %+v", e)
				}
				expect(t, "time", c.wait, time.Since(began))
			})
		})
	}
	// A live node that does not serve: it has just lost its connection, or is starting.
	net := clustertest.NewNet()
	a, _ := streamsOf(t, net, nodeA)
	if err := a.Update(t.Context(), streamPrefix+nodeB, "ann", fanout.Change{}); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestStreamsStop(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	s, _ := streamsOf(t, net, nodeA)
	lifecycletest.Stop(t, s)
	if _, err := net.Link().Request(context.Background(), nodeA, updateStream.Name, nil); !errors.Is(err, cluster.ErrNoResponder) {
		t.Errorf("it serves after its end: %v", err)
	}
}

func TestChangesReachAllNodes(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	var got []channel.Change
	link := net.Link()
	changes := NewChanges(cluster.NewEndpoint(clustertest.Peers{Node: nodeA}, link, nil), nil, nil)
	var joined []string
	for range 2 {
		other := NewChanges(endpointOf(net, nodeB), func(c channel.Change) { got = append(got, c) }, nil)
		other.OnJoin(func(channelID string) { joined = append(joined, channelID) })
		lifecycletest.Start(t, other)
	}
	one := channel.Change{ChannelID: "room", UserIDs: []string{"ann", "auth0|42"}}
	all := channel.Change{ChannelID: "room"}
	many := channel.Change{ChannelID: "room", UserIDs: make([]string, maxChangeUsers+1)}
	changes.Publish(one)
	changes.Publish(all)
	changes.Publish(many)
	changes.Joined("club")
	for _, word := range [][]byte{nil, {0xff}} {
		if err := link.Broadcast(membersChanged.Name, word); err != nil {
			t.Fatal(err)
		}
	}
	link.SetCut(true)
	changes.Publish(one) // no other node can be reached, which is not an error
	if diff := cmp.Diff([]channel.Change{one, one, all, all, all, all}, got) + cmp.Diff([]string{"club", "club"}, joined); diff != "" {
		t.Error(diff)
	}
}
