package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// printer writes lines for humans or JSON for programs to w. For humans, notice writes to stderr.
type printer struct {
	w, stderr io.Writer
	json      bool
}

func (s *session) printer() printer {
	return printer{w: s.stdout, stderr: s.stderr, json: s.flags.JSON}
}

// print writes value as JSON if the user asked for JSON, else text.
func (p printer) print(value any, text string) error {
	if !p.json {
		_, err := io.WriteString(p.w, text+"\n")
		return err
	}
	encoder := json.NewEncoder(p.w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// messageJSON is the JSON form of a message.
type messageJSON struct {
	Event       string            `json:"event,omitempty"`
	ChannelID   string            `json:"channel_id"`
	EventSeq    int64             `json:"event_seq,omitempty"`
	Seq         int64             `json:"seq"`
	Count       int64             `json:"count"`
	MsgID       string            `json:"msg_id"`
	FromID      string            `json:"from_id"`
	MsgType     string            `json:"msg_type"`
	Content     string            `json:"content"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	ClientMsgID string            `json:"client_msg_id"`
	MsgTime     time.Time         `json:"msg_time"`
	Status      string            `json:"status"`
	ChangedSeq  int64             `json:"changed_seq"`
}

func toJSON(m *parley.Message) messageJSON {
	return messageJSON{
		ChannelID: m.GetChannelId(), Seq: m.GetSeq(), Count: m.GetCount(), MsgID: m.GetMsgId(), FromID: m.GetFromId(),
		MsgType: m.GetMsgType(), Content: m.GetContent(), Metadata: m.GetMetadata(), ClientMsgID: m.GetClientMsgId(),
		MsgTime: m.GetMsgTime().AsTime(), Status: lowerName(m.GetStatus().String(), "MESSAGE_STATUS_"),
		ChangedSeq: m.GetChangedSeq(),
	}
}

func lowerName(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// message writes a message in its current state.
func (p printer) message(m *parley.Message) error {
	return p.print(toJSON(m), line(m, m.GetSeq(), messageText(m)))
}

// event writes an event of a subscription. It ignores channel states.
func (p printer) event(e parley.Event) error {
	switch e.Kind {
	case parley.EventSent, parley.EventEdited, parley.EventRecalled, parley.EventClosed:
	case parley.EventGap:
		return p.gap(e)
	case parley.EventLost:
		return p.lost(e)
	case parley.EventTyping:
		return p.typing(e)
	case parley.EventChannelState:
		return nil
	default:
		return nil
	}
	value := toJSON(e.Message)
	value.Event, value.EventSeq = e.Kind.String(), e.Seq
	text := messageText(e.Message)
	if e.Kind != parley.EventSent {
		text = fmt.Sprintf("(%s %d) %s", e.Kind, e.Message.GetSeq(), text)
	}
	return p.print(value, line(e.Message, e.Seq, text))
}

// gapJSON is the JSON form of a gap.
type gapJSON struct {
	Event     string `json:"event"`
	ChannelID string `json:"channel_id"`
	AfterSeq  int64  `json:"after_seq"`
	ToSeq     int64  `json:"to_seq"`
	Reason    string `json:"reason"`
	Epoch     string `json:"epoch"`
}

func (p printer) gap(e parley.Event) error {
	reason := lowerName(e.Gap.GetReason().String(), "GAP_REASON_")
	text := fmt.Sprintf("-- %s: entries after %d cannot be sent (%s); continuing after %d",
		e.ChannelID, e.Gap.GetAfterSeq(), strings.ReplaceAll(reason, "_", " "), e.Gap.GetToSeq())
	return p.print(gapJSON{
		Event: "gap", ChannelID: e.ChannelID, AfterSeq: e.Gap.GetAfterSeq(), ToSeq: e.Gap.GetToSeq(), Reason: reason,
		Epoch: e.Gap.GetEpoch(),
	}, text)
}

// lostJSON is the JSON form of the loss of a channel.
type lostJSON struct {
	Event     string `json:"event"`
	ChannelID string `json:"channel_id"`
	Seq       int64  `json:"seq"`
	Epoch     string `json:"epoch"`
	Reason    string `json:"reason"`
}

func (p printer) lost(e parley.Event) error {
	reason := lowerName(e.Lost.GetReason().String(), "LOST_REASON_")
	return p.notice(lostJSON{Event: "lost", ChannelID: e.ChannelID, Seq: e.Seq, Epoch: e.Epoch, Reason: reason},
		fmt.Sprintf("-- %s: lost after %d (%s)", e.ChannelID, e.Seq, strings.ReplaceAll(reason, "_", " ")))
}

// typingJSON is the JSON form of a typing event.
type typingJSON struct {
	Event     string `json:"event"`
	ChannelID string `json:"channel_id"`
	UserID    string `json:"user_id"`
}

func (p printer) typing(e parley.Event) error {
	user := e.Typing.GetUserId()
	return p.notice(typingJSON{Event: "typing", ChannelID: e.ChannelID, UserID: user},
		fmt.Sprintf("-- %s: %s is typing", e.ChannelID, oneLine(user)))
}

// notice writes value as JSON to w if the user asked for JSON, else text to stderr.
func (p printer) notice(value any, text string) error {
	if !p.json {
		p.w = p.stderr
	}
	return p.print(value, text)
}

// line returns a line such as `2026-01-31 12:34:56 general 42 <ann> hello`.
func line(m *parley.Message, seq int64, text string) string {
	at := m.GetMsgTime().AsTime().Local().Format(time.DateTime)
	return fmt.Sprintf("%s %s %d %s", at, m.GetChannelId(), seq, text)
}

// messageText returns a message's sender and content, on one line.
func messageText(m *parley.Message) string {
	from := oneLine(m.GetFromId())
	switch {
	case m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED:
		return fmt.Sprintf("<%s> (recalled)", from)
	case m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN:
		return fmt.Sprintf("<%s> (open) %s", from, oneLine(m.GetContent()))
	case m.GetMsgType() == "action":
		return fmt.Sprintf("* %s %s", from, oneLine(m.GetContent()))
	default:
		return fmt.Sprintf("<%s> %s", from, oneLine(m.GetContent()))
	}
}

// oneLine escapes characters that would break the line or control the terminal.
func oneLine(s string) string {
	if strings.IndexFunc(s, unsafeRune) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unsafeRune(r) {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func unsafeRune(r rune) bool { return !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r) }
