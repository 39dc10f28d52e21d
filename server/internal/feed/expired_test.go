package feed_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// expire moves the boundary of a channel's log, and strips the entries before it.
func (r *rig) expire(channelID string, to message.Boundary) {
	r.t.Helper()
	rows := r.store.Channels()
	_, err := rows.Ensure(r.t.Context(), channelID, time.Now())
	if err == nil {
		_, err = rows.MoveBoundary(r.t.Context(), channelID, 0, to, time.Now())
	}
	if err == nil {
		err = r.store.Strip(r.t.Context(), channelID, 0, to.Oldest)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// An edit whose message has expired is published at its place, without content. An expired entry is
// not published again. Other messages follow.
func TestChangeOfAnExpiredMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	publisher := &fakePublisher{}
	r.newFeeder(r.store, publisher)
	first := r.send("c", "one")
	r.send("c", "two")
	edit := r.insert(cacheChangeOf(first, message.KindEdit, "secret"))
	r.send("c", "three")
	r.expire("c", message.Boundary{Oldest: 3, Expired: 2})
	lifecycletest.Start(t, r.feeder)
	events := publisher.wait(t, 2)
	if len(events) != 2 {
		t.Fatalf("%d events: %+v", len(events), events)
	}
	e := events[0]
	if e.Kind != message.KindExpired || !e.Passed || e.Seq != edit.Seq || e.Count != 2 || e.Message.ChannelID != "c" || e.Message.Content != "" || e.Time.IsZero() {
		t.Errorf("the edit: %+v", e)
	}
	if events[1].Message.Content != "three" || events[1].Kind != message.KindSend {
		t.Errorf("the message after it: %+v", events[1])
	}
	pending, err := r.store.Pending(t.Context(), "c")
	if err != nil || len(pending) > 0 {
		t.Errorf("pending %+v, %v", pending, err)
	}
}

// An access entry is published as one that only covers its position. It has its revision, and the
// events after it have theirs. The cache follows a log that begins with one.
func TestAccessEntriesArePublishedWithoutAMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	heard := r.listen("c")
	r.insert(message.Entry{Kind: message.KindAccess, Message: message.Message{ChannelID: "c", Rev: 1}})
	heard.wait(t, 1)
	r.insert(message.Entry{Message: message.Message{ChannelID: "c", FromID: "ann", MsgType: "text", Content: "one", Rev: 1}})
	r.insert(message.Entry{Kind: message.KindAccess, Message: message.Message{ChannelID: "c", Rev: 2}})
	r.insert(message.Entry{Message: message.Message{ChannelID: "c", FromID: "ann", MsgType: "text", Content: "two", Rev: 2}})
	heard.wait(t, 4)
	var got []string
	for _, e := range heard.all() {
		got = append(got, fmt.Sprintf("%d %s passed=%t rev=%d count=%d %s", e.Seq, e.Kind.Name(), e.Passed, e.Rev, e.Count, e.Message.Content))
	}
	if want := []string{
		"1 access passed=true rev=1 count=0 ", "2 insert passed=false rev=1 count=1 one",
		"3 access passed=true rev=2 count=1 ", "4 insert passed=false rev=2 count=2 two",
	}; !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
	r.waitMirror("c")
}

// The cache is built from the readable messages only, and not at all if there are none. A change of
// an expired message does not bring it back.
func TestCacheOfATrimmedLog(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	first := r.send("c", "secret one")
	r.send("c", "secret two")
	third := r.send("c", "three")
	r.waitMirror("c")
	r.expire("c", message.Boundary{Oldest: 3, Expired: 2})
	if err := r.cache.Drop(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	r.insert(cacheChangeOf(first, message.KindEdit, "secret edit"))
	r.send("c", "four")
	contents := func(want string) {
		t.Helper()
		testkit.Eventually(t, patience, func() error {
			var all []string
			for _, z := range r.raw("c") {
				text := fmt.Sprint(z.Member)
				for _, word := range []string{"secret", "three", "four", "five", "six"} {
					if strings.Contains(text, `"content":"`+word) {
						all = append(all, word)
					}
				}
			}
			if got := strings.Join(all, " "); got != want {
				return errors.New("cached: " + got)
			}
			return nil
		})
	}
	contents("three four")
	r.insert(cacheChangeOf(first, message.KindEdit, "secret again"))
	r.send("c", "five")
	contents("three four five")
	r.expire("c", message.Boundary{Oldest: r.end("c").seq + 1, Expired: 5})
	if err := r.cache.Drop(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	r.insert(cacheChangeOf(third, message.KindEdit, "secret last"))
	r.restartBuilder()
	r.send("c", "six")
	contents("six")
}
