// Package logtest collects what a program under test prints. Only tests import it.
package logtest

import (
	"strings"
	"sync"
	"testing"
)

// Output writes to the test's log and collects what was written. It is safe for concurrent use.
type Output struct {
	t    testing.TB
	mu   sync.Mutex // guards text
	text strings.Builder
}

// New returns an Output without text.
func New(t testing.TB) *Output { return &Output{t: t} }

// Write implements io.Writer. It never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.t.Logf("%s", p)
	return o.text.Write(p)
}

// String returns what was written.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
