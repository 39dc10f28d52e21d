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

	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue"
)

// queueCall is a call that a node's consumers received; a call sets only some of the fields.
type queueCall struct {
	Method  string
	Ref     queue.StreamRef
	Items   []queue.Nack
	Timeout time.Duration
	Credits [2]int64
}

// consumers fakes a node's Consumers, with one stream of subject ann. Token `bad` is refused with a
// fault, `broken` fails with another error, and `all` makes the whole call fail.
type consumers struct {
	node  string
	calls []queueCall
}

func (c *consumers) do(call *queueCall) ([]error, error) {
	if call.Ref.StreamID != streamPrefix+c.node || call.Ref.Subject != "ann" {
		return nil, fault.New(fault.FailedPrecondition, fault.LeaseLost, "none")
	}
	c.calls = append(c.calls, *call)
	errs := make([]error, len(call.Items))
	for i, it := range call.Items {
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
}

func nacksOf(tokens []string) (items []queue.Nack) {
	for _, token := range tokens {
		items = append(items, queue.Nack{Token: token})
	}
	return items
}

func (c *consumers) Ack(_ context.Context, ref queue.StreamRef, tokens []string) ([]error, error) {
	return c.do(&queueCall{Method: "ack", Ref: ref, Items: nacksOf(tokens)})
}

func (c *consumers) Nack(_ context.Context, ref queue.StreamRef, items []queue.Nack) ([]error, error) {
	return c.do(&queueCall{Method: "nack", Ref: ref, Items: items})
}

func (c *consumers) Extend(_ context.Context, ref queue.StreamRef, tokens []string, timeout time.Duration) ([]error, error) {
	return c.do(&queueCall{Method: "extend", Ref: ref, Items: nacksOf(tokens), Timeout: timeout})
}

func (c *consumers) Grant(_ context.Context, ref queue.StreamRef, totalMessages, totalBytes int64) error {
	_, err := c.do(&queueCall{Method: "grant", Ref: ref, Credits: [2]int64{totalMessages, totalBytes}})
	return err
}

func (c *consumers) Leave(_ context.Context, ref queue.StreamRef) error {
	_, err := c.do(&queueCall{Method: "leave", Ref: ref})
	return err
}

func queueStreamsOf(t *testing.T, net *clustertest.Net, node string) (*QueueStreams, *consumers) {
	t.Helper()
	local := &consumers{node: node}
	s := NewQueueStreams(endpointOf(net, node), local)
	lifecycletest.Start(t, s)
	return s, local
}

func TestQueueCallsReachTheStream(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	a, atA := queueStreamsOf(t, net, nodeA)
	_, atB := queueStreamsOf(t, net, nodeB)
	ctx, delay, zero := t.Context(), 1500*time.Millisecond, time.Duration(0)
	nacks := []queue.Nack{
		{Token: "t3", Reason: "no", Code: "c", Delay: &delay}, {Token: "t4", DeadLetter: true, Delay: &zero}, {Token: "t5", Release: true},
	}
	tokens := []string{"t1", "bad", "t2"}
	for _, node := range []string{nodeA, nodeB} {
		ref := queue.StreamRef{StreamID: streamPrefix + node, Subject: "ann", Topic: "jobs", Group: "g"}
		results := func(errs []error, err error) []error { return append(errs, err) }
		for name, errs := range map[string][]error{
			"ack": results(a.Ack(ctx, ref, tokens)), "extend": results(a.Extend(ctx, ref, tokens, time.Minute)),
		} {
			f, _ := fault.As(errs[1])
			if len(errs) != 4 || errs[0] != nil || errs[2] != nil || errs[3] != nil || f == nil || f.Kind != fault.InvalidArgument || f.Field != "token" {
				t.Errorf("%s, %s: %v", node, name, errs)
			}
		}
		errs := results(a.Nack(ctx, ref, nacks))
		errs = append(errs, results(a.Extend(ctx, ref, nil, 0))...)
		errs = append(errs, a.Grant(ctx, ref, 7, 1<<40), a.Leave(ctx, ref))
		if err := errors.Join(errs...); err != nil || len(errs) != 7 {
			t.Errorf("%s: %d results, %v", node, len(errs), err)
		}
		stranger := ref
		stranger.Subject = "bob"
		if _, err := a.Ack(ctx, stranger, tokens); !fault.Is(err, fault.LeaseLost) {
			t.Errorf("another's stream on %s: %v", node, err)
		}
	}
	for _, c := range []*consumers{atA, atB} {
		ref := queue.StreamRef{StreamID: streamPrefix + c.node, Subject: "ann", Topic: "jobs", Group: "g"}
		want := map[string]queueCall{
			"ack":    {Method: "ack", Ref: ref, Items: nacksOf(tokens)},
			"extend": {Method: "extend", Ref: ref, Items: nacksOf(tokens), Timeout: time.Minute},
			"nack":   {Method: "nack", Ref: ref, Items: nacks},
			"all":    {Method: "extend", Ref: ref},
			"grant":  {Method: "grant", Ref: ref, Credits: [2]int64{7, 1 << 40}},
			"leave":  {Method: "leave", Ref: ref},
		}
		got := map[string]queueCall{}
		for _, call := range c.calls {
			name := call.Method
			if name == "extend" && len(call.Items) == 0 {
				name = "all"
			}
			got[name] = call
		}
		if diff := cmp.Diff(want, got); diff != "" || len(c.calls) != len(want) {
			t.Errorf("%d calls: %s", len(c.calls), diff)
		}
	}
	ref := queue.StreamRef{StreamID: streamPrefix + nodeB, Subject: "ann"}
	errs, err := a.Ack(ctx, ref, []string{"broken"})
	if f, ok := fault.As(errors.Join(errs...)); err != nil || !ok || f.Reason != fault.InternalError || strings.Contains(f.Msg, "secret") {
		t.Errorf("an item's error that is no fault: %v, %v", errs, err)
	}
	if _, err = a.Ack(ctx, ref, []string{"all"}); !fault.Is(err, fault.InternalError) || strings.Contains(err.Error(), "secret") {
		t.Errorf("an error that is no fault: %v", err)
	}
	for _, id := range strangeStreamIDs {
		ref := queue.StreamRef{StreamID: id, Subject: "ann"}
		_, err := a.Nack(ctx, ref, nacks)
		for _, err := range []error{err, a.Grant(ctx, ref, 1, 1), a.Leave(ctx, ref)} {
			if f, ok := fault.As(err); !ok || f.Kind != fault.FailedPrecondition || f.Reason != fault.LeaseLost {
				t.Errorf("stream %q: %v", id, err)
			}
		}
	}
}

// A call larger than the transport's limit is sent in pieces. If a later piece fails, the results
// of the earlier ones are returned all the same.
func TestLargeQueueCallsAreSplit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		a, _ := queueStreamsOf(t, net, nodeA)
		_, atB := queueStreamsOf(t, net, nodeB)
		ref := queue.StreamRef{StreamID: streamPrefix + nodeB, Subject: "ann"}
		var nacks []queue.Nack
		var tokens []string
		for i := range 1000 {
			nacks = append(nacks, queue.Nack{Token: fmt.Sprint("t", i), Reason: strings.Repeat("r", 1024)})
			tokens = append(tokens, strings.Repeat("t", 1024))
		}
		nacks[999].Token, tokens[999] = "bad", "bad"
		for name, c := range map[string]struct {
			items []queue.Nack
			call  func() ([]error, error)
		}{
			"nack":   {nacks, func() ([]error, error) { return a.Nack(t.Context(), ref, nacks) }},
			"ack":    {nacksOf(tokens), func() ([]error, error) { return a.Ack(t.Context(), ref, tokens) }},
			"extend": {nacksOf(tokens), func() ([]error, error) { return a.Extend(t.Context(), ref, tokens, 0) }},
		} {
			atB.calls = nil
			errs, err := c.call()
			if err != nil || len(errs) != 1000 || errs[998] != nil || !fault.Is(errs[999], fault.InvalidField) {
				t.Fatalf("%s: %d results, %v", name, len(errs), err)
			}
			var items []queue.Nack
			for _, piece := range atB.calls {
				items = append(items, piece.Items...)
			}
			if diff := cmp.Diff(c.items, items); len(atB.calls) < 2 || diff != "" {
				t.Errorf("%s: in %d pieces: %s", name, len(atB.calls), diff)
			}
			first := len(atB.calls[0].Items)
			net.SetFates(clustertest.Answered, clustertest.Lost)
			errs, err = c.call()
			if err != nil || len(errs) != 1000 || errs[first-1] != nil || !fault.Is(errs[first], fault.OutcomeUnknown) || !fault.Is(errs[999], fault.OutcomeUnknown) {
				t.Errorf("%s: after a lost piece: %d results, %v", name, len(errs), err)
			}
		}
	})
}

func TestUnreachableQueueStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate clustertest.Fate
		node string
		want fault.Reason
	}{
		"lost":         {clustertest.Lost, nodeB, fault.OutcomeUnknown},
		"answer lost":  {clustertest.AnswerLost, nodeB, fault.OutcomeUnknown},
		"garbled":      {clustertest.Garbled, nodeB, fault.OutcomeUnknown},
		"empty answer": {clustertest.EmptyAnswer, nodeB, fault.OutcomeUnknown},
		"cut off":      {clustertest.CutOff, nodeC, fault.StoreUnavailable}, // this node knows no other
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := clustertest.NewNet(c.fate)
				a, _ := queueStreamsOf(t, net, nodeA)
				queueStreamsOf(t, net, nodeB)
				ref := queue.StreamRef{StreamID: streamPrefix + c.node, Subject: "ann"}
				_, err := a.Ack(t.Context(), ref, []string{"t"})
				if e, ok := fault.As(err); !ok || e.Kind != fault.Unavailable || e.Reason != c.want || !e.Retryable() {
					t.Errorf("got %+v", e)
				}
			})
		})
	}
	// A live node that does not serve: it has just lost its connection, or is starting.
	net := clustertest.NewNet()
	a, _ := queueStreamsOf(t, net, nodeA)
	if err := a.Leave(t.Context(), queue.StreamRef{StreamID: streamPrefix + nodeB}); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("got %v", err)
	}
}
