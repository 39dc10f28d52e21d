package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Name is the name of a broken promise. Each harness declares names for its own promises.
type Name string

// The names that all harnesses share. They show that a fleet does not work at all, so none of them
// catches a mutant.
const (
	// Liveness: a call ended long after its deadline, or a call or a client failed and no fault
	// explains it.
	Liveness Name = "liveness"
	// Crash: a node exited unexpectedly, or its log shows a panic or a data race.
	Crash Name = "crash"
	// Unobserved: the harness did not observe data that other checks require. Those checks would find
	// nothing, regardless of what the server did.
	Unobserved Name = "unobserved"
)

// Violation is a broken promise with its evidence.
type Violation struct {
	Name Name `json:"name"`
	// Object is the channel or topic concerned. It is empty if the violation concerns no single
	// one.
	Object string `json:"object,omitempty"`
	Detail string `json:"detail"`
	// At is the time of the event that shows the violation, in nanoseconds since the run began. It
	// is 0 if only the stores show it.
	At int64 `json:"at,omitempty"`
}

// String formats the violation as one line.
func (v Violation) String() string {
	at := ""
	if v.At > 0 {
		at = fmt.Sprintf(" at %.3fs", time.Duration(v.At).Seconds())
	}
	return fmt.Sprintf("%s %s%s: %s", v.Name, v.Object, at, v.Detail)
}

// Findings collects the violations that a checker finds. It is not safe for concurrent use.
type Findings struct {
	limit  int
	origin int64
	found  []Violation
	counts map[Name]int
}

// NewFindings returns empty Findings that keep up to limit violations of each name and count the
// rest. Findings take times by the history's clock; origin is the run's beginning by that clock.
func NewFindings(limit int, origin int64) *Findings {
	return &Findings{limit: limit, origin: origin, counts: make(map[Name]int)}
}

// Reportf adds a violation. at is the time of the event that shows it, by the history's clock, or 0
// for no time. Reportf formats the text only if it keeps the violation, so args may be Stringers
// that are costly to format.
func (f *Findings) Reportf(name Name, object string, at int64, format string, args ...any) {
	if f.counts[name]++; f.counts[name] > f.limit {
		return
	}
	if at > 0 {
		at -= f.origin
	}
	f.found = append(f.found, Violation{Name: name, Object: object, At: at, Detail: fmt.Sprintf(format, args...)})
}

// ReportExits adds a violation for each unexpected exit of a node.
func (f *Findings) ReportExits(exits []Exit) {
	for _, e := range exits {
		f.Reportf(Crash, "", e.At, "%s ended on its own: %s", e.Node, e.Log)
	}
}

// Violations returns the violations kept, sorted by name. For each name over the limit it adds an
// entry with the number of the rest.
func (f *Findings) Violations() []Violation {
	all := slices.Clone(f.found)
	for name, n := range f.counts {
		if n > f.limit {
			all = append(all, Violation{Name: name, Detail: fmt.Sprintf("and %d more", n-f.limit)})
		}
	}
	slices.SortStableFunc(all, func(a, b Violation) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}
