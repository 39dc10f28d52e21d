// Package scripttest compares Lua scripts with the contract in their file's header.
package scripttest

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

var (
	headerArgs = regexp.MustCompile(`(?m)^-- (KEYS|ARGV)\[(\d+)(\.\.\.)?\]`)
	usedArgs   = regexp.MustCompile(`\b(KEYS|ARGV)\b(\[(\d+)\])?`)
)

// used describes which elements of KEYS or ARGV a script's header or body uses.
type used struct {
	// last is the highest index. rest is true if any number of elements may follow.
	last int
	rest bool
}

// MatchHeaders fails the test if the header of a script, in dir/<name>.lua, disagrees with its body
// or with NumKeys, or says too little.
func MatchHeaders(t *testing.T, dir string, scripts []*redisscript.Script) {
	t.Helper()
	for _, s := range scripts {
		source, err := os.ReadFile(filepath.Join(dir, s.Name()+".lua"))
		if err != nil {
			t.Fatal(err)
		}
		header, body := split(string(source))
		documented, taken := documentedBy(t, s.Name(), header), takenBy(t, body)
		for _, name := range []string{"KEYS", "ARGV"} {
			want := documented[name]
			if want.rest {
				want.last--
			}
			if got := taken[name]; got.last != want.last || got.rest != want.rest {
				t.Errorf("%s: the header has %s up to %d (rest: %t), the body takes up to %d (rest: %t)",
					s.Name(), name, want.last, want.rest, got.last, got.rest)
			}
		}
		keys := documented["KEYS"].last
		if documented["KEYS"].rest {
			keys = -1
		}
		if keys != s.NumKeys() {
			t.Errorf("%s: the header has %d keys, Go says %d", s.Name(), keys, s.NumKeys())
		}
		if !strings.Contains(header, "\n-- RETURNS ") {
			t.Errorf("%s: the header does not say what it returns", s.Name())
		}
		if !regexp.MustCompile(`(?m)^-- (Safe|Not safe) to repeat`).MatchString(header) && strings.Contains(header, "\n-- RETURNS ") &&
			writes.MatchString(body) {
			t.Errorf("%s: the header does not say whether it is safe to repeat", s.Name())
		}
		for i, line := range strings.Split(strings.TrimSpace(body), "\n") {
			if i > 0 && usedArgs.MatchString(line) {
				t.Errorf("%s takes arguments below its first line: %s", s.Name(), line)
			}
		}
	}
}

// writes matches the write commands that scripts use.
var writes = regexp.MustCompile(`'(SET|DEL|UNLINK|EXPIRE|PEXPIRE|INCR|H(SET|DEL|INCRBY)|Z(ADD|REM\w*)|S(ADD|REM)|X(ADD|ACK|DEL|TRIM|GROUP|CLAIM|AUTOCLAIM|READGROUP))'`)

// NoneUnused fails the test for files in dir that are neither a script nor one of libs, the names
// of the shared files in front of scripts.
func NoneUnused(t *testing.T, dir string, scripts []*redisscript.Script, libs ...string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, l := range libs {
		known[l+".lua"] = true
	}
	for _, s := range scripts {
		known[s.Name()+".lua"] = true
	}
	for _, f := range files {
		if !known[f.Name()] {
			t.Errorf("%s/%s is used by nothing", dir, f.Name())
		}
	}
	if len(files) != len(known) {
		t.Errorf("%d files, %d known", len(files), len(known))
	}
}

func split(source string) (header, body string) {
	var h, b strings.Builder
	for line := range strings.Lines(source) {
		if strings.HasPrefix(line, "--") {
			h.WriteString(line)
		} else {
			b.WriteString(line)
		}
	}
	return h.String(), b.String()
}

func documentedBy(t *testing.T, script, header string) map[string]used {
	t.Helper()
	documented := map[string]used{}
	for _, m := range headerArgs.FindAllStringSubmatch(header, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		if last := documented[m[1]].last; n != last+1 {
			t.Errorf("%s: the header goes from %s[%d] to [%d]", script, m[1], last, n)
		}
		documented[m[1]] = used{n, m[3] != ""}
	}
	return documented
}

func takenBy(t *testing.T, body string) map[string]used {
	t.Helper()
	taken := map[string]used{}
	for _, m := range usedArgs.FindAllStringSubmatch(body, -1) {
		u := taken[m[1]]
		if m[3] == "" {
			u.rest = true
		} else {
			n, err := strconv.Atoi(m[3])
			if err != nil {
				t.Fatal(err)
			}
			u.last = max(u.last, n)
		}
		taken[m[1]] = u
	}
	return taken
}
