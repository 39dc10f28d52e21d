package unread_test

import (
	"testing"

	"github.com/parleyhq/parley/server/internal/unread"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	b := unread.New(120, 320) // 105 and 280 for what is large
	check := func(kind string, takes func(string, int64) bool) func(subject string, n int64, want bool) {
		return func(subject string, n int64, want bool) {
			t.Helper()
			if got := takes(subject, n); got != want {
				t.Errorf("%s takes %d %s: %t", subject, n, kind, got)
			}
		}
	}
	large, small := check("large", b.Take), check("small", b.TakeSmall)
	large("ada", 60, true)
	large("ada", 46, false)
	large("ada", 45, true)
	small("ada", 16, false)
	small("ada", 15, true)
	large("bob", 130, true) // the first one may be larger than the subject's budget
	small("bob", 1, false)
	large("eve", 31, false) // the node's budget
	large("eve", 30, true)
	small("joe", 41, false)
	small("joe", 40, true)
	if taken := b.Taken(); taken != 320 {
		t.Errorf("%d bytes are taken, want 320", taken)
	}
	b.Return("bob", 130)
	large("eve", 75, true)
	b.Return("ada", 60)
	large("ada", 46, false)
	large("ada", 45, true)
	b.Return("ada", 105)
	b.Return("eve", 105)
	b.Return("joe", 40)
	if taken := b.Taken(); taken != 0 {
		t.Errorf("%d bytes are taken after all were returned", taken)
	}
}
