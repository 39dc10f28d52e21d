package queue

import (
	"cmp"
	"time"
)

// entryKey names an entry within a partition and a group.
type entryKey struct {
	place Place
	id    EntryID
}

// compare orders entries as claims give them.
func (k entryKey) compare(other entryKey) int {
	return cmp.Or(cmp.Compare(k.place, other.place), k.id.Compare(other.id))
}

func (e *Entry) key() entryKey { return entryKey{e.Place, e.ID} }

// delivery is an entry that left the buffer.
type delivery struct {
	// entry is without payload and headers.
	entry Entry
	// serial is 0 if it was not sent.
	serial           uint64
	sentAt, deadline time.Time
	// op is the settlement under way.
	op *settlement
}
