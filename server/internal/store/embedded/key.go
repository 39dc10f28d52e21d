package embedded

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/parleyhq/parley/server/internal/message"
)

// The kinds of rows. A key's first byte is its kind. Names contain no zero byte; a zero byte
// terminates each name, so that no name's rows are mixed with another's. Numbers are big-endian, so
// that keys sort numerically.
const (
	// sendRow: channel, seq -> clusterv1.Entry of a message
	sendRow = 'e'
	// changeRow: channel, seq -> clusterv1.Entry of any other kind
	changeRow = 'x'
	// clientRow: channel, from_id, client_msg_id -> seq
	clientRow = 'k'
	// messageRow: channel, msg_id -> seq of the send
	messageRow = 'i'
	// pendingRow: channel, seq -> target seq, of a change that is not applied
	pendingRow = 'c'
	// changedRow: channel, changed_seq -> seq of the message, which a change has changed
	changedRow = 'd'
	// openRow: Unix milliseconds of its time, channel, seq -> nothing, of open messages
	openRow = 'g'
	// outboxRow: shard, ordinal -> seq, channel of an unpublished entry, in the order of storing
	outboxRow = 'o'
	// channelRow: channel -> channelRecord
	channelRow = 'h'
	// memberRow: channel, user -> memberRecord, of current and former members
	memberRow = 'p'
	// membershipRow: user, channel -> nothing, of current members
	membershipRow = 'u'
	// sessionRow: owner, inverted Unix milliseconds of its activity, channel -> nothing, of Live ones
	sessionRow = 's'
	// activeRow: inverted Unix milliseconds of its activity, channel -> nothing, of Live sessions
	activeRow = 'l'
	// dueRow: Unix milliseconds, zero byte, channel -> nothing, of channels that are due then
	dueRow = 'w'
	// erasureRow: id -> erasureRecord
	erasureRow = 'j'
	// revocationRow: key of a revocation -> revocationRecord
	revocationRow = 'r'
	// apiKeyRow: id of an API key -> apiKeyRecord
	apiKeyRow = 'a'
	// metaRow: -> clusterv1.Meta
	metaRow = 'm'
	// formatRow: -> storeFormat in decimal; a store without this row has format 1
	formatRow = 'v'
)

func nameKey(row byte, names ...string) []byte {
	size := 1 + 16
	for _, n := range names {
		size += len(n) + 1
	}
	key := append(make([]byte, 0, size), row)
	for _, n := range names {
		key = append(append(key, n...), 0)
	}
	return key
}

func appendNumber(key []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(key, uint64(n)) //nolint:gosec // never negative
}

// seqKey returns the key of a row whose name is a channel and whose number is a seq.
func seqKey(row byte, channel string, seq int64) []byte {
	return appendNumber(nameKey(row, channel), seq)
}

// entryKey returns the key of an entry.
func entryKey(e *message.Entry) []byte {
	if e.Kind == message.KindSend {
		return seqKey(sendRow, e.ChannelID, e.Seq)
	}
	return seqKey(changeRow, e.ChannelID, e.Seq)
}

func clientKey(channel, from, id string) []byte { return nameKey(clientRow, channel, from, id) }

func messageKey(channel, msgID string) []byte { return nameKey(messageRow, channel, msgID) }

func channelKey(channel string) []byte { return nameKey(channelRow, channel) }

func memberKey(channel, user string) []byte { return nameKey(memberRow, channel, user) }

func membershipKey(user, channel string) []byte { return nameKey(membershipRow, user, channel) }

// nameBounds returns the bounds, lower inclusive and upper exclusive, of the keys that begin with
// the name first and continue with a name above after. An empty after means all names.
func nameBounds(row byte, first, after string) (lower, upper []byte) {
	lower = append(nameKey(row, first, after), 0) // just above the key of after itself
	if after == "" {
		lower = nameKey(row, first)
	}
	upper = nameKey(row, first)
	upper[len(upper)-1] = 1
	return lower, upper
}

func outboxKey(shard int, ordinal int64) []byte {
	key := binary.BigEndian.AppendUint16([]byte{outboxRow}, uint16(shard)) //nolint:gosec // below maxShards
	return appendNumber(key, ordinal)
}

// trailingNumber returns the number at the end of a key.
func trailingNumber(key []byte) int64 {
	return int64(binary.BigEndian.Uint64(key[len(key)-8:])) //nolint:gosec // never above 1<<63
}

// lastName returns the name at the end of a key, which may be its only name.
func lastName(key []byte) string {
	key = key[:len(key)-1]
	return string(key[max(0, bytes.LastIndexByte(key, 0))+1:])
}

// seqBounds returns the key bounds of a channel's rows with after < seq < before. A before of 0
// means no upper bound.
func seqBounds(row byte, channel string, after, before int64) (lower, upper []byte) {
	lower = seqKey(row, channel, max(after, 0)+1)
	if before > 0 {
		return lower, seqKey(row, channel, before)
	}
	upper = nameKey(row, channel)
	upper[len(upper)-1] = 1
	return lower, upper
}

func outboxValue(channel string, seq int64) []byte {
	return append(appendNumber(make([]byte, 0, 8+len(channel)), seq), channel...)
}

func outboxEntry(value []byte) (channel string, seq int64) {
	return string(value[8:]), trailingNumber(value[:8])
}

// validNames reports whether all names can be part of a key: none has a zero byte.
func validNames(names ...string) bool {
	for _, n := range names {
		if strings.IndexByte(n, 0) >= 0 {
			return false
		}
	}
	return true
}
