package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

var oneToken = consume.Token{Topic: "jobs", Partition: 1, ID: 2, Gen: 3}

// peerCalls are all calls to one node, each with one item.
func peerCalls(ctx context.Context, p *QueuePeers, node string) map[string]func() error {
	settlement := consume.Settlement{Token: oneToken, Verdict: dispatch.Ack}
	return map[string]func() error{
		"settle": func() error {
			_, err := p.Settle(ctx, node, consume.SettleRequest{Items: []consume.Settlement{settlement}})
			return err
		},
		"extend": func() error {
			_, err := p.Extend(ctx, node, consume.ExtendRequest{Tokens: []consume.Token{oneToken}})
			return err
		},
		"cancel": func() error {
			_, err := p.Cancel(ctx, node, consume.CancelRequest{Items: []consume.Cancellation{{ID: 1}}})
			return err
		},
		"report": func() error {
			s := consume.SessionReport{State: consume.Attached, Deliveries: []consume.HeldDelivery{{Token: oneToken}}}
			_, err := p.Report(ctx, node, consume.Report{Sessions: []consume.SessionReport{s}})
			return err
		},
		"take": func() error {
			_, err := p.Take(ctx, node, consume.TakeRequest{Slots: []consume.Slot{{N: 1}}})
			return err
		},
		"deliver": func() error {
			d := consume.RemoteDelivery{Delivery: consume.Delivery{Token: oneToken}}
			_, err := p.Deliver(ctx, node, consume.DeliverRequest{Deliveries: []consume.RemoteDelivery{d}})
			return err
		},
		"ended": func() error {
			return p.Ended(ctx, node, consume.EndedNotice{Deliveries: []consume.EndedDelivery{{Token: oneToken}}})
		},
		"retry": func() error {
			_, err := p.Retry(ctx, node, consume.RetryRequest{IDs: []qlog.ID{1}})
			return err
		},
	}
}

// wantUnavailable checks that all calls to a node fail with a reason.
func wantUnavailable(t *testing.T, p *QueuePeers, node string, want fault.Reason) {
	t.Helper()
	for name, call := range peerCalls(t.Context(), p, node) {
		err := call()
		if f, ok := fault.As(err); !ok || f.Kind != fault.Unavailable || f.Reason != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestGonePeers asks nodes over NATS that are not there.
func TestGonePeers(t *testing.T) {
	t.Parallel()
	nats := testkit.NATS(t)
	a, _ := servePeers(t, natsNode(t, nats, nodeA))
	b, _ := servePeers(t, natsNode(t, nats, nodeB))
	wantUnavailable(t, a, nodeC, fault.StoreUnavailable) // not alive
	wantUnavailable(t, a, "", fault.StoreUnavailable)
	lifecycletest.Stop(t, b)
	wantUnavailable(t, a, nodeB, fault.StoreUnavailable) // alive, but it does not serve
	nats.Stop()
	testkit.Eventually(t, 20*time.Second, func() error {
		if a.Connected() {
			return errors.New("the node does not know that it is cut off")
		}
		return nil
	})
	wantUnavailable(t, a, nodeB, fault.StoreUnavailable)
	if _, _, err := a.Session(t.Context(), consume.SessionRequest{Call: consume.LeaveGroup}); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("session: %v", err)
	}
	if _, missing, err := a.Sessions(t.Context(), "jobs", "g"); !fault.Is(err, fault.StoreUnavailable) || !slices.Equal(missing, []string{nodeB}) {
		t.Errorf("sessions: %v, %v", missing, err)
	}
	if a.AnnounceHolder(consume.HolderNotice{}) == nil || a.OfferSpare(consume.SpareNotice{}) == nil {
		t.Error("a notice was sent to nobody")
	}
}

func TestUnreachablePeers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate clustertest.Fate
		want fault.Reason
	}{
		"lost":         {clustertest.Lost, fault.OutcomeUnknown},
		"answer lost":  {clustertest.AnswerLost, fault.OutcomeUnknown},
		"garbled":      {clustertest.Garbled, fault.OutcomeUnknown},
		"empty answer": {clustertest.EmptyAnswer, fault.OutcomeUnknown},
		"busy":         {clustertest.Busy, fault.StoreUnavailable},
		"cut off":      {clustertest.CutOff, fault.StoreUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := clustertest.NewNet()
				a, _ := servePeers(t, endpointOf(net, nodeA))
				_, _ = servePeers(t, endpointOf(net, nodeB))
				net.SetNodeFate(nodeB, c.fate)
				wantUnavailable(t, a, nodeB, c.want)
				_, found, err := a.Session(t.Context(), consume.SessionRequest{Call: consume.ExtendAll})
				if found || !fault.Is(err, c.want) {
					t.Errorf("session: %t, %v", found, err)
				}
			})
		})
	}
}

// TestPeerFaults: the handler's faults arrive, and other errors become INTERNAL without their text.
// An answer without a result for each item does not count.
func TestPeerFaults(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	a, _ := servePeers(t, endpointOf(net, nodeA))
	_, atB := servePeers(t, endpointOf(net, nodeB))
	for name, call := range peerCalls(t.Context(), a, nodeB) {
		if name == "ended" {
			continue
		}
		atB.answer(func(any) (any, error) { return nil, fault.New(fault.FailedPrecondition, fault.SessionLost, "lost") })
		if err := call(); !fault.Is(err, fault.SessionLost) {
			t.Errorf("%s: %v", name, err)
		}
		atB.answer(func(any) (any, error) { return nil, errors.New("secret") })
		if err := call(); !fault.Is(err, fault.InternalError) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		atB.answer(nil) // answers nothing
		if err := call(); name != "deliver" && name != "retry" && !fault.Is(err, fault.OutcomeUnknown) {
			t.Errorf("%s: an answer without results: %v", name, err)
		}
	}
	atB.answer(func(any) (any, error) { return []error{errors.New("secret")}, nil })
	errs, err := a.Extend(t.Context(), nodeB, consume.ExtendRequest{Tokens: []consume.Token{oneToken}})
	if err != nil || len(errs) != 1 || !fault.Is(errs[0], fault.InternalError) || strings.Contains(errs[0].Error(), "secret") {
		t.Errorf("an item's error that is no fault: %v, %v", errs, err)
	}
}

// TestSessionIsFound: one node has the session; the others do not answer, or believe that they have
// it.
func TestSessionIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		nodes := map[string]*peerHandler{}
		var a *QueuePeers
		for _, node := range []string{nodeC, nodeB, nodeA} {
			peers := clustertest.Peers{Node: node, Nodes: []string{nodeA, nodeB, nodeC}}
			a, nodes[node] = servePeers(t, cluster.NewEndpoint(peers, net.Link(), nil))
		}
		ctx, r := t.Context(), consume.SessionRequest{Session: "s", Call: consume.LeaveGroup}
		if a, found, err := a.Session(ctx, r); found || err != nil || a.Err != nil {
			t.Errorf("nobody has it: %v, %t, %v", a, found, err)
		}
		nodes[nodeC].answer(func(any) (any, error) { return foundAnswer{Found: true}, nil })
		for _, fate := range []clustertest.Fate{clustertest.Answered, clustertest.Lost, clustertest.Busy, clustertest.Garbled} {
			net.SetNodeFate(nodeB, fate)
			if a, found, err := a.Session(ctx, r); !found || err != nil || a.Err != nil {
				t.Errorf("C has it: %v, %t, %v", a, found, err)
			}
		}
		net.SetNodeFate(nodeB, clustertest.Answered)
		lost := consume.SessionAnswer{Err: fault.New(fault.FailedPrecondition, fault.SessionLost, "superseded")}
		nodes[nodeB].answer(func(any) (any, error) { return foundAnswer{lost, true}, nil })
		if a, found, err := a.Session(ctx, r); !found || err != nil || a.Err != nil {
			t.Errorf("B believes to have it: %v, %t, %v", a, found, err)
		}
		nodes[nodeC].answer(nil)
		if a, found, err := a.Session(ctx, r); !found || err != nil || !fault.Is(a.Err, fault.SessionLost) {
			t.Errorf("only B has it: %v, %t, %v", a, found, err)
		}
	})
}

// TestManySessions asks for more sessions than one answer carries.
func TestManySessions(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	a, _ := servePeers(t, endpointOf(net, nodeA))
	_, atB := servePeers(t, endpointOf(net, nodeB))
	var infos []qlog.SessionInfo
	for i := range 5000 {
		infos = append(infos, qlog.SessionInfo{
			Session: fmt.Sprint("digest-", i), Consumer: strings.Repeat("c", 300), Node: nodeB, State: qlog.Attached,
		})
	}
	atB.answer(func(any) (any, error) { return infos, nil })
	got, missing, err := a.Sessions(t.Context(), "jobs", "g")
	slices.SortFunc(infos, func(a, b qlog.SessionInfo) int { return strings.Compare(a.Session, b.Session) })
	if err != nil || len(missing) > 0 || !slices.EqualFunc(got, infos, sameSession) || len(atB.take()) < 3 {
		t.Errorf("got %d sessions of %d, missing %v, %v", len(got), len(infos), missing, err)
	}
	// A node that fails between two pages is missing, as is one that does not answer at all.
	net.SetFates(clustertest.Answered, clustertest.Answered, clustertest.Busy) // the probe is a request too
	got, missing, err = a.Sessions(t.Context(), "jobs", "g")
	if err != nil || !slices.Equal(missing, []string{nodeB}) || len(got) == 0 || len(got) == len(infos) {
		t.Errorf("got %d sessions, missing %v, %v", len(got), missing, err)
	}
	net.SetNodeFate(nodeB, clustertest.Busy)
	if got, missing, err = a.Sessions(t.Context(), "jobs", "g"); err != nil || !slices.Equal(missing, []string{nodeB}) || len(got) > 0 {
		t.Errorf("got %d sessions, missing %v, %v", len(got), missing, err)
	}
}

func sameSession(a, b qlog.SessionInfo) bool {
	return a.Session == b.Session && a.Consumer == b.Consumer
}

// TestHostilePeers sends what no node sends. Nothing of it may reach the handler.
func TestHostilePeers(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	endpoint, link := endpointOf(net, nodeA), net.Link()
	_, atB := servePeers(t, endpointOf(net, nodeB))
	ctx, topics := t.Context(), []string{"jobs", ""}
	good := &clusterv1.ConsumeToken{Partition: 1, Id: 2, Gen: 3}
	for i, token := range []*clusterv1.ConsumeToken{
		nil,
		{},
		{Id: 1},
		{Gen: 1},
		{Topic: 1, Id: 1, Gen: 1},
		{Topic: 2, Id: 1, Gen: 1},
		{Topic: 1 << 31, Id: 1, Gen: 1},
		{Partition: -1, Id: 1, Gen: 1},
		{Partition: 1 << 40, Id: 1, Gen: 1},
		{Id: -1, Gen: 1},
		{Id: 1, Gen: -1},
	} {
		settlement := &clusterv1.ConsumeSettlement{Token: token, Verdict: 1}
		_, err1 := cluster.Call(ctx, endpoint, nodeB, consumeSettle,
			&clusterv1.ConsumeSettleRequest{Topics: topics, Items: []*clusterv1.ConsumeSettlement{settlement}})
		_, err2 := cluster.Call(ctx, endpoint, nodeB, consumeExtend,
			&clusterv1.ConsumeExtendRequest{Topics: topics, Tokens: []*clusterv1.ConsumeToken{good, token}})
		_, err3 := cluster.Call(ctx, endpoint, nodeB, consumeDeliver,
			&clusterv1.ConsumeDeliverRequest{Topics: topics, Deliveries: []*clusterv1.ConsumeDelivery{{Token: token}}})
		_, err4 := cluster.Call(ctx, endpoint, nodeB, consumeEnded,
			&clusterv1.ConsumeEndedNotice{Topics: topics, Deliveries: []*clusterv1.ConsumeEnded{{Token: token}}})
		report := &clusterv1.ConsumeSessionReport{State: 1, Deliveries: []*clusterv1.ConsumeHeld{{Token: token}}}
		_, err5 := cluster.Call(ctx, endpoint, nodeB, consumeReport,
			&clusterv1.ConsumeReport{Topics: topics, Sessions: []*clusterv1.ConsumeSessionReport{report}})
		for _, err := range []error{err1, err2, err3, err4, err5} {
			if !fault.Is(err, fault.InternalError) {
				t.Errorf("token %d: %v", i, err)
			}
		}
	}
	for _, n := range []uint32{0, 5, 256, 257, 1 << 31} {
		_, err1 := cluster.Call(ctx, endpoint, nodeB, consumeSettle, &clusterv1.ConsumeSettleRequest{
			Topics: topics, Items: []*clusterv1.ConsumeSettlement{{Token: good, Verdict: n}},
		})
		_, err2 := cluster.Call(ctx, endpoint, nodeB, consumeReport,
			&clusterv1.ConsumeReport{Sessions: []*clusterv1.ConsumeSessionReport{{State: n}}})
		_, err3 := cluster.Call(ctx, endpoint, nodeB, consumeSession, &clusterv1.ConsumeSessionRequest{Call: n})
		_, err4 := cluster.Call(ctx, endpoint, nodeB, consumeEnded, &clusterv1.ConsumeEndedNotice{
			Topics: topics, Deliveries: []*clusterv1.ConsumeEnded{{Token: good, Cause: n + 5}},
		})
		_, err5 := cluster.Call(ctx, endpoint, nodeB, consumeCancel, &clusterv1.ConsumeCancelRequest{Partition: -1 - int64(n)})
		_, err6 := cluster.Call(ctx, endpoint, nodeB, consumeRetry, &clusterv1.ConsumeRetryRequest{Partition: -1 - int64(n)})
		for i, err := range []error{err1, err2, err3, err4, err5, err6} {
			if !fault.Is(err, fault.InternalError) {
				t.Errorf("number %d, call %d: %v", n, i+1, err)
			}
		}
	}
	bad := &clusterv1.ConsumeHolderNotice{Lease: &clusterv1.ConsumeLease{Partition: -1}, Node: nodeA}
	err := errors.Join(
		link.Broadcast(consumeHolder.Name, []byte{0xff}), link.Broadcast(consumeSpare.Name, []byte{0xff}),
		cluster.Publish(endpoint, consumeHolder, bad))
	if got := atB.take(); err != nil || len(got) > 0 {
		t.Errorf("the handler was called: %v, %v", got, err)
	}
	if _, err := link.Request(ctx, nodeB, consumeTake.Name, []byte{0xff}); err != nil || len(atB.take()) > 0 {
		t.Errorf("garbage: %v", err)
	}
	// It still works.
	if err := cluster.Publish(endpoint, consumeSpare, &clusterv1.ConsumeSpareNotice{Node: nodeA}); err != nil || len(atB.take()) != 1 {
		t.Errorf("a notice was not heard: %v", err)
	}
}

// TestHostileAnswers: an answer that can't be right leaves the outcome unknown.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	a, _ := servePeers(t, endpointOf(net, nodeA))
	b := endpointOf(net, nodeB).Handlers()
	cluster.Handle(b, consumeDeliver, func(context.Context, *clusterv1.ConsumeDeliverRequest) (*clusterv1.ConsumeDeliverAnswer, error) {
		return &clusterv1.ConsumeDeliverAnswer{Refused: []*clusterv1.ConsumeToken{{Topic: 7, Id: 1, Gen: 1}}}, nil
	})
	cluster.Handle(b, consumeReport, func(context.Context, *clusterv1.ConsumeReport) (*clusterv1.ConsumeReportAnswer, error) {
		s := &clusterv1.ConsumeSessionAnswers{Unknown: []*clusterv1.ConsumeToken{{}}}
		return &clusterv1.ConsumeReportAnswer{Sessions: []*clusterv1.ConsumeSessionAnswers{s}}, nil
	})
	cluster.Handle(b, consumeSessions, func(context.Context, *clusterv1.ConsumeSessionsRequest) (*clusterv1.ConsumeSessionsAnswer, error) {
		return &clusterv1.ConsumeSessionsAnswer{More: true}, nil
	})
	cluster.Handle(b, consumeSession, func(context.Context, *clusterv1.ConsumeSessionRequest) (*clusterv1.ConsumeSessionAnswer, error) {
		return nil, errors.New("refused")
	})
	lifecycletest.Start(t, b)
	calls := peerCalls(t.Context(), a, nodeB)
	for _, name := range []string{"deliver", "report"} {
		if err := calls[name](); !fault.Is(err, fault.OutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, missing, err := a.Sessions(t.Context(), "jobs", "g"); err != nil || !slices.Equal(missing, []string{nodeB}) || len(got) > 0 {
		t.Errorf("endless pages: %v, %v, %v", got, missing, err)
	}
	if _, found, err := a.Session(t.Context(), consume.SessionRequest{Call: consume.ExtendAll}); found || !fault.Is(err, fault.OutcomeUnknown) {
		t.Errorf("session: %v", err)
	}
}

func TestPeersWithoutHandler(t *testing.T) {
	t.Parallel()
	p := NewQueuePeers(endpointOf(clustertest.NewNet(), nodeA), nil, nil)
	if err := p.Start(t.Context()); err == nil {
		t.Error("it started")
	}
}
