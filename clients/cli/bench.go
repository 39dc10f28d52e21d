package cli

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/parleyhq/parley/internal/program"
)

// benchProgram is the name of the benchmark program. It is not part of parley because of its size.
const benchProgram = "parley-bench"

// installHint describes how to install the benchmark program. It ends the error for a missing
// program.
const installHint = "'make build' in the repository builds it; from the first release on, " +
	"go install github.com/parleyhq/parley/bench/cmd/parley-bench@latest installs it"

type benchCommand struct {
	Args []string `arg:"" optional:"" help:"Arguments of parley-bench; 'parley bench --help' lists them."`
}

// Run replaces this process with the benchmark program.
func (c *benchCommand) Run(s *session, parsed *kong.Context) error {
	return s.startBench(append(globalFlags(parsed), c.Args...))
}

type queueBenchCommand struct {
	Args []string `arg:"" optional:"" help:"Flags of parley-bench; 'parley bench --help' lists them."`
}

// Run replaces this process with the benchmark program, as `parley bench queue` does.
func (c *queueBenchCommand) Run(s *session, parsed *kong.Context) error {
	return s.startBench(append(append(globalFlags(parsed), "queue"), c.Args...))
}

// startBench replaces this process with the benchmark program, which inherits its standard input
// and output, its signals and its exit code. It returns only on an error. If the program is not
// installed, --help prints how to install it, which is not an error.
func (s *session) startBench(args []string) error {
	path, err := program.Find(benchProgram)
	switch {
	case err == nil:
		err = syscall.Exec(path, append([]string{benchProgram}, args...), os.Environ()) //nolint:gosec // the program of this name
		return fmt.Errorf("start %s: %w", path, err)
	case slices.Contains(args, "--help") || slices.Contains(args, "-h"):
		_, err := fmt.Fprintf(s.stdout, "'parley bench' measures a server with %s, which is not installed: %s.\n", benchProgram, installHint)
		return err
	default:
		return fmt.Errorf("bench: %w (%s)", err, installHint)
	}
}

// globalFlags returns the flags before the command, as arguments for a program that has flags of
// the same names.
func globalFlags(parsed *kong.Context) []string {
	var args []string
	for _, p := range parsed.Path {
		if p.Flag != nil {
			args = append(args, fmt.Sprintf("--%s=%v", p.Flag.Name, p.Flag.Target.Interface()))
		}
	}
	return args
}
