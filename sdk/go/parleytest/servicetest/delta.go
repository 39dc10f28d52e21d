package servicetest

import (
	"fmt"
	"strings"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// text waits until the deltas of a message make up a text, beginning with what the subscriber has.
func (s *subscription) text(msgID, has, want string) {
	s.e.Helper()
	for text := has; text != want; {
		ev := s.next()
		d := ev.GetDelta()
		if d == nil || d.GetMsgId() != msgID || d.GetOffset() > int64(len(text)) || ev.GetSeq() != 0 || ev.GetFromSeq() != 0 {
			s.e.Fatalf("%v, after %q of %q", ev, text, want)
		}
		if text = text[:d.GetOffset()] + d.GetText(); !strings.HasPrefix(want, text) {
			s.e.Fatalf("text %q, want %q", text, want)
		}
	}
}

// deltas streams the texts of open messages.
func deltas(e *env) {
	id, carl := e.name("chat"), e.inSessions("carl")
	e.append(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "one"})
	request := &parleyv1.AppendSessionMessageRequest{SessionId: id, Role: "assistant", ClientMsgId: "a", Open: true}
	opened := e.append(e.ann, request)
	early := e.subscribe(carl, from("~"+id, 1))
	early.next()
	early.want("sent 2..2 #2 ")
	write := func(c *caller, token string, offset int64, text string) (*parleyv1.AppendSessionDeltaResponse, error) {
		return c.AppendSessionDelta(e.ctx, &parleyv1.AppendSessionDeltaRequest{
			SessionId: id, MsgId: opened.GetMsgId(), AppendToken: token, Offset: offset, Text: text,
		})
	}
	has := func(length int64, status parleyv1.MessageStatus) func(*parleyv1.AppendSessionDeltaResponse, error) {
		e.Helper()
		return func(r *parleyv1.AppendSessionDeltaResponse, err error) {
			e.Helper()
			e.no(err)
			if r.GetLength() != length || r.GetStatus() != status {
				e.Errorf("appended %v, want %d, %v", r, length, status)
			}
		}
	}
	const open = parleyv1.MessageStatus_MESSAGE_STATUS_OPEN
	token := opened.GetAppendToken()
	has(3, open)(write(e.ann, token, 0, "Wü"))
	early.text(opened.GetMsgId(), "", "Wü")
	has(3, open)(write(e.ann, token, 3, ""))
	has(3, open)(write(e.ann, token, 1, "ü"))
	has(7, open)(write(e.ann, token, 1, "ürden"))
	early.text(opened.GetMsgId(), "Wü", "Würden")
	late := e.subscribe(carl, from("~"+id, 0))
	late.next()
	late.want("sent 1..1 #1 one", "sent 2..2 #2 ")
	late.text(opened.GetMsgId(), "", "Würden")
	joined := e.subscribe(carl, from("~"+id, 2)) // it knows the open message from a list
	joined.next()
	joined.text(opened.GetMsgId(), "", "Würden")

	e.refused("a hole", errOf(write(e.ann, token, 9, "x")), refusal{connect.CodeOutOfRange, "POSITION_OUT_OF_RANGE", "offset", 7})
	e.refused("another text", errOf(write(e.ann, token, 0, "X")), refusal{connect.CodeInvalidArgument, "INVALID_FIELD", "text", 0})
	invalidToken := refusal{connect.CodeInvalidArgument, "INVALID_FIELD", "append_token", 0}
	e.refused("no token", errOf(write(e.ann, "x", 7, "x")), invalidToken)
	e.refused("the token of another", errOf(write(carl, token, 7, "x")), invalidToken)

	again := e.append(e.ann, request)
	if !again.GetDuplicate() || again.GetAppendToken() == token {
		e.Errorf("opened again: %v", again)
	}
	has(3, open)(write(e.ann, again.GetAppendToken(), 0, "New"))
	e.refused("the earlier generator", errOf(write(e.ann, token, 7, "x")), refusal{connect.CodeFailedPrecondition, "APPEND_SUPERSEDED", "", 0})
	for _, s := range []*subscription{early, late, joined} {
		s.text(opened.GetMsgId(), "", "New")
	}
	large := strings.Repeat("x", 16<<10)
	for at := int64(3); at < 128<<10-16<<10; at += 16 << 10 {
		has(at+16<<10, open)(write(e.ann, again.GetAppendToken(), at, large))
	}
	e.refused("too much text", errOf(write(e.ann, again.GetAppendToken(), 7*16<<10+3, large)), refusal{connect.CodeResourceExhausted, "LIMIT_EXCEEDED", "text", 128 << 10})

	r, err := e.ann.CloseSessionMessage(e.ctx, &parleyv1.CloseSessionMessageRequest{
		SessionId: id, MsgId: opened.GetMsgId(), Outcome: parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE, Content: "Newer",
	})
	if e.no(err); r.GetSeq() != 3 {
		e.Errorf("closed %v", r)
	}
	early.skip("closed 3..3 #2 Newer")
	has(7*16<<10+3, parleyv1.MessageStatus_MESSAGE_STATUS_SENT)(write(e.ann, again.GetAppendToken(), 7*16<<10+3, "x"))
	if closed := e.append(e.ann, request); closed.GetAppendToken() != "" || !closed.GetDuplicate() {
		e.Errorf("opened after the close: %v", closed)
	}
	after := e.subscribe(carl, from("~"+id, 2))
	after.next()
	after.want("closed 3..3 #2 Newer") // and no delta before it
}

// skip waits for the event with this line, and ignores deltas before it.
func (s *subscription) skip(line string) {
	s.e.Helper()
	for {
		ev := s.next()
		if ev.GetDelta() != nil {
			continue
		}
		if got := describe(ev); got != line {
			s.e.Fatalf("event %q, want %q", got, line)
		}
		return
	}
}

// cancelled has the owner of a session cancel answers.
func cancelled(e *env) {
	id, carl := e.name("chat"), e.inSessions("carl")
	e.append(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "one"})
	s := e.subscribe(carl, from("~"+id, 1))
	s.next()
	cancel := func(c *caller, msgID, clientID string) (*parleyv1.CancelSessionMessageResponse, error) {
		return c.CancelSessionMessage(e.ctx, &parleyv1.CancelSessionMessageRequest{SessionId: id, MsgId: msgID, ClientMsgId: clientID})
	}
	seq := int64(1)
	for _, text := range []string{"streamed", ""} {
		opened := e.append(e.ann, &parleyv1.AppendSessionMessageRequest{SessionId: id, Role: "assistant", Open: true, Content: "begun"})
		s.want(fmt.Sprintf("sent %d..%d #%d begun", seq+1, seq+1, seq+1))
		delta := &parleyv1.AppendSessionDeltaRequest{SessionId: id, MsgId: opened.GetMsgId(), AppendToken: opened.GetAppendToken(), Text: text}
		e.no(errOf(e.ann.AppendSessionDelta(e.ctx, delta)))
		content := "begun"
		if text != "" {
			content = text
			s.text(opened.GetMsgId(), "", text)
		}
		e.refused("a stranger", errOf(cancel(e.inSessions("eve"), opened.GetMsgId(), "")), noSession)
		for i := range 2 {
			r, err := cancel(carl, opened.GetMsgId(), "c"+text)
			e.no(err)
			m := r.GetMessage()
			if r.GetSeq() != seq+2 || r.GetDuplicate() != (i > 0) || r.GetClientMsgId() != "c"+text || r.GetMsgTime() == nil || r.GetEpoch() == "" ||
				m.GetContent() != content || m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED || m.GetSeq() != seq+1 {
				e.Errorf("cancelled %v", r)
			}
		}
		s.want(fmt.Sprintf("closed %d..%d #%d %s", seq+2, seq+2, seq+1, content))
		e.refused("a second time", errOf(cancel(carl, opened.GetMsgId(), "")), refusal{connect.CodeFailedPrecondition, "MESSAGE_CLOSED", "", 0})
		delta.Offset, delta.Text = int64(len(text)), "more"
		r, err := e.ann.AppendSessionDelta(e.ctx, delta)
		if e.no(err); r.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED || r.GetLength() != int64(len(text)) {
			e.Errorf("a delta after it: %v", r)
		}
		e.refused("the generator's close", errOf(e.ann.CloseSessionMessage(e.ctx, &parleyv1.CloseSessionMessageRequest{
			SessionId: id, MsgId: opened.GetMsgId(), Outcome: parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE, Content: "streamed more",
		})), refusal{connect.CodeFailedPrecondition, "MESSAGE_CLOSED", "", 0})
		seq += 2
	}
	opened := e.append(e.ann, &parleyv1.AppendSessionMessageRequest{SessionId: id, Role: "assistant", Open: true})
	e.no(errOf(cancel(carl, opened.GetMsgId(), "repeated")))
	e.no(errOf(e.ann.EditSessionMessage(e.ctx, &parleyv1.EditSessionMessageRequest{SessionId: id, MsgId: opened.GetMsgId(), Content: "edited"})))
	if r, err := cancel(carl, opened.GetMsgId(), "repeated"); err != nil || !r.GetDuplicate() {
		e.Errorf("a repeat after an edit: %v, %v", r, err)
	}
	opened = e.append(e.ann, &parleyv1.AppendSessionMessageRequest{SessionId: id, Role: "assistant", Open: true})
	e.no(errOf(carl.RecallSessionMessage(e.ctx, &parleyv1.RecallSessionMessageRequest{SessionId: id, MsgId: opened.GetMsgId()})))
	e.refused("what is recalled", errOf(cancel(carl, opened.GetMsgId(), "")), refusal{connect.CodeFailedPrecondition, "MESSAGE_RECALLED", "", 0})
	e.refused("no message", errOf(cancel(carl, "none", "")), refusal{connect.CodeNotFound, "MESSAGE_NOT_FOUND", "msg_id", 0})
	e.refused("no session", errOf(carl.CancelSessionMessage(e.ctx, &parleyv1.CancelSessionMessageRequest{SessionId: e.name("none"), MsgId: "m"})), noSession)
	managed := e.append(e.ann, &parleyv1.AppendSessionMessageRequest{SessionId: id, Role: "assistant", Open: true})
	e.no(errOf(cancel(e.ann, managed.GetMsgId(), "")))
}
