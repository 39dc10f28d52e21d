package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue"
)

// queueSessionsOf makes a node's QueueSessions with one stream of ann's. A token `bad` is refused, `broken` fails.
func queueSessionsOf(t *testing.T, net *fakeNet, node string) (s *QueueSessions, got *[]queue.Call) {
	t.Helper()
	got = &[]queue.Call{}
	s = NewQueueSessions(peers(node), net.node(), func(_ context.Context, c queue.Call) ([]error, error) {
		if c.StreamID != session+node || c.Subject != "ann" {
			return nil, fault.New(fault.FailedPrecondition, fault.LeaseLost, "none")
		}
		*got = append(*got, c)
		errs := make([]error, len(c.Items))
		for i, it := range c.Items {
			switch it.Token {
			case "bad":
				errs[i] = fault.Invalid("token", 0, "token: was not given out")
			case "broken":
				errs[i] = errors.New("secret")
			case "all":
				return nil, errors.New("secret")
			}
		}
		return errs, nil
	}, nil)
	lifecycletest.Start(t, s)
	return s, got
}

func TestQueueCallsReachTheStream(t *testing.T) {
	t.Parallel()
	net := newFakeNet()
	a, atA := queueSessionsOf(t, net, nodeA)
	_, atB := queueSessionsOf(t, net, nodeB)
	delay := 1500 * time.Millisecond
	zero := time.Duration(0)
	calls := func(node string) []queue.Call {
		base := queue.Call{StreamID: session + node, Subject: "ann", Topic: "jobs", Group: "g"}
		ack, nack, extend, credits := base, base, base, base
		ack.Kind, ack.Items = queue.AckCall, []queue.CallItem{{Token: "t1"}, {Token: "bad"}, {Token: "t2"}}
		nack.Kind, nack.Items = queue.NackCall, []queue.CallItem{
			{Token: "t3", Reason: "no", Code: "c", Delay: &delay}, {Token: "t4", DeadLetter: true, Delay: &zero}, {Token: "t5", Release: true},
		}
		extend.Kind, extend.AckTimeout = queue.ExtendCall, time.Minute
		credits.Kind, credits.TotalMessages, credits.TotalBytes = queue.CreditsCall, 7, 1<<40
		return []queue.Call{ack, nack, extend, credits}
	}
	for _, node := range []string{nodeA, nodeB} {
		for _, c := range calls(node) {
			errs, err := a.Do(t.Context(), c)
			if err != nil || len(errs) != len(c.Items) {
				t.Errorf("%s, %d: %v, %v", node, c.Kind, errs, err)
				continue
			}
			for i := range errs {
				f, _ := fault.As(errs[i])
				if (c.Items[i].Token == "bad") != (f != nil && f.Kind == fault.InvalidArgument && f.Field == "token") || (f == nil && errs[i] != nil) {
					t.Errorf("%s, %d, item %d: %v", node, c.Kind, i, errs[i])
				}
			}
		}
		stranger := queue.Call{Kind: queue.AckCall, StreamID: session + node, Subject: "bob", Items: []queue.CallItem{{Token: "x"}}}
		if _, err := a.Do(t.Context(), stranger); !fault.Is(err, fault.LeaseLost) {
			t.Errorf("another's session on %s: %v", node, err)
		}
	}
	if diff := cmp.Diff(calls(nodeA), *atA) + cmp.Diff(calls(nodeB), *atB); diff != "" {
		t.Error(diff)
	}
	broken := queue.Call{Kind: queue.AckCall, StreamID: session + nodeB, Subject: "ann", Items: []queue.CallItem{{Token: "broken"}}}
	errs, err := a.Do(t.Context(), broken)
	if f, ok := fault.As(errors.Join(errs...)); err != nil || !ok || f.Reason != fault.InternalError || strings.Contains(f.Msg, "secret") {
		t.Errorf("an item's error that is no fault: %v, %v", errs, err)
	}
	broken.Items[0].Token = "all"
	if _, err = a.Do(t.Context(), broken); !fault.Is(err, fault.InternalError) || strings.Contains(err.Error(), "secret") {
		t.Errorf("an error that is no fault: %v", err)
	}
	for _, id := range []string{"", "x", nodeB, session, session + nodeC, "*" + nodeB, session + "*"} {
		_, err := a.Do(t.Context(), queue.Call{Kind: queue.CreditsCall, StreamID: id, Subject: "ann"})
		if f, ok := fault.As(err); !ok || f.Kind != fault.FailedPrecondition || f.Reason != fault.LeaseLost {
			t.Errorf("session %q: %v", id, err)
		}
	}
}

// A call that is larger than what the transport carries goes in pieces; where a later one fails, the earlier ones' results
// are told all the same.
func TestQueueCallsAreCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newFakeNet()
		a, _ := queueSessionsOf(t, net, nodeA)
		_, atB := queueSessionsOf(t, net, nodeB)
		c := queue.Call{Kind: queue.NackCall, StreamID: session + nodeB, Subject: "ann"}
		for i := range 1000 {
			c.Items = append(c.Items, queue.CallItem{Token: fmt.Sprint("t", i), Reason: strings.Repeat("r", 1024)})
		}
		c.Items[999].Token = "bad"
		errs, err := a.Do(t.Context(), c)
		if err != nil || len(errs) != 1000 || errs[998] != nil || !fault.Is(errs[999], fault.InvalidField) {
			t.Fatalf("%d results, %v", len(errs), err)
		}
		var items []queue.CallItem
		for _, piece := range *atB {
			items = append(items, piece.Items...)
		}
		if diff := cmp.Diff(c.Items, items); len(*atB) < 2 || diff != "" {
			t.Errorf("in %d pieces: %s", len(*atB), diff)
		}
		first := len((*atB)[0].Items)
		net.fates = []fate{answered, lost}
		errs, err = a.Do(t.Context(), c)
		if err != nil || len(errs) != 1000 || errs[first-1] != nil || !fault.Is(errs[first], fault.OutcomeUnknown) || !fault.Is(errs[999], fault.OutcomeUnknown) {
			t.Errorf("after a lost piece: %d results, %v", len(errs), err)
		}
	})
}

func TestQueueStreamsThatCannotBeReached(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate fate
		node string
		want fault.Reason
	}{
		"lost":         {lost, nodeB, fault.OutcomeUnknown},
		"answer lost":  {answerLost, nodeB, fault.OutcomeUnknown},
		"garbled":      {garbled, nodeB, fault.OutcomeUnknown},
		"empty answer": {emptyAnswer, nodeB, fault.OutcomeUnknown},
		"cut off":      {cutOff, nodeC, fault.StoreUnavailable}, // we know of nobody
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newFakeNet(c.fate)
				a, _ := queueSessionsOf(t, net, nodeA)
				queueSessionsOf(t, net, nodeB)
				_, err := a.Do(t.Context(), queue.Call{
					Kind: queue.AckCall, StreamID: session + c.node, Subject: "ann", Items: []queue.CallItem{{Token: "t"}},
				})
				if e, ok := fault.As(err); !ok || e.Kind != fault.Unavailable || e.Reason != c.want || !e.Retryable() {
					t.Errorf("got %+v", e)
				}
			})
		})
	}
	// A node that lives and does not serve: it has just lost its connection, or begins.
	net := newFakeNet()
	a, _ := queueSessionsOf(t, net, nodeA)
	if _, err := a.Do(t.Context(), queue.Call{StreamID: session + nodeB}); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("got %v", err)
	}
}
