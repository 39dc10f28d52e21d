package message

// State is the extent of a channel's log.
type State struct {
	Epoch string
	// Oldest is the seq of the first entry that can be read; it is Head + 1 if there is none. Head
	// is the seq of the last entry that was appended; 0 if none ever was.
	Oldest, Head int64
	// Count is the number of messages that the log has ever had up to Head. Expired is how many of
	// them are before Oldest and can no longer be read.
	Count, Expired int64
	// Rev is the access revision of the last entry.
	Rev int64
}
