package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/message"
)

var openContracts = []channelContract{
	{"OpenMessagesAreOldestFirst", openOrder},
	{"ClosedMessagesAreNotOpen", openClosed},
	{"RecalledMessagesAreNotOpen", openRecalled},
	{"ExpiredMessagesAreNotOpen", openExpired},
	{"MessagesOfADeletedChannelAreNotOpen", openDeleted},
}

// allShards are the shards of a place's store.
var allShards = []int{0, 1, 2, 3} //nolint:gochecknoglobals // a constant

// ever is after the time of every entry.
var ever = epochStart.AddDate(1, 0, 0) //nolint:gochecknoglobals // a constant

// wantOpen fails the test unless these are the open messages of all shards, in this order.
func (c *channels) wantOpen(t tester, want ...message.Entry) {
	t.Helper()
	want = slices.Clone(want)
	for i := range want {
		c.place.settle(t, want[i].ChannelID)
		want[i] = bare(want[i])
	}
	got, err := c.place.OpenMessages(t.Context(), allShards, time.Time{}, ever, 100)
	must(t, err)
	equal(t, "open messages", want, got)
}

// openOrder opens messages of several shards, of which some have the same time.
func openOrder(t *testing.T, c *channels) {
	c.wantOpen(t)
	var want []message.Entry
	for shard := range shards {
		for _, d := range draftsOf(shard, 2) {
			open, sent := d.opened("open"), d.send("sent")
			later := d.opened("later")
			c.place.insert(t, open, sent, later)
			want = append(want, bare(open), bare(later))
		}
	}
	slices.SortFunc(want, byOpening)
	for range 2 {
		c.wantOpen(t, want...)
		for limit := range len(want) + 2 {
			got, err := c.place.OpenMessages(t.Context(), allShards, time.Time{}, ever, limit)
			must(t, err)
			equal(t, fmt.Sprintf("at most %d", limit), want[:min(limit, len(want))], got)
		}
		c.wantOpenWithin(t, want)
		for shard := range shards {
			got, err := c.place.OpenMessages(t.Context(), []int{shard}, time.Time{}, ever, 100)
			must(t, err)
			equal(t, fmt.Sprint("of shard ", shard), slices.DeleteFunc(slices.Clone(want), func(e message.Entry) bool {
				return message.Shard(e.ChannelID, shards) != shard
			}), got)
		}
		got, err := c.place.OpenMessages(t.Context(), nil, time.Time{}, ever, 100)
		must(t, err)
		equal(t, "of no shard", nil, got)
		c.reopen(t)
	}
}

// wantOpenWithin checks the result for times around those of the open messages.
func (c *channels) wantOpenWithin(t tester, open []message.Entry) {
	t.Helper()
	for i := range open {
		for _, by := range []time.Duration{-time.Millisecond, 0, time.Microsecond, time.Millisecond} {
			bound := open[i].MsgTime.Add(by)
			got, err := c.place.OpenMessages(t.Context(), allShards, time.Time{}, bound, 100)
			must(t, err)
			equal(t, fmt.Sprint("before ", bound), slices.DeleteFunc(slices.Clone(open), func(e message.Entry) bool {
				return !e.MsgTime.Before(bound)
			}), got)
			got, err = c.place.OpenMessages(t.Context(), allShards, bound, ever, 100)
			must(t, err)
			equal(t, fmt.Sprint("from ", bound), slices.DeleteFunc(slices.Clone(open), func(e message.Entry) bool {
				return e.MsgTime.Before(bound)
			}), got)
		}
	}
}

// bare returns an entry as OpenMessages does.
func bare(e message.Entry) message.Entry {
	e.Content, e.Metadata = "", nil
	return e
}

func byOpening(a, b message.Entry) int {
	return cmp.Or(a.MsgTime.Compare(b.MsgTime), strings.Compare(a.ChannelID, b.ChannelID), cmp.Compare(a.Seq, b.Seq))
}

func openClosed(t *testing.T, c *channels) {
	for _, kind := range []message.Kind{message.KindComplete, message.KindCancel, message.KindFail} {
		d := &draft{channel: "lobby-" + kind.Name()}
		open := d.opened("")
		c.place.insert(t, open)
		c.wantOpen(t, open)
		end, late := d.closing(kind, &open, "text"), d.closing(message.KindFail, &open, "late")
		c.place.insert(t, end, late)
		c.place.apply(t, end, late, end)
		c.wantOpen(t)
	}
	// Both in one call of Apply.
	d := &draft{channel: "lobby"}
	open := d.opened("")
	end := d.closing(message.KindComplete, &open, "text")
	recall := d.recall(&open)
	c.place.insert(t, open, end, recall)
	must(t, c.place.Apply(t.Context(), &end, &recall))
	c.wantOpen(t)
}

func openRecalled(t *testing.T, c *channels) {
	d := &draft{channel: "lobby"}
	first, second, third := d.opened("a"), d.opened("b"), d.opened("c")
	c.place.insert(t, first, second, third)
	recall, erase := d.recall(&first), d.erase(&second)
	c.place.insert(t, recall, erase)
	c.place.apply(t, recall, erase)
	c.wantOpen(t, third)
	c.reopen(t)
	c.wantOpen(t, third)
}

func openExpired(t *testing.T, c *channels) {
	d := &draft{channel: "lobby"}
	log := []message.Entry{d.opened("a"), d.opened("b"), d.opened("c"), d.send("d")}
	c.place.insert(t, log...)
	c.expire(t, "lobby", 3, 2)
	must(t, c.place.Strip(t.Context(), "lobby", 0, 3))
	c.wantOpen(t, log[2])
	must(t, c.place.Delete(t.Context(), "lobby", 0, 3))
	c.wantOpen(t, log[2])
	end := d.closing(message.KindComplete, &log[0], "late")
	c.place.insert(t, end)
	c.place.apply(t, end)
	c.wantOpen(t, log[2])
}

func openDeleted(t *testing.T, c *channels) {
	d, o := &draft{channel: "lobby"}, &draft{channel: "lobby-"}
	log, other := []message.Entry{d.opened("a"), d.opened("b")}, o.opened("c")
	c.place.insert(t, log...)
	c.place.insert(t, other)
	c.ensure(t, "lobby", 1)
	c.delete(t, "lobby", 0)
	c.moveBoundary(t, "lobby", 1, message.Boundary{Oldest: 3, Expired: 2})
	must(t, c.place.Clear(t.Context(), "lobby", 0, 3))
	c.wantOpen(t, other)
	c.finish(t, "lobby")
	_, err := c.Create(t.Context(), channel.Row{ChannelID: "lobby", CreatedAt: at(30)}, []string{"ann"})
	must(t, err)
	again := d.opened("again")
	c.place.insert(t, again)
	c.wantOpen(t, other, again)
}

// checkOpen compares the open messages of this run's channels with the model.
func (m *machine) checkOpen(t *rapid.T) {
	var want, got []message.Entry
	for _, id := range m.channels {
		m.settle(t, id)
		for _, e := range m.model.logs[id] {
			if e.Kind == message.KindSend && e.Status == message.StatusOpen {
				want = append(want, bare(e))
			}
		}
	}
	found, err := m.OpenMessages(t.Context(), []int{m.shard}, time.Time{}, ever, 1<<20)
	must(t, err)
	for i := range found {
		if slices.Contains(m.channels, found[i].ChannelID) {
			got = append(got, found[i])
		}
	}
	slices.SortFunc(want, byOpening)
	m.same(t, "open messages", want, got)
}
