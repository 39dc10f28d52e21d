// Command now prints the wall clock, in seconds since 1970, and how long a wait of 10 ms took by
// the monotonic clock, in milliseconds.
package main

import "time"

func main() {
	began := time.Now()
	<-time.After(10 * time.Millisecond)
	println(began.Unix(), time.Since(began).Milliseconds())
}
