// Package message is the message pipeline's domain: what an entry of a channel's log is, how entries are sequenced and
// group-committed (Writer), how they are read (Reader), and the use-cases that the transport calls (Service).
//
// It declares the interfaces of what it calls, and knows no driver, no transport and no generated code.
package message

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Kind says what an entry did to the log.
type Kind int8

// The kinds, as they are stored.
const (
	KindSend   Kind = 0
	KindEdit   Kind = 1
	KindRecall Kind = 2
)

// Status says what has become of a message.
type Status int8

// The statuses, as they are stored, cached and published.
const (
	StatusSent     Status = 0
	StatusEdited   Status = 1
	StatusRecalled Status = 2
)

// Message is one message of a channel, as it is now. It is a value: whoever changes Metadata clones it first.
type Message struct {
	MsgID     string
	ChannelID string
	// Seq is its place in the log, dense from 1; Count how many messages the log holds up to and with it.
	Seq, Count  int64
	FromID      string
	MsgType     string
	Content     string
	Metadata    map[string]string
	ClientMsgID string
	// MsgTime is in UTC and whole milliseconds, which is what every store keeps.
	MsgTime time.Time
	Status  Status
	// ChangedSeq is the last entry that changed it; its own Seq if none has. The higher one wins.
	ChangedSeq int64
}

// Entry is one entry of a channel's log, as a store keeps it.
//
// For an edit or a recall, MsgID is the target's, TargetSeq the target's place, FromID who made the change, Content an
// edit's new text; Metadata, MsgType and Status are empty. For a send, the embedded Message is the message as it is
// now: Apply has changed Content, Metadata, Status and ChangedSeq.
type Entry struct {
	Message
	Kind Kind
	// TargetSeq is the seq of the message that an edit or a recall changes; 0 for a send.
	TargetSeq int64
	// Digest is that of the payload as first asked for, by which a repeat is told from a clash. A recall removes it.
	Digest []byte
	// Traceparent is the W3C trace context of the request that appended it; empty if that was not sampled.
	Traceparent string
}

// Bucket maps a channel to one of n buckets. It is stored in nothing but decides where everything is stored: it must
// never change.
func Bucket(channelID string, n int) int {
	return int(xxhash.Sum64String(channelID) % uint64(n)) //nolint:gosec // n is small and positive
}

// digestOf is SHA-256 over the payload's fields, each preceded by its length, so that no two payloads share one form.
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

// apply changes a message by an edit or a recall of it, if that is newer than what changed the message before.
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

// Fold applies the edits and recalls among entries to their targets among them. A store may show an entry before its
// target was changed; what is built from a read must not keep the older text.
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
