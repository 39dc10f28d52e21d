package program

import (
	"runtime/debug"
	"testing"
)

func TestVersionOf(t *testing.T) {
	t.Parallel()
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.modified", Value: "false"}}
	for want, info := range map[string]debug.BuildInfo{
		"v1.2.3":               {Main: debug.Module{Version: "v1.2.3"}, Settings: revision},
		"devel-0123abcd":       {Main: debug.Module{Version: "(devel)"}, Settings: revision},
		"devel-0123abcd+dirty": {Settings: []debug.BuildSetting{revision[0], {Key: "vcs.modified", Value: "true"}}},
		"devel":                {Main: debug.Module{Version: "(devel)"}},
	} {
		if got := versionOf(&info); got != want {
			t.Errorf("version %q, want %q", got, want)
		}
	}
}

func TestVersionIsNeverEmpty(t *testing.T) {
	t.Parallel()
	if Version() == "" {
		t.Error("the version of this test is empty")
	}
}
