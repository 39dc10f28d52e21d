package integration_test

import (
	"testing"

	"github.com/parleyhq/parley/sdk/go/parleytest/servicetest"
	"github.com/parleyhq/parley/server/servertest"
)

// TestServiceOfParleyd checks that a real server passes the suite in servicetest, which parleytest
// also passes.
func TestServiceOfParleyd(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	servicetest.Run(t, servicetest.Target{URL: s.URL, Token: s.TokenOf, Presence: true})
}
