package redisqueue

import (
	"testing"

	"github.com/parleyhq/parley/server/internal/store/redisscript/scripttest"
)

// libs are the files under lua/ that scripts have in front.
var libs = []string{"lib_queue", "lib_topic", "lib_input", "lib_group", "lib_fetch", "lib_letters"}

func TestScriptsMatchTheirHeaders(t *testing.T) {
	t.Parallel()
	scripttest.MatchHeaders(t, "lua", scripts)
}

func TestNoScriptIsWithoutAUse(t *testing.T) {
	t.Parallel()
	scripttest.NoneUnused(t, "lua", scripts, libs...)
}
