package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTokensGo runs the Go program of docs/tokens.md, and calls a server that has its secret with
// the token that it prints.
func TestTokensGo(t *testing.T) {
	t.Parallel()
	blocks := fenced(t, "docs/tokens.md", "go")
	if len(blocks) != 1 {
		t.Fatalf("%d programs", len(blocks))
	}
	place := t.TempDir()
	secret := filepath.Join(place, "secrets", "2026-12")
	if err := os.MkdirAll(filepath.Dir(secret), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secret, []byte(strings.Repeat("s", 44)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	source, program := filepath.Join(place, "main.go"), filepath.Join(place, "program")
	if err := os.WriteFile(source, []byte(blocks[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, source)
	build.Dir = root(t)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	mint := exec.CommandContext(t.Context(), program)
	mint.Dir = place
	token, err := mint.Output()
	if err != nil {
		t.Fatal(err)
	}
	bin := binaries(t)
	_, addr := server(t, bin, `PARLEY_AUTH_HS256_SECRETS=[{id: "2026-12", file: "`+secret+`"}]`)
	call := bin + "/parley --addr " + addr + " --token " + strings.TrimSpace(string(token)) + " send general hello"
	run(t, place, bin, call, expectation{output: `(?m)1\b`})
}

// TestTokensConfiguration checks that the configurations of docs/tokens.md are valid.
func TestTokensConfiguration(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "tokens.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```$").FindAllSubmatch(text, -1)
	if len(blocks) != 4 {
		t.Fatalf("%d configurations", len(blocks))
	}
	bin, dir := binaries(t), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"2026-11", "2026-12"} {
		if err := os.WriteFile(filepath.Join(dir, "secrets", id), []byte(strings.Repeat(id, 8)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, block := range blocks {
		if err := os.WriteFile(filepath.Join(dir, "parley.yaml"), block[1], 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, dir, bin, bin+"/parleyd config check parley.yaml", expectation{output: `.*`})
	}
}
