// Package testkit starts the real servers that tests need, and has what tests wait and break things with. Only tests
// import it. A server that cannot be started fails the test; nothing here skips.
package testkit

import (
	"testing"
	"time"
)

// Eventually calls check until it returns nil, and fails the test with check's last error once timeout has passed.
func Eventually(tb testing.TB, timeout time.Duration, check func() error) {
	tb.Helper()
	deadline := time.Now().Add(timeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("not within %s: %v", timeout, err)
		}
		<-time.After(wait)
	}
}
