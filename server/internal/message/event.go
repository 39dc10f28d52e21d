package message

import (
	"encoding/json"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// Event is what the change feed publishes of one entry: the entry's place, and the whole message as it now is.
type Event struct {
	Kind  Kind
	Epoch string
	// Seq is the entry's place in the log, Count how many messages the log holds up to and with it.
	Seq, Count int64
	// Time is when the entry was appended.
	Time time.Time
	// Message is the message that was sent, or the target of the edit or recall as it now is.
	Message Message
	// Traceparent is that of the request which appended the entry; may be empty.
	Traceparent string
}

// eventNames are the wire names of the kinds, by Kind.
var eventNames = [...]string{KindSend: "insert", KindEdit: "edit", KindRecall: "recall"}

// Name is the kind's `event_type`.
func (k Kind) Name() string { return eventNames[k] }

// record is the JSON form of an event, and of a cached entry, which has no event_type, channel_id and timestamp.
// Epoch and seq stand first and in this order: the cache's scripts compare the bytes of a value's head.
type record struct {
	Epoch       string            `json:"epoch"`
	Seq         int64             `json:"seq"`
	TargetSeq   int64             `json:"target_seq,omitempty"`
	EventType   string            `json:"event_type,omitempty"`
	MsgID       string            `json:"msg_id"`
	ChannelID   string            `json:"channel_id,omitempty"`
	Count       int64             `json:"count"`
	MsgCount    int64             `json:"msg_count,omitempty"`
	FromID      string            `json:"from_id"`
	MsgType     string            `json:"msg_type"`
	Content     string            `json:"content"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	ClientMsgID string            `json:"client_msg_id"`
	MsgTime     string            `json:"msg_time"`
	Status      Status            `json:"status"`
	ChangedSeq  int64             `json:"changed_seq"`
	Timestamp   string            `json:"timestamp,omitempty"`
	Traceparent string            `json:"traceparent,omitempty"`
}

// timeLayout is RFC 3339 in UTC with the milliseconds that are stored.
const timeLayout = "2006-01-02T15:04:05.000Z"

// MarshalJSON gives the event as it is published: a flat object with the fields of the message_change_events contract.
// For an edit or a recall `msg_id`, `from_id`, `content`, `status` and so on are the target's, `target_seq` and
// `msg_count` its seq and count.
func (e Event) MarshalJSON() ([]byte, error) {
	m := &e.Message
	r := record{
		Epoch: e.Epoch, Seq: e.Seq, EventType: e.Kind.Name(), MsgID: m.MsgID, ChannelID: m.ChannelID, Count: e.Count,
		FromID: m.FromID, MsgType: m.MsgType, Content: m.Content, Metadata: m.Metadata, ClientMsgID: m.ClientMsgID,
		MsgTime: m.MsgTime.UTC().Format(timeLayout), Status: m.Status, ChangedSeq: m.ChangedSeq,
		Timestamp: e.Time.UTC().Format(timeLayout), Traceparent: e.Traceparent,
	}
	if e.Kind != KindSend {
		r.TargetSeq, r.MsgCount = m.Seq, m.Count
	}
	return json.Marshal(r)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Event) UnmarshalJSON(data []byte) error {
	r, err := readRecord(data)
	if err != nil {
		return err
	}
	kind := Kind(-1)
	for k, name := range eventNames {
		if name == r.EventType {
			kind = Kind(k)
		}
	}
	if kind < 0 {
		return fmt.Errorf("event_type %q is unknown", r.EventType)
	}
	at, err := time.Parse(time.RFC3339, r.Timestamp)
	if err != nil {
		return fmt.Errorf("timestamp: %w", err)
	}
	m, err := r.message()
	if err != nil {
		return err
	}
	m.ChannelID = r.ChannelID
	if kind != KindSend {
		m.Seq, m.Count = r.TargetSeq, r.MsgCount
	}
	*e = Event{Kind: kind, Epoch: r.Epoch, Seq: r.Seq, Count: r.Count, Time: at, Message: m, Traceparent: r.Traceparent}
	return nil
}

// readRecord reads a record. Every message is read two times on its way, and fifty for a page of a list: the coming
// version of encoding/json takes a third of the time.
func readRecord(data []byte) (r record, err error) {
	err = jsonv2.Unmarshal(data, &r)
	return r, err
}

func (r *record) message() (Message, error) {
	at, err := time.Parse(time.RFC3339, r.MsgTime) // reads timeLayout too, and faster than by that name
	if err != nil {
		return Message{}, fmt.Errorf("msg_time: %w", err)
	}
	return Message{
		MsgID: r.MsgID, Seq: r.Seq, Count: r.Count, FromID: r.FromID, MsgType: r.MsgType, Content: r.Content,
		Metadata: r.Metadata, ClientMsgID: r.ClientMsgID, MsgTime: at, Status: r.Status, ChangedSeq: r.ChangedSeq,
	}, nil
}

// Cached is one entry as the cache holds it. Of an edit or a recall it holds only which message it changed: the text is
// in the message's own value, so that a recall has one place to remove it from.
type Cached struct {
	Epoch string
	Seq   int64
	// Count is how many messages the log holds up to and with the entry.
	Count int64
	Kind  Kind
	// TargetSeq and MsgID name the message that an edit or a recall changed.
	TargetSeq int64
	// Message is set for a send.
	Message Message
}

// CachedOf gives the cached form of an entry.
func CachedOf(epoch string, e *Entry) Cached {
	return Cached{Epoch: epoch, Seq: e.Seq, Count: e.Count, Kind: e.Kind, TargetSeq: e.TargetSeq, Message: e.Message}
}

// cachedChange is the JSON form of a cached edit or recall.
type cachedChange struct {
	Epoch     string `json:"epoch"`
	Seq       int64  `json:"seq"`
	TargetSeq int64  `json:"target_seq"`
	EventType string `json:"event_type"`
	MsgID     string `json:"msg_id"`
	Count     int64  `json:"count"`
}

// MarshalJSON gives the cache's value. It begins with CachedHead for every kind.
func (c Cached) MarshalJSON() ([]byte, error) {
	if c.Kind != KindSend {
		return json.Marshal(cachedChange{
			Epoch: c.Epoch, Seq: c.Seq, TargetSeq: c.TargetSeq, EventType: c.Kind.Name(), MsgID: c.Message.MsgID,
			Count: c.Count,
		})
	}
	m := &c.Message
	return json.Marshal(record{
		Epoch: c.Epoch, Seq: c.Seq, MsgID: m.MsgID, Count: m.Count, FromID: m.FromID, MsgType: m.MsgType,
		Content: m.Content, Metadata: m.Metadata, ClientMsgID: m.ClientMsgID,
		MsgTime: m.MsgTime.UTC().Format(timeLayout), Status: m.Status, ChangedSeq: m.ChangedSeq,
	})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Cached) UnmarshalJSON(data []byte) error {
	r, err := readRecord(data)
	if err != nil {
		return err
	}
	*c = Cached{Epoch: r.Epoch, Seq: r.Seq, Count: r.Count}
	switch r.EventType {
	case "":
		m, err := r.message()
		if err != nil {
			return err
		}
		c.Message = m
		return nil
	case KindEdit.Name():
		c.Kind = KindEdit
	case KindRecall.Name():
		c.Kind = KindRecall
	default:
		return fmt.Errorf("event_type %q is unknown", r.EventType)
	}
	c.TargetSeq, c.Message.MsgID = r.TargetSeq, r.MsgID
	return nil
}

// CachedHead is what a value of this epoch and seq begins with, byte for byte.
func CachedHead(epoch string, seq int64) string {
	return fmt.Sprintf(`{"epoch":%q,"seq":%d,`, epoch, seq)
}
