package server_test

import (
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/servertest"
)

// TestSignOutEndsPresence checks that the presence of a user who signs out ends at once on all
// nodes, without the time in which those return who only lost their connection.
func TestSignOutEndsPresence(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2, servertest.With(func(c *config.Config) { c.Presence.OfflineAfter = time.Minute }))
	here, there := nodes[0], nodes[1]
	watcher := connectAs(t, here, presenceToken(here, "watcher"), watching("ann", "bob"))
	online := func(userID string) {
		connectAs(t, there, login(here, userID, userID+"-phone"), &parleyv1.ConnectRequest{
			Platform: parleyv1.Platform_PLATFORM_IOS, DeviceId: userID,
		})
		watcher.shows(userID, 10*time.Second, parleyv1.Platform_PLATFORM_IOS)
	}
	online("ann")
	online("bob")
	if err := callErr(here.Presence(login(here, "ann", "ann-phone")).SignOut(t.Context(), &parleyv1.SignOutRequest{})); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	watcher.shows("ann", time.Second+slowMachine)
	t.Logf("shown offline %v after the sign-out", time.Since(began).Round(time.Millisecond))
	watcher.shows("bob", time.Second, parleyv1.Platform_PLATFORM_IOS)
}
