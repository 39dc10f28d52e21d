package rig_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/internal/rig"
)

// TestMain builds nats-server, which may require the network, and then runs the tests in a network
// namespace.
func TestMain(m *testing.M) {
	if !rig.InNamespace() {
		if _, err := rig.BuildNATS(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		code, err := rig.RunInNamespace()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// within returns a context that ends after d or with the test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
