package fanout

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/parleyhq/parley/server/internal/unread"
)

// TestTextsWithoutBudget checks that a stream whose budget is used up gets a large text in pieces
// that need none.
func TestTextsWithoutBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.Unread = unread.New(1, 1)
		r, _ := setupTexts(t, cfg)
		a := r.open(live(session))
		r.read(a)
		r.bus.publish(r.addOpen("m"))
		text := "." + strings.Repeat("\u00e4", freeUnread)
		r.delta("m", 1, 5, 0, text)
		got := strings.Fields(r.read(a)[session])[1:]
		if len(got) != 3 {
			t.Fatalf("%d pieces", len(got))
		}
		sent := 0
		for _, piece := range got {
			var offset int
			if _, err := fmt.Sscanf(piece, "delta(-/0,m@%d:", &offset); err != nil || offset != sent {
				t.Fatalf("%.40s after %d bytes: %v", piece, sent, err)
			}
			part := piece[strings.Index(piece, ":")+1 : len(piece)-1]
			if len(part) > freeUnread || !strings.HasPrefix(text[sent:], part) {
				t.Errorf("%d bytes at %d: %.40s", len(part), offset, part)
			}
			sent += len(part)
		}
		equal(t, sent, len(text))
	})
}
