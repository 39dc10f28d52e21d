package servicetest

import (
	"fmt"
	"strings"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

var noSession = refusal{connect.CodeNotFound, "CHANNEL_NOT_FOUND", "", 0}

// inSessions returns a caller whose token allows what the user of an assistant does.
func (e *env) inSessions(name string) *caller {
	e.Helper()
	return e.as(e.name(name), "append", "history", "subscribe")
}

// append appends a message to a session.
func (e *env) append(c *caller, req *parleyv1.AppendSessionMessageRequest) *parleyv1.AppendSessionMessageResponse {
	e.Helper()
	r, err := c.AppendSessionMessage(e.ctx, req)
	e.no(err)
	return r
}

// inSession returns a session's messages, one word for each, and then the page's head.
func (e *env) inSession(c *caller, id string, minSeq int64) string {
	e.Helper()
	r, err := c.ListSessionMessages(e.ctx, &parleyv1.ListSessionMessagesRequest{SessionId: id, AfterSeq: new(int64), MinSeq: minSeq})
	e.no(err)
	var out strings.Builder
	for _, m := range r.GetMessages() {
		equal(e, "the channel of a message", m.GetChannelId(), "~"+id)
		fmt.Fprintf(&out, "%s:%s ", m.GetMsgType(), m.GetContent())
	}
	return out.String() + fmt.Sprint(r.GetHeadSeq())
}

// sessions has a user and an assistant talk in sessions.
func sessions(e *env) {
	id, carl := e.name("chat"), e.inSessions("carl")
	first := e.append(e.ann, &parleyv1.AppendSessionMessageRequest{SessionId: id, Role: "system", Content: "brief", UserId: carl.user})
	s := e.subscribe(carl, from("~"+id, 0))
	s.next() // the state
	prompt := e.append(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "one", ClientMsgId: "p"})
	again := e.append(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "one", ClientMsgId: "p"})
	answer := e.append(e.ann, &parleyv1.AppendSessionMessageRequest{SessionId: id, Role: "assistant", Content: "two"})
	if first.GetSeq() != 1 || prompt.GetSeq() != 2 || prompt.GetDuplicate() || again.GetSeq() != 2 || !again.GetDuplicate() ||
		again.GetMsgId() != prompt.GetMsgId() || answer.GetSeq() != 3 || answer.GetCount() != 3 || answer.GetSessionId() != id {
		e.Errorf("appended %v, %v, %v, %v", first, prompt, again, answer)
	}
	_, err := carl.AppendSessionMessage(e.ctx, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "other", ClientMsgId: "p"})
	e.refused("the id of another message", err, idReused)
	s.want("sent 1..1 #1 brief", "sent 2..2 #2 one", "sent 3..3 #3 two") // before they change
	edited, err := carl.EditSessionMessage(e.ctx, &parleyv1.EditSessionMessageRequest{SessionId: id, MsgId: prompt.GetMsgId(), Content: "new", ClientMsgId: "e"})
	e.no(err)
	recalled, err := carl.RecallSessionMessage(e.ctx, &parleyv1.RecallSessionMessageRequest{SessionId: id, MsgId: answer.GetMsgId()})
	e.no(err)
	if edited.GetSeq() != 4 || edited.GetMessage().GetContent() != "new" || edited.GetClientMsgId() != "e" || recalled.GetSeq() != 5 ||
		recalled.GetMessage().GetContent() != "" || recalled.GetDuplicate() {
		e.Errorf("edited %v, recalled %v", edited, recalled)
	}
	_, err = carl.EditSessionMessage(e.ctx, &parleyv1.EditSessionMessageRequest{SessionId: id, MsgId: first.GetMsgId() + "x", Content: "x"})
	e.refused("a message that does not exist", err, noMessage)
	equal(e, "the owner's list", e.inSession(carl, id, 5), "system:brief user:new assistant: 5")
	equal(e, "the assistant's list", e.inSession(e.ann, id, 5), "system:brief user:new assistant: 5")
	s.want("edited 4..4 #2 new", "recalled 5..5 #3")
	mark, err := carl.MarkSessionRead(e.ctx, &parleyv1.MarkSessionReadRequest{SessionId: id, Seq: 2})
	e.no(err)
	equal(e, "unread", mark.GetUnread(), 1)
	mine, err := e.as(carl.user).ListChannels(e.ctx, &parleyv1.ListChannelsRequest{})
	e.no(err)
	equal(e, "channels of the owner", len(mine.GetChannels()), 0)

	var named []*parleyv1.AppendSessionMessageResponse
	for _, c := range []*caller{carl, carl, e.inSessions("dora")} {
		named = append(named, e.append(c, &parleyv1.AppendSessionMessageRequest{Content: "hi", ClientMsgId: "begin"}))
	}
	for range 2 {
		if r := e.append(carl, &parleyv1.AppendSessionMessageRequest{Content: "hi"}); r.GetSeq() != 1 || r.GetSessionId() == "" {
			e.Errorf("without any id: %v", r)
		}
	}
	if named[0].GetSessionId() == "" || named[1].GetSessionId() != named[0].GetSessionId() || !named[1].GetDuplicate() ||
		named[2].GetSessionId() == named[0].GetSessionId() || named[2].GetSeq() != 1 {
		e.Errorf("sessions without an id: %v", named)
	}
}

// openMessages opens messages of a session, and closes them in each way.
func openMessages(e *env) {
	id, carl := e.name("chat"), e.inSessions("carl")
	e.append(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "one"})
	s := e.subscribe(carl, from("~"+id, 1))
	s.next() // the state
	seq := int64(1)
	closing := func(c *caller, msgID, clientID string, outcome parleyv1.SessionOutcome, content string) (*parleyv1.CloseSessionMessageResponse, error) {
		return c.CloseSessionMessage(e.ctx, &parleyv1.CloseSessionMessageRequest{
			SessionId: id, MsgId: msgID, Outcome: outcome, Content: content, ClientMsgId: clientID,
		})
	}
	closed := refusal{connect.CodeFailedPrecondition, "MESSAGE_CLOSED", "", 0}
	for outcome, status := range map[parleyv1.SessionOutcome]parleyv1.MessageStatus{
		parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE:  parleyv1.MessageStatus_MESSAGE_STATUS_SENT,
		parleyv1.SessionOutcome_SESSION_OUTCOME_CANCELLED: parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED,
		parleyv1.SessionOutcome_SESSION_OUTCOME_FAILED:    parleyv1.MessageStatus_MESSAGE_STATUS_FAILED,
	} {
		key := outcome.String()
		request := &parleyv1.AppendSessionMessageRequest{SessionId: id, Role: "assistant", ClientMsgId: key, Open: true}
		opened, again := e.append(e.ann, request), e.append(e.ann, request)
		if !again.GetDuplicate() || again.GetMsgId() != opened.GetMsgId() {
			e.Errorf("opened %v and %v", opened, again)
		}
		s.want(fmt.Sprintf("sent %d..%d #%d ", seq+1, seq+1, seq+1))
		e.refused("the same, not open", errOf(e.ann.AppendSessionMessage(e.ctx, &parleyv1.AppendSessionMessageRequest{
			SessionId: id, Role: "assistant", ClientMsgId: key, Content: "x",
		})), idReused)
		e.refused("an edit of what is open", errOf(e.ann.EditSessionMessage(e.ctx, &parleyv1.EditSessionMessageRequest{
			SessionId: id, MsgId: opened.GetMsgId(), Content: "x",
		})), refusal{connect.CodeFailedPrecondition, "MESSAGE_OPEN", "", 0})
		e.refused("the owner's close", errOf(closing(carl, opened.GetMsgId(), "", outcome, "x")), refusal{connect.CodePermissionDenied, "NOT_SENDER", "", 0})
		for i := range 2 {
			r, err := closing(e.ann, opened.GetMsgId(), "c"+key, outcome, "two")
			e.no(err)
			m := r.GetMessage()
			if r.GetSeq() != seq+2 || r.GetDuplicate() != (i > 0) || r.GetClientMsgId() != "c"+key || r.GetMsgTime() == nil || r.GetEpoch() == "" ||
				m.GetContent() != "two" || m.GetStatus() != status || m.GetSeq() != seq+1 || m.GetChangedSeq() != seq+2 {
				e.Errorf("closed %v", r)
			}
		}
		s.want(fmt.Sprintf("closed %d..%d #%d two", seq+2, seq+2, seq+1))
		if outcome != parleyv1.SessionOutcome_SESSION_OUTCOME_CANCELLED { // whose text a repeat may not know
			e.refused("the id of another close", errOf(closing(e.ann, opened.GetMsgId(), "c"+key, outcome, "three")), idReused)
		}
		other := parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE
		if outcome == other {
			other = parleyv1.SessionOutcome_SESSION_OUTCOME_FAILED
		}
		e.refused("the id of another outcome", errOf(closing(e.ann, opened.GetMsgId(), "c"+key, other, "two")), idReused)
		e.refused("a second close", errOf(closing(e.ann, opened.GetMsgId(), "d"+key, outcome, "two")), closed)
		seq += 2
	}
	prompt := e.append(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "more", Open: true})
	e.no(errOf(carl.RecallSessionMessage(e.ctx, &parleyv1.RecallSessionMessageRequest{SessionId: id, MsgId: prompt.GetMsgId()})))
	e.refused("a close of what was recalled", errOf(closing(carl, prompt.GetMsgId(), "", parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE, "x")),
		refusal{connect.CodeFailedPrecondition, "MESSAGE_RECALLED", "", 0})
	e.refused("no outcome", errOf(closing(carl, prompt.GetMsgId(), "", 0, "x")), refusal{connect.CodeInvalidArgument, "INVALID_FIELD", "outcome", 0})
	again := e.subscribe(carl, from("~"+id, 0))
	again.next()
	again.want("sent 1..1 #1 one")
	for at := int64(2); at < 8; at += 2 {
		again.want(fmt.Sprintf("sent %d..%d #%d two", at, at, at), fmt.Sprintf("closed %d..%d #%d two", at+1, at+1, at))
	}
}

// sessionOfAnother checks what is refused.
func sessionOfAnother(e *env) {
	id, carl, eve := e.name("chat"), e.inSessions("carl"), e.inSessions("eve")
	prompt := e.append(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "one"})
	for _, other := range []string{id, e.name("none")} {
		for what, err := range map[string]error{
			"list":   errOf(eve.ListSessionMessages(e.ctx, &parleyv1.ListSessionMessagesRequest{SessionId: other})),
			"edit":   errOf(eve.EditSessionMessage(e.ctx, &parleyv1.EditSessionMessageRequest{SessionId: other, MsgId: prompt.GetMsgId(), Content: "x"})),
			"recall": errOf(eve.RecallSessionMessage(e.ctx, &parleyv1.RecallSessionMessageRequest{SessionId: other, MsgId: prompt.GetMsgId()})),
			"mark":   errOf(eve.MarkSessionRead(e.ctx, &parleyv1.MarkSessionReadRequest{SessionId: other, Seq: 1})),
		} {
			e.refused(what+" in "+other, err, noSession)
		}
	}
	appended := func(c *caller, req *parleyv1.AppendSessionMessageRequest) error {
		return errOf(c.AppendSessionMessage(e.ctx, req))
	}
	e.refused("append to another's", appended(eve, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "x"}),
		refusal{connect.CodePermissionDenied, "NOT_MEMBER", "session_id", 0})
	missing := func(field string) refusal {
		return refusal{connect.CodePermissionDenied, "CAPABILITY_MISSING", field, 0}
	}
	e.refused("a role", appended(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "x", Role: "assistant"}), missing("role"))
	e.refused("another user", appended(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "x", UserId: eve.user}), missing("user_id"))
	e.refused("no capability", appended(e.user("carl"), &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "x"}), missing(""))
	invalid := func(field string, limit int64) refusal {
		return refusal{connect.CodeInvalidArgument, "INVALID_FIELD", field, limit}
	}
	e.refused("an unknown role", appended(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "x", Role: "x"}), invalid("role", 0))
	e.refused("no content", appended(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id}), invalid("content", 1))
	e.refused("a channel's id", appended(carl, &parleyv1.AppendSessionMessageRequest{SessionId: "~" + id, Content: "x"}), invalid("session_id", 0))
	sender := e.as(e.name("sender"), "append", "send_as")
	notOwner := refusal{connect.CodePermissionDenied, "NOT_MEMBER", "session_id", 0}
	for _, c := range []*caller{sender, e.ann} {
		e.refused("in the name of another than the owner", appended(c, &parleyv1.AppendSessionMessageRequest{
			SessionId: id, Content: "x", UserId: eve.user,
		}), notOwner)
	}
	fresh := e.name("fresh")
	e.refused("an answer without a session", appended(e.ann, &parleyv1.AppendSessionMessageRequest{SessionId: fresh, Content: "x", Role: "assistant"}), noSession)
	e.refused("reserved metadata", appended(carl, &parleyv1.AppendSessionMessageRequest{
		SessionId: fresh, Content: "x", Metadata: map[string]string{"parley-x": "x"},
	}), invalid("metadata", 0))
	e.refused("a session that was not begun", errOf(carl.ListSessionMessages(e.ctx, &parleyv1.ListSessionMessagesRequest{SessionId: fresh})), noSession)
	e.append(sender, &parleyv1.AppendSessionMessageRequest{SessionId: fresh, Content: "two", UserId: carl.user})
	equal(e, "a session that another began", e.inSession(carl, fresh, 1), "user:two 1")
	system := e.append(e.ann, &parleyv1.AppendSessionMessageRequest{SessionId: fresh, Content: "rule", Role: "system", UserId: carl.user, Open: true})
	e.refused("the owner edits a system message", errOf(carl.EditSessionMessage(e.ctx, &parleyv1.EditSessionMessageRequest{
		SessionId: fresh, MsgId: system.GetMsgId(), Content: "x",
	})), missing(""))
	e.refused("the owner closes a system message", errOf(carl.CloseSessionMessage(e.ctx, &parleyv1.CloseSessionMessageRequest{
		SessionId: fresh, MsgId: system.GetMsgId(), Outcome: parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE, Content: "x",
	})), missing(""))
	_, err := e.ann.MarkSessionRead(e.ctx, &parleyv1.MarkSessionReadRequest{SessionId: id, Seq: 1})
	e.refused("mark of a manager", err, notMember)
	equal(e, "the session", e.inSession(carl, id, 1), "user:one 1")
}

// sessionList lists and deletes sessions.
func sessionList(e *env) {
	carl := e.inSessions("carl")
	for _, name := range []string{"a", "b", "c", "b"} {
		e.append(carl, &parleyv1.AppendSessionMessageRequest{SessionId: e.name(name), Content: "x"})
	}
	list := func(c *caller, user string, size int32) string {
		e.Helper()
		var out strings.Builder
		for token := ""; ; {
			r, err := c.ListSessions(e.ctx, &parleyv1.ListSessionsRequest{UserId: user, PageSize: size, PageToken: token})
			e.no(err)
			for _, s := range r.GetSessions() {
				name, _, _ := strings.Cut(s.GetSessionId(), "-")
				fmt.Fprintf(&out, "%s:%d/%d ", name, s.GetHeadSeq(), s.GetUnread())
				if s.GetOwnerId() != carl.user || s.GetEpoch() == "" || s.GetActiveTime().AsTime().Before(s.GetCreateTime().AsTime()) || s.GetCount() != s.GetHeadSeq() {
					e.Errorf("listed %v", s)
				}
			}
			if token = r.GetNextPageToken(); token == "" {
				return strings.TrimSpace(out.String())
			}
		}
	}
	const want = "b:2/0 c:1/0 a:1/0" // the owner has read their own messages
	for size := range int32(4) {
		e.eventually(func() string { // the list lags behind the logs
			if got := list(carl, "", size); got != want {
				return fmt.Sprintf("in pages of %d: %s", size, got)
			}
			return ""
		})
	}
	equal(e, "listed by a manager", list(e.ann, carl.user, 2), want)
	equal(e, "listed by another user", list(e.inSessions("eve"), "", 2), "")
	missing := refusal{connect.CodePermissionDenied, "CAPABILITY_MISSING", "user_id", 0}
	e.refused("another's sessions", errOf(e.inSessions("eve").ListSessions(e.ctx, &parleyv1.ListSessionsRequest{UserId: carl.user})), missing)

	gone := e.name("b")
	s := e.subscribe(carl, live("~"+gone))
	s.next() // the state
	e.refused("another deletes", errOf(e.inSessions("eve").DeleteSession(e.ctx, &parleyv1.DeleteSessionRequest{SessionId: gone})), noSession)
	e.refused("none is deleted", errOf(carl.DeleteSession(e.ctx, &parleyv1.DeleteSessionRequest{SessionId: e.name("none")})), noSession)
	for range 2 {
		e.no(errOf(carl.DeleteSession(e.ctx, &parleyv1.DeleteSessionRequest{SessionId: gone})))
	}
	equal(e, "the end of the stream", s.next().GetLost().GetReason(), parleyv1.LostReason_LOST_REASON_DELETED)
	equal(e, "after the deletion", list(carl, "", 0), "c:1/0 a:1/0")
	e.eventually(func() string {
		if err := errOf(carl.ListSessionMessages(e.ctx, &parleyv1.ListSessionMessagesRequest{SessionId: gone})); err == nil {
			return "its messages are listed"
		}
		return ""
	})
	e.refused("append", errOf(carl.AppendSessionMessage(e.ctx, &parleyv1.AppendSessionMessageRequest{SessionId: gone, Content: "x"})),
		refusal{connect.CodeFailedPrecondition, "SESSION_DELETED", "session_id", 0})
	e.refused("append of another", errOf(e.inSessions("eve").AppendSessionMessage(e.ctx, &parleyv1.AppendSessionMessageRequest{SessionId: gone, Content: "x"})),
		refusal{connect.CodePermissionDenied, "NOT_MEMBER", "session_id", 0})
}

// sessionTitles names sessions with their first message and renames them.
func sessionTitles(e *env) {
	carl, eve := e.inSessions("carl"), e.inSessions("eve")
	id, untitled, long := e.name("chat"), e.name("untitled"), strings.Repeat("é", 128)
	e.append(carl, &parleyv1.AppendSessionMessageRequest{SessionId: untitled, Content: "x"})
	for _, title := range []string{"first", "ignored"} {
		e.append(carl, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "x", Title: title})
	}
	titles := func(what, want string) {
		e.Helper()
		r, err := carl.ListSessions(e.ctx, &parleyv1.ListSessionsRequest{})
		e.no(err)
		got := make(map[string]string)
		for _, s := range r.GetSessions() {
			got[s.GetSessionId()] = s.GetTitle()
		}
		equal(e, what, got[id], want)
		equal(e, "the other title "+what, got[untitled], "")
	}
	rename := func(c *caller, id, title string) error {
		return errOf(c.RenameSession(e.ctx, &parleyv1.RenameSessionRequest{SessionId: id, Title: title}))
	}
	titles("of the first message", "first")
	for _, title := range []string{"two", "two", "", "a\nb \u202e", long} {
		e.no(rename(carl, id, title))
		titles("as renamed", title)
	}
	e.no(rename(e.ann, id, "by a manager"))
	e.refused("another renames", rename(eve, id, "x"), noSession)
	e.refused("none is renamed", rename(carl, e.name("none"), "x"), noSession)
	e.refused("none is renamed by a manager", rename(e.ann, e.name("none"), "x"), noSession)
	missing := refusal{connect.CodePermissionDenied, "CAPABILITY_MISSING", "", 0}
	e.refused("without a capability", rename(e.as(carl.user, "history", "subscribe", "send_as"), id, "x"), missing)
	tooLong := refusal{connect.CodeInvalidArgument, "INVALID_FIELD", "title", 256}
	e.refused("a title that is too long", rename(carl, id, long+"x"), tooLong)
	e.refused("a first title that is too long", errOf(carl.AppendSessionMessage(e.ctx, &parleyv1.AppendSessionMessageRequest{
		SessionId: e.name("new"), Content: "x", Title: long + "x",
	})), tooLong)
	e.refused("an id of another form", rename(carl, "~"+id, "x"), refusal{connect.CodeInvalidArgument, "INVALID_FIELD", "session_id", 0})
	e.refused("a title with NUL", rename(carl, id, "a\x00b"), refusal{connect.CodeInvalidArgument, "INVALID_FIELD", "title", 0})
	titles("by a manager", "by a manager")
	e.no(errOf(carl.DeleteSession(e.ctx, &parleyv1.DeleteSessionRequest{SessionId: id})))
	e.refused("a deleted session is renamed", rename(carl, id, "x"), noSession)
	e.refused("a deleted session is renamed by a manager", rename(e.ann, id, "x"), noSession)
}

// allSessions lists the sessions of several users, and those of other scenarios among them.
func allSessions(e *env) {
	users := []*caller{e.inSessions("carl"), e.inSessions("dora"), e.inSessions("emil")}
	owners := map[string]string{}
	for i := range 9 {
		c, id := users[i%3], e.name(fmt.Sprint("s", i))
		e.append(c, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: "x", Title: "title of " + id})
		owners[id] = c.user
	}
	again, gone := e.name("s0"), e.name("s5")
	e.append(users[0], &parleyv1.AppendSessionMessageRequest{SessionId: again, Content: "again"})
	e.no(errOf(users[2].DeleteSession(e.ctx, &parleyv1.DeleteSessionRequest{SessionId: gone})))
	delete(owners, gone)
	list := func(size int32) (listed []*parleyv1.Session) {
		e.Helper()
		for token := ""; ; {
			r, err := e.ann.ListSessions(e.ctx, &parleyv1.ListSessionsRequest{AllUsers: true, PageSize: size, PageToken: token})
			e.no(err)
			for _, s := range r.GetSessions() {
				if owners[s.GetSessionId()] != "" || s.GetSessionId() == gone {
					listed = append(listed, s)
				}
			}
			if token = r.GetNextPageToken(); token == "" {
				return listed
			}
		}
	}
	for _, size := range []int32{0, 2, 200} {
		e.eventually(func() string { // the list lags behind the logs, and other scenarios move in it
			listed := list(size)
			if len(listed) != len(owners) || listed[0].GetSessionId() != again || listed[0].GetHeadSeq() != 2 {
				return fmt.Sprintf("in pages of %d: %v", size, listed)
			}
			for i, s := range listed {
				if s.GetOwnerId() != owners[s.GetSessionId()] || s.GetTitle() != "title of "+s.GetSessionId() || s.GetUnread() != 0 ||
					s.GetReadSeq() != s.GetHeadSeq() || i > 0 && s.GetActiveTime().AsTime().UnixMilli() > listed[i-1].GetActiveTime().AsTime().UnixMilli() {
					return fmt.Sprintf("in pages of %d, session %d: %v", size, i, listed)
				}
			}
			return ""
		})
	}
	e.refused("all, listed by an owner", errOf(users[0].ListSessions(e.ctx, &parleyv1.ListSessionsRequest{AllUsers: true})),
		refusal{connect.CodePermissionDenied, "CAPABILITY_MISSING", "all_users", 0})
	e.refused("all, of a user", errOf(e.ann.ListSessions(e.ctx, &parleyv1.ListSessionsRequest{AllUsers: true, UserId: users[0].user})),
		refusal{connect.CodeInvalidArgument, "INVALID_FIELD", "user_id", 0})
	first, err := e.ann.ListSessions(e.ctx, &parleyv1.ListSessionsRequest{AllUsers: true, PageSize: 1})
	e.no(err)
	e.refused("the page token of another list", errOf(e.ann.ListSessions(e.ctx, &parleyv1.ListSessionsRequest{PageToken: first.GetNextPageToken()})),
		refusal{connect.CodeInvalidArgument, "PAGE_TOKEN_INVALID", "page_token", 0})
}
