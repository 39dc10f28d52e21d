package mongostore_test

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// TestHeadIsNotBeforeTheBoundary checks that the seqs before a boundary are not used again,
// although a restore brought the log back earlier than its channel.
func TestHeadIsNotBeforeTheBoundary(t *testing.T) {
	t.Parallel()
	s, _ := openFresh(t)
	rows := s.Channels()
	insert(t, s, sends("room", 1, 3))
	if _, err := rows.Ensure(t.Context(), "room", time.Now()); err != nil {
		t.Fatal(err)
	}
	if moved, err := rows.MoveBoundary(t.Context(), "room", 0, message.Boundary{Oldest: 10, Expired: 8}, time.Now()); !moved || err != nil {
		t.Fatal(moved, err)
	}
	head, err := s.Head(t.Context(), "room")
	if err != nil || head.Seq != 9 || head.Count != 8 || head.First() != 10 {
		t.Errorf("head %+v, %v", head, err)
	}
	heads, err := s.Heads(t.Context(), []string{"room"})
	if err != nil || heads["room"] != head {
		t.Errorf("heads %+v, %v", heads, err)
	}
}
