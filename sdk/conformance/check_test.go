package conformance_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// checkLog returns an error unless each message of a channel's log was acknowledged by a receipt
// and each receipt is of a message in the log. The log must contain only sends, no edits or
// recalls.
func checkLog(log []*parleyv1.ChannelMessage, receipts []sent) error {
	if len(log) == 0 {
		return errors.New("the log is empty: there is nothing to check")
	}
	ids := make(map[string]bool)
	for i, m := range log {
		if m.GetSeq() != int64(i+1) {
			return fmt.Errorf("entry %d of the log has the seq %d", i+1, m.GetSeq())
		}
		if ids[m.GetClientMsgId()] {
			return fmt.Errorf("seq %d: client_msg_id %s is stored twice", m.GetSeq(), m.GetClientMsgId())
		}
		ids[m.GetClientMsgId()] = true
	}
	told := make(map[int64]bool)
	for _, s := range receipts {
		if s.seq < 1 || s.seq > int64(len(log)) {
			return fmt.Errorf("acknowledged as seq %d, but the log ends with %d", s.seq, len(log))
		}
		m := log[s.seq-1]
		if m.GetMsgId() != s.id || m.GetClientMsgId() != s.clientMsg || m.GetContent() != s.content {
			return fmt.Errorf("acknowledged as seq %d: %q (%s), but there is %q (%s)",
				s.seq, s.content, s.clientMsg, m.GetContent(), m.GetClientMsgId())
		}
		told[s.seq] = true
	}
	if len(told) != len(log) {
		return fmt.Errorf("the log holds %d messages, of which %d were acknowledged", len(log), len(told))
	}
	return checkOrder(receipts)
}

// checkOrder returns an error if a message has a lower seq than another one whose call ended before
// its own call began.
func checkOrder(receipts []sent) error {
	ordered := slices.SortedFunc(slices.Values(receipts), func(a, b sent) int { return cmp.Compare(a.seq, b.seq) })
	var latest sent
	for _, s := range ordered {
		if s.ended.Before(latest.begun) {
			return fmt.Errorf("seq %d was acknowledged before the call of seq %d began", s.seq, latest.seq)
		}
		if s.begun.After(latest.begun) {
			latest = s
		}
	}
	return nil
}

// checkDelivered returns an error unless the events that a subscription delivered for a channel,
// from the start of its log, are exactly those of the log's messages.
func checkDelivered(log []*parleyv1.ChannelMessage, channel string, events []map[string]any) error {
	n := 0
	for _, e := range events {
		if e["channelId"] != channel || e["kind"] == "channel_state" || e["kind"] == "typing" {
			continue
		}
		if n == len(log) {
			return fmt.Errorf("an event beyond the log: %s", show(e))
		}
		m := log[n]
		want := map[string]any{"kind": "sent", "seq": m.GetSeq(), "message": map[string]any{
			"msgId": m.GetMsgId(), "content": m.GetContent(), "clientMsgId": m.GetClientMsgId(), "fromId": m.GetFromId(),
		}}
		if err := match(want, e); err != nil {
			return fmt.Errorf("event %d: %w", n+1, err)
		}
		n++
	}
	if n != len(log) {
		return fmt.Errorf("%d events, but the log holds %d messages", n, len(log))
	}
	return nil
}

// checkStarted returns an error if a subscription delivered an event of a channel that it never
// followed. started contains the channels that it followed at any time.
func checkStarted(started map[string]bool, events []map[string]any) error {
	for _, e := range events {
		if channel, _ := e["channelId"].(string); !started[channel] {
			return fmt.Errorf("an event of a channel that it does not follow: %s", show(e))
		}
	}
	return nil
}

// TestCheckFindsEachViolation checks that checkLog, checkDelivered and checkStarted find each kind
// of violation, and accept valid logs and events.
func TestCheckFindsEachViolation(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	log := func(contents ...string) []*parleyv1.ChannelMessage {
		var all []*parleyv1.ChannelMessage
		for i, c := range contents {
			all = append(all, &parleyv1.ChannelMessage{Seq: int64(i + 1), MsgId: "id " + c, ClientMsgId: "by " + c, Content: c})
		}
		return all
	}
	receipt := func(c string, seq int64, begun, ended int) sent {
		return sent{begun: at(begun), ended: at(ended), seq: seq, id: "id " + c, clientMsg: "by " + c, content: c}
	}
	a, b := receipt("a", 1, 1, 2), receipt("b", 2, 3, 4)
	for name, c := range map[string]struct {
		log      []*parleyv1.ChannelMessage
		receipts []sent
		ok       bool
	}{
		"valid":                {log("a", "b"), []sent{b, a}, true},
		"delivered twice":      {log("a", "b"), []sent{a, a, b}, true},
		"side by side":         {log("a", "b"), []sent{receipt("a", 1, 1, 9), receipt("b", 2, 1, 9)}, true},
		"empty":                {nil, nil, false},
		"lost":                 {log("a"), []sent{a, b}, false},
		"stored twice":         {log("a", "b", "b"), []sent{a, b}, false},
		"nobody's":             {log("a", "b", "c"), []sent{a, b}, false},
		"another content":      {log("a", "c"), []sent{a, b}, false},
		"in the wrong order":   {log("a", "b"), []sent{receipt("a", 1, 3, 4), receipt("b", 2, 1, 2)}, false},
		"a hole in the places": {[]*parleyv1.ChannelMessage{log("a")[0], {Seq: 3}}, []sent{a}, false},
	} {
		if err := checkLog(c.log, c.receipts); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	event := func(kind string, c string, seq int) map[string]any {
		m := map[string]any{"msgId": "id " + c, "clientMsgId": "by " + c, "content": c}
		return map[string]any{"kind": kind, "channelId": "room", "seq": seq, "message": m}
	}
	first, second := event("sent", "a", 1), event("sent", "b", 2)
	for name, c := range map[string]struct {
		events []map[string]any
		ok     bool
	}{
		"valid":   {[]map[string]any{event("channel_state", "", 0), first, event("channel_state", "", 1), second}, true},
		"lost":    {[]map[string]any{first}, false},
		"twice":   {[]map[string]any{first, second, second}, false},
		"swapped": {[]map[string]any{second, first}, false},
		"a gap":   {[]map[string]any{first, event("gap", "", 2)}, false},
	} {
		if err := checkDelivered(log("a", "b"), "room", c.events); (err == nil) != c.ok {
			t.Errorf("events: %s: %v", name, err)
		}
	}
	if err := checkStarted(map[string]bool{"room": true}, []map[string]any{first, second}); err != nil {
		t.Errorf("events of a channel followed: %v", err)
	}
	if err := checkStarted(map[string]bool{"other": true}, []map[string]any{first}); err == nil {
		t.Error("an event of a channel that is not followed was accepted")
	}
}
