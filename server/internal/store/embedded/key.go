package embedded

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// The kinds of rows, by the first byte of their keys. Names hold no zero byte, so one ends a name in a key and no name's
// rows are among another's. Numbers are big-endian, so that keys sort as numbers do.
const (
	// entryRow: channel, seq -> clusterv1.Entry
	entryRow = 'e'
	// clientRow: channel, from_id, client_msg_id -> seq
	clientRow = 'k'
	// messageRow: channel, msg_id -> seq of the send
	messageRow = 'i'
	// changeRow: channel, target seq, seq -> kind, of an edit or a recall
	changeRow = 'c'
	// outboxRow: bucket, ordinal -> seq, channel: what is not yet published, in the order in which it was stored
	outboxRow = 'o'
	// channelRow: channel -> channelRecord
	channelRow = 'h'
	// memberRow: channel, user -> memberRecord, of present and past members
	memberRow = 'p'
	// membershipRow: user, channel -> nothing, of present members
	membershipRow = 'u'
	// metaRow: -> clusterv1.Meta
	metaRow = 'm'
	// formatRow: -> storeFormat in decimal; stores from before it was written have none, and format 1
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

func number(key []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(key, uint64(n)) //nolint:gosec // never negative
}

func entryKey(channel string, seq int64) []byte { return number(nameKey(entryRow, channel), seq) }

func clientKey(channel, from, id string) []byte { return nameKey(clientRow, channel, from, id) }

func messageKey(channel, msgID string) []byte { return nameKey(messageRow, channel, msgID) }

func changeKey(channel string, target, seq int64) []byte {
	return number(number(nameKey(changeRow, channel), target), seq)
}

func channelKey(channel string) []byte { return nameKey(channelRow, channel) }

func memberKey(channel, user string) []byte { return nameKey(memberRow, channel, user) }

func membershipKey(user, channel string) []byte { return nameKey(membershipRow, user, channel) }

// nameBounds are those of the keys in which a name above after follows on first.
func nameBounds(row byte, first, after string) (lower, upper []byte) {
	lower = append(nameKey(row, first, after), 0) // one more than the key of after itself
	if after == "" {
		lower = nameKey(row, first)
	}
	upper = nameKey(row, first)
	upper[len(upper)-1] = 1
	return lower, upper
}

func outboxKey(bucket int, ordinal int64) []byte {
	key := binary.BigEndian.AppendUint16([]byte{outboxRow}, uint16(bucket)) //nolint:gosec // below maxBuckets
	return number(key, ordinal)
}

// trailing reads the number that a key ends with.
func trailing(key []byte) int64 {
	return int64(binary.BigEndian.Uint64(key[len(key)-8:])) //nolint:gosec // never above 1<<63
}

// lastName reads the name that a key ends with.
func lastName(key []byte) string {
	key = key[:len(key)-1]
	return string(key[bytes.LastIndexByte(key, 0)+1:])
}

// entryBounds are those of a channel's entries with after < seq < before; a before of 0 is no bound.
func entryBounds(channel string, after, before int64) (lower, upper []byte) {
	lower = entryKey(channel, max(after, 0)+1)
	if before > 0 {
		return lower, entryKey(channel, before)
	}
	upper = nameKey(entryRow, channel)
	upper[len(upper)-1] = 1
	return lower, upper
}

func outboxValue(channel string, seq int64) []byte {
	return append(number(make([]byte, 0, 8+len(channel)), seq), channel...)
}

func outboxEntry(value []byte) (channel string, seq int64) {
	return string(value[8:]), trailing(value[:8])
}

// named reports whether a name may be part of a key.
func named(names ...string) bool {
	for _, n := range names {
		if strings.IndexByte(n, 0) >= 0 {
			return false
		}
	}
	return true
}
