package redislog

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// A scheduled message must not lose its unique key before it is due.
func TestAUniqueKeyLastsFromTheDueTimeOn(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	d := unique("later", qlog.ConflictReject)
	d.Delay, d.UniqueFor = 240*time.Hour, time.Hour
	r.wantResults(r.put(d), "new")
	left := r.c.PTTL(t.Context(), r.s.keys.unique(r.ref, "u")).Val()
	if left < 241*time.Hour-time.Minute || left > 241*time.Hour {
		t.Errorf("the key lasts %s", left)
	}
}
