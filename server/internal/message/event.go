package message

import (
	"encoding/json"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// Event is the published form of one entry: the position of the entry, and the complete message in
// its current state.
type Event struct {
	Kind  Kind
	Epoch string
	// Seq is the seq of the entry. Count is the number of messages in the log up to and including it.
	// It is 0 for an edit or a recall from Reader.Replay.
	Seq, Count int64
	// Rev is the access revision that a subscriber must have been checked at: that of the entry, or of
	// the message's newest change if that is higher. It is 0 for an event that is Passed from
	// Reader.Replay.
	Rev int64
	// FromSeq is the seq of the first entry that the event covers; 0 means Seq. An event of
	// Reader.Replay also covers the edits before it that later changes of their messages replaced.
	FromSeq int64
	// Passed is set for an event that only covers entries: edits that later changes beyond the event
	// replaced, edits and recalls whose messages have expired, and access entries. Its Message has
	// only a ChannelID, and its Kind is KindExpired or KindAccess.
	Passed bool
	// Time is when the entry was appended. It is zero for an edit or a recall from Reader.Replay.
	Time time.Time
	// Message is the message that was sent, edited or recalled. It may include later changes.
	Message Message
	// Traceparent is the trace context of the request that appended the entry; may be empty.
	Traceparent string
}

// From returns the seq of the first entry that the event covers.
func (e Event) From() int64 {
	if e.FromSeq == 0 {
		return e.Seq
	}
	return e.FromSeq
}

// eventNames holds the wire names of the kinds, indexed by Kind.
var eventNames = [...]string{
	KindSend: "insert", KindEdit: "edit", KindRecall: "recall", KindComplete: "complete", KindCancel: "cancel", KindFail: "fail",
	KindAccess: "access", KindExpired: "expired",
}

// Name returns the `event_type` of the kind.
func (k Kind) Name() string { return eventNames[k] }

// record is the JSON form of an event and of a cached message, which has no event_type, channel_id
// or timestamp. Epoch and seq must come first, in this order, and changed_seq last in a cached
// message: the scripts of the cache compare the bytes of a value.
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
	Rev         int64             `json:"rev,omitempty"`
	ChangedSeq  int64             `json:"changed_seq"`
	Timestamp   string            `json:"timestamp,omitempty"`
	Traceparent string            `json:"traceparent,omitempty"`
}

// timeLayout is RFC 3339 in UTC with milliseconds, the precision that is stored.
const timeLayout = "2006-01-02T15:04:05.000Z"

// MarshalJSON encodes the event as it is published: a flat object with the fields of the
// message_change_events contract. For an edit or a recall, `msg_id`, `from_id`, `content`, `status`
// and the like are those of the target; `target_seq` and `msg_count` are the target's seq and
// count.
func (e Event) MarshalJSON() ([]byte, error) {
	m := &e.Message
	r := record{
		Epoch: e.Epoch, Seq: e.Seq, EventType: e.Kind.Name(), MsgID: m.MsgID, ChannelID: m.ChannelID, Count: e.Count,
		FromID: m.FromID, MsgType: m.MsgType, Content: m.Content, Metadata: m.Metadata, ClientMsgID: m.ClientMsgID,
		MsgTime: m.MsgTime.UTC().Format(timeLayout), Status: m.Status, ChangedSeq: m.ChangedSeq,
		Timestamp: e.Time.UTC().Format(timeLayout), Traceparent: e.Traceparent, Rev: max(e.Rev, m.Rev),
	}
	if e.Kind != KindSend {
		r.TargetSeq, r.MsgCount = m.Seq, m.Count
	}
	return json.Marshal(r)
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (e *Event) UnmarshalJSON(data []byte) error {
	r, err := readRecord(data)
	if err != nil {
		return err
	}
	kind := Kind(-1)
	for k, name := range eventNames {
		if name == r.EventType && name != "" {
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
	passed := kind == KindExpired || kind == KindAccess
	if passed {
		m = Message{ChannelID: r.ChannelID}
	}
	*e = Event{
		Kind: kind, Epoch: r.Epoch, Seq: r.Seq, Count: r.Count, Rev: r.Rev, Time: at, Message: m, Traceparent: r.Traceparent,
		Passed: passed,
	}
	return nil
}

// readRecord decodes a record. It uses the next version of encoding/json, which takes a third of
// the time: every message is decoded twice between store and subscriber, and a page of a list
// decodes fifty.
func readRecord(data []byte) (r record, err error) {
	err = jsonv2.Unmarshal(data, &r)
	return r, err
}

func (r *record) message() (Message, error) {
	at, err := time.Parse(time.RFC3339, r.MsgTime) // accepts timeLayout too, and is faster
	if err != nil {
		return Message{}, fmt.Errorf("msg_time: %w", err)
	}
	return Message{
		MsgID: r.MsgID, Seq: r.Seq, Count: r.Count, FromID: r.FromID, MsgType: r.MsgType, Content: r.Content,
		Metadata: r.Metadata, ClientMsgID: r.ClientMsgID, MsgTime: at, Status: r.Status, ChangedSeq: r.ChangedSeq,
		Rev: r.Rev,
	}, nil
}

// Cached is a message as the cache holds it.
type Cached struct {
	Epoch   string
	Message Message
}

// MarshalJSON encodes the value for the cache. It begins with CachedHead and the seq, and ends with
// `"changed_seq":`, the number and `}`: the scripts of the cache read these.
func (c Cached) MarshalJSON() ([]byte, error) {
	m := &c.Message
	return json.Marshal(record{
		Epoch: c.Epoch, Seq: m.Seq, MsgID: m.MsgID, Count: m.Count, FromID: m.FromID, MsgType: m.MsgType,
		Content: m.Content, Metadata: m.Metadata, ClientMsgID: m.ClientMsgID,
		MsgTime: m.MsgTime.UTC().Format(timeLayout), Status: m.Status, ChangedSeq: m.ChangedSeq, Rev: m.Rev,
	})
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (c *Cached) UnmarshalJSON(data []byte) error {
	r, err := readRecord(data)
	if err != nil {
		return err
	}
	m, err := r.message()
	if err != nil {
		return err
	}
	*c = Cached{Epoch: r.Epoch, Message: m}
	return nil
}

// CachedHead returns the bytes with which each cached value of this epoch begins, before its seq.
func CachedHead(epoch string) string { return fmt.Sprintf(`{"epoch":%q,"seq":`, epoch) }
