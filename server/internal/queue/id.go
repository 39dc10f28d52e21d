package queue

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Compare orders ids as Redis does.
func (id EntryID) Compare(other EntryID) int {
	return cmp.Or(cmp.Compare(id.MS, other.MS), cmp.Compare(id.Seq, other.Seq))
}

// IsZero reports whether it is before every entry.
func (id EntryID) IsZero() bool { return id == EntryID{} }

// prev is the highest id below; of the zero id that itself.
func (id EntryID) prev() EntryID {
	switch {
	case id.Seq > 0:
		return EntryID{id.MS, id.Seq - 1}
	case id.MS > 0:
		return EntryID{id.MS - 1, math.MaxUint64}
	}
	return id
}

// String gives the id as Redis writes it.
func (id EntryID) String() string {
	return strconv.FormatUint(id.MS, 10) + "-" + strconv.FormatUint(id.Seq, 10)
}

// ParseEntryID reads what String wrote.
func ParseEntryID(s string) (EntryID, error) {
	ms, seq, ok := strings.Cut(s, "-")
	m, err1 := strconv.ParseUint(ms, 10, 64)
	n, err2 := strconv.ParseUint(seq, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return EntryID{}, fmt.Errorf("%q is no stream id", s)
	}
	return EntryID{m, n}, nil
}

// MessageID makes the id for good of the message that Redis took as the entry id of the partition's stream. A scheduled
// message has an id of the same form with a `d` at its end, whose parts are the time it was taken and a number.
func MessageID(partition int, id EntryID) string { return strconv.Itoa(partition) + "-" + id.String() }

// PartitionOf reads the partition that a message's or dead letter's id begins with.
func PartitionOf(id string) (int, error) {
	p, _, ok := strings.Cut(id, "-")
	n, err := strconv.Atoi(p)
	if !ok || err != nil || n < 0 || n >= MaxPartitions {
		return 0, fmt.Errorf("%q begins with no partition", id)
	}
	return n, nil
}
