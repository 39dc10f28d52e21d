package irclog

import "time"

// clock is the number of minutes after which the times of a log repeat. A log may have a 12-hour
// clock. A log with a 24-hour clock is read correctly too, unless there is a pause of 12 hours or
// more.
const clock = 12 * 60

// Offsets returns the time of each message of a log, counted from the first one. It adds up the
// differences between consecutive messages, modulo 12 hours. The log has no seconds, so the
// messages of one minute are spread evenly over it.
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
