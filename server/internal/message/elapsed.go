package message

import "time"

// Elapsed returns how much time has passed since t, which time.Now returned, by the monotonic clock
// or by the other one, whichever says more: a machine can be suspended with its monotonic clock.
func Elapsed(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}
