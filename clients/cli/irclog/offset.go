package irclog

import "time"

// clock is when the stamps come round again: a log may have a 12-hour clock, and one with 24 hours is read right by it too
// where nobody is silent for half a day.
const clock = 12 * 60

// Offsets gives for each of a log's messages when it was said, counted from the first: by the difference of the stamps from
// message to message, modulo 12 hours. A stamp has no seconds; the messages of one minute are spread evenly over it.
func Offsets(messages []Line) []time.Duration {
	offsets := make([]time.Duration, 0, len(messages))
	var minute time.Duration
	for len(offsets) < len(messages) {
		first := len(offsets)
		if first > 0 {
			passed := messages[first].Minute - messages[first-1].Minute
			minute += time.Duration((passed%clock+clock)%clock) * time.Minute
		}
		last := first
		for last+1 < len(messages) && messages[last+1].Minute == messages[first].Minute {
			last++
		}
		n := last - first + 1
		for i := range n {
			offsets = append(offsets, minute+time.Minute*time.Duration(i)/time.Duration(n))
		}
	}
	return offsets
}
