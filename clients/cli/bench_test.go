package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/clients/cli"
	"github.com/parleyhq/parley/internal/program"
)

// The file names under which this test's binary runs as parley and as a fake parley-bench.
const (
	parleyName = "parley"
	benchName  = "parley-bench"
)

// started is what the fake parley-bench writes about its start.
type started struct {
	Path  string
	PID   int
	Args  []string
	Stdin string
	Addr  string
}

// asProgram runs this test's program as parley or as a fake parley-bench, according to its name. It
// returns the exit code, and whether it ran one of them.
func asProgram() (code int, ok bool) {
	switch filepath.Base(os.Args[0]) {
	case parleyName:
		return cli.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv), true
	case benchName:
		return fakeBench(), true
	default:
		return 0, false
	}
}

// fakeBench reports how it was started and exits with 7. With the argument wait it first waits for
// a SIGTERM and exits with 42.
func fakeBench() int {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	path, _ := os.Executable()
	wait := slices.Contains(os.Args, "wait")
	s := started{Path: path, PID: os.Getpid(), Args: os.Args, Addr: os.Getenv("PARLEY_ADDR")}
	if !wait {
		stdin, _ := io.ReadAll(os.Stdin)
		s.Stdin = string(stdin)
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		return 1
	}
	if !wait {
		return 7
	}
	<-terminated
	return 42
}

// install installs this test's program under a name in a directory.
func install(t *testing.T, dir, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if os.Link(self, path) == nil {
		return path
	}
	if out, err := exec.CommandContext(t.Context(), "cp", self, path).CombinedOutput(); err != nil { // another file system
		t.Fatalf("cp: %v\n%s", err, out)
	}
	return path
}

// parleyCommand returns a command that runs parley with this PATH and with PARLEY_ADDR as its only
// environment variables.
func parleyCommand(t *testing.T, parley, path string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(testContext(t), parley, args...)
	cmd.Env = []string{"PATH=" + path, "PARLEY_ADDR=from-env"}
	return cmd
}

// runCommand runs a command to its end.
func runCommand(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// TestBenchStartsProgram checks that parley-bench gets the arguments, the environment and the
// standard input of `parley bench`, which exits with its code. A program beside parley takes
// precedence over one in PATH.
func TestBenchStartsProgram(t *testing.T) {
	t.Parallel()
	alone, inPath, both := t.TempDir(), t.TempDir(), t.TempDir()
	lone, found := install(t, alone, parleyName), install(t, inPath, benchName)
	full, beside := install(t, both, parleyName), install(t, both, benchName)
	for name, c := range map[string]struct {
		parley string
		args   []string
		path   string
		want   []string
	}{
		"beside":  {full, []string{"bench", "fanout", "--rounds", "3"}, beside, []string{"fanout", "--rounds", "3"}},
		"in PATH": {lone, []string{"bench"}, found, nil},
		"help":    {full, []string{"bench", "--help"}, beside, []string{"--help"}},
		"flags before the command": {
			full,
			[]string{"--json", "--server", "10.0.0.5:8080", "--token=a b", "bench", "--ops", "10.0.0.5:8081"},
			beside,
			[]string{"--json=true", "--addr=10.0.0.5:8080", "--token=a b", "--ops", "10.0.0.5:8081"},
		},
		"queue bench": {
			full, []string{"queue", "--json", "bench", "--rounds", "3"}, beside, []string{"--json=true", "queue", "--rounds", "3"},
		},
		"dashes": {full, []string{"bench", "--", "-x"}, beside, []string{"--", "-x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := parleyCommand(t, c.parley, inPath, c.args...)
			cmd.Stdin = strings.NewReader("input")
			got := runCommand(t, cmd)
			var s started
			if err := json.Unmarshal([]byte(got.stdout), &s); err != nil {
				t.Fatalf("%v: %+v", err, got)
			}
			want := started{
				Path: c.path, PID: cmd.Process.Pid, Args: append([]string{benchName}, c.want...), Stdin: "input", Addr: "from-env",
			}
			if diff := cmp.Diff(want, s); diff != "" || got.code != 7 {
				t.Errorf("exit code %d, stderr %q (-want +got):\n%s", got.code, got.stderr, diff)
			}
		})
	}
}

// TestBenchReceivesSignals sends parley a signal, which must reach parley-bench.
func TestBenchReceivesSignals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	parley := install(t, dir, parleyName)
	install(t, dir, benchName)
	cmd := parleyCommand(t, parley, "", "bench", "wait")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Errorf("parley-bench was not started: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // the exit code is checked instead
	if code := cmd.ProcessState.ExitCode(); code != 42 {
		t.Errorf("exit code %d: %s", code, cmd.ProcessState)
	}
}

// TestBenchIsNotInstalled checks the hint to install parley-bench if it is neither beside parley
// nor in PATH.
func TestBenchIsNotInstalled(t *testing.T) {
	t.Parallel()
	dir, empty := t.TempDir(), t.TempDir()
	parley := install(t, dir, parleyName)
	if err := os.WriteFile(filepath.Join(dir, benchName), nil, 0o600); err != nil { // not executable
		t.Fatal(err)
	}
	const how = "go install github.com/parleyhq/parley/bench/cmd/parley-bench@latest"
	got := runCommand(t, parleyCommand(t, parley, empty, "bench", "fanout"))
	if got.code != 1 || !strings.Contains(got.stderr, how) || !strings.Contains(got.stderr, "make build") {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
	got = runCommand(t, parleyCommand(t, parley, empty, "bench", "--help"))
	if got.code != 0 || !strings.Contains(got.stdout, how) {
		t.Errorf("--help: exit code %d, output %q, stderr %q", got.code, got.stdout, got.stderr)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if got := runWith(t, nil, "", "--version").wantOK(t); got.stdout != program.Version()+"\n" {
		t.Errorf("version %q, want %q", got.stdout, program.Version())
	}
}
