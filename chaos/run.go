package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/parleyhq/parley/internal/rig"
)

// Size is the size of a run's workload.
type Size int

// The sizes.
const (
	// Long is the workload of `make chaos`.
	Long Size = iota
	// Short is the workload of a run of one to two minutes.
	Short
	// Minimal is the workload of a mutant's run: just enough to reveal the defect.
	Minimal
)

// Config configures one run. The zero value is a long run without faults.
type Config struct {
	// Dir receives the report: the history, the truth, the violations and the nodes' logs. It is
	// created if missing.
	Dir string
	// Seed determines the schedule and the clients' choices.
	Seed uint64
	// Plan has the faults to inject. Their order depends on Seed.
	Plan Plan
	// Steps replace the schedule of Plan unless nil.
	Steps []Step
	// Size is the size of the workload.
	Size Size
	// KeepReplies disables the loss of replies. Otherwise every hundredth reply of the engines in
	// NemesisConfig.Lossy is dropped.
	KeepReplies bool
	// Binary is the path of the parleyd to run. If empty, the run builds it from this source.
	Binary string
	// NATSServers is the number of NATS servers, 1 or 3, for harnesses that allow both. 0 is the
	// harness's default.
	NATSServers int
	// Logger logs the steps of the run. Nil logs nothing.
	Logger *slog.Logger
}

// The names of a report's files, in Config.Dir.
const (
	historyFile    = "history.jsonl"
	truthFile      = "truth.json"
	violationsFile = "violations.json"
)

// Run is a run in progress, as a harness's Drive uses it.
type Run struct {
	Config

	// Fleet is the running fleet, or nil if the harness has none.
	Fleet *rig.Fleet

	nemesis *Nemesis
	groups  []*Group
	cleanup []func()

	mu    sync.Mutex // guards found
	found []Violation
}

// HistoryPath returns the path of the history file, for NewRecorder.
func (r *Run) HistoryPath() string { return filepath.Join(r.Dir, historyFile) }

// Addrs returns the addresses of all nodes, starting with node i modulo their number.
func (r *Run) Addrs(i int) []string {
	all := r.Fleet.Addresses()
	i %= len(all)
	return slices.Concat(all[i:], all[:i])
}

// Group returns a group of clients and the context that they must run with. The end of the run
// stops the group unless it was stopped before.
func (r *Run) Group(ctx context.Context) (context.Context, *Group) {
	ctx, cancel := context.WithCancel(ctx)
	g := &Group{cancel: cancel}
	r.groups = append(r.groups, g)
	return ctx, g
}

// Cleanup registers a function to call at the end of the run, after all groups have stopped.
// Functions are called in reverse order.
func (r *Run) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }

// Found adds a violation that the history does not show. Safe for concurrent use.
func (r *Run) Found(v Violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, v)
}

// finish stops all groups and then calls the cleanup functions.
func (r *Run) finish() {
	for _, g := range r.groups {
		g.cancel()
	}
	for _, g := range slices.Backward(r.groups) {
		g.Stop()
	}
	for _, f := range slices.Backward(r.cleanup) {
		f()
	}
}

// keepLogs copies the nodes' logs into the report.
func (r *Run) keepLogs() {
	for _, node := range r.Fleet.Nodes() {
		if data, err := node.Log(); err == nil {
			_ = os.WriteFile(filepath.Join(r.Dir, fmt.Sprintf("node-%d.log", node.Index())), data, 0o600)
		}
	}
}

// Group is a set of goroutines that stop together.
type Group struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Go runs f in a goroutine. f must return soon after the group's context ends.
func (g *Group) Go(f func()) { g.running.Go(f) }

// Stop cancels the group's context and blocks until all functions have returned. It may be called
// more than once.
func (g *Group) Stop() {
	g.cancel()
	g.running.Wait()
}
