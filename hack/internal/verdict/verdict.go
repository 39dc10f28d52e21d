// Package verdict collects what a harness counts and what it finds wrong.
package verdict

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// mostWrong is the number of problems of a kind that are reported.
const mostWrong = 2

// Findings is what a run has counted and found wrong. The zero value is ready to use. It is safe
// for concurrent use.
type Findings struct {
	mu     sync.Mutex // guards the fields below
	counts map[string]int
	wrong  []string
	// kinds counts the problems of each kind, which is the format of their text, and count all.
	kinds map[string]int
	count int
}

// Wrongf records a problem.
func (f *Findings) Wrongf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds == nil {
		f.kinds = make(map[string]int)
	}
	f.count++
	if f.kinds[format]++; f.kinds[format] <= mostWrong {
		f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
	}
}

// Problems returns an error with the problems so far, or nil.
func (f *Findings) Problems() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		return nil
	}
	text := strings.Join(f.wrong, "; ")
	if f.count > len(f.wrong) {
		text += fmt.Sprintf("; and %d more", f.count-len(f.wrong))
	}
	return errors.New(text)
}

// Count returns the number of problems so far.
func (f *Findings) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Add counts something that happened.
func (f *Findings) Add(what string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = make(map[string]int)
	}
	f.counts[what] += n
}

// Total returns how often something happened.
func (f *Findings) Total(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[what]
}

// Counts returns all that was counted, as text.
func (f *Findings) Counts() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var counts []string
	for _, what := range slices.Sorted(maps.Keys(f.counts)) {
		counts = append(counts, fmt.Sprintf("%d %s", f.counts[what], what))
	}
	return strings.Join(counts, ", ")
}

// Sleep waits, or returns the error of ctx if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
