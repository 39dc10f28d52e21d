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
	if strings.HasPrefix(t.Name(), "TestInProcess/") {
		return redisqueue.NewStore(testkit.InProcessRedisClient(t), redisqueue.StoreConfig{}), nil
	}
	server := testkit.Redis(t, options...)
	return redisqueue.NewStore(server.Client(t), redisqueue.StoreConfig{}), server
}

// onOtherServers are the tests that run once more on every other kind of server: those of consumers, producers, the scheduler and the
// administration that do not kill or stop the server.
var onOtherServers = map[string]func(t *testing.T){
	"consume": TestConsumeDeliversInOrderAndAcks, "credits": TestCreditsAreExact, "bytes": TestBytesAreCredits, "settle": TestSessionSettles,
	"release": TestReleaseKeepsPlaceAndAttempt, "takeover": TestTakeoverGivesPendingFirstInOrder, "unsent": TestUnsentIsReleased,
	"ack timeout": TestAckTimeoutEndsTheSession, "attempts": TestLostConsumersUseUpAttempts, "newcomer": TestNewcomerGetsItsShare,
	"idle": TestIdleMemberIsTold, "drain": TestDrainHandsBack, "leave": TestLeave, "pause": TestTopicsEndAndPause,
	"stale holder": TestStaleHolderChangesNothing, "lost answers": TestLostAnswers, "changing hubs": TestHubsUnderChange,
	"topics": TestUpdateTopic, "crashes": TestWhatACrashBrokeOffIsFinished, "admin pause": TestPauseAndResume, "groups": TestGroups,
	"looks": TestLooks, "lists": TestTopicsAreListedInPages, "dead letters": TestDeadLetters,
	"schedulers": TestSchedulersOverRedis, "trims": TestSchedulerTrims,
}

// TestOnACluster runs them against three masters.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	for name, test := range onOtherServers {
		t.Run(name, test)
	}
}

// TestInProcess runs them against the Redis within the process, which `parleyd dev` has on a machine without redis-server. There a
// time of delivery, which is now minus XPENDING's idle time, varies by a millisecond between calls, because the two are rounded apart.
// So a list of pending messages in the order of delivery may repeat or miss one of the same millisecond, which `looks` would find.
func TestInProcess(t *testing.T) {
	t.Parallel()
	for name, test := range onOtherServers {
		if name != "looks" {
			t.Run(name, test)
		}
	}
}
