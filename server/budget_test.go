package server_test

import (
	"os"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// budget is a row of the table in docs/budgets.md: the most that a call may cost, and the least
// that it answers. A row that answers less is not the hostile case that it says it is.
type budget struct {
	requests, trips, mongoKiB, redisKiB, allocated, answers float64
}

// readBudgets reads the rows of the table in docs/budgets.md, by name.
func readBudgets(t *testing.T) map[string]budget {
	t.Helper()
	text, err := os.ReadFile("../docs/budgets.md")
	if err != nil {
		t.Fatal(err)
	}
	budgets := map[string]budget{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 7 {
			continue
		}
		var n [6]float64
		valid := true
		for i := range n {
			n[i], err = strconv.ParseFloat(strings.TrimSpace(cells[i+1]), 64)
			valid = valid && err == nil
		}
		if valid {
			budgets[strings.TrimSpace(cells[0])] = budget{n[0], n[1], n[2], n[3], n[4], n[5]}
		}
	}
	return budgets
}

// methodOf returns the method of a procedure or of a row.
func methodOf(name string) string {
	method, _, _ := strings.Cut(path.Base(name), ",")
	return method
}

// serviceMethods returns the names of the methods of all services of the API, each of which has one
// method of a name.
func serviceMethods(t *testing.T) []string {
	t.Helper()
	var names []string
	seen := map[string]bool{}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(file.Package()), "parley.") || strings.HasPrefix(string(file.Package()), "parley.cluster.") {
			return true
		}
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for k := range methods.Len() {
				name := string(methods.Get(k).Name())
				if seen[name] {
					t.Errorf("two services have a method %s, so rows must name the service", name)
				}
				seen[name] = true
				names = append(names, name)
			}
		}
		return true
	})
	return names
}

// TestEveryMethodHasABudget checks that docs/budgets.md has a row for each method of the API.
// TestCallsStayWithinTheirBudgets checks that each row is measured.
func TestEveryMethodHasABudget(t *testing.T) {
	t.Parallel()
	has := map[string]bool{}
	for name := range readBudgets(t) {
		has[methodOf(name)] = true
	}
	names := serviceMethods(t)
	if len(names) < 40 {
		t.Fatalf("found the methods %q only", names)
	}
	for _, name := range names {
		if !has[name] {
			t.Errorf("docs/budgets.md has no row for %s", name)
		}
		delete(has, name)
	}
	for name := range has {
		t.Errorf("docs/budgets.md has a row for %s, which is no method", name)
	}
}

// budgetRow is a call under hostile data. Its name is that of a row in docs/budgets.md and begins
// with the method.
type budgetRow struct {
	name string
	// n is how often the call is measured. It is made once more before, with i = 0.
	n    int
	call func(i int) (proto.Message, error)
	// prepare, if not nil, is called before each call and is not measured.
	prepare func(i int) error
}

// TestCallsStayWithinTheirBudgets measures what each call costs under data that is legal and
// hostile: a message with 300 edits, the largest texts and payloads, the most members, channels,
// partitions and watchers. docs/budgets.md has the budgets.
func TestCallsStayWithinTheirBudgets(t *testing.T) { //nolint:paralleltest // it measures allocations, which all tests share
	budgets := readBudgets(t)
	// Each part has a server of its own, so that the background work of one is not counted in
	// another.
	parts := []struct {
		name string
		rows func(r *budgetRig) []budgetRow
	}{
		{"messages", messageBudgets},
		{"sessions", sessionBudgets},
		{"channels", channelBudgets},
		{"life", lifeBudgets},
		{"presence", presenceBudgets},
		{"queues", queueBudgets},
		{"partitions", partitionBudgets},
		{"topics", topicBudgets},
		{"letters", letterBudgets},
		{"erasures", erasureBudgets},
		{"revocations", revocationBudgets},
		{"API keys", apiKeyBudgets},
		{"server", serverBudgets},
	}
	ran := 0
	for _, part := range parts {
		if part.name != "messages" && part.name != "sessions" && os.Getenv("PARLEY_TEST_BUDGETS") != "all" {
			continue // `make budgets` runs all parts
		}
		t.Run(part.name, func(t *testing.T) {
			r, began := newBudgetRig(t), time.Now()
			rows := part.rows(r)
			t.Logf("prepared within %.1f s", time.Since(began).Seconds())
			r.observeIdle()
			for _, row := range rows {
				r.check(row, budgets)
			}
			ran++
		})
	}
	if ran == len(parts) { // -run and the environment may have left some out
		for name := range budgets {
			t.Errorf("docs/budgets.md has a budget for %s, which is not measured", name)
		}
	}
}

// check measures a row, compares it with its budget and removes that.
func (r *budgetRig) check(row budgetRow, budgets map[string]budget) {
	r.t.Helper()
	method := methodOf(row.name)
	before := r.calls(method)
	got := r.measure(row)
	r.t.Logf("%s: %.1f requests, %.1f round trips, %.0f KiB from MongoDB, %.0f KiB from Redis, %.0f KiB allocated, %.1f KiB answered",
		row.name, got.requests, got.trips, got.mongoKiB, got.redisKiB, got.allocated, got.answered)
	if made := r.calls(method) - before; made != row.n+1 {
		r.t.Errorf("%s: made %d calls of %s, want %d", row.name, made, method, row.n+1)
	}
	want, ok := budgets[row.name]
	if !ok {
		r.t.Errorf("%s: no budget in docs/budgets.md", row.name)
		return
	}
	delete(budgets, row.name)
	if got.requests > want.requests || got.trips > want.trips || got.mongoKiB > want.mongoKiB || got.redisKiB > want.redisKiB ||
		got.allocated > want.allocated {
		r.t.Errorf("%s: costs %+v, and may cost %+v", row.name, got, want)
	}
	if got.answered < want.answers {
		r.t.Errorf("%s: answers %.1f KiB, and %.1f KiB is the hostile case", row.name, got.answered, want.answers)
	}
}
