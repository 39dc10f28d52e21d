package redispresence

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/presence"
	"github.com/parleyhq/parley/server/internal/store/redisscript/scripttest"
)

func TestScriptsMatchTheirHeaders(t *testing.T) {
	t.Parallel()
	scripttest.MatchHeaders(t, "lua", production.all)
}

func TestNoScriptIsWithoutAUse(t *testing.T) {
	t.Parallel()
	scripttest.NoneUnused(t, "lua", production.all, "lib_clock", "lib_presence")
}

// TestServerClock tests that the scripts in production use the server's time.
func TestServerClock(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.scripts = production
		before := time.Now().Truncate(time.Millisecond)
		set := func(notAfter time.Time) presence.SetResult {
			call := presence.SetCall{Shard: shard, Node: "n", Epoch: b.epoch, NotAfter: notAfter, Users: []presence.Part{part("u", "8f")}}
			return b.Set(t.Context(), []presence.SetCall{call})[0]
		}
		late := set(before.Add(-time.Minute))
		if late.Outcome != presence.Late || late.Now.Before(before) || late.Now.After(time.Now()) {
			t.Errorf("%+v at %v", late, before)
		}
		done := set(before.Add(time.Minute))
		if done.Outcome != presence.Done || done.Now.Before(before) || done.Now.After(time.Now()) {
			t.Errorf("%+v at %v", done, before)
		}
		if b.state("u") != "8f" {
			t.Error("the user is not online")
		}
	})
}
