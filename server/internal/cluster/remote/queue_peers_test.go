package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/natsbus"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// peerHandler records the calls that a node receives, and answers with on.
type peerHandler struct {
	mu    sync.Mutex
	calls []any
	on    func(call any) (answer any, err error)
}

// sessionsOf, foundAnswer and none are the calls and answers that consume declares no type for.
type (
	sessionsOf  struct{ topic, group string }
	foundAnswer struct {
		consume.SessionAnswer

		Found bool
	}
	none struct{}
)

// answered records a call and returns its answer, the zero value if it has none.
func answered[A any](h *peerHandler, call any) (a A, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, call)
	if h.on == nil {
		return a, nil
	}
	answer, err := h.on(call)
	a, _ = answer.(A)
	return a, err
}

// take returns the calls since the last one.
func (h *peerHandler) take() []any {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = nil
	return calls
}

func (h *peerHandler) answer(on func(call any) (any, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on = on
}

func (h *peerHandler) HandleSettle(_ context.Context, r consume.SettleRequest) ([]error, error) {
	return answered[[]error](h, r)
}

func (h *peerHandler) HandleExtend(_ context.Context, r consume.ExtendRequest) ([]error, error) {
	return answered[[]error](h, r)
}

func (h *peerHandler) HandleReport(_ context.Context, r consume.Report) (consume.ReportAnswer, error) {
	return answered[consume.ReportAnswer](h, r)
}

func (h *peerHandler) HandleTake(_ context.Context, r consume.TakeRequest) ([]int, error) {
	return answered[[]int](h, r)
}

func (h *peerHandler) HandleDeliver(_ context.Context, r consume.DeliverRequest) ([]consume.Token, error) {
	return answered[[]consume.Token](h, r)
}

func (h *peerHandler) HandleEnded(r consume.EndedNotice) { _, _ = answered[any](h, r) }

func (h *peerHandler) HandleCancel(_ context.Context, r consume.CancelRequest) ([]error, error) {
	return answered[[]error](h, r)
}

func (h *peerHandler) HandleRetry(_ context.Context, r consume.RetryRequest) (int, error) {
	return answered[int](h, r)
}

func (h *peerHandler) HandleSession(_ context.Context, r consume.SessionRequest) (consume.SessionAnswer, bool) {
	a, _ := answered[foundAnswer](h, r)
	return a.SessionAnswer, a.Found
}

func (h *peerHandler) HandleSessions(_ context.Context, topic, group string) []qlog.SessionInfo {
	a, _ := answered[[]qlog.SessionInfo](h, sessionsOf{topic, group})
	return a
}

func (h *peerHandler) HandleHolder(n consume.HolderNotice) { _, _ = answered[any](h, n) }

func (h *peerHandler) HandleSpare(n consume.SpareNotice) { _, _ = answered[any](h, n) }

// servePeers starts the QueuePeers of a node.
func servePeers(t *testing.T, endpoint *cluster.Endpoint) (*QueuePeers, *peerHandler) {
	t.Helper()
	h := &peerHandler{}
	p := NewQueuePeers(endpoint, nil, nil)
	p.Serve(h)
	lifecycletest.Start(t, p)
	return p, h
}

// natsNode connects a node of a fleet of A and B to a NATS server.
func natsNode(t *testing.T, nats *testkit.NATSServer, node string) *cluster.Endpoint {
	t.Helper()
	bus, err := natsbus.Connect(t.Context(), natsbus.Config{URL: nats.URL(), Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
	})
	return cluster.NewEndpoint(clustertest.Peers{Node: node, Nodes: []string{nodeA, nodeB}}, bus.Nodes(), nil)
}

// filler sets every field of what it is given, with a different value for each, so that a test
// notices a field that is not converted or is mixed up with another. Booleans are random.
type filler struct {
	rnd *rand.Rand
	n   int64
}

func filled[T any](t *testing.T, f *filler) (v T) {
	t.Helper()
	f.fill(t, reflect.ValueOf(&v).Elem())
	return v
}

func (f *filler) fill(t *testing.T, v reflect.Value) {
	t.Helper()
	f.n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.UnixMicro(1_700_000_000_123_456 + f.n)))
		return
	case consume.SessionState, qlog.SessionState, dispatch.Verdict, consume.Cause, consume.SessionCall:
		v.SetUint(1 + f.rnd.Uint64N(4))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			f.fill(t, field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range v.Len() {
			f.fill(t, v.Index(i))
		}
	case reflect.String:
		v.SetString("text-" + string(rune('a'+f.n%26)) + time.Duration(f.n).String())
	case reflect.Bool:
		v.SetBool(f.rnd.Uint64N(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(1_000_000 + f.n)
	case reflect.Uint8:
		v.SetUint(uint64(f.n) & 0xff)
	case reflect.Interface: // an error
		if f.rnd.Uint64N(3) > 0 {
			e := fault.New(fault.NotFound, fault.DeliveryGone, "gone %d", f.n)
			e.RetryAfter = time.Duration(f.n) * time.Millisecond
			v.Set(reflect.ValueOf(e))
		}
	default:
		t.Fatalf("fill does not know type %s", v.Type())
	}
}

// sameFault is equalFaults for cmp.Diff.
var sameFault = cmp.Comparer(equalFaults)

// equalFaults compares errors as nodes see each other's.
func equalFaults(a, b error) bool {
	x, _ := fault.As(a)
	y, _ := fault.As(b)
	if x == nil || y == nil {
		return a == nil && b == nil
	}
	return x.Kind == y.Kind && x.Reason == y.Reason && x.Msg == y.Msg && x.RetryAfter == y.RetryAfter
}

// trip makes a call whose request and answer have all fields set. Both must arrive as they were.
func trip[R, A any](t *testing.T, f *filler, h *peerHandler, call func(r R) (A, error)) {
	t.Helper()
	r, a := filled[R](t, f), filled[A](t, f)
	if found, ok := any(&a).(*foundAnswer); ok {
		found.Found = true
	}
	h.answer(func(any) (any, error) { return a, nil })
	got, err := call(r)
	if err != nil {
		t.Fatalf("%T: %v", r, err)
	}
	if diff := cmp.Diff([]any{r}, h.take(), cmp.AllowUnexported(sessionsOf{})); diff != "" {
		t.Errorf("the request changed: %s", diff)
	}
	if diff := cmp.Diff(a, got, sameFault, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the answer to %T changed: %s", r, diff)
	}
}

// TestPeerCallsArriveWhole sends every message of consume.Peers over NATS.
func TestPeerCallsArriveWhole(t *testing.T) {
	t.Parallel()
	nats := testkit.NATS(t)
	a, atA := servePeers(t, natsNode(t, nats, nodeA))
	_, atB := servePeers(t, natsNode(t, nats, nodeB))
	ctx := t.Context()
	for round := range uint64(16) {
		f := &filler{rnd: rand.New(rand.NewPCG(round, 0))}
		trip(t, f, atB, func(r consume.SettleRequest) ([]error, error) { return a.Settle(ctx, nodeB, r) })
		trip(t, f, atB, func(r consume.ExtendRequest) ([]error, error) { return a.Extend(ctx, nodeB, r) })
		trip(t, f, atB, func(r consume.CancelRequest) ([]error, error) { return a.Cancel(ctx, nodeB, r) })
		trip(t, f, atB, func(r consume.RetryRequest) (int, error) { return a.Retry(ctx, nodeB, r) })
		trip(t, f, atB, func(r consume.Report) (consume.ReportAnswer, error) { return a.Report(ctx, nodeB, r) })
		trip(t, f, atB, func(r consume.TakeRequest) ([]int, error) { return a.Take(ctx, nodeB, r) })
		trip(t, f, atB, func(r consume.DeliverRequest) ([]consume.Token, error) { return a.Deliver(ctx, nodeB, r) })
		trip(t, f, atB, func(r consume.EndedNotice) (none, error) { return none{}, a.Ended(ctx, nodeB, r) })
		trip(t, f, atB, func(r consume.SessionRequest) (foundAnswer, error) {
			answer, found, err := a.Session(ctx, r)
			return foundAnswer{answer, found}, err
		})
		trip(t, f, atB, func(r consume.HolderNotice) (none, error) { return none{}, waitFor(t, atB, a.AnnounceHolder(r)) })
		trip(t, f, atB, func(r consume.SpareNotice) (none, error) { return none{}, waitFor(t, atB, a.OfferSpare(r)) })
		infos := filled[[]qlog.SessionInfo](t, f)
		atB.answer(func(any) (any, error) { return infos, nil })
		got, missing, err := a.Sessions(ctx, "jobs", "g")
		byDigest := cmpopts.SortSlices(func(a, b qlog.SessionInfo) bool { return a.Session < b.Session })
		if diff := cmp.Diff(infos, got, byDigest); diff != "" || len(missing) > 0 || err != nil {
			t.Errorf("sessions: %s, %v, %v", diff, missing, err)
		}
		if diff := cmp.Diff([]any{sessionsOf{"jobs", "g"}}, atB.take(), cmp.AllowUnexported(sessionsOf{})); diff != "" {
			t.Error(diff)
		}
	}
	// The causes of an end are 0 to 4.
	for cause := range consume.CauseNoContact + 1 {
		d := consume.EndedDelivery{Session: "s", Token: consume.Token{Topic: "jobs", ID: 1, Gen: 1}, Cause: cause}
		n := consume.EndedNotice{Group: "g", Deliveries: []consume.EndedDelivery{d}}
		if err := a.Ended(ctx, nodeB, n); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]any{n}, atB.take()); diff != "" {
			t.Error(diff)
		}
	}
	if !a.Connected() {
		t.Error("the node does not know that it is connected")
	}
	// A node does not hear its own notices, and is not asked when it asks all others.
	atA.take()
	mine := consume.HolderNotice{Lease: consume.Lease{Topic: "jobs", Partition: 3, Epoch: 7}, Group: "g", Node: nodeA}
	spare := consume.SpareNotice{Group: "g", Topic: "jobs", Node: nodeB, Count: 4}
	if err := errors.Join(a.AnnounceHolder(mine), a.OfferSpare(spare)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Session(ctx, consume.SessionRequest{Call: consume.LeaveGroup}); err != nil {
		t.Error(err)
	}
	if err := waitFor(t, atA, nil); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]any{spare}, atA.take()); diff != "" {
		t.Errorf("the caller heard: %s", diff)
	}
}

// waitFor waits until a handler has a call.
func waitFor(t *testing.T, h *peerHandler, err error) error {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.calls) == 0 {
			return errors.New("no call")
		}
		return nil
	})
	return err
}
