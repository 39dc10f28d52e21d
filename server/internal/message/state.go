package message

// State is where a channel's log stands.
type State struct {
	Epoch string
	// Oldest is the first entry that can be read; it is Head + 1 while the log holds none. Head is the last entry; 0 while
	// the log has none.
	Oldest, Head int64
	// Count is how many messages the log ever had up to and with Head, Expired how many of them lie before Oldest.
	Count, Expired int64
}
