package bench

import "testing"

// TestFollows checks that an event follows the last entry only if it neither skips nor repeats one.
func TestFollows(t *testing.T) {
	t.Parallel()
	const last = 7
	for _, one := range []struct {
		from, seq int64
		want      bool
	}{
		{8, 8, true},
		{8, 10, true},
		{5, 10, true}, // also covers entries that were received before
		{9, 9, false},
		{9, 10, false},
		{7, 7, false},
		{1, 7, false},
		{0, 8, true}, // not set: covers only its own entry
		{0, 9, false},
		{12, 8, true}, // above seq: covers only its own entry
		{12, 9, false},
	} {
		if e := (&event{fromSeq: one.from, seq: one.seq}); e.follows(last) != one.want {
			t.Errorf("an event of %d to %d after %d: follows is not %t", one.from, one.seq, last, one.want)
		}
	}
}
