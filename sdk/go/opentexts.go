package parley

import parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"

// OpenTexts joins the deltas of open messages to texts. Pass it every event of a subscription. The
// zero value is ready to use. It is not safe for concurrent use.
type OpenTexts struct {
	// texts holds the text of each open message, by its id.
	texts map[string][]byte
}

// Apply takes an event. If the event is about a message, it returns the message's id and the text
// to show: what an open message has so far, or else its content. Otherwise ok is false, also for a
// delta that continues a text of which it has not seen the beginning.
func (t *OpenTexts) Apply(e *Event) (msgID, text string, ok bool) {
	if m := e.Message; m != nil {
		if m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
			delete(t.texts, m.GetMsgId())
			return m.GetMsgId(), m.GetContent(), true
		}
		if t.texts == nil {
			t.texts = make(map[string][]byte)
		}
		if _, known := t.texts[m.GetMsgId()]; !known {
			t.texts[m.GetMsgId()] = []byte(m.GetContent())
		}
		return m.GetMsgId(), string(t.texts[m.GetMsgId()]), true
	}
	if e.Delta == nil {
		return "", "", false
	}
	id, offset := e.Delta.GetMsgId(), e.Delta.GetOffset()
	known := t.texts[id] // none if the subscription began after the message
	if offset > int64(len(known)) {
		return "", "", false // late, after the close
	}
	if t.texts == nil {
		t.texts = make(map[string][]byte)
	}
	t.texts[id] = append(known[:offset], e.Delta.GetText()...)
	return id, string(t.texts[id]), true
}
