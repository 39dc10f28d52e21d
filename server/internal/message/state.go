package message

// State is where a channel's log stands.
type State struct {
	Epoch string
	// Oldest is the first entry that the log still holds, Head the last; both are 0 while the log is empty.
	Oldest, Head int64
	// Count is how many messages the log holds up to and with Head.
	Count int64
}
