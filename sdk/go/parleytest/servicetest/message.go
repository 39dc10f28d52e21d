package servicetest

import (
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/prototext"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

var (
	idReused   = refusal{connect.CodeAlreadyExists, "CLIENT_MSG_ID_REUSED", "client_msg_id", 0}
	noMessage  = refusal{connect.CodeNotFound, "MESSAGE_NOT_FOUND", "msg_id", 0}
	isRecalled = refusal{connect.CodeFailedPrecondition, "MESSAGE_RECALLED", "", 0}
	notSender  = refusal{connect.CodePermissionDenied, "NOT_SENDER", "", 0}
)

// say sends a message and returns its receipt.
func (e *env) say(c *caller, channel, content string) *parleyv1.SendMessageResponse {
	e.Helper()
	r, err := c.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: channel, Content: content})
	e.no(err)
	return r
}

func (e *env) get(c *caller, channel, msgID string) *parleyv1.ChannelMessage {
	e.Helper()
	r, err := c.GetMessage(e.ctx, &parleyv1.GetMessageRequest{ChannelId: channel, MsgId: msgID})
	e.no(err)
	return r.GetMessage()
}

func send(e *env) {
	channel := e.name("room")
	first, err := e.ann.SendMessage(e.ctx, &parleyv1.SendMessageRequest{
		ChannelId: channel, Content: "one", ClientMsgId: "id-1", MsgType: "note", Metadata: map[string]string{"k": "v"},
	})
	e.no(err)
	second := e.say(e.bob, channel, "two")
	equal(e, "the first place", first.GetSeq()*10+first.GetCount(), 11)
	equal(e, "the second place", second.GetSeq()*10+second.GetCount(), 22)
	equal(e, "epochs", second.GetEpoch(), first.GetEpoch())
	equal(e, "client_msg_id", first.GetClientMsgId(), "id-1")
	if first.GetEpoch() == "" || second.GetClientMsgId() == "" || first.GetMsgId() == second.GetMsgId() || first.GetDuplicate() {
		e.Errorf("receipts %v, %v", first, second)
	}
	if second.GetMsgTime().AsTime().Before(first.GetMsgTime().AsTime()) {
		e.Errorf("times %v, %v", first.GetMsgTime(), second.GetMsgTime())
	}
	m := e.get(e.bob, channel, first.GetMsgId())
	equal(e, "the stored message", prototext.Format(m), prototext.Format(&parleyv1.ChannelMessage{
		MsgId: first.GetMsgId(), ChannelId: channel, Seq: 1, Count: 1, FromId: e.ann.user, MsgType: "note", Content: "one",
		Metadata: map[string]string{"k": "v"}, ClientMsgId: "id-1", MsgTime: first.GetMsgTime(),
		Status: parleyv1.MessageStatus_MESSAGE_STATUS_SENT, ChangedSeq: 1,
	}))
	equal(e, "the default type", e.get(e.ann, channel, second.GetMsgId()).GetMsgType(), "text")
	_, err = e.ann.GetMessage(e.ctx, &parleyv1.GetMessageRequest{ChannelId: channel, MsgId: "nothing"})
	e.refused("another id", err, noMessage)
}

func sendAgain(e *env) {
	channel := e.name("room")
	request := func(change func(*parleyv1.SendMessageRequest)) *parleyv1.SendMessageRequest {
		r := &parleyv1.SendMessageRequest{ChannelId: channel, Content: "one", ClientMsgId: "id-1", Metadata: map[string]string{"k": "v"}}
		if change != nil {
			change(r)
		}
		return r
	}
	first, err := e.ann.SendMessage(e.ctx, request(nil))
	e.no(err)
	again, err := e.ann.SendMessage(e.ctx, request(nil))
	e.no(err)
	if !again.GetDuplicate() || again.GetSeq() != 1 || again.GetMsgId() != first.GetMsgId() || again.GetCount() != 1 {
		e.Errorf("a repeat: %v, the first: %v", again, first)
	}
	for what, change := range map[string]func(*parleyv1.SendMessageRequest){
		"other content":  func(r *parleyv1.SendMessageRequest) { r.Content = "two" },
		"other metadata": func(r *parleyv1.SendMessageRequest) { r.Metadata = nil },
		"other type":     func(r *parleyv1.SendMessageRequest) { r.MsgType = "note" },
	} {
		_, err := e.ann.SendMessage(e.ctx, request(change))
		e.refused(what, err, idReused)
	}
	other, err := e.bob.SendMessage(e.ctx, request(nil))
	e.no(err)
	if other.GetDuplicate() || other.GetSeq() != 2 {
		e.Errorf("another sender with the same id: %v", other)
	}
	_, err = e.ann.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: channel, MsgId: first.GetMsgId()})
	e.no(err)
	if again, err = e.ann.SendMessage(e.ctx, request(nil)); err != nil || !again.GetDuplicate() || again.GetSeq() != 1 {
		e.Errorf("a repeat after the recall: %v, %v", again, err)
	}
}

func sendBatch(e *env) {
	room, other := e.name("room"), e.name("other")
	e.no(errOf(e.ann.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: room, Content: "used", ClientMsgId: "used"})))
	res, err := e.ann.SendMessages(e.ctx, &parleyv1.SendMessagesRequest{Messages: []*parleyv1.SendMessageRequest{
		{ChannelId: room, Content: "one", ClientMsgId: "1"},
		{ChannelId: room},
		{ChannelId: other, Content: "elsewhere"},
		{ChannelId: room, Content: "another", ClientMsgId: "used"},
		{ChannelId: room, Content: "two"},
		{ChannelId: room, Content: "one", ClientMsgId: "1"},
	}})
	e.no(err)
	results := res.GetResults()
	if len(results) != 6 {
		e.Fatalf("%d results", len(results))
	}
	equal(e, "the first", results[0].GetSent().GetSeq(), 2)
	e.refusedItem("no content", results[1].GetError(), invalid("messages[1].content", 1))
	equal(e, "another channel's", results[2].GetSent().GetSeq(), 1)
	e.refusedItem("a used id", results[3].GetError(), refusal{idReused.code, idReused.reason, "messages[3].client_msg_id", 0})
	equal(e, "the one after the refused ones", results[4].GetSent().GetSeq(), 3)
	if sent := results[5].GetSent(); sent.GetSeq() != 2 || !sent.GetDuplicate() {
		e.Errorf("a repeat within the batch: %v", results[5])
	}
	_, err = e.ann.SendMessages(e.ctx, &parleyv1.SendMessagesRequest{})
	e.refused("an empty batch", err, invalid("messages", 1))
}

// errOf returns the error of a call and drops the result.
func errOf[T any](_ T, err error) error { return err }

func sendAs(e *env) {
	channel := e.name("room")
	r, err := e.ann.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: channel, Content: "hi", FromId: "robot"})
	e.no(err)
	equal(e, "the sender", e.get(e.ann, channel, r.GetMsgId()).GetFromId(), "robot")
	plain := e.as(e.ann.user+"-plain", "send", "history")
	_, err = plain.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: channel, Content: "hi", FromId: "robot"})
	e.refused("without send_as", err, refusal{connect.CodePermissionDenied, "SENDER_MISMATCH", "", 0})
	_, err = plain.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: channel, Content: "hi", FromId: plain.user})
	e.no(err)
}

func edit(e *env) {
	channel := e.name("room")
	sent := e.say(e.ann, channel, "one")
	request := &parleyv1.EditMessageRequest{ChannelId: channel, MsgId: sent.GetMsgId(), Content: "two", ClientMsgId: "edit-1"}
	r, err := e.ann.EditMessage(e.ctx, request)
	e.no(err)
	m := r.GetMessage()
	if r.GetSeq() != 2 || r.GetDuplicate() || r.GetEpoch() != sent.GetEpoch() || r.GetClientMsgId() != "edit-1" || r.GetMsgTime() == nil {
		e.Errorf("the edit: %v", r)
	}
	if m.GetContent() != "two" || m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_EDITED || m.GetSeq() != 1 || m.GetChangedSeq() != 2 {
		e.Errorf("the message: %v", m)
	}
	generated, err := e.ann.EditMessage(e.ctx, &parleyv1.EditMessageRequest{ChannelId: channel, MsgId: sent.GetMsgId(), Content: "three"})
	e.no(err)
	if generated.GetSeq() != 3 || generated.GetClientMsgId() == "" {
		e.Errorf("an edit without an id: %v", generated)
	}
	again, err := e.ann.EditMessage(e.ctx, request)
	e.no(err)
	if !again.GetDuplicate() || again.GetSeq() != 2 || again.GetMessage().GetContent() != "three" || again.GetMessage().GetChangedSeq() != 3 {
		e.Errorf("a repeat: %v", again)
	}
	equal(e, "the next message", fmt.Sprint(e.say(e.ann, channel, "next").GetSeq()), "4")
}

func editRefused(e *env) {
	channel := e.name("room")
	used, err := e.ann.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: channel, Content: "one", ClientMsgId: "used"})
	e.no(err)
	change := func(msgID, content, id string) error {
		return errOf(e.ann.EditMessage(e.ctx, &parleyv1.EditMessageRequest{
			ChannelId: channel, MsgId: msgID, Content: content, ClientMsgId: id,
		}))
	}
	e.refused("another message", change("nothing", "two", ""), noMessage)
	e.refused("the id of the send", change(used.GetMsgId(), "two", "used"), idReused)
	e.no(change(used.GetMsgId(), "two", "edit"))
	e.refused("other content", change(used.GetMsgId(), "three", "edit"), idReused)
	e.refused("no content", change(used.GetMsgId(), "", ""), invalid("content", 1))
	e.no(errOf(e.ann.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: channel, MsgId: used.GetMsgId()})))
	e.refused("a recalled message", change(used.GetMsgId(), "four", ""), isRecalled)
}

func recall(e *env) {
	channel := e.name("room")
	sent, err := e.ann.SendMessage(e.ctx, &parleyv1.SendMessageRequest{
		ChannelId: channel, Content: "one", Metadata: map[string]string{"k": "v"}, ClientMsgId: "used",
	})
	e.no(err)
	_, err = e.ann.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: channel, MsgId: "nothing"})
	e.refused("another message", err, noMessage)
	_, err = e.ann.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: channel, MsgId: sent.GetMsgId(), ClientMsgId: "used"})
	e.refused("the id of the send", err, idReused)
	for i := range 2 {
		r, err := e.ann.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{
			ChannelId: channel, MsgId: sent.GetMsgId(), ClientMsgId: fmt.Sprint("recall-", i),
		})
		e.no(err)
		if r.GetSeq() != 2 || r.GetDuplicate() != (i > 0) || r.GetEpoch() != sent.GetEpoch() || r.GetMsgTime() == nil ||
			r.GetClientMsgId() != fmt.Sprint("recall-", i) {
			e.Errorf("recall %d: %v", i, r)
		}
		m := r.GetMessage()
		if m.GetContent() != "" || len(m.GetMetadata()) > 0 || m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED ||
			m.GetSeq() != 1 || m.GetCount() != 1 || m.GetChangedSeq() != 2 {
			e.Errorf("tombstone %d: %v", i, m)
		}
	}
	next := e.say(e.ann, channel, "next")
	if next.GetSeq() != 3 || next.GetCount() != 2 {
		e.Errorf("the next message: %v", next)
	}
	generated, err := e.ann.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: channel, MsgId: next.GetMsgId()})
	e.no(err)
	if generated.GetSeq() != 4 || generated.GetClientMsgId() == "" || generated.GetClientMsgId() == next.GetClientMsgId() {
		e.Errorf("a recall without an id: %v", generated)
	}
	repeat, err := e.ann.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: channel, MsgId: next.GetMsgId()})
	e.no(err)
	if repeat.GetSeq() != 4 || !repeat.GetDuplicate() || repeat.GetClientMsgId() != "" {
		e.Errorf("a repeated recall without an id: %v", repeat)
	}
}

func changeOfAnother(e *env) {
	channel := e.name("room")
	sent := e.say(e.ann, channel, "one")
	plain := e.as(e.bob.user+"-plain", "send", "history")
	for what, c := range map[string]*caller{"every action": e.bob, "send": plain} {
		_, err := c.EditMessage(e.ctx, &parleyv1.EditMessageRequest{ChannelId: channel, MsgId: sent.GetMsgId(), Content: "two"})
		e.refused("edit with "+what, err, notSender)
	}
	_, err := plain.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: channel, MsgId: sent.GetMsgId()})
	e.refused("recall", err, notSender)
	moderator := e.as(e.bob.user+"-moderator", "moderate")
	r, err := moderator.RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: channel, MsgId: sent.GetMsgId()})
	e.no(err)
	equal(e, "recalled by a moderator", r.GetMessage().GetFromId(), e.ann.user)
}

func invalidFields(e *env) {
	room, long := e.name("room"), strings.Repeat("x", 65_537)
	many := make(map[string]string)
	for i := range 17 {
		many[fmt.Sprint("k", i)] = ""
	}
	sendOf := func(r *parleyv1.SendMessageRequest) error { return errOf(e.ann.SendMessage(e.ctx, r)) }
	e.refused("channel", sendOf(&parleyv1.SendMessageRequest{ChannelId: "a b", Content: "x"}), invalid("channel_id", 0))
	e.refused("no content", sendOf(&parleyv1.SendMessageRequest{ChannelId: room}), invalid("content", 1))
	e.refused("content", sendOf(&parleyv1.SendMessageRequest{ChannelId: room, Content: long}), invalid("content", 65_536))
	e.refused("NUL", sendOf(&parleyv1.SendMessageRequest{ChannelId: room, Content: "a\x00"}), invalid("content", 0))
	e.refused("id", sendOf(&parleyv1.SendMessageRequest{ChannelId: room, Content: "x", ClientMsgId: "a b"}), invalid("client_msg_id", 0))
	e.refused("type", sendOf(&parleyv1.SendMessageRequest{ChannelId: room, Content: "x", MsgType: "parley.x"}), invalid("msg_type", 0))
	e.refused("metadata", sendOf(&parleyv1.SendMessageRequest{ChannelId: room, Content: "x", Metadata: many}), invalid("metadata", 16))
	reserved := map[string]string{"parley-x": ""}
	e.refused("key", sendOf(&parleyv1.SendMessageRequest{ChannelId: room, Content: "x", Metadata: reserved}), invalid("metadata", 0))
	e.refused("sender", sendOf(&parleyv1.SendMessageRequest{ChannelId: room, Content: "x", FromId: "~erased"}), invalid("from_id", 0))
	e.refused("page size", errOf(e.ann.ListMessages(e.ctx, &parleyv1.ListMessagesRequest{ChannelId: room, PageSize: -1})), invalid("page_size", 0))
	zero := int64(0)
	e.refused("before", errOf(e.ann.ListMessages(e.ctx, &parleyv1.ListMessagesRequest{ChannelId: room, BeforeSeq: &zero})), invalid("before_seq", 1))
	e.refused("mark", errOf(e.ann.MarkRead(e.ctx, &parleyv1.MarkReadRequest{ChannelId: room})), invalid("seq", 1))
	e.refused("message id", errOf(e.ann.GetMessage(e.ctx, &parleyv1.GetMessageRequest{ChannelId: room})), invalid("msg_id", 0))
	e.refused("no members", errOf(e.ann.AddMembers(e.ctx, &parleyv1.AddMembersRequest{ChannelId: room})), invalid("members", 1))
	nobody := []*parleyv1.ChannelMember{{UserId: "x"}, {}}
	e.refused("a member", errOf(e.ann.AddMembers(e.ctx, &parleyv1.AddMembersRequest{ChannelId: room, Members: nobody})), invalid("members[1].user_id", 0))
	e.refused("no users", errOf(e.ann.RemoveMembers(e.ctx, &parleyv1.RemoveMembersRequest{ChannelId: room})), invalid("user_ids", 1))
}

// actions makes each call with a token that has every action except those that the call requires.
// Each must be refused with CAPABILITY_MISSING.
func actions(e *env) {
	room := e.name("room")
	none := refusal{connect.CodePermissionDenied, "CAPABILITY_MISSING", "", 0}
	but := func(lacking ...string) *caller {
		var rest []string
		for _, a := range []string{"send", "history", "subscribe", "moderate", "send_as", "manage"} {
			if !strings.Contains(strings.Join(lacking, " ")+" ", a+" ") {
				rest = append(rest, a)
			}
		}
		return e.as(e.ann.user, rest...)
	}
	noSend, noHistory := but("send"), but("history")
	e.refused("send", errOf(noSend.SendMessage(e.ctx, &parleyv1.SendMessageRequest{ChannelId: room, Content: "x"})), none)
	e.refused("edit", errOf(noSend.EditMessage(e.ctx, &parleyv1.EditMessageRequest{ChannelId: room, MsgId: "x", Content: "x"})), none)
	e.refused("typing", errOf(noSend.SendTyping(e.ctx, &parleyv1.SendTypingRequest{ChannelId: room})), none)
	e.refused("recall", errOf(but("send", "moderate").RecallMessage(e.ctx, &parleyv1.RecallMessageRequest{ChannelId: room, MsgId: "x"})), none)
	e.refused("list", errOf(noHistory.ListMessages(e.ctx, &parleyv1.ListMessagesRequest{ChannelId: room})), none)
	e.refused("get", errOf(noHistory.GetMessage(e.ctx, &parleyv1.GetMessageRequest{ChannelId: room, MsgId: "x"})), none)
	e.refused("mark", errOf(noHistory.MarkRead(e.ctx, &parleyv1.MarkReadRequest{ChannelId: room, Seq: 1})), none)
	e.refused("members", errOf(noHistory.ListMembers(e.ctx, &parleyv1.ListMembersRequest{ChannelId: room})), none)
	e.refused("create", errOf(but("manage").CreateChannel(e.ctx, &parleyv1.CreateChannelRequest{ChannelId: room})), none)
	res, err := noSend.SendMessages(e.ctx, &parleyv1.SendMessagesRequest{
		Messages: []*parleyv1.SendMessageRequest{{ChannelId: room, Content: "x"}},
	})
	e.no(err)
	e.refusedItem("send a batch", res.GetResults()[0].GetError(), none)
	stream, err := but("subscribe").Subscribe(e.ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{{ChannelId: room}}})
	if err == nil {
		for stream.Receive() {
			e.Error("a stream without the action")
		}
		err = stream.Err()
	}
	e.refused("subscribe", err, refusal{none.code, none.reason, "channels[0].channel_id", 0})
}

// renewedToken renews the token of a live stream twice. With the second one the stream loses its
// channel.
func renewedToken(e *env) {
	room := e.name("room")
	s := e.subscribe(e.as(e.ann.user, "subscribe", "history"), from(room, 0))
	s.want("state 0..0 oldest 1 head 0 count 0 recovered true")
	renew := func(c *caller) {
		e.Helper()
		e.no(errOf(c.UpdateSubscription(e.ctx, &parleyv1.UpdateSubscriptionRequest{StreamId: s.id, RenewToken: true})))
	}
	renew(e.as(e.ann.user, "subscribe"))
	e.say(e.ann, room, "one")
	s.want("sent 1..1 #1 one")
	renew(e.as(e.ann.user, "send"))
	s.want("lost 0..0 CAPABILITY_MISSING")
	e.refused("another user's stream",
		errOf(e.bob.UpdateSubscription(e.ctx, &parleyv1.UpdateSubscriptionRequest{StreamId: s.id, RenewToken: true})),
		refusal{connect.CodeNotFound, "STREAM_NOT_FOUND", "", 0})
}
