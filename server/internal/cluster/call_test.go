package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

const (
	echoTimeout = 2 * time.Second

	nodeA, nodeB, nodeC, nodeD = "AAAAAAAAAAAAA", "BBBBBBBBBBBBB", "CCCCCCCCCCCCC", "DDDDDDDDDDDDD"
)

// echo is a method whose handlers return the request.
var echo = cluster.Method[*clusterv1.Position, *clusterv1.Position]{Name: "echo", Timeout: echoTimeout}

// party is a node of a fleet of A, B and C. It answers echo, except that channel ids which begin
// with `!` provoke failures.
type party struct {
	*cluster.Endpoint

	link     *clustertest.Link
	handlers *cluster.Handlers
	log      bytes.Buffer
}

func attend(t *testing.T, net *clustertest.Net, node string) *party {
	t.Helper()
	p := &party{link: net.Link()}
	p.Endpoint = cluster.NewEndpoint(
		clustertest.Peers{Node: node, Nodes: []string{nodeA, nodeB, nodeC}}, p.link, slog.New(slog.NewTextHandler(&p.log, nil)))
	p.handlers = p.Handlers()
	cluster.Handle(p.handlers, echo, func(ctx context.Context, req *clusterv1.Position) (*clusterv1.Position, error) {
		switch req.GetChannelId() {
		case "!fault":
			return nil, fault.Invalid("channel_id", 7, "no")
		case "!secret":
			return nil, errors.New("secret")
		case "!huge":
			return &clusterv1.Position{ChannelId: strings.Repeat("x", cluster.MaxMessageBytes)}, nil
		case "!text":
			return &clusterv1.Position{ChannelId: "\xff"}, nil
		case "!wait":
			<-ctx.Done()
		}
		return req, nil
	})
	lifecycletest.Start(t, p.handlers)
	return p
}

// fail calls echo on a node, which must fail with a fault, and returns the fault.
func (p *party) fail(t *testing.T, node, channelID string) *fault.Error {
	t.Helper()
	res, err := cluster.Call(t.Context(), p.Endpoint, node, echo, &clusterv1.Position{ChannelId: channelID})
	f, ok := fault.As(err)
	if !ok || res.GetChannelId() != "" {
		t.Fatalf("%s on %s: %v, %v", channelID, node, res, err)
	}
	return f
}

func TestCallReturnsTheAnswerOrTheFault(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	a, b := attend(t, net, nodeA), attend(t, net, nodeB)
	for _, channelID := range []string{"room", ""} { // an empty answer is valid
		res, err := cluster.Call(t.Context(), a.Endpoint, nodeB, echo, &clusterv1.Position{ChannelId: channelID})
		if err != nil || res.GetChannelId() != channelID {
			t.Errorf("%q: %v, %v", channelID, res, err)
		}
	}
	if f := a.fail(t, nodeB, "!fault"); f.Kind != fault.InvalidArgument || f.Field != "channel_id" || f.Limit != 7 {
		t.Errorf("a fault became %+v", f)
	}
	if b.log.Len() > 0 {
		t.Errorf("logged: %s", b.log.String())
	}
	for _, channelID := range []string{"!secret", "!huge", "!text"} {
		if f := a.fail(t, nodeB, channelID); f.Reason != fault.InternalError || strings.Contains(f.Msg, "secret") {
			t.Errorf("%s became %+v", channelID, f)
		}
	}
	if n := strings.Count(b.log.String(), "call from another node failed"); n != 3 {
		t.Errorf("%d errors are logged: %s", n, b.log.String())
	}
	// A request that B can't decode.
	b.log.Reset()
	answer, err := net.Link().Request(t.Context(), nodeB, echo.Name, []byte{0xff})
	if err != nil {
		t.Fatal(err)
	}
	var reply clusterv1.Reply
	if err := proto.Unmarshal(answer, &reply); err != nil || reply.GetFault().GetReason() != string(fault.InternalError) {
		t.Errorf("a garbled request: %v, %v", &reply, err)
	}
	if n := strings.Count(b.log.String(), "call from another node failed"); n != 1 {
		t.Errorf("%d errors are logged for a garbled request: %s", n, b.log.String())
	}
}

func TestCallOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate   clustertest.Fate
		node   string
		reason fault.Reason // empty for ErrNodeGone
		took   time.Duration
	}{
		"lost":                             {clustertest.Lost, nodeB, fault.OutcomeUnknown, echoTimeout},
		"answer lost":                      {clustertest.AnswerLost, nodeB, fault.OutcomeUnknown, echoTimeout},
		"garbled":                          {clustertest.Garbled, nodeB, fault.OutcomeUnknown, 0},
		"empty answer":                     {clustertest.EmptyAnswer, nodeB, fault.OutcomeUnknown, 0},
		"cut off":                          {clustertest.CutOff, nodeB, fault.StoreUnavailable, 0},
		"cut off, and the node is unknown": {clustertest.CutOff, nodeD, fault.StoreUnavailable, 0},
		"busy":                             {clustertest.Busy, nodeB, fault.StoreUnavailable, 0},
		"it lives and does not serve":      {clustertest.Answered, nodeC, fault.StoreUnavailable, 0},
		"it is unknown":                    {clustertest.Answered, nodeD, "", 0},
		"it is nobody":                     {clustertest.Answered, "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := clustertest.NewNet(c.fate)
				a := attend(t, net, nodeA)
				attend(t, net, nodeB)
				began := time.Now()
				_, err := cluster.Call(t.Context(), a.Endpoint, c.node, echo, &clusterv1.Position{})
				f, ok := fault.As(err)
				switch {
				case c.reason == "" && (ok || !errors.Is(err, cluster.ErrNodeGone)):
					t.Errorf("got %v", err)
				case c.reason != "" && (!ok || f.Kind != fault.Unavailable || f.Reason != c.reason):
					t.Errorf("got %+v", f)
				case errors.Is(err, cluster.ErrNoResponder) == (c.reason == fault.OutcomeUnknown):
					t.Errorf("%v says the wrong thing of whether it reached anyone", err)
				case time.Since(began) != c.took:
					t.Errorf("it took %s", time.Since(began))
				}
			})
		})
	}
	net := clustertest.NewNet()
	a := attend(t, net, nodeA)
	for _, channelID := range []string{"\xff", strings.Repeat("x", cluster.MaxMessageBytes)} {
		_, err := cluster.Call(t.Context(), a.Endpoint, nodeB, echo, &clusterv1.Position{ChannelId: channelID})
		if _, ok := fault.As(err); ok || !errors.Is(err, cluster.ErrNoResponder) || errors.Is(err, cluster.ErrNodeGone) {
			t.Errorf("a request that can't be sent: %v", err)
		}
	}
}

func TestCallAllReportsMissingNodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		channelID string
		b, c      clustertest.Fate
		answered  []string
		missing   []string
		took      time.Duration
	}{
		"all well":        {"room", clustertest.Answered, clustertest.Answered, []string{nodeB, nodeC}, nil, 0},
		"one is silent":   {"room", clustertest.Answered, clustertest.Lost, []string{nodeB}, []string{nodeC}, echoTimeout},
		"its answer is":   {"room", clustertest.AnswerLost, clustertest.Answered, []string{nodeC}, []string{nodeB}, echoTimeout},
		"both are silent": {"room", clustertest.Lost, clustertest.Lost, nil, []string{nodeB, nodeC}, echoTimeout},
		"one is garbled":  {"room", clustertest.Garbled, clustertest.Answered, []string{nodeC}, []string{nodeB}, 0},
		"all fail":        {"!fault", clustertest.Answered, clustertest.Answered, nil, []string{nodeB, nodeC}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := clustertest.NewNet()
				a := attend(t, net, nodeA)
				attend(t, net, nodeB)
				attend(t, net, nodeC)
				net.SetNodeFate(nodeB, c.b)
				net.SetNodeFate(nodeC, c.c)
				began := time.Now()
				answers, missing, err := cluster.CallAll(t.Context(), a.Endpoint, echo, &clusterv1.Position{ChannelId: c.channelID})
				var answered []string
				for node, answer := range answers {
					answered = append(answered, node)
					if answer.GetChannelId() != c.channelID {
						t.Errorf("%s answered %v", node, answer)
					}
				}
				slices.Sort(answered)
				if diff := cmp.Diff(c.answered, answered) + cmp.Diff(c.missing, missing); diff != "" {
					t.Error(diff)
				}
				if (err != nil) != (len(c.missing) > 0) || errors.Is(err, cluster.ErrDisconnected) || time.Since(began) != c.took {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				for _, node := range c.missing {
					if !strings.Contains(err.Error(), node) {
						t.Errorf("%s is not in %v", node, err)
					}
				}
			})
		})
	}
}

func TestCallAllOnSingleNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		link := net.Link()
		alone := cluster.NewEndpoint(clustertest.Peers{Node: nodeA}, link, nil)
		call := func() error {
			answers, missing, err := cluster.CallAll(t.Context(), alone, echo, &clusterv1.Position{})
			if len(answers)+len(missing) > 0 {
				t.Errorf("it answers %v, %v", answers, missing)
			}
			return err
		}
		if err := call(); err != nil {
			t.Errorf("it is the only node: %v", err)
		}
		link.SetCut(true)
		if err := call(); !errors.Is(err, cluster.ErrDisconnected) {
			t.Errorf("it has no connection: %v", err)
		}
		link.SetCut(false)
		net.SetNodeFate(nodeA, clustertest.Stalled)
		if err := call(); !errors.Is(err, cluster.ErrDisconnected) {
			t.Errorf("its connection stalls: %v", err)
		}
	})
	// An unsendable request goes to no node, and all nodes are missing.
	a := attend(t, clustertest.NewNet(), nodeA)
	_, missing, err := cluster.CallAll(t.Context(), a.Endpoint, echo, &clusterv1.Position{ChannelId: "\xff"})
	if diff := cmp.Diff([]string{nodeB, nodeC}, missing); diff != "" || err == nil {
		t.Error(diff, err)
	}
}

// A leaving node still holds streams. A node that is gone is no longer waited for.
func TestCallAllReachesLeavingNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		members := joinAll(t, net, 3)
		var served atomic.Int32
		var handlers []*cluster.Handlers
		for _, m := range members {
			h := cluster.NewEndpoint(m.Roster, m.link, nil).Handlers()
			cluster.Handle(h, echo, func(_ context.Context, req *clusterv1.Position) (*clusterv1.Position, error) {
				served.Add(1)
				return req, nil
			})
			lifecycletest.Start(t, h)
			handlers = append(handlers, h)
		}
		all := func(want int, missing ...string) {
			t.Helper()
			answers, got, err := cluster.CallAll(t.Context(), cluster.NewEndpoint(members[0].Roster, members[0].link, nil), echo, &clusterv1.Position{})
			if diff := cmp.Diff(missing, got); diff != "" || len(answers) != want || int(served.Swap(0)) != want || (err != nil) != (len(missing) > 0) {
				t.Errorf("%d answers, want %d, %v: %s", len(answers), want, err, diff)
			}
		}
		all(2)
		members[2].Leave()
		if members[0].Alive(members[2].ID()) {
			t.Error("a node that leaves gets new streams")
		}
		pass(5 * time.Second)
		all(2)
		lifecycletest.Stop(t, handlers[2])
		all(1)
		lifecycletest.Stop(t, members[2])
		pass(cluster.ForgetAfter + 2*cluster.AnnounceEvery)
		if n := len(members[0].Others()); n != 1 {
			t.Errorf("it remembers %d others", n)
		}
		lifecycletest.Stop(t, handlers[1]) // the node serves no calls, but stays alive
		all(0, members[1].ID())
	})
}

func TestHandlersStartAndStop(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	a, b := attend(t, net, nodeA), attend(t, net, nodeB)
	call := func() error {
		_, err := cluster.Call(t.Context(), a.Endpoint, nodeB, echo, &clusterv1.Position{})
		return err
	}
	if err := call(); err != nil {
		t.Error(err)
	}
	lifecycletest.Stop(t, b.handlers)
	if err := call(); !errors.Is(err, cluster.ErrNoResponder) {
		t.Errorf("it serves after its end: %v", err)
	}

	// Either all methods are served or none.
	refusing := cluster.NewEndpoint(clustertest.Peers{Node: nodeC}, &refuser{Link: net.Link()}, nil)
	h := refusing.Handlers()
	handler := func(_ context.Context, req *clusterv1.Position) (*clusterv1.Position, error) { return req, nil }
	cluster.Handle(h, echo, handler)
	cluster.Handle(h, cluster.Method[*clusterv1.Position, *clusterv1.Position]{Name: "second"}, handler)
	if err := h.Start(t.Context()); err == nil {
		t.Error("it started")
	}
	if _, err := net.Link().Request(t.Context(), nodeC, echo.Name, nil); !errors.Is(err, cluster.ErrNoResponder) {
		t.Errorf("it serves half: %v", err)
	}
}

// refuser is a Link that can't serve the topic `second`.
type refuser struct{ *clustertest.Link }

func (r *refuser) Serve(node, topic string, fn func(ctx context.Context, payload []byte) []byte) (func(), error) {
	if topic == "second" {
		return nil, errors.New("no")
	}
	return r.Link.Serve(node, topic, fn)
}

func TestEventsReachAllNodes(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	a, b := attend(t, net, nodeA), attend(t, net, nodeB)
	event := cluster.Event[*clusterv1.Position]{Name: "moved"}
	var mu sync.Mutex
	var got []string
	var cancels []func()
	for _, p := range []*party{a, b} {
		cancel, err := cluster.Subscribe(p.Endpoint, event, func(m *clusterv1.Position) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, p.ID()+" "+m.GetChannelId())
		})
		if err != nil {
			t.Fatal(err)
		}
		cancels = append(cancels, cancel)
	}
	publish := func(channelID string) error {
		return cluster.Publish(a.Endpoint, event, &clusterv1.Position{ChannelId: channelID})
	}
	if err := publish("room"); err != nil {
		t.Error(err)
	}
	if err := net.Link().Broadcast(event.Name, []byte{0xff}); err != nil {
		t.Error(err)
	}
	cancels[0]()
	if err := publish("hall"); err != nil {
		t.Error(err)
	}
	for _, channelID := range []string{"\xff", strings.Repeat("x", cluster.MaxMessageBytes)} {
		if err := publish(channelID); err == nil {
			t.Error("what can't be sent was published")
		}
	}
	a.link.SetCut(true)
	if err := publish("cut"); !errors.Is(err, cluster.ErrDisconnected) {
		t.Errorf("without a connection: %v", err)
	}
	if diff := cmp.Diff([]string{nodeA + " room", nodeB + " room", nodeB + " hall"}, got); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(b.log.String(), "dropping an undecodable event") {
		t.Error("an event that can't be decoded is not logged")
	}
}

func TestStreamNode(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"": "", "x": "", nodeA: "", "x" + nodeA: nodeA, "stream" + nodeB: nodeB} {
		if got := cluster.StreamNode(id); got != want {
			t.Errorf("%q is on %q, want %q", id, got, want)
		}
	}
	if id := cluster.NewID(); len(id) != cluster.IDLen {
		t.Errorf("an id is %q", id)
	}
}
