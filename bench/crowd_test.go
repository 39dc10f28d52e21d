package bench

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestCrowdErrorDoesNotBlock reads a crowd's error while another stream fails, so that its error
// takes the place of the one that was read. The read must not block, and an error must remain.
func TestCrowdErrorDoesNotBlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := errors.New("first"), errors.New("second")
		c := &crowd{failed: make(chan error, 1)}
		c.fail(first)
		go func() { c.failed <- second }() // blocks until the first error is received
		synctest.Wait()
		if err := c.err(); !errors.Is(err, first) {
			t.Errorf("got %v, want the first error", err)
		}
		if err := c.err(); !errors.Is(err, second) {
			t.Errorf("got %v, want the second error", err)
		}
	})
}
