package queue_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/parleyhq/parley/server/internal/store/redisqueue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// testStore makes a store in a Redis of the test's own, or below TestOnACluster with keys of its own in the shared cluster; there
// the server is nil.
func testStore(t *testing.T, options ...testkit.RedisOption) (*redisqueue.Store, *testkit.RedisServer) {
	t.Helper()
	if strings.HasPrefix(t.Name(), "TestOnACluster/") {
		prefix := strconv.FormatUint(rand.Uint64(), 36) + ":"
		return redisqueue.NewStore(testkit.RedisClusterClient(t), redisqueue.StoreConfig{Prefix: prefix}), nil
	}
	server := testkit.Redis(t, options...)
	return redisqueue.NewStore(server.Client(t), redisqueue.StoreConfig{}), server
}

// TestOnACluster runs the tests of consumers, producers, the scheduler and the administration once more against three masters.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T){
		"consume": TestConsumeDeliversInOrderAndAcks, "credits": TestCreditsAreExact, "bytes": TestBytesAreCredits, "settle": TestSessionSettles,
		"release": TestReleaseKeepsPlaceAndAttempt, "takeover": TestTakeoverGivesPendingFirstInOrder, "unsent": TestUnsentIsReleased,
		"ack timeout": TestAckTimeoutEndsTheSession, "attempts": TestLostConsumersUseUpAttempts, "newcomer": TestNewcomerGetsItsShare,
		"idle": TestIdleMemberIsTold, "drain": TestDrainHandsBack, "leave": TestLeave, "pause": TestTopicsEndAndPause,
		"stale holder": TestStaleHolderChangesNothing, "lost answers": TestLostAnswers, "changing hubs": TestHubsUnderChange,
		"topics": TestUpdateTopic, "crashes": TestWhatACrashBrokeOffIsFinished, "admin pause": TestPauseAndResume, "groups": TestGroups,
		"looks": TestLooks, "lists": TestTopicsAreListedInPages, "dead letters": TestDeadLetters,
		"schedulers": TestSchedulersOverRedis, "trims": TestSchedulerTrims,
	} {
		t.Run(name, test)
	}
}
