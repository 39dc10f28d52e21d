package remote

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// manyTokens returns n tokens of about 60 bytes.
func manyTokens(n int) []consume.Token {
	tokens := make([]consume.Token, n)
	for i := range tokens {
		tokens[i] = consume.Token{
			Topic: "orders-of-the-shop-in-the-north", Partition: i % 64, ID: qlog.ID(1_795_341_234_567_890 + i), Gen: 1 + i%3,
		}
	}
	return tokens
}

func ackOf(t consume.Token) consume.Settlement {
	return consume.Settlement{Token: t, Verdict: dispatch.Ack}
}

func goneFault(i int) error {
	return fault.New(fault.NotFound, fault.DeliveryGone, "message %d is gone", i)
}

// reports joins the parts of a report that a handler received.
func reports(t *testing.T, calls []any) (joined consume.Report) {
	t.Helper()
	for i, call := range calls {
		r, ok := call.(consume.Report)
		if !ok {
			t.Fatalf("got %T", call)
		}
		if len(r.Complete) > 0 && i < len(calls)-1 {
			t.Errorf("part %d of %d has complete leases", i+1, len(calls))
		}
		joined.Node, joined.Group, joined.Complete = r.Node, r.Group, r.Complete
		joined.Sessions = append(joined.Sessions, r.Sessions...)
	}
	return joined
}

// sameReport and sameAnswer are much faster than cmp.Diff for many tokens.
func sameReport(a, b consume.SessionReport) bool {
	return a.SessionProfile == b.SessionProfile && a.State == b.State && a.ContactAge == b.ContactAge &&
		slices.Equal(a.Deliveries, b.Deliveries)
}

func sameAnswer(a, b consume.SessionReportAnswer) bool {
	return a.Superseded == b.Superseded && slices.Equal(a.Unknown, b.Unknown)
}

// largeReport has 15,000 deliveries of three sessions.
func largeReport() consume.Report {
	tokens := manyTokens(15_000)
	r := consume.Report{Node: nodeA, Group: "g", Complete: []consume.Lease{{Topic: tokens[0].Topic, Partition: 1, Epoch: 2}}}
	for i := range 3 {
		s := consume.SessionReport{
			SessionProfile: consume.SessionProfile{ID: fmt.Sprint("session-", i), Consumer: "c", Resumes: int64(i), Grace: time.Second},
			State:          consume.Attached, ContactAge: time.Duration(i),
		}
		for k, token := range tokens {
			if k%3 == i {
				s.Deliveries = append(s.Deliveries, consume.HeldDelivery{Token: token, Begun: k%2 == 0})
			}
		}
		r.Sessions = append(r.Sessions, s)
	}
	return r
}

// answerToReport does not know some deliveries, and says of one session that it is superseded.
func answerToReport(r consume.Report) (a consume.ReportAnswer) {
	for _, s := range r.Sessions {
		out := consume.SessionReportAnswer{Superseded: s.Resumes == 1}
		for _, d := range s.Deliveries {
			if d.Token.ID%7 == 1 {
				out.Unknown = append(out.Unknown, d.Token)
			}
		}
		a.Sessions = append(a.Sessions, out)
	}
	return a
}

// TestLargePeerCalls sends calls over NATS that are larger than its limit, with answers that are.
func TestLargePeerCalls(t *testing.T) {
	t.Parallel()
	nats := testkit.NATS(t)
	a, _ := servePeers(t, natsNode(t, nats, nodeA))
	_, atB := servePeers(t, natsNode(t, nats, nodeB))
	ctx := t.Context()
	report := largeReport()
	atB.answer(func(call any) (any, error) {
		switch r := call.(type) {
		case consume.Report:
			return answerToReport(r), nil
		case consume.SettleRequest:
			errs := make([]error, len(r.Items))
			for i, s := range r.Items {
				errs[i] = goneFault(int(s.Token.ID))
			}
			return errs, nil
		case consume.TakeRequest:
			return each(r.Slots, func(s consume.Slot) int { return s.N }), nil
		case consume.RetryRequest:
			return len(r.IDs), nil
		}
		return none{}, nil
	})
	answer, err := a.Report(ctx, nodeB, report)
	if err != nil || !slices.EqualFunc(answerToReport(report).Sessions, answer.Sessions, sameAnswer) {
		t.Errorf("the answer to a report: %v", err)
	}
	calls := atB.take()
	got := reports(t, calls)
	if len(calls) < 3 || len(calls) > 20 || len(got.Complete) > 0 {
		t.Errorf("%d parts, complete are %v although deliveries were not known", len(calls), got.Complete)
	}
	if got.Node != report.Node || got.Group != report.Group || !slices.EqualFunc(report.Sessions, got.Sessions, sameReport) {
		t.Error("the report changed")
	}

	settle := consume.SettleRequest{Node: nodeA, Group: "g", Session: "s", Items: each(manyTokens(4000), ackOf)}
	results, err := a.Settle(ctx, nodeB, settle)
	want := each(settle.Items, func(s consume.Settlement) error { return goneFault(int(s.Token.ID)) })
	if err != nil || !slices.EqualFunc(want, results, equalFaults) {
		t.Errorf("settle: %v, %d results", err, len(results))
	}

	take := consume.TakeRequest{Node: nodeA, Group: "g", Topic: "jobs"}
	var counts []int
	for i := range 10_000 {
		s := consume.Slot{SessionProfile: consume.SessionProfile{ID: strings.Repeat("s", 120), Consumer: "c"}, N: i, Bytes: 1}
		take.Slots, counts = append(take.Slots, s), append(counts, i)
	}
	taken, err := a.Take(ctx, nodeB, take)
	if err != nil || !slices.Equal(counts, taken) {
		t.Errorf("take: %v, %d counts", err, len(taken))
	}

	retry := consume.RetryRequest{Group: "g", Topic: "jobs", IDs: make([]qlog.ID, 200_000)}
	if n, err := a.Retry(ctx, nodeB, retry); err != nil || n != len(retry.IDs) {
		t.Errorf("retry: %d, %v", n, err)
	}
	ended := consume.EndedNotice{Group: "g"}
	for _, token := range manyTokens(20_000) {
		ended.Deliveries = append(ended.Deliveries, consume.EndedDelivery{Session: "s", Token: token})
	}
	atB.take()
	if err := a.Ended(ctx, nodeB, ended); err != nil {
		t.Error(err)
	}
	var heardEnds []consume.EndedDelivery
	for _, call := range atB.take() {
		n, _ := call.(consume.EndedNotice)
		heardEnds = append(heardEnds, n.Deliveries...)
	}
	if !slices.Equal(ended.Deliveries, heardEnds) {
		t.Errorf("%d of %d ends arrived, or others", len(heardEnds), len(ended.Deliveries))
	}
}

// deliveries returns deliveries with bodies of these sizes.
func deliveries(sizes ...int) (ds []consume.RemoteDelivery) {
	tokens := manyTokens(len(sizes))
	for i, size := range sizes {
		d := consume.Delivery{Token: tokens[i], MessageID: fmt.Sprint("m", i), Body: make([]byte, size), Attempt: 1}
		ds = append(ds, consume.RemoteDelivery{Delivery: d, Session: "s", Epoch: 3})
	}
	return ds
}

// refuseOdd refuses every second delivery.
func refuseOdd(call any) (any, error) {
	r, _ := call.(consume.DeliverRequest)
	var refused []consume.Token
	for _, d := range r.Deliveries {
		if d.Token.ID%2 == 1 {
			refused = append(refused, d.Token)
		}
	}
	return refused, nil
}

// TestLargeDeliveries checks the pieces of a Deliver, and what the caller learns if one fails.
func TestLargeDeliveries(t *testing.T) {
	t.Parallel()
	nats := testkit.NATS(t)
	a, _ := servePeers(t, natsNode(t, nats, nodeA))
	_, atB := servePeers(t, natsNode(t, nats, nodeB))
	atB.answer(refuseOdd)
	const kib = 1 << 10
	r := consume.DeliverRequest{Node: nodeA, Group: "g", Deliveries: deliveries(
		300*kib, 300*kib, 600*kib, 1, 2, 3, 100*kib, 200*kib, 200*kib, 100*kib, 900*kib, 0)}
	refused, err := a.Deliver(t.Context(), nodeB, r)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := refuseOdd(r)
	if diff := cmp.Diff(all, any(refused)); diff != "" {
		t.Errorf("refused: %s", diff)
	}
	var got []consume.RemoteDelivery
	for _, call := range atB.take() {
		piece, _ := call.(consume.DeliverRequest)
		size := 0
		for _, d := range piece.Deliveries {
			size += len(d.Body)
		}
		if size > 512*kib && len(piece.Deliveries) > 1 || piece.Node != nodeA || piece.Group != "g" {
			t.Errorf("a piece of %d deliveries with %d bytes from %s, %s", len(piece.Deliveries), size, piece.Node, piece.Group)
		}
		got = append(got, piece.Deliveries...)
	}
	same := func(a, b consume.RemoteDelivery) bool { return a.Token == b.Token && bytes.Equal(a.Body, b.Body) }
	if !slices.EqualFunc(r.Deliveries, got, same) {
		t.Error("the deliveries changed")
	}
}

// TestLaterPieceFails checks what the caller of a large call learns if it was executed in part. It
// must never be STORE_UNAVAILABLE for what may have been done.
func TestLaterPieceFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate clustertest.Fate
		item fault.Reason
	}{
		"lost": {clustertest.Lost, fault.OutcomeUnknown}, "busy": {clustertest.Busy, fault.StoreUnavailable},
		"cut off": {clustertest.CutOff, fault.StoreUnavailable}, "garbled": {clustertest.Garbled, fault.OutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { laterPieceFails(t, c.fate, c.item) })
		})
	}
}

func laterPieceFails(t *testing.T, fate clustertest.Fate, item fault.Reason) {
	t.Helper()
	net := clustertest.NewNet()
	a, _ := servePeers(t, endpointOf(net, nodeA))
	_, atB := servePeers(t, endpointOf(net, nodeB))
	ctx, tokens := t.Context(), manyTokens(10_000)
	fail := func() { net.SetFates(clustertest.Answered, fate) }

	atB.answer(func(call any) (any, error) {
		switch r := call.(type) {
		case consume.SettleRequest:
			return make([]error, len(r.Items)), nil
		case consume.ExtendRequest:
			return make([]error, len(r.Tokens)), nil
		case consume.CancelRequest:
			return make([]error, len(r.Items)), nil
		case consume.TakeRequest:
			return each(r.Slots, func(consume.Slot) int { return 1 }), nil
		case consume.RetryRequest:
			return len(r.IDs), nil
		case consume.Report:
			return answerToReport(r), nil
		case consume.DeliverRequest:
			return refuseOdd(call)
		}
		return none{}, nil
	})
	items := each(tokens, ackOf)
	cancellations := each(tokens, func(t consume.Token) consume.Cancellation { return consume.Cancellation{ID: t.ID} })
	for method, call := range map[string]func() ([]error, error){
		"settle": func() ([]error, error) { return a.Settle(ctx, nodeB, consume.SettleRequest{Items: items}) },
		"extend": func() ([]error, error) { return a.Extend(ctx, nodeB, consume.ExtendRequest{Tokens: tokens}) },
		"cancel": func() ([]error, error) { return a.Cancel(ctx, nodeB, consume.CancelRequest{Items: cancellations}) },
	} {
		fail()
		results, err := call()
		failed := slices.IndexFunc(results, func(err error) bool { return err != nil })
		if err != nil || len(results) != len(tokens) || failed < 500 || failed > 2000 || !fault.Is(results[failed], item) ||
			!fault.Is(results[len(tokens)-1], item) || len(atB.take()) != 1 {
			t.Errorf("%s: %d results, the first failed is %d, %v", method, len(results), failed, err)
		}
	}

	slots := each(tokens, func(consume.Token) consume.Slot { return consume.Slot{N: 5} })
	fail()
	counts, err := a.Take(ctx, nodeB, consume.TakeRequest{Slots: slots})
	if !fault.Is(err, fault.OutcomeUnknown) || len(counts) != len(slots) || counts[0] != 1 || counts[len(slots)-1] != 0 {
		t.Errorf("take: %d counts, %v", len(counts), err)
	}
	fail()
	n, err := a.Retry(ctx, nodeB, consume.RetryRequest{IDs: make([]qlog.ID, 100_000)})
	if !fault.Is(err, fault.OutcomeUnknown) || n == 0 || n == 100_000 {
		t.Errorf("retry: %d, %v", n, err)
	}
	fail()
	if _, err = a.Report(ctx, nodeB, largeReport()); !fault.Is(err, fault.OutcomeUnknown) {
		t.Errorf("report: %v", err)
	}
	fail()
	ds := deliveries(300<<10, 300<<10, 300<<10)
	refused, err := a.Deliver(ctx, nodeB, consume.DeliverRequest{Deliveries: ds})
	if !fault.Is(err, fault.OutcomeUnknown) || len(refused) != 0 {
		t.Errorf("deliver: refused %v, %v", refused, err)
	}
	fail()
	refused, err = a.Deliver(ctx, nodeB, consume.DeliverRequest{Deliveries: ds[1:]})
	if !fault.Is(err, fault.OutcomeUnknown) || len(refused) != 1 || refused[0] != ds[1].Token {
		t.Errorf("deliver: refused %v, %v", refused, err)
	}
}

// TestCompleteOnlyIfAllIsKnown: the holder acquires the lease between two parts of a report. It
// must not take the second one for all that the node has.
func TestCompleteOnlyIfAllIsKnown(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	a, _ := servePeers(t, endpointOf(net, nodeA))
	_, atB := servePeers(t, endpointOf(net, nodeB))
	report := largeReport()
	topic := report.Complete[0].Topic
	report.Complete = nil
	for p := range 64 {
		report.Complete = append(report.Complete, consume.Lease{Topic: topic, Partition: p, Epoch: 2})
	}
	first := true
	atB.answer(func(call any) (any, error) {
		r, _ := call.(consume.Report)
		a := consume.ReportAnswer{Sessions: make([]consume.SessionReportAnswer, len(r.Sessions))}
		for i, s := range r.Sessions {
			for _, d := range s.Deliveries {
				if first && d.Token.Partition == 5 {
					a.Sessions[i].Unknown = append(a.Sessions[i].Unknown, d.Token)
				}
			}
		}
		first = false
		return a, nil
	})
	if _, err := a.Report(t.Context(), nodeB, report); err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(slices.Clone(report.Complete), func(l consume.Lease) bool { return l.Partition == 5 })
	if diff := cmp.Diff(want, reports(t, atB.take()).Complete); diff != "" {
		t.Error(diff)
	}
}

// TestSplitReport splits random reports.
func TestSplitReport(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 200<<10))
		topic := strings.Repeat("t", 3<<10) // so that not many tokens are needed
		token := func(i int) consume.Token {
			return consume.Token{Topic: topic, Partition: i, ID: qlog.ID(1 + i), Gen: 1}
		}
		r := consume.Report{Node: nodeA, Group: "g"}
		for i := range rapid.IntRange(0, 6).Draw(t, "sessions") {
			s := consume.SessionReport{SessionProfile: consume.SessionProfile{ID: fmt.Sprint("s", i)}}
			s.Consumer = strings.Repeat("c", sizes.Draw(t, "consumer"))
			s.State = consume.SessionState(rapid.IntRange(1, 4).Draw(t, "state"))
			for k := range rapid.SampledFrom([]int{0, 1, 3, 100, 400}).Draw(t, "deliveries") {
				s.Deliveries = append(s.Deliveries, consume.HeldDelivery{Token: token(k), Begun: k%2 == 0})
			}
			r.Sessions = append(r.Sessions, s)
		}
		for i := range rapid.SampledFrom([]int{0, 1, 100, 400}).Draw(t, "leases") {
			r.Complete = append(r.Complete, consume.Lease{Topic: topic, Partition: i, Epoch: int64(i)})
		}
		checkParts(t, &r, splitReport(&r))
	})
}

// TestLargestSessionReport: a session is not split, so the largest one must fit into one message,
// as must the answer that nothing of it is known.
func TestLargestSessionReport(t *testing.T) {
	t.Parallel()
	const smallestNATSLimit = 832 << 10 // natsbus.minPayload
	s := consume.SessionReport{SessionProfile: consume.SessionProfile{ID: strings.Repeat("s", 128), Consumer: strings.Repeat("c", 64)}}
	var answer topicList
	var unknown []*clusterv1.ConsumeToken
	for i := range 10_000 {
		token := consume.Token{
			Topic: fmt.Sprintf("%064d", i%16), Partition: math.MaxUint16 - i, ID: math.MaxInt64 - qlog.ID(i), Gen: math.MaxInt32,
		}
		s.Deliveries = append(s.Deliveries, consume.HeldDelivery{Token: token, Begun: true})
		unknown = append(unknown, answer.token(token))
	}
	small := consume.SessionReport{SessionProfile: consume.SessionProfile{ID: "small"}}
	parts := splitReport(&consume.Report{Sessions: []consume.SessionReport{small, s, small}})
	if len(parts) != 3 || !sameReport(parts[1].Sessions[0], s) {
		t.Fatalf("%d parts, or another session in the second one", len(parts))
	}
	var topics topicList
	w := &clusterv1.ConsumeReport{Sessions: each(parts[1].Sessions, topics.sessionReport)}
	w.Topics = topics.topics
	a := &clusterv1.ConsumeReportAnswer{Topics: answer.topics, Sessions: []*clusterv1.ConsumeSessionAnswers{{Unknown: unknown}}}
	if request, answer := proto.Size(w), proto.Size(a); max(request, answer) > smallestNATSLimit {
		t.Errorf("the request has %d bytes, the answer %d", request, answer)
	} else {
		t.Logf("the request has %d bytes, the answer %d", request, answer)
	}
}

// checkParts checks that parts have a whole report, in order, with each session in one part, and
// are not too large.
func checkParts(t *rapid.T, r *consume.Report, parts []consume.Report) {
	joined := consume.Report{Node: nodeA, Group: "g"}
	for n, p := range parts {
		var topics topicList
		w := &clusterv1.ConsumeReport{Sessions: each(p.Sessions, topics.sessionReport), Complete: each(p.Complete, leaseToWire)}
		w.Topics = topics.topics
		if size := proto.Size(w); size > 900<<10 {
			t.Errorf("part %d has %d bytes", n, size)
		}
		if len(joined.Complete) > 0 && len(p.Sessions) > 0 {
			t.Errorf("part %d has sessions behind complete leases", n)
		}
		if n > 0 && len(p.Sessions) == 0 && len(p.Complete) == 0 {
			t.Errorf("part %d is empty", n)
		}
		joined.Sessions = append(joined.Sessions, p.Sessions...)
		joined.Complete = append(joined.Complete, p.Complete...)
	}
	if !slices.EqualFunc(r.Sessions, joined.Sessions, sameReport) || !slices.Equal(r.Complete, joined.Complete) {
		t.Error("the report changed")
	}
}
