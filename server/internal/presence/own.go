package presence

// own is the part of the hub that has this node's connections. A view calls it for each shard one
// call at a time and in order, with no lock held.
type own interface {
	// entryApplied is called for every entry that the view applies.
	entryApplied(shard int, e *Entry)
	// epochBegan is called if the shard has an epoch other than the known one, and for the first one,
	// before any entry of it is applied.
	epochBegan(shard int, h Head)
	// epochMissing is called if the shard has no epoch or its log has gone back, so a new epoch must
	// be opened. It is called again while that is so.
	epochMissing(shard int, h Head)
	// entriesLost is called if entries were trimmed before they could be read.
	entriesLost(shard int)
}
