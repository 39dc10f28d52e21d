package message

import "time"

// MaxOpenTexts is the maximum number of open messages of one session whose texts are streamed at
// the same time.
const MaxOpenTexts = 64

// Delta is a piece of the text of an open message. Deltas are not entries of the log: they may be
// lost, repeated and reordered, and only the close of the message stores its text.
type Delta struct {
	MsgID string
	// Seq is the seq of the message.
	Seq int64
	// Attempt numbers the generators of the message. The text of a higher attempt replaces that of a
	// lower one, from its first byte.
	Attempt int64
	// Offset is the number of bytes of UTF-8 before Text.
	Offset int
	// Text is the piece, which begins and ends at the bounds of characters.
	Text string
}

// OpenText is the text that an open message has so far.
type OpenText struct {
	MsgID string
	// Seq and Attempt are those of Delta.
	Seq, Attempt int64
	Text         string
	// Age is how long ago its generator last sent a delta, an empty one included.
	Age time.Duration
}
