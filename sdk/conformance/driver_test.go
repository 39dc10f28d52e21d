package conformance_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// TestMatchTellsAMismatchFromABrokenPattern has the driver's own mistakes not pass for what an SDK did.
func TestMatchTellsAMismatchFromABrokenPattern(t *testing.T) {
	t.Parallel()
	broken := pattern{tag: "!match", arg: "("}
	for name, want := range map[string]any{
		"alone":            broken,
		"not":              pattern{tag: "!not", arg: broken},
		"not an unknown":   pattern{tag: "!not", arg: pattern{tag: "!odd"}},
		"in a subsequence": pattern{tag: "!sub", arg: []any{broken, "b"}},
	} {
		var got any = "a"
		if name == "in a subsequence" {
			got = []any{"a", "b"}
		}
		if err := match(want, got); err == nil || isMismatch(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		want, got any
		ok        bool
	}{
		"a number":               {5, 5.0, true},
		"a number as text":       {5, "5", true},
		"two texts like numbers": {"1e1", "10", false},
		"the same text":          {"010", "010", true},
		"not another":            {pattern{tag: "!not", arg: "a"}, "b", true},
		"not the same":           {pattern{tag: "!not", arg: "a"}, "a", false},
	} {
		if err := match(c.want, c.got); (err == nil) != c.ok || err != nil && !isMismatch(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEventuallyRetriesNoFailure has a retry of the driver's not stand for one of the SDK's.
func TestEventuallyRetriesNoFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := new(run)
	tries := 0
	err := poll(ctx, func() error {
		tries++
		return orFatal(r.judgeReply(step{}, reply{Error: map[string]any{"kind": "parley"}}, nil))
	})
	if err == nil || tries != 1 {
		t.Errorf("a failure was tried %d times: %v", tries, err)
	}
	tries = 0
	err = poll(ctx, func() error {
		tries++
		return orFatal(match(2, tries))
	})
	if err != nil || tries != 2 {
		t.Errorf("what was not yet so was looked at %d times: %v", tries, err)
	}
	if err := orFatal(errors.New("no answer")); !errors.As(err, new(fatal)) {
		t.Errorf("an error of the driver's: %v", err)
	}
}

// TestFaultsMustHappen has a scenario whose fault does nothing not pass.
func TestFaultsMustHappen(t *testing.T) {
	t.Parallel()
	set := func(v map[string]any) *faults {
		f := new(faults)
		if err := f.add(v); err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := set(map[string]any{"do": "lose", "of": "SendMessage", "times": 2})
	f.next("a", "SendMessage")
	f.next("a", "EditMessage")
	f.heal()
	if err := f.unhappened(); err == nil || !strings.Contains(err.Error(), "SendMessage happened 1 times, and not 2") {
		t.Errorf("a fault that happened once of twice: %v", err)
	}
	f = set(map[string]any{"do": "answer", "of": "SendTyping", "times": -1})
	if f.unhappened() == nil {
		t.Error("a fault that never happened was passed over")
	}
	f.next("a", "SendTyping")
	if err := f.unhappened(); err != nil {
		t.Errorf("a fault that happened: %v", err)
	}

	f = set(map[string]any{"do": "skip", "channelId": "room", "seq": 2})
	skip := f.next("a", "Subscribe")
	if f.unhappened() == nil {
		t.Error("a stream began, but its fault did not happen")
	}
	skip.change(&parleyv1.SubscribeResponse{Events: []*parleyv1.ChannelEvent{{ChannelId: "room", Seq: 2}}})
	if err := f.unhappened(); err != nil {
		t.Errorf("a fault of an entry that happened: %v", err)
	}
	if err := f.add(map[string]any{"do": "lose", "of": "SendMesage"}); err == nil {
		t.Error("a fault of an unknown procedure was taken")
	}
}
