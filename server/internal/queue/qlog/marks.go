package qlog

// Marks are how far the groups of a partition are, as anyone may read it. They are no snapshot, but
// no mark is older than Version.
type Marks struct {
	// Version changes when a group of the partition is created, deleted or moved.
	Version int64
	// Ord is the ordinal of the newest entry. Length counts the entries that the log still has.
	Ord    int64
	Length int64
	Groups []GroupMarks
}

// GroupMarks are how far one group is. See State.
type GroupMarks struct {
	Group        string
	Cursor, Sent Pos
	// Open counts the entries up to Sent that are not settled.
	Open int64
}
