package cli

import (
	"fmt"
	"io"
	"strings"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// chatView writes a conversation: messages in the order of their log, open ones as their text
// comes.
type chatView struct {
	p printer
	// interactive is set for a user at a terminal, who sees what they type and gets a prompt.
	interactive bool
	from        int64           // messages up to this seq are not shown
	own         map[string]bool // the client_msg_ids of prompts that were typed here
	texts       parley.OpenTexts
	messages    map[string]*chatMessage
	unwritten   []string // the ids of messages that are not completely written, in order
	midLine     bool     // the cursor is not at the start of a line
	prompted    bool

	// answered is the highest seq of an answer that is not open. complete is false if that answer was
	// cancelled, failed or recalled.
	answered int64
	complete bool
}

// chatMessage is what the view has of a message.
type chatMessage struct {
	*parley.Message
	text    string
	written string // the part of text that was written
	begun   bool
	done    bool // written completely
}

func newChatView(p printer, interactive bool) *chatView {
	return &chatView{p: p, interactive: interactive && !p.json, own: make(map[string]bool), messages: make(map[string]*chatMessage)}
}

// typed says that a prompt with this client_msg_id was typed.
func (v *chatView) typed(clientMsgID string) {
	v.own[clientMsgID], v.prompted, v.midLine = true, false, false
}

// prompt asks for a prompt, once.
func (v *chatView) prompt() error {
	if !v.interactive || v.prompted {
		return nil
	}
	v.prompted = true
	return v.write("> ")
}

// end ends the last line.
func (v *chatView) end() error { return v.newLine() }

// isOpen reports whether a message is open.
func (v *chatView) isOpen() bool { return len(v.unwritten) > 0 }

// openAnswer returns the id of the message that is written, or an empty string.
func (v *chatView) openAnswer() string {
	if len(v.unwritten) == 0 {
		return ""
	}
	return v.unwritten[0]
}

// isAnswer reports whether m is an answer with a seq of at least from that is not open.
func (*chatView) isAnswer(m *parley.Message, from int64) bool {
	return m.GetMsgType() == string(parley.SessionRoleAssistant) && m.GetSeq() >= from &&
		m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN
}

// deltaJSON is the JSON form of a piece of an open message.
type deltaJSON struct {
	Event     string `json:"event"`
	ChannelID string `json:"channel_id"`
	MsgID     string `json:"msg_id"`
	Offset    int64  `json:"offset"`
	Text      string `json:"text"`
}

// apply takes an event and writes what it changes.
func (v *chatView) apply(e *parley.Event) error {
	if e.Kind == parley.EventGap {
		v.answered = max(v.answered, e.Gap.GetToSeq())
	}
	if e.Kind == parley.EventTyping || e.Message != nil && e.Message.GetSeq() <= v.from {
		return nil
	}
	id, text, ok := v.texts.Apply(e)
	if e.Message == nil && !ok {
		if err := v.newLine(); err != nil {
			return err
		}
		return v.p.event(*e)
	}
	m := v.messages[id]
	switch {
	case m == nil:
		m = &chatMessage{}
		v.messages[id] = m
		v.unwritten = append(v.unwritten, id)
	case e.Message != nil && e.Message.GetChangedSeq() <= m.GetChangedSeq():
		return nil // a replay has the current state at each entry
	}
	before := m.text
	m.text = text
	if e.Message != nil {
		m.Message = e.Message
		if v.isAnswer(m.Message, v.answered) {
			v.answered, v.complete = m.GetSeq(), !isBroken(m.GetStatus())
		}
	}
	if v.p.json {
		v.unwritten = v.openOnes()
		if e.Delta != nil {
			return v.p.print(deltaJSON{"delta", e.ChannelID, id, e.Delta.GetOffset(), e.Delta.GetText()}, "")
		}
		return v.p.event(*e)
	}
	if m.done {
		return v.changed(m, before)
	}
	return v.writeAll()
}

// openOnes returns the messages of unwritten that are open.
func (v *chatView) openOnes() []string {
	var open []string
	for _, id := range v.unwritten {
		if v.messages[id].GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
			open = append(open, id)
		}
	}
	return open
}

// changed writes that a message that was written has changed.
func (v *chatView) changed(m *chatMessage, before string) error {
	if m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED {
		return v.line(fmt.Sprintf("(recalled) %s: %s", m.GetMsgType(), before))
	}
	return v.line(fmt.Sprintf("(edited) %s: %s", m.GetMsgType(), m.text))
}

// writeAll writes messages until one is open.
func (v *chatView) writeAll() error {
	for len(v.unwritten) > 0 {
		m := v.messages[v.unwritten[0]]
		if err := v.writeMessage(m); err != nil {
			return err
		}
		if m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
			return nil
		}
		m.done, m.written = true, ""
		v.unwritten = v.unwritten[1:]
	}
	return nil
}

// writeMessage writes the part of a message that is new.
func (v *chatView) writeMessage(m *chatMessage) error {
	status := m.GetStatus()
	recalled := status == parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED
	if !m.begun && (recalled || v.interactive && v.own[m.GetClientMsgId()]) {
		return nil
	}
	if !recalled && m.begun && !strings.HasPrefix(m.text, m.written) {
		if err := v.line("(the text begins again)"); err != nil {
			return err
		}
		m.begun, m.written = false, ""
	}
	if !m.begun {
		m.begun = true
		if err := v.newLine(); err != nil {
			return err
		}
		if err := v.write(m.GetMsgType() + ": "); err != nil {
			return err
		}
	}
	if !recalled {
		if err := v.write(terminalText(m.text[len(m.written):])); err != nil {
			return err
		}
		m.written = m.text
	}
	switch {
	case status == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN:
		return nil
	case isBroken(status):
		return v.line("(" + lowerName(status.String(), "MESSAGE_STATUS_") + ")")
	default:
		return v.newLine()
	}
}

// isBroken reports whether a message was cancelled, failed or recalled.
func isBroken(status parleyv1.MessageStatus) bool {
	return status == parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED || status == parleyv1.MessageStatus_MESSAGE_STATUS_FAILED ||
		status == parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED
}

// line writes a text as a line of its own.
func (v *chatView) line(text string) error {
	if err := v.newLine(); err != nil {
		return err
	}
	return v.write(oneLine(text) + "\n")
}

// newLine ends the line if there is something on it.
func (v *chatView) newLine() error {
	if v.p.json || !v.midLine {
		return nil
	}
	v.prompted = false
	return v.write("\n")
}

func (v *chatView) write(text string) error {
	if text == "" {
		return nil
	}
	v.midLine = !strings.HasSuffix(text, "\n")
	_, err := io.WriteString(v.p.w, text)
	return err
}

// terminalText escapes characters that would control the terminal, except for new lines and tabs.
func terminalText(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		cells := strings.Split(line, "\t")
		for j, cell := range cells {
			cells[j] = oneLine(cell)
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return strings.Join(lines, "\n")
}
