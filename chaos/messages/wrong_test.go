package messages

import (
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// wrong is a change of the story that breaks a promise.
type wrong struct {
	want   chaos.Name
	name   string
	change func(s *story)
}

var wrongLogs = []wrong{
	{Loss, "an acknowledged message is not in the log", func(s *story) { s.drop(6) }},
	{Loss, "an acknowledged edit is not in the log", func(s *story) {
		s.op(Op{Client: "w", Kind: Edit, Begin: sec, Channel: channel, From: "author", ClientMsgID: "x", MsgID: "msg-a", Seq: 7})
	}},
	{Duplicate, "a client_msg_id is there twice", func(s *story) {
		e := *s.entry(6)
		e.Seq, e.Count, e.ChangedSeq, e.MsgID = 7, 5, 7, "msg-other"
		s.t.Entries = append(s.t.Entries, e)
	}},
	{Duplicate, "a repeat was given another place", func(s *story) {
		op := *s.asked(1)
		op.Begin, op.End, op.Repeat, op.Duplicate, op.Seq = 20*sec, 21*sec, true, true, 6
		s.op(op)
	}},
	{Duplicate, "a message id is there twice", func(s *story) { s.entry(4).MsgID = "msg-a" }},
	{Density, "a place is empty", func(s *story) { s.drop(4) }},
	{Density, "a place is taken twice", func(s *story) { s.entry(4).Seq = 3 }},
	{Count, "a count does not run", func(s *story) { s.entry(4).Count = 4 }},
	{Count, "an edit counts", func(s *story) { s.entry(3).Count = 3 }},
	{Order, "msg_time goes back", func(s *story) { s.entry(4).Time = s.entry(3).Time.Add(-time.Millisecond) }},
	{Order, "a later write stands before an acknowledged one", func(s *story) {
		s.asked(2).Begin, s.asked(2).End = 11*sec, 11*sec+1
	}},
	{Order, "an unknown write stands before one acknowledged before it began", func(s *story) {
		s.asked(2).Begin, s.asked(2).Outcome = 11*sec, chaos.Unknown
	}},
	{Unsent, "an entry that nobody asked for", func(s *story) { s.asked(4).ClientMsgID = "other" }},
	{Unsent, "another text", func(s *story) { s.entry(4).Content = "other" }},
	{Unsent, "other metadata", func(s *story) { s.entry(4).Metadata = map[string]string{"k": "other"} }},
	{Changed, "an applied edit has its text", func(s *story) { s.entry(3).Content = text1("a2") }},
	{Changed, "an edit is pending", func(s *story) { s.entry(3).Pending = true }},
	{Unsent, "an edit of another message", func(s *story) { s.entry(3).TargetSeq = 4 }},
	{StoredAfterError, "a refused write is stored", func(s *story) { s.asked(4).Outcome = chaos.Failed }},
	{Prefix, "an item of a batch is stored, and one before it is not", func(s *story) {
		s.op(Op{
			Client: "w", Kind: Send, Begin: sec, Channel: channel, From: "author", ClientMsgID: "x", Outcome: chaos.Unknown, Batch: 1, Item: 0,
		})
		s.asked(4).Batch, s.asked(4).Item = 1, 1
	}},
	{Prefix, "items of a batch are out of order", func(s *story) {
		s.asked(1).Batch, s.asked(1).Item = 1, 1
		s.asked(2).Batch, s.asked(2).Item = 1, 0
	}},
}

var wrongAnswers = []wrong{
	{Clock, "a message has a time before it was sent", func(s *story) { s.h.Began = s.asked(6).TimeMS*1e6 - s.asked(6).Begin + 2*sec }},
	{Clock, "a message has a time after it was sent", func(s *story) { s.h.Began = s.asked(6).TimeMS*1e6 - s.asked(6).End - 2*sec }},
	{Duplicate, "another seq was told", func(s *story) { s.asked(6).Seq = 5 }},
	{WrongResponse, "another count was told", func(s *story) { s.asked(6).Count = 5 }},
	{WrongResponse, "another message id was told", func(s *story) { s.asked(6).MsgID = "other" }},
	{WrongResponse, "another time was told", func(s *story) { s.asked(6).TimeMS++ }},
	{WrongResponse, "another epoch was told", func(s *story) { s.asked(6).Epoch = "e2" }},
	{WrongResponse, "a page told another epoch", func(s *story) { s.lastPage().Epoch = "e2" }},
	{WrongResponse, "a message was read with another epoch", func(s *story) { s.got().Epoch = "e2" }},
	{WrongResponse, "a read cursor was told with another epoch", func(s *story) {
		s.op(Op{Client: "r", Kind: MarkRead, Begin: 13 * sec, Channel: channel, From: "author", Seq: 6, Epoch: "e2"})
	}},
	{WrongResponse, "a second recall was told another place", func(s *story) {
		op := *s.asked(5)
		op.ClientMsgID, op.Begin, op.End, op.Duplicate, op.Seq = "b3", 20*sec, 21*sec, true, 3
		s.op(op)
	}},
	{WrongResponse, "a second recall was told another time", func(s *story) {
		op := *s.asked(5)
		op.ClientMsgID, op.Begin, op.End, op.Duplicate, op.TimeMS = "b3", 20*sec, 21*sec, true, op.TimeMS+1
		s.op(op)
	}},
	{WrongResponse, "an edit was answered with the message as it was", func(s *story) { s.asked(3).Copies = []int{s.first(1)} }},
	{WrongResponse, "a recall was answered with the text", func(s *story) { s.asked(5).Copies = []int{s.first(2)} }},
	{WrongCopy, "an edit was answered with another message", func(s *story) { s.asked(3).Copies = []int{s.now(4)} }},
	{WrongCopy, "a recall was answered with a text that never was", func(s *story) {
		s.asked(5).Copies = []int{s.copy(2, 5, StatusRecalled, "other", nil)}
	}},
	{chaos.Liveness, "a call outlived its deadline", func(s *story) {
		s.asked(6).Limit, s.asked(6).End = 5*sec, s.asked(6).Begin+9*sec
	}},
	{chaos.Liveness, "a call failed though nothing was broken", func(s *story) {
		s.lastPage().Final, s.lastPage().Outcome = true, chaos.Unknown
	}},
	{chaos.Liveness, "a restart of the nodes in turn cost a call of a client that knows them all", func(s *story) {
		s.h.Faults = append(s.h.Faults, chaos.Fault{Name: string(chaos.Roll), Target: "all", Begin: 0, End: 40 * sec})
		s.asked(6).Addr, s.asked(6).Outcome, s.asked(6).Limit = "n1,n2", chaos.Unknown, 60*sec
	}},
	{chaos.Liveness, "a full disk of Redis cost a call of a client that knows all nodes", func(s *story) {
		s.h.Faults = append(s.h.Faults, chaos.Fault{Name: string(chaos.RedisDisk), Target: "redis", Begin: 0, End: 40 * sec})
		s.asked(6).Addr, s.asked(6).Outcome, s.asked(6).Limit = "n1,n2", chaos.Unknown, 60*sec
	}},
	{chaos.Crash, "a node ended on its own", func(s *story) { s.h.Exits = append(s.h.Exits, chaos.Exit{Node: "n1", At: 1}) }},
}

var wrongReads = []wrong{
	{WrongCopy, "a text of another changed_seq", func(s *story) { s.h.Copies[s.lastPage().Copies[0]].ChangedSeq = 1 }},
	{WrongCopy, "a changed_seq that changed nothing", func(s *story) { s.h.Copies[s.lastPage().Copies[0]].ChangedSeq = 4 }},
	{WrongCopy, "another sender", func(s *story) { s.h.Copies[s.lastPage().Copies[0]].From = "other" }},
	{WrongCopy, "metadata of a recalled message", func(s *story) {
		s.h.Copies[s.lastPage().Copies[1]].Metadata = map[string]string{"k": "b"}
	}},
	{WrongCopy, "another message than asked for", func(s *story) { s.got().Copies[0] = s.now(1) }},
	{Hole, "a page misses a message in the middle", func(s *story) {
		s.lastPage().Copies = append(s.lastPage().Copies[:2:2], s.lastPage().Copies[3])
	}},
	{Hole, "a page down misses its newest message but one", func(s *story) {
		s.newestPage().Copies[1] = s.now(2)
	}},
	{Hole, "a page misses its first message", func(s *story) { s.lastPage().Copies = s.lastPage().Copies[1:] }},
	{StaleRead, "a page misses the newest message", func(s *story) {
		op := s.page("r", 20*sec, 0, unset, false, 1, 2, 4)
		op.Head = 6
	}},
	{StaleRead, "a page down misses the newest message", func(s *story) {
		op := s.page("r", 20*sec, unset, unset, false)
		op.Copies = nil
	}},
	{StaleRead, "the head is old", func(s *story) { s.lastPage().Head = 5; s.lastPage().Begin = 20 * sec }},
	{StaleRead, "a page is older than min_seq", func(s *story) {
		op := s.page("r", s.asked(4).Begin, 0, unset, false, 1, 2)
		op.MinSeq, op.Copies[0], op.Copies[1] = 4, s.now(1), s.first(2)
	}},
	{StaleRead, "min_seq is said to be beyond the log", func(s *story) {
		op := s.page("r", 13*sec, unset, unset, false)
		op.Outcome, op.Code, op.MinSeq = chaos.Failed, "out_of_range", 6
	}},
	{StaleRead, "an acknowledged message is not found", func(s *story) {
		s.got().Outcome, s.got().Code, s.got().Copies = chaos.Failed, "not_found", nil
	}},
	{StaleRead, "a page says that it is the last and is not", func(s *story) { s.newestPage().More = false }},
	{StaleEdit, "a page shows the text before an edit", func(s *story) { s.lastPage().Copies[0] = s.first(1) }},
	{StaleEdit, "a page with min_seq shows the text before that edit", func(s *story) {
		op := s.page("r", s.asked(3).End, unset, unset, false, 2, 1)
		op.MinSeq, op.Head, op.Copies = 3, 3, []int{s.first(2), s.first(1)}
	}},
	{StaleEdit, "a page shows the text before an edit that its head is beyond", func(s *story) {
		op := s.page("r", s.asked(3).End-sec/20, unset, unset, false, 2, 1)
		op.Head, op.Copies = 3, []int{s.first(2), s.first(1)}
	}},
	{StaleEdit, "a message is shown as it was before an edit", func(s *story) {
		op := s.op(Op{Client: "r", Kind: Get, Begin: 13 * sec, Channel: channel, MsgID: "msg-a"})
		op.Copies = []int{s.first(1)}
	}},
	{Recalled, "a page shows a text that was recalled", func(s *story) { s.lastPage().Copies[1] = s.first(2) }},
	{Recalled, "a message is shown with the text that was recalled", func(s *story) { s.got().Copies[0] = s.first(2) }},
	{Loss, "a head beyond the log was told", func(s *story) { s.lastPage().Head = 7 }},
}

var wrongStreams = []wrong{
	{Hole, "an entry is missing", func(s *story) { s.delivery(1, 3).Life = 9 }},
	{Hole, "the first entry is missing", func(s *story) { s.delivery(2, 1).Life = 9 }},
	{Hole, "an event covers a message that did not come", func(s *story) {
		s.delivery(2, 4).Life, s.delivery(2, 5).From = 9, 4
	}},
	{Hole, "an event covers an edit that nothing replaced", func(s *story) {
		s.delivery(2, 3).Life, s.delivery(2, 4).From = 9, 3
	}},
	{Hole, "an event covers a recall", func(s *story) { s.delivery(2, 5).Life, s.delivery(2, 6).From = 9, 5 }},
	{WrongCopy, "an event does not say from where on it covers", func(s *story) { s.delivery(1, 4).From = 0 }},
	{WrongCopy, "an event covers from an entry after its own on", func(s *story) { s.delivery(1, 4).From = 5 }},
	{Repeat, "an entry comes twice", func(s *story) { s.deliver(1, 10*sec, 3) }},
	{Repeat, "entries are out of order", func(s *story) { s.delivery(1, 3).At, s.delivery(1, 4).At = 9*sec, 7*sec }},
	{Hole, "an entry comes before the state", func(s *story) {
		s.h.Lives = append(s.h.Lives, Life{ID: 3, Client: "live", Channel: channel, After: unset})
		s.deliver(3, 13*sec, 6)
	}},
	{WrongCopy, "an edit comes as a message", func(s *story) { s.delivery(1, 3).Event = EventSent }},
	{WrongCopy, "a recall comes with the message as it was before", func(s *story) { s.delivery(1, 5).Copy = s.first(2) }},
	{WrongCopy, "an entry comes with another message", func(s *story) { s.delivery(1, 4).Copy = s.now(6) }},
	{StaleEdit, "a replay shows the text before an edit", func(s *story) { s.delivery(2, 1).Copy = s.first(1) }},
	{Recalled, "a replay shows a text that was recalled", func(s *story) { s.delivery(2, 2).Copy = s.first(2) }},
	{Recalled, "a live event brings a text long after its recall", func(s *story) {
		for seq := int64(2); seq <= 6; seq++ {
			s.delivery(1, seq).At = 30*sec + seq
		}
	}},
	{Recalled, "a node that was not the one which stood still brings a text long after its recall", func(s *story) {
		s.h.Faults = append(s.h.Faults, chaos.Fault{Name: "node-stop", Target: "n2", Begin: 9 * sec, End: 30 * sec, Holds: true})
		for seq := int64(2); seq <= 6; seq++ {
			s.delivery(1, seq).At = 30*sec + seq
		}
	}},
	{Gap, "entries can't be had", func(s *story) {
		s.h.Deliveries = append(s.h.Deliveries, Delivery{Life: 2, At: 14 * sec, Event: EventGap, Seq: 6, Copy: unset})
	}},
	{Gap, "a state has an oldest entry that is not the first", func(s *story) {
		s.life("r", 20*sec, 0)
		s.h.Deliveries[len(s.h.Deliveries)-1].Oldest = 2
	}},
	{Gap, "a state has messages that are gone", func(s *story) {
		s.life("r", 20*sec, 0)
		s.h.Deliveries[len(s.h.Deliveries)-1].Expired = 1
	}},
	{Gap, "a replay is not whole", func(s *story) {
		for i := range s.h.Deliveries {
			s.h.Deliveries[i].Recovered = false
		}
	}},
	{Behind, "a subscriber misses the end", func(s *story) { s.delivery(1, 6).Life = 9 }},
	{Behind, "a subscriber never began", func(s *story) {
		s.h.Lives = append(s.h.Lives, Life{ID: 3, Client: "live", Channel: channel, After: unset})
	}},
	{StaleRead, "a state is older than what was acknowledged", func(s *story) {
		s.life("r", 20*sec, 0)
		s.h.Deliveries[len(s.h.Deliveries)-1].Head = 5
	}},
	{Count, "a state tells another count", func(s *story) {
		s.life("r", 20*sec, 0)
		s.h.Deliveries[len(s.h.Deliveries)-1].Count = 5
	}},
	{Loss, "a state has a head beyond the log", func(s *story) {
		s.life("r", 20*sec, 0)
		s.h.Deliveries[len(s.h.Deliveries)-1].Head = 7
	}},
	{WrongResponse, "a state tells another epoch", func(s *story) {
		s.life("r", 20*sec, 0)
		s.h.Deliveries[len(s.h.Deliveries)-1].Epoch = "e2"
	}},
	{Loss, "an entry beyond the log was delivered", func(s *story) { s.delivery(1, 6).Seq = 7 }},
}

var wrongStores = []wrong{
	{Memory, "a node's heap is too large", func(s *story) { s.h.Usages[0].Heap++ }},
	{Memory, "a node counts bytes of clients that have gone", func(s *story) { s.h.Usages[0].Unread = 1 }},
	{Memory, "a node could not be asked", func(s *story) { s.h.Usages[0].Err = "gone" }},
	{OverBudget, "calls cost too many round trips", func(s *story) { s.h.Costs[0].RoundTrips = 1000 }},
	{chaos.Unobserved, "cost was not measured", func(s *story) { s.h.Costs = nil }},
	{chaos.Unobserved, "memory was not measured", func(s *story) { s.h.Usages = nil }},
	{Unpublished, "the change stream lacks an entry", func(s *story) { s.t.Published = s.t.Published[1:] }},
	{Unpublished, "the change stream dropped events, and had space", func(s *story) { s.t.Published, s.t.Dropped = s.t.Published[1:], 1 }},
	{Unpublished, "the change stream dropped events that it got after it was full", func(s *story) {
		s.fillStream()
		s.t.Published, s.t.Dropped = s.t.Published[5:], 5
	}},
	{Unpublished, "the full change stream has nothing of a channel, not even what came last", func(s *story) {
		s.fillStream()
		s.t.Published = s.t.Published[1:2]
		s.t.Published[0].Channel = "elsewhere"
	}},
	{Unpublished, "the full change stream lacks an entry after one that it has", func(s *story) {
		s.fillStream()
		s.t.Published = append(s.t.Published[1:2:2], s.t.Published[3:]...)
	}},
	{WrongCopy, "another text was published", func(s *story) { s.t.Published[3].Content = "other" }},
	{WrongCopy, "an edit was published as a message", func(s *story) { s.t.Published[2].Event = "insert" }},
	{WrongCopy, "a recall was published with the message as it was before", func(s *story) {
		p := &s.t.Published[4]
		p.Status, p.ChangedSeq, p.Content, p.Metadata = StatusSent, 2, text1("b"), map[string]string{"k": "b"}
	}},
	{Loss, "an entry beyond the log was published", func(s *story) { s.t.Published[5].Seq = 7 }},
	{Recalled, "a text was published long after its recall", func(s *story) {
		p := s.t.Published[1]
		p.At += 60 * sec
		s.t.Published = append(s.t.Published, p)
	}},
	{Behind, "a subscriber was not level in time", func(s *story) {
		s.h.Lates = append(s.h.Lates, Late{Client: "x", Channel: channel, Seq: 5, Head: 6, Since: "now"})
	}},
	{Recalled, "a recalled message has its text", func(s *story) { s.entry(2).Content = text1("b") }},
	{Recalled, "a recalled message has its metadata", func(s *story) { s.entry(2).Metadata = map[string]string{"k": "b"} }},
	{Recalled, "a recalled message has its digest", func(s *story) { s.entry(2).Digest = []byte{1} }},
	{Recalled, "the text of a recalled message lies somewhere", func(s *story) { s.t.Marks["b"] = []string{"Redis x"} }},
	{Recalled, "an edit of a recalled message has its text", func(s *story) {
		s.entry(3).TargetSeq, s.entry(3).MsgID, s.asked(3).MsgID = 2, "msg-b", "msg-b"
		s.entry(3).Content = text1("a2")
	}},
	{Changed, "an edit was not applied", func(s *story) {
		s.entry(1).ChangedSeq, s.entry(1).Status, s.entry(1).Content = 1, StatusSent, text1("a")
	}},
	{Changed, "an edit's text is not the message's", func(s *story) { s.entry(1).Content = "other" }},
	{Changed, "the status is another", func(s *story) { s.entry(1).Status = StatusSent }},
	{Changed, "a recalled message was edited", func(s *story) {
		s.entry(3).TargetSeq, s.entry(3).MsgID, s.asked(3).MsgID = 2, "msg-b", "msg-b"
		s.entry(5).Seq, s.entry(3).Seq = 3, 5
	}},
	{Hole, "the cached set has a hole", func(s *story) { s.uncache(4) }},
	{Hole, "the cached set lacks its last message", func(s *story) { s.uncache(6) }},
	{Cache, "the cached set has another text", func(s *story) {
		v := s.cached(4)
		v.Value = strings.Replace(v.Value, "text\"", "other\"", 1)
	}},
	{Cache, "a score is another", func(s *story) { s.cached(4).Score = 7 }},
	{Cache, "a value is no value", func(s *story) { s.cached(4).Value = "x" }},
	{Cache, "the cached set has no state", func(s *story) { s.uncache(0) }},
	{Cache, "a change is not marked", func(s *story) { s.uncache(-5) }},
	{Cache, "a mark names another change", func(s *story) { s.cached(-5).Score = -4 }},
	{Cache, "a change of a message that is not cached is unknown", func(s *story) { s.uncache(1); s.uncache(2); s.uncache(-5); s.uncache(-3) }},
	{Cache, "the cached set is of another epoch", func(s *story) { s.t.Epoch = "e2" }},
	{Behind, "the cached set ends early", func(s *story) {
		v := s.cached(0)
		v.Value = strings.Replace(v.Value, "\"seq\":6,", "\"seq\":5,", 1)
	}},
}

// cached returns the cached value at a score, uncache removes it.
func (s *story) cached(score int64) *CachedValue {
	for i := range s.t.Cache[channel] {
		if v := &s.t.Cache[channel][i]; v.Score == score {
			return v
		}
	}
	s.Fatalf("nothing is cached at %d", score)
	return nil
}

func (s *story) uncache(score int64) {
	s.t.Cache[channel] = slices.DeleteFunc(s.t.Cache[channel], func(v CachedValue) bool { return v.Score == score })
}
