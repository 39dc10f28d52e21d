package parleytest_test

import (
	"testing"

	"github.com/parleyhq/parley/sdk/go/parleytest"
	"github.com/parleyhq/parley/sdk/go/parleytest/servicetest"
)

// TestService checks that parleytest passes the suite in servicetest, which the real server also
// passes.
func TestService(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	servicetest.Run(t, servicetest.Target{
		URL: "http://" + s.Addr(),
		Token: func(userID string, actions ...string) string {
			token := userID
			for _, a := range actions {
				token += " " + a
			}
			s.SetUser(token, userID)
			if len(actions) > 0 {
				s.SetActions(token, actions...)
			}
			return token
		},
		Unsupported: parleytest.Unsupported(),
		Presence:    true,
	})
}
