package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Name is the name of a promise that was broken. Each harness declares the names of its own promises.
type Name string

// The names that every harness has. They show that a fleet does not work at all, so no mutant counts as caught by one of
// them.
const (
	// Liveness: a call did not end by its deadline, or failed although nothing was broken.
	Liveness Name = "liveness"
	// Crash: a node ended without being stopped, or panicked.
	Crash Name = "crash"
	// Blind: the harness did not see what other checks depend on. Those would find nothing, whatever the server did.
	Blind Name = "blind"
)

// Violation is a broken promise, with the evidence.
type Violation struct {
	Name Name `json:"name"`
	// Object is the channel or the topic that the promise is about; empty if it is about no single one.
	Object string `json:"object,omitempty"`
	Detail string `json:"detail"`
	// At is the time of the event that shows it, in nanoseconds since the run began; 0 if it shows only in the stores.
	At int64 `json:"at,omitempty"`
}

// String returns the violation as one line.
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

// NewFindings returns empty Findings, which keep up to limit violations of each name and count the others. Times are given
// to it as in the history; origin is the history's time at which the run began.
func NewFindings(limit int, origin int64) *Findings {
	return &Findings{limit: limit, origin: origin, counts: make(map[Name]int)}
}

// Reportf adds a violation. The text is formatted only if the violation is kept, so args may be Stringers that are costly
// to format.
func (f *Findings) Reportf(name Name, object string, at int64, format string, args ...any) {
	if f.counts[name]++; f.counts[name] > f.limit {
		return
	}
	if at > 0 {
		at -= f.origin
	}
	f.found = append(f.found, Violation{Name: name, Object: object, At: at, Detail: fmt.Sprintf(format, args...)})
}

// ReportExits adds a violation for each node that ended without being stopped.
func (f *Findings) ReportExits(exits []Exit) {
	for _, e := range exits {
		f.Reportf(Crash, "", e.At, "%s ended by itself: %s", e.Node, e.Log)
	}
}

// Violations returns what was found, ordered by name, with one more entry for each name of which some were only counted.
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
