// Package message is the domain of the message pipeline: the entries of a channel's log, how they
// are sequenced and group-committed (Writer), how they are read (Reader), and the use cases that
// the transport calls (Service).
//
// The package declares the interfaces that it depends on. It imports no driver, no transport and no
// generated code.
package message

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Kind is what an entry does: it sends a message, changes an earlier one, or marks the place from
// which on another access revision applies. Expired entries do nothing.
type Kind int8

// The kinds. The values are stored and must not change.
const (
	KindSend   Kind = 0
	KindEdit   Kind = 1
	KindRecall Kind = 2
	// KindComplete, KindCancel and KindFail close an open message. They give it its final text.
	KindComplete Kind = 3
	KindCancel   Kind = 4
	KindFail     Kind = 5
	// KindAccess entries have no message. Clients see only that a position covers them.
	KindAccess Kind = 6
	// KindExpired is what any entry becomes when it is stripped; see LogTrimmer.
	KindExpired Kind = 7
)

// Changes reports whether an entry of this kind changes an earlier message.
func (k Kind) Changes() bool { return k >= KindEdit && k <= KindFail }

// Closes reports whether an entry of this kind closes an open message.
func (k Kind) Closes() bool { return k >= KindComplete && k <= KindFail }

// Status is the state of a message.
type Status int8

// The statuses. The values are in stores, the cache and published events, and must not change.
// Those above StatusSent, and no others, are of messages that an entry has changed.
const (
	StatusSent     Status = 0
	StatusEdited   Status = 1
	StatusRecalled Status = 2
	// StatusOpen is the state of a message whose text is still being generated. It is closed by an
	// entry of its own: KindComplete makes it StatusComplete, KindCancel StatusCancelled and KindFail
	// StatusFailed. It can be recalled, and not edited.
	StatusOpen      Status = -1
	StatusComplete  Status = 3
	StatusCancelled Status = 4
	StatusFailed    Status = 5
)

// After returns the status of a message after a change of this kind.
func (k Kind) After() Status {
	switch k {
	case KindEdit:
		return StatusEdited
	case KindRecall:
		return StatusRecalled
	case KindComplete:
		return StatusComplete
	case KindCancel:
		return StatusCancelled
	case KindFail:
		return StatusFailed
	case KindSend, KindAccess, KindExpired:
	}
	return StatusSent
}

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
	// Rev is the access revision of the entry at ChangedSeq: the message may be shown only to those
	// who were allowed to read the channel at this revision or a later one. See Entry.
	Rev int64
}

// LastChange returns the kind of the entry at ChangedSeq, KindSend if no entry has changed the
// message.
func (m *Message) LastChange() Kind {
	switch m.Status {
	case StatusEdited:
		return KindEdit
	case StatusRecalled:
		return KindRecall
	case StatusComplete:
		return KindComplete
	case StatusCancelled:
		return KindCancel
	case StatusFailed:
		return KindFail
	case StatusSent, StatusOpen:
	}
	return KindSend
}

// Size returns the bytes of the text and the metadata, by which pages are limited.
func (m *Message) Size() int {
	n := len(m.Content)
	for k, v := range m.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// Entry is one entry of a channel's log, as a store keeps it.
//
// For a change, MsgID and TargetSeq are those of the target, and FromID is the user who made the
// change. Content is the new text, which a recall does not have, while Pending is set. Metadata,
// MsgType and Status are empty. For a send, the embedded Message includes the changes that
// LogWriter.Apply has applied to it: they change Content, Metadata, Status, ChangedSeq and Rev.
//
// Rev never falls along a log. The revision of a channel rises whenever the channel is closed or
// opened. An entry is stored with the revision at which its sender was checked, or with that of the
// entry before it if that is higher.
type Entry struct {
	Message
	Kind Kind
	// TargetSeq is the seq of the message that a change changes; 0 for a send.
	TargetSeq int64
	// Bytes is the sum of the StoredSizes of the log's entries up to and including this one, as they
	// were appended. Recalls do not reduce it. Entries from before stores had it count as 0.
	Bytes int64
	// Pending is set for a change that LogWriter.Apply has not applied to its message. An applied one
	// has no Content: the text is in the message only, so that no read of the log loads the texts of
	// edits that later ones replaced.
	Pending bool
	// Digest identifies the payload as first requested; see newDigest. It distinguishes a repeat from
	// a reused client_msg_id. A recall removes that of the message, and has none.
	Digest []byte
	// Traceparent is the W3C trace context of the request that appended the entry; empty if the
	// request was not sampled.
	Traceparent string
}

// Shard returns the shard of a channel, in [0, n), where n is the number of shards. The mapping
// must never change: no store records it, but it decides where every entry is stored.
func Shard(channelID string, n int) int { return share(channelID, n) }

// Buckets is the number of buckets of a fleet. There are far more than nodes, so that each node is
// the home of about as many as any other.
const Buckets = 256

// Bucket returns the bucket of a channel, in [0, n), where n is the number of buckets. A bucket's
// home node writes the entries of its channels. Nodes that disagree about buckets lose speed only,
// so the mapping and the number may change between versions.
func Bucket(channelID string, n int) int { return share(channelID, n) }

// share maps a channel to a number in [0, n), evenly.
func share(channelID string, n int) int {
	return int(xxhash.Sum64String(channelID) % uint64(n)) //nolint:gosec // n is small and positive
}

// A digest of a send is a random salt, followed by an HMAC of the payload that is keyed with the
// salt. The digest of an edit, or of a close, is an HMAC keyed with the digest of its message. So a
// recall must remove one digest, that of the message: without it, nobody can test a guess of the
// message's text, or of the text of any of its edits, against what remains.
const (
	saltBytes   = 12
	digestBytes = 32
)

// newDigest returns the digest of a draft of a send, an edit or a close; target is the digest of
// the changed message. It returns nil for a recall, whose payload is its target.
func newDigest(d *Draft, target []byte) []byte {
	switch d.Kind {
	case KindSend:
		salt := make([]byte, saltBytes, digestBytes)
		_, _ = rand.Read(salt) // never fails
		return append(salt, payloadMAC(d, salt)[:digestBytes-saltBytes]...)
	case KindEdit, KindComplete, KindCancel, KindFail:
		return payloadMAC(d, target)
	case KindRecall, KindAccess, KindExpired:
	}
	return nil
}

// samePayload reports whether a draft has the payload of the stored entry e, which has its client
// key; target is the digest of the changed message. If a recall or an expiry has removed the
// digests, it compares only the kind and, for a change, the changed message.
func samePayload(d *Draft, e *Entry, target []byte) bool {
	if e.Kind == KindExpired {
		return (d.Kind == KindSend) == (e.TargetSeq == 0) && (d.Kind == KindSend || e.MsgID == d.MsgID)
	}
	if e.Kind != d.Kind || d.Kind != KindSend && e.MsgID != d.MsgID {
		return false
	}
	switch {
	case len(e.Digest) == 0:
		return true
	case d.Kind == KindSend && len(e.Digest) > saltBytes:
		salt := e.Digest[:saltBytes]
		return hmac.Equal(e.Digest[saltBytes:], payloadMAC(d, salt)[:digestBytes-saltBytes])
	case d.Kind != KindSend && len(target) > 0:
		return hmac.Equal(e.Digest, payloadMAC(d, target))
	}
	return true
}

// payloadMAC returns the HMAC-SHA-256 of the draft's type, text and metadata, and of whether it is
// open. Each field is preceded by its length, so that different payloads never have the same
// encoding. The text of a cancellation is no part of it: it is what the server knew of the message
// at the time, which a repeat can't know.
func payloadMAC(d *Draft, key []byte) []byte {
	h := hmac.New(sha256.New, key)
	putField(h, d.MsgType)
	if d.Kind != KindCancel {
		putField(h, d.Content)
	}
	if d.Open {
		putField(h, "open") // an odd number of fields, unlike that of pairs
	}
	for _, k := range slices.Sorted(maps.Keys(d.Metadata)) {
		putField(h, k)
		putField(h, d.Metadata[k])
	}
	return h.Sum(nil)
}

func putField(h hash.Hash, s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	h.Write(n[:])
	h.Write([]byte(s))
}

// apply applies a change to the message, unless the message already has that change or a
// later one.
func (m *Message) apply(change *Entry) {
	if change.Seq <= m.ChangedSeq {
		return
	}
	m.ChangedSeq, m.Rev, m.Status = change.Seq, max(m.Rev, change.Rev), change.Kind.After()
	switch change.Kind {
	case KindEdit, KindComplete, KindCancel, KindFail:
		m.Content = change.Content
	case KindRecall:
		m.Content, m.Metadata = "", nil
		if change.Erases() {
			m.FromID, m.ClientMsgID = ErasedUser, ErasedKey(m.Seq)
		}
	case KindSend, KindAccess, KindExpired:
	}
}

// Fold applies the pending ones among changes to their targets among messages, in
// ascending order of seq or not. Applied ones are skipped: their targets include them.
func Fold(messages, changes []Entry) {
	var at map[Place]*Entry
	for i := range changes {
		change := &changes[i]
		if !change.Pending {
			continue
		}
		if at == nil {
			at = make(map[Place]*Entry, len(messages))
			for j := range messages {
				at[Place{messages[j].ChannelID, messages[j].Seq}] = &messages[j]
			}
		}
		if target := at[Place{change.ChannelID, change.TargetSeq}]; target != nil {
			target.apply(change)
		}
	}
}
