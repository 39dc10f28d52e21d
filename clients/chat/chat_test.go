package chat_test

import (
	"io/fs"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/parleyhq/parley/clients/chat"
)

// The page must work under a policy that allows no inline code, and find all that it names.
func TestPageIsWhole(t *testing.T) {
	t.Parallel()
	page, err := fs.ReadFile(chat.Files(), "index.html")
	require.NoError(t, err)

	named := regexp.MustCompile(`(?:src|href)="/([^"]+)"`).FindAllSubmatch(page, -1)
	require.GreaterOrEqual(t, len(named), 3, "script, style and icon")
	for _, name := range named {
		info, err := fs.Stat(chat.Files(), string(name[1]))
		require.NoError(t, err)
		require.NotZero(t, info.Size())
	}
	require.Regexp(t, `<script type="module"[^>]* src="/assets/[^"]+"></script>`, string(page))
	require.NotRegexp(t, `<script(>|[^>]*[^"]>)[^<]`, string(page), "inline script")
	require.NotContains(t, string(page), "<style")
	require.NotRegexp(t, ` (style|on[a-z]+)=`, string(page))
}

// A page without a build step imports the SDK as it is.
func TestSDKIsOneModule(t *testing.T) {
	t.Parallel()
	code, err := fs.ReadFile(chat.Files(), "parley.js")
	require.NoError(t, err)
	exports := regexp.MustCompile(`export ?\{[^}]*\}`).FindString(string(code))
	for _, name := range []string{"Client", "ParleyError", "live", "fromStart", "after"} {
		require.Regexp(t, `\bas `+name+`\b`, exports)
	}
	require.NotRegexp(t, `(?m)^import[\s{"']|\bfrom ?["'][^"']+["'];|\bimport\(`, string(code))
}
