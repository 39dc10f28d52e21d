// Package message is the domain of the message pipeline: the entries of a channel's log, how they
// are sequenced and group-committed (Writer), how they are read (Reader), and the use cases that
// the transport calls (Service).
//
// The package declares the interfaces that it depends on. It imports no driver, no transport and no
// generated code.
package message

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Kind is what an entry does: it sends a message, or edits or recalls an earlier one.
type Kind int8

// The kinds. The values are stored and must not change.
const (
	KindSend   Kind = 0
	KindEdit   Kind = 1
	KindRecall Kind = 2
)

// Status is the state of a message.
type Status int8

// The statuses. The values are in stores, the cache and published events, and must not change.
const (
	StatusSent     Status = 0
	StatusEdited   Status = 1
	StatusRecalled Status = 2
)

// Message is one message of a channel in its current state. It is a value; clone Metadata before
// changing it.
type Message struct {
	MsgID     string
	ChannelID string
	// Seq is the message's position in the log, which starts at 1; edits and recalls have positions of
	// their own. Count is the number of messages in the log up to and including this one.
	Seq, Count  int64
	FromID      string
	MsgType     string
	Content     string
	Metadata    map[string]string
	ClientMsgID string
	// MsgTime is when the message was appended: in UTC and whole milliseconds, the precision that
	// every store keeps.
	MsgTime time.Time
	Status  Status
	// ChangedSeq is the seq of the last entry that changed the message, or its own Seq if none has.
	// Of two versions the one with the higher ChangedSeq is newer.
	ChangedSeq int64
}

// Entry is one entry of a channel's log, as a store keeps it.
//
// For an edit or a recall, MsgID and TargetSeq are those of the target, FromID is the user who made
// the change, and Content is the new text of an edit; Metadata, MsgType and Status are empty. For a
// send, the embedded Message includes the edits and recalls that LogWriter.Apply has applied to it:
// they change Content, Metadata, Status and ChangedSeq.
type Entry struct {
	Message
	Kind Kind
	// TargetSeq is the seq of the message that an edit or a recall changes; 0 for a send.
	TargetSeq int64
	// Digest is the digest of the payload as first requested. It distinguishes a repeat from a
	// reused client_msg_id. A recall removes it.
	Digest []byte
	// Traceparent is the W3C trace context of the request that appended the entry; empty if the
	// request was not sampled.
	Traceparent string
}

// Bucket returns the bucket of a channel, in [0, n), where n is the number of buckets. The mapping
// must never change: no store records it, but it decides where every entry is stored.
func Bucket(channelID string, n int) int {
	return int(xxhash.Sum64String(channelID) % uint64(n)) //nolint:gosec // n is small and positive
}

// digestOf returns the SHA-256 of the payload's fields. Each field is preceded by its length, so
// that different payloads never have the same encoding.
func digestOf(kind Kind, targetMsgID, msgType, content string, metadata map[string]string) []byte {
	h := sha256.New()
	put := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	h.Write([]byte{byte(kind)}) //nolint:gosec // three kinds
	put(targetMsgID)
	put(msgType)
	put(content)
	for _, k := range slices.Sorted(maps.Keys(metadata)) {
		put(k)
		put(metadata[k])
	}
	return h.Sum(nil)
}

// apply applies an edit or a recall to the message, unless the message already has that change or a
// later one.
func (m *Message) apply(change *Entry) {
	if change.Seq <= m.ChangedSeq {
		return
	}
	m.ChangedSeq = change.Seq
	switch change.Kind {
	case KindEdit:
		m.Content, m.Status = change.Content, StatusEdited
	case KindRecall:
		m.Content, m.Metadata, m.Status = "", nil, StatusRecalled
	case KindSend:
	}
}

// Fold applies the edits and recalls among entries to their targets among entries. A store may
// return an entry before it has changed the target, and a reader must not keep the old text.
func Fold(entries []Entry) {
	at := make(map[int64]int, len(entries))
	for i := range entries {
		if entries[i].Kind == KindSend {
			at[entries[i].Seq] = i
		}
	}
	for i := range entries {
		if e := &entries[i]; e.Kind != KindSend {
			if t, ok := at[e.TargetSeq]; ok {
				entries[t].apply(e)
			}
		}
	}
}
