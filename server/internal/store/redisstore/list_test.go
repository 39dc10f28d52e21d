package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// TestListIsOfTheSeedsForm checks the type, the values and the expiry of a session's list as other
// programs see them: the state, then the messages as JSON, the oldest first.
func TestListIsOfTheSeedsForm(t *testing.T) {
	t.Parallel()
	b := setup(t, layouts["list"], CacheConfig{Keep: 3})
	b.replace(t, messages(1, 2)...)
	b.append(t, 3, inserts(3, 5)...)
	if got := b.client.Type(t.Context(), "chat:session:room:messages").Val(); got != "list" {
		t.Errorf("the key has the type %q", got)
	}
	values := b.client.LRange(t.Context(), "chat:session:room:messages", 0, -1).Val()
	want := []string{message.CachedHead(epoch) + `5,"count":5,"unknown":0,"bytes":`}
	for _, m := range messages(3, 5) {
		value, err := json.Marshal(message.Cached{Epoch: epoch, Message: m})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(value))
	}
	if len(values) > 0 {
		values[0] = values[0][:min(len(values[0]), len(want[0]))] // without the number of bytes
	}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Error(diff)
	}
	b.expires(t, 24*time.Hour)
}

// TestClosesReplaceTheirTargets checks that a close puts the final message in the place of the open
// one, in a set of any layout, and does not renew the expiry.
func TestClosesReplaceTheirTargets(t *testing.T) {
	t.Parallel()
	onLayouts(t, func(t *testing.T, l *testLayout) {
		for _, kind := range []message.Kind{message.KindComplete, message.KindCancel, message.KindFail} {
			b := setup(t, l, CacheConfig{})
			b.replace(t, messages(1, 2)...)
			open := insert(3)
			open.Message.Status = message.StatusOpen
			b.append(t, 2, open, insert(4))
			b.age(t)
			closed := change(5, 3, kind, "the answer")
			b.append(t, 1, closed)
			b.rawIs(t, sent(1, "text of 1"), sent(2, "text of 2"), closed.Message, sent(4, "text of 4"))
			b.expires(t, time.Hour)
			page, err := b.cache.Page(t.Context(), room, message.Range{After: 4, Limit: 9})
			if err != nil || len(page.Events) != 1 || page.Events[0].Kind != kind || page.Events[0].Seq != 5 {
				t.Errorf("the events after the open message are %+v, %v", page.Events, err)
			}
		}
	})
}

// TestInvalidListsAreIgnored checks that a list that lacks messages, or has anything else in it, is
// no page.
func TestInvalidListsAreIgnored(t *testing.T) {
	t.Parallel()
	good := func(seq int64) string {
		value, err := json.Marshal(message.Cached{Epoch: epoch, Message: sent(seq, "x")})
		if err != nil {
			t.Fatal(err)
		}
		return string(value)
	}
	state := message.CachedHead(epoch) + `3,"count":3,"unknown":0,"bytes":300}`
	foreign := strings.Replace(good(2), epoch, "other", 1)
	for name, values := range map[string][]any{
		"garbage in the middle":   {state, good(1), "{", good(3)},
		"garbage at the end":      {state, good(1), good(2), "null"},
		"a hole":                  {state, good(1), good(3)},
		"a hole near the end":     {state, good(1), good(2), good(3), good(4), good(5), good(6), good(8)},
		"a hole and a repeat":     {state, good(1), good(3), good(3)},
		"the wrong order":         {state, good(2), good(1), good(3)},
		"the wrong order inside":  {state, good(1), good(3), good(2), good(4)},
		"another epoch inside":    {state, good(1), foreign, good(3)},
		"no state":                {good(1), good(2), good(3)},
		"a state without numbers": {"{}", good(1), good(2), good(3)},
		"a state that is no JSON": {"x", good(1), good(2), good(3)},
		"only a state":            {state},
	} {
		b := setup(t, layouts["list"], CacheConfig{})
		if err := b.client.RPush(t.Context(), b.key, values...).Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range []message.Range{{Limit: 10}, {Limit: 1, Desc: true, MessagesOnly: true}} {
			if r.Desc && !strings.HasPrefix(name, "a hole") {
				continue // what is wrong is not in the page; only the number of messages shows a hole beside it
			}
			page, err := b.cache.Page(t.Context(), room, r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(message.CachedPage{}, page); diff != "" {
				t.Errorf("%s, %+v: %s", name, r, diff)
			}
		}
	}
}

// fakeTexts records what was dropped.
type fakeTexts struct{ dropped []string }

func (f *fakeTexts) Drop(_ context.Context, channelID string, msgIDs ...string) error {
	f.dropped = append(f.dropped, channelID+" "+strings.Join(msgIDs, ","))
	return nil
}

// TestRouterDropsTexts checks that the texts of messages are dropped that are no longer open, also
// if the list lacks the message, and no others.
func TestRouterDropsTexts(t *testing.T) {
	t.Parallel()
	client := testkit.Redis(t).Client(t)
	sessions, err := NewSessionCache(client, CacheConfig{})
	if err != nil {
		t.Fatal(err)
	}
	channels, err := NewCache(client, CacheConfig{})
	if err != nil {
		t.Fatal(err)
	}
	texts := &fakeTexts{}
	router := Router{Channels: channels, Sessions: sessions, OpenTexts: texts}
	change := func(seq int64, sent bool, status message.Status) feed.CacheChange {
		return feed.CacheChange{Seq: seq, Count: 1, Sent: sent, Message: message.Message{MsgID: fmt.Sprint("m", seq), Seq: seq, Status: status}}
	}
	if _, err := router.Append(t.Context(), []feed.ChannelChanges{
		{ChannelID: "~s", Epoch: epoch, Changes: []feed.CacheChange{
			change(1, true, message.StatusOpen), change(2, false, message.StatusComplete), change(3, true, message.StatusSent),
			change(4, false, message.StatusRecalled), change(5, false, message.StatusOpen),
		}},
		{ChannelID: "room", Epoch: epoch, Changes: []feed.CacheChange{change(1, false, message.StatusRecalled)}},
		{ChannelID: "~t", Epoch: epoch, Changes: []feed.CacheChange{change(1, true, message.StatusOpen)}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"~s", "room"} {
		if err := router.Drop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"~s m2,m4"}, texts.dropped); diff != "" {
		t.Error(diff)
	}
}

// TestRouterPicksByChannel checks that every call reaches the layout of its channel, and that runs
// of both get their own results.
func TestRouterPicksByChannel(t *testing.T) {
	t.Parallel()
	client := testkit.Redis(t).Client(t)
	channels, err := NewCache(client, CacheConfig{Keep: 5})
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := NewSessionCache(client, CacheConfig{Keep: 7})
	if err != nil {
		t.Fatal(err)
	}
	router := Router{Channels: channels, Sessions: sessions}
	for id, want := range map[string]int{room: 5, "~" + room: 7} {
		if n, _ := router.Limits(id); n != want {
			t.Errorf("%s keeps %d messages", id, n)
		}
		replace(t, router, id, logOf(messages(1, 9)...))
	}
	var runs []feed.ChannelChanges
	for i, id := range []string{"~absent", room, "absent", "~" + room} {
		runs = append(runs, feed.ChannelChanges{ChannelID: id, Epoch: epoch, Changes: inserts(10, 10+int64(i))})
	}
	done, err := router.Append(t.Context(), runs)
	if diff := cmp.Diff([]int{0, 2, 0, 4}, done); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	for id, want := range map[string]int{room: 5, "~" + room: 7} {
		page, err := router.Page(t.Context(), id, message.Range{Limit: 99})
		if err != nil || len(page.Events) != want {
			t.Errorf("%s has %d messages, %v", id, len(page.Events), err)
		}
		if err := router.Drop(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if n := client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}
