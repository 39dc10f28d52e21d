package revocation

import (
	"fmt"
	"testing"
	"time"
)

// TestAnswersAreBounded checks that the answers of many tokens take no more memory than agreed.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	var all answers
	for i := range 3*maxAnswers + 1 {
		name := fmt.Sprint(i)
		all.put(name, answer{began: time.Now()})
		if _, ok := all.get(name); !ok || len(all.all) > maxAnswers {
			t.Fatalf("answer %d is there: %v, among %d", i, ok, len(all.all))
		}
	}
}
