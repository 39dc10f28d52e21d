package redislog

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/parleyhq/parley/server/internal/store/redisscript/scripttest"
)

func TestScriptsMatchTheirHeaders(t *testing.T) {
	t.Parallel()
	scripttest.MatchHeaders(t, "lua", scripts)
}

func TestNoScriptIsWithoutAUse(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("lua/lib_*.lua")
	if err != nil {
		t.Fatal(err)
	}
	var libs []string
	for _, f := range files {
		libs = append(libs, strings.TrimSuffix(filepath.Base(f), ".lua"))
	}
	scripttest.NoneUnused(t, "lua", scripts, libs...)
}
