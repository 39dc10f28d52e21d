// Package docs_test runs the commands of the README and other documents as a reader would, each
// document on its own server, and compiles or runs their programs.
package docs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// commandLimit bounds the time of one command, and of the server's start. It is far longer than any
// takes.
const commandLimit = 2 * time.Minute

// expected maps the beginning of a command to its expected output. The longest matching entry
// counts. The test fails for a command without an entry, and for an entry without a command.
var expected = map[string]expectation{
	"bin/parley send general":                            {output: `(?m)1\b`},
	"bin/parley tail general":                            {output: `hello`, endless: true},
	"curl http://127.0.0.1:8080/parle":                   {output: `"msgId"`},
	"curl -G http://127.0.0.1:8080/":                     {output: `"oldestSeq"`},
	"bin/grpcurl -plaintext":                             {output: `"content": "hello"`},
	"bin/parley channel create board":                    {output: `board`},
	"bin/parley channel create news":                     {output: `news is created`},
	"bin/parley channel retain news":                     {output: `news`},
	"bin/parley channel get news":                        {output: `(?s)news.*500`},
	"bin/parley channel add board cid":                   {output: `cid`},
	"bin/parley channel close board":                     {output: `board`},
	"bin/parley channel open board":                      {output: `board`},
	"bin/parley channel delete board":                    {output: `board is deleted`},
	"bin/parley channel list":                            {output: `board`},
	"bin/parley channel role board ben moderator":        {output: `ben`},
	"bin/parley channel members":                         {output: `(?s)ann.*ben`},
	"bin/parley presence connect":                        {output: `online`, endless: true},
	"bin/parley presence watch":                          {output: `ann is offline`, endless: true},
	"bin/parley presence get":                            {output: `ann is offline`},
	"bin/parley presence online":                         {output: `^$|dev is online`}, // the command before may have ended
	"bin/parley queue create":                            {output: `jobs`},
	"bin/parley queue produce":                           {output: `.`},
	"bin/parley queue consume jobs --group work --exec":  {output: `(?s)poison.*poison.*poison`, endless: true},
	"bin/parley queue consume jobs --group work --count": {output: `resize|poison`},
	"bin/parley queue dlq list":                          {output: `poison|exit-1`},
	"bin/parley queue dlq replay":                        {output: `1`},
	"bin/parley queue stats jobs --watch":                {output: `jobs`, endless: true},
	"bin/parley queue stats jobs":                        {output: `jobs`},
	"bin/parley queue create mail":                       {output: `mail`},
	"curl http://127.0.0.1:8080/parley.v1.QueueServic":   {output: `(?s)"sessionId".*"payload":"aGVsbG8gYW5u"`},
	"bin/parley queue produce jobs \"report 7\"":         {output: `in partition`},
	"bin/parley queue stats jobs --partitions":           {output: `jobs`},
	"bin/parley queue consumers jobs":                    {output: `.`},
	"bin/parley queue jobs jobs":                         {output: `waiting|sent|running`},
	"bin/parley queue partitions jobs":                   {output: `(?s)0 .*work.*7 .*work`},
	"bin/parley queue repair jobs":                       {output: `nothing was missing`},
	"mkdir -p secrets":                                   {output: `^$`},
	"(umask 077; head -c 32":                             {output: `^$`},
	"bin/parley token --sub ann":                         {output: `^eyJ`},
	"bin/parley key create importer":                     {output: `parley_`},
	"bin/parley key list":                                {output: `importer`},
	"PARLEY_TOKEN=$(bin/parley":                          {output: ``},
	"bin/parley admin revoke --ssid":                     {output: `login-2`},
	"bin/parley admin revoke --user":                     {output: `ann`},
	"bin/parley admin revoked":                           {output: `(?s)login-1.*login-2|login-2.*login-1`},
	"bin/parley token --sub ben":                         {output: `.`},
	"bin/parleyd config default":                         {output: `^$`},
	"bin/parleyd config check":                           {output: `auth: one of`, fails: true},
}

// expectation describes a command's output, by a regular expression, and how the command ends.
type expectation struct {
	output string
	// endless is set for a command that runs until it is interrupted.
	endless bool
	// fails is set for a command that reports an error.
	fails bool
}

// TestCommands checks that every command of the documents prints what is expected, in order and
// with each document on its own server. Of a make command it checks only that the target exists.
func TestCommands(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	var mu sync.Mutex
	used := map[string]bool{}
	t.Cleanup(func() {
		for begin := range expected {
			if !used[begin] && !t.Failed() {
				t.Errorf("no document has a command that begins with %q", begin)
			}
		}
	})
	for _, name := range []string{"README.md", "docs/channels.md", "docs/operations.md", "docs/presence.md", "docs/queues.md", "docs/tokens.md"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blocks := fenced(t, name, "sh")
			dir, addr := server(t, bin)
			for _, command := range commands(blocks) {
				if target, ok := strings.CutPrefix(command, "make "); ok {
					checkTarget(t, target)
					continue
				}
				begin := longest(command)
				if begin == "" {
					t.Errorf("the test does not know what this command prints: %s", command)
					continue
				}
				mu.Lock()
				used[begin] = true
				mu.Unlock()
				run(t, dir, bin, strings.ReplaceAll(command, "127.0.0.1:8080", addr), expected[begin])
			}
		})
	}
}

// longest returns the longest key of expected that command begins with, or "".
func longest(command string) (begin string) {
	for b := range expected {
		if strings.HasPrefix(command, b) && len(b) > len(begin) {
			begin = b
		}
	}
	return begin
}

// binaries builds the programs that the documents' commands call, and returns their directory.
func binaries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, build := range map[string]func() (string, error){
		"parley": func() (string, error) {
			return rig.Build(t.Context(), "github.com/parleyhq/parley/clients/cli/parley", "parley")
		},
		"parleyd": func() (string, error) { return rig.BuildParleyd(t.Context()) },
		"grpcurl": func() (string, error) {
			return rig.BuildTool(t.Context(), "github.com/fullstorydev/grpcurl/cmd/grpcurl", "grpcurl")
		},
	} {
		path, err := build()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// server starts what `make dev` starts, in a directory that has bin and data, like a reader's. It
// returns the directory and the API's host:port once the server is ready. env is added to its
// environment.
func server(t *testing.T, bin string, env ...string) (dir, addr string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Symlink(bin, filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command("bin/parleyd", "dev", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--data-dir", "data")
	cmd.Dir, cmd.Stderr = dir, &log
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Errorf("the server ended: %v\n%s", err, log.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	for tick := time.Tick(20 * time.Millisecond); ; {
		if text, err := os.ReadFile(filepath.Join(dir, "data", "dev-addr")); err == nil {
			return dir, strings.TrimSpace(strings.TrimPrefix(string(text), "http://"))
		}
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatal("the server is not ready")
		}
	}
}

// run runs a command and checks its output. It interrupts an endless command once its output
// matches.
func run(t *testing.T, dir, bin, command string, want expectation) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", command)
	if want.endless {
		cmd = exec.CommandContext(ctx, "sh", "-ec", "exec "+command)
	}
	var out output
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	matches := regexp.MustCompile(want.output).MatchString
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for tick := time.Tick(20 * time.Millisecond); want.endless && !matches(out.String()) && ctx.Err() == nil; <-tick {
		continue
	}
	if want.endless {
		_ = cmd.Process.Signal(os.Interrupt)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	exited := errors.As(err, &exit) && ctx.Err() == nil
	ended := err == nil && !want.fails || exited && (want.endless || want.fails)
	if !ended || !matches(out.String()) {
		t.Errorf("%s\n%v, and printed what does not match %q:\n%s", command, err, want.output, out.String())
	}
}

// output is a buffer that may be read while a command writes to it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// checkTarget checks that the Makefile has a target, without making it.
func checkTarget(t *testing.T, target string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-n"}, strings.Fields(target)...)...)
	cmd.Dir = root(t)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("make %s: %v\n%s", target, err, text)
	}
}

// TestGo checks that the README's Go programs compile.
func TestGo(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	for i, block := range fenced(t, "README.md", "go") {
		fmt.Fprintf(&body, "func program%d(ctx context.Context, token string, client *parley.Client) error {\n%s\nreturn nil\n}\n", i, unused(block))
	}
	program := `package main

import (
	"context"
	"fmt"

	"github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

func main() { fmt.Println(program0, program1) }

func resize(context.Context, []byte) error { return nil }

` + body.String()
	dir := t.TempDir()
	path := filepath.Join(dir, "main.go")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "program"), path)
	cmd.Dir = root(t)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, text, program)
	}
}

// unused changes a program from a document so that it compiles: it uses the error at the program's
// end, and puts a program with its own client in a block.
func unused(block string) string {
	if strings.Contains(block, "client, err := ") {
		return "{\n" + block + "}\n"
	}
	return block + "if err != nil {\nreturn err\n}\n"
}

// TestTypeScript checks that the README's TypeScript program, run as JavaScript, prints its
// message.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	blocks := fenced(t, "README.md", "ts")
	if len(blocks) != 1 {
		t.Fatalf("%d programs", len(blocks))
	}
	bin := binaries(t)
	dir, addr := server(t, bin)
	token, err := os.ReadFile(filepath.Join(dir, "data", "dev-token"))
	if err != nil {
		t.Fatal(err)
	}
	// The program must be below the root, where Node finds the package.
	cache := filepath.Join(root(t), ".cache")
	if err := os.MkdirAll(cache, 0o750); err != nil {
		t.Fatal(err)
	}
	place, err := os.MkdirTemp(cache, "readme-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(place) })
	imports, rest, ok := strings.Cut(blocks[0], "\n\n")
	program := imports + "\n\nconst token = process.env.TOKEN;\n" + strings.ReplaceAll(rest, "127.0.0.1:8080", addr)
	if err := os.WriteFile(filepath.Join(place, "program.mjs"), []byte(program), 0o600); err != nil || !ok {
		t.Fatal(ok, err)
	}
	run(t, place, bin, "env TOKEN="+strings.TrimSpace(string(token))+" node program.mjs", expectation{output: `(?m)^hello$`, endless: true})
}

// fenced returns a document's code blocks in a language.
func fenced(t *testing.T, name, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(text, -1) {
		blocks = append(blocks, string(m[1]))
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no block of %s", name, language)
	}
	return blocks
}

// commands returns the commands of blocks: one per line, with continued lines joined.
func commands(blocks []string) (all []string) {
	for _, b := range blocks {
		all = append(all, strings.Split(strings.TrimSpace(strings.ReplaceAll(b, "\\\n", "")), "\n")...)
	}
	for i, c := range all {
		c, _, _ = strings.Cut(c, "  #")
		all[i] = strings.TrimSpace(c)
	}
	return slices.DeleteFunc(all, func(c string) bool { return c == "" })
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLinks checks that every relative link of a document names an existing file.
func TestLinks(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.md", ":!hack/apidocs") // whose templates link from docs/api
	list.Dir = root(t)
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#\s]+)`)
	found := 0
	for name := range strings.FieldsSeq(string(names)) {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			target := string(m[1])
			if strings.Contains(target, ":") { // a URL
				continue
			}
			found++
			if _, err := os.Stat(filepath.Join(root(t), filepath.Dir(name), target)); err != nil {
				t.Errorf("%s links to %s: %v", name, target, err)
			}
		}
	}
	if found == 0 {
		t.Error("no document has a relative link")
	}
}
