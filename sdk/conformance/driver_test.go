package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// TestMatchDistinguishesMismatchFromInvalidPattern checks that match returns a mismatchError only
// for values that differ, not for invalid patterns, and that it compares numbers and texts
// correctly.
func TestMatchDistinguishesMismatchFromInvalidPattern(t *testing.T) {
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

// TestEventuallyRetriesOnlyMismatches checks that `eventually` repeats a step after a mismatch, but
// not after a failed command: the SDK itself must retry those.
func TestEventuallyRetriesOnlyMismatches(t *testing.T) {
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
		t.Errorf("a mismatch was checked %d times: %v", tries, err)
	}
	if err := orFatal(errors.New("no answer")); !errors.As(err, new(fatal)) {
		t.Errorf("an error of the driver's: %v", err)
	}
}

// TestUnusedFaultIsAnError checks that faults.unused returns an error for each fault that happened
// less often than set.
func TestUnusedFaultIsAnError(t *testing.T) {
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
	if err := f.unused(); err == nil || !strings.Contains(err.Error(), "SendMessage happened 1 times, and not 2") {
		t.Errorf("a fault that happened once of twice: %v", err)
	}
	f = set(map[string]any{"do": "answer", "of": "SendTyping", "times": -1})
	if f.unused() == nil {
		t.Error("an unused fault is no error")
	}
	f.next("a", "SendTyping")
	if err := f.unused(); err != nil {
		t.Errorf("a fault that happened: %v", err)
	}

	f = set(map[string]any{"do": "skip", "channelId": "room", "seq": 2})
	skip := f.next("a", "Subscribe")
	if f.unused() == nil {
		t.Error("a stream began, but its fault did not happen")
	}
	skip.change(eventsFrame(&parleyv1.ChannelEvent{ChannelId: "room", Seq: 2}))
	if err := f.unused(); err != nil {
		t.Errorf("a fault of an entry that happened: %v", err)
	}
	if err := f.add(map[string]any{"do": "lose", "of": "SendMesage"}); err == nil {
		t.Error("a fault of an unknown procedure was accepted")
	}
}

func eventsFrame(events ...*parleyv1.ChannelEvent) *parleyv1.SubscribeResponse {
	return &parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Events{Events: &parleyv1.EventBatch{Events: events}}}
}

// TestFaultsChangeStreams checks how faults change the frames of a Subscribe stream, in JSON and in
// binary encoding.
func TestFaultsChangeStreams(t *testing.T) {
	t.Parallel()
	event := func(seq int64) *parleyv1.ChannelEvent {
		sent := &parleyv1.ChannelEvent_Sent{Sent: &parleyv1.ChannelMessage{Seq: seq}}
		return &parleyv1.ChannelEvent{ChannelId: "room", Seq: seq, FromSeq: seq, Event: sent}
	}
	heartbeat := &parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Heartbeat{Heartbeat: &parleyv1.Heartbeat{}}}
	for name, c := range map[string]struct {
		fault map[string]any
		frame *parleyv1.SubscribeResponse
		// json contains the frames that replace the original. known contains the same without fields that
		// are unknown to the current API; nil means json.
		json  []string
		known []string
		over  bool
	}{
		"cover": {
			fault: map[string]any{"do": "cover", "channelId": "room", "seq": 3, "fromSeq": 2, "omitFrom": 1},
			frame: eventsFrame(event(1), event(2), event(3), event(4)),
			json: []string{`{"events":{"events":[
				{"channelId":"room","seq":"3","fromSeq":"2","sent":{"seq":"3"}}, {"channelId":"room","seq":"4","fromSeq":"4","sent":{"seq":"4"}}]}}`},
		},
		"cover says nothing": {
			fault: map[string]any{"do": "cover", "channelId": "room", "seq": 1, "fromSeq": 0},
			frame: eventsFrame(event(1)),
			json:  []string{`{"events":{"events":[{"channelId":"room","seq":"1","sent":{"seq":"1"}}]}}`},
		},
		"strange": {
			fault: map[string]any{"do": "strange", "channelId": "room", "seq": 2},
			frame: eventsFrame(event(1), event(2)),
			json: []string{`{"events":{"events":[
				{"channelId":"room","seq":"1","fromSeq":"1","sent":{"seq":"1"}}, {"channelId":"room","seq":"2","fromSeq":"2","strange":"strange"}]}}`},
			known: []string{`{"events":{"events":[
				{"channelId":"room","seq":"1","fromSeq":"1","sent":{"seq":"1"}}, {"channelId":"room","seq":"2","fromSeq":"2"}]}}`},
		},
		"strange frames": {
			fault: map[string]any{"do": "strangeFrames"},
			frame: heartbeat,
			json:  []string{`{"strange":"strange"}`},
			known: []string{`{}`},
		},
		"advise": {
			fault: map[string]any{"do": "advise", "channelId": "room", "seq": 1, "ms": 250},
			frame: eventsFrame(event(1), event(2)),
			json:  []string{`{"events":{"events":[{"channelId":"room","seq":"1","fromSeq":"1","sent":{"seq":"1"}}]}}`, `{"reconnect":{"within":"0.250s"}}`},
			over:  true,
		},
		"another channel": {
			fault: map[string]any{"do": "skip", "channelId": "hall", "seq": 1},
			frame: eventsFrame(event(1)),
			json:  []string{`{"events":{"events":[{"channelId":"room","seq":"1","fromSeq":"1","sent":{"seq":"1"}}]}}`},
		},
	} {
		if c.known == nil {
			c.known = c.json
		}
		for contentType, want := range map[string][]string{"application/connect+json": c.json, "application/connect+proto": c.known} {
			set := new(faults)
			if err := set.add(c.fault); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			payload, err := marshal(contentType, c.frame)
			if err != nil {
				t.Fatal(err)
			}
			frames, over, err := set.set[0].edit(contentType, payload)
			if err != nil || over != c.over || len(frames) != len(want) {
				t.Errorf("%s, %s: %d frames, over %t, %v", name, contentType, len(frames), over, err)
				continue
			}
			for i, frame := range frames {
				if strange := strings.Contains(string(frame), strangeName); strange != strings.HasPrefix(name, "strange") {
					t.Errorf("%s, %s: frame %d has a strange member: %t", name, contentType, i, strange)
				}
				if !isJSON(contentType) {
					m := new(parleyv1.SubscribeResponse)
					if err := unmarshal(contentType, frame, m); err != nil {
						t.Fatal(err)
					}
					if frame, err = marshal("application/json", m); err != nil {
						t.Fatal(err)
					}
				}
				if got, wanted := plainJSON(t, frame), plainJSON(t, []byte(want[i])); !reflect.DeepEqual(got, wanted) {
					t.Errorf("%s, %s: frame %d is %s, want %s", name, contentType, i, show(got), show(wanted))
				}
			}
		}
	}
}

func plainJSON(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}
