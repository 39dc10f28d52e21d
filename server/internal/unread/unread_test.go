package unread_test

import (
	"testing"

	"github.com/parleyhq/parley/server/internal/unread"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	b := unread.New(100, 250)
	take := func(subject string, n int64, want bool) {
		t.Helper()
		if got := b.Take(subject, n); got != want {
			t.Errorf("%s takes %d: %t", subject, n, got)
		}
	}
	take("ada", 60, true)
	take("ada", 41, false)
	take("ada", 40, true)
	take("bob", 120, true) // the first one may be larger than the subject's budget
	take("bob", 1, false)
	take("eve", 31, false) // the node's budget
	take("eve", 30, true)
	if taken := b.Taken(); taken != 250 {
		t.Errorf("%d bytes are taken, want 250", taken)
	}
	b.Return("bob", 120)
	take("eve", 70, true)
	b.Return("ada", 60)
	take("ada", 61, false)
	take("ada", 60, true)
	b.Return("ada", 100)
	b.Return("eve", 100)
	if taken := b.Taken(); taken != 0 {
		t.Errorf("%d bytes are taken after all were returned", taken)
	}
}
