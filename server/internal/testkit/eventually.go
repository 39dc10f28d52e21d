// Package testkit starts the real servers that tests need, and provides helpers to wait and to
// inject faults. Only tests import it. If a server cannot be started, the test fails; nothing is
// skipped.
package testkit

import (
	"testing"
	"time"
)

// Eventually calls check until it returns nil. After timeout it ends the test with check's last
// error.
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
