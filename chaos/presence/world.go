package presence

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// world is the state that the clients of a run share.
type world struct {
	rec   *Recorder
	addrs []string
	seed  uint64
	// token returns an access token for a user.
	token func(user string) string
	// users are the users that have devices.
	users []string
	// calm is closed when the devices no longer change on purpose.
	calm chan struct{}
	ids  atomic.Int64
}

// newID returns a unique id of a stream of a client.
func (w *world) newID(client string) string { return fmt.Sprintf("%s/%d", client, w.ids.Add(1)) }

// isCalm reports whether calm is closed.
func (w *world) isCalm() bool {
	select {
	case <-w.calm:
		return true
	default:
		return false
	}
}

// rest sleeps for a random time around mean. It reports false if ctx or the time of changes ended
// before.
func (w *world) rest(ctx context.Context, rng *rand.Rand, mean time.Duration) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-w.calm:
			cancel()
		case <-done:
		}
	}()
	return chaos.Pause(ctx, rng, mean)
}

// habit is the behavior of a device. The times are means.
type habit struct {
	// stay is how long the device stays online; 0 is until something fails.
	stay time.Duration
	// away is how long it stays offline, unless the absence is brief.
	away time.Duration
	// brief is the percentage of absences that are much shorter than offlineAfter.
	brief int
	// leave is the percentage of absences that begin with a Disconnect.
	leave int
	// flip is the time between changes of the background flag; 0 is none.
	flip time.Duration
	// act is how long the user of a kicked device waits before a new login.
	act time.Duration
}

// The habits.
var (
	steady  = habit{act: 3 * time.Second}
	flapper = habit{stay: 7 * time.Second, away: 9 * time.Second, brief: 60, leave: 25, act: 3 * time.Second}
	flipper = habit{flip: 2 * time.Second, act: 3 * time.Second}
	visitor = habit{stay: 15 * time.Second, away: 6 * time.Second, brief: 30, leave: 40, flip: 5 * time.Second, act: 3 * time.Second}
	rival   = habit{act: 4 * time.Second, stay: 20 * time.Second, away: 2 * time.Second, brief: 50}
)

// deviceSpec is a device of a user.
type deviceSpec struct {
	platform parleyv1.Platform
	habit    habit
}

// The platforms in short.
const (
	ios     = parleyv1.Platform_PLATFORM_IOS
	android = parleyv1.Platform_PLATFORM_ANDROID
	windows = parleyv1.Platform_PLATFORM_WINDOWS
	mac     = parleyv1.Platform_PLATFORM_MACOS
	web     = parleyv1.Platform_PLATFORM_WEB
)

// kinds are the kinds of users: the user with number i has the devices of kinds[i%len(kinds)]. Two
// devices of one platform exclude each other under every policy of a run, those of one class under
// the policy class.
var kinds = [][]deviceSpec{
	{{web, steady}},
	{{android, flapper}},
	{{ios, flipper}, {mac, visitor}, {web, steady}},
	{{ios, rival}, {ios, rival}},
	{{mac, steady}, {web, flapper}},
	{{android, rival}, {ios, rival}, {web, visitor}},
	{{windows, visitor}},
}

// crowded are the shards of the users of a run. The server hashes users into 256 shards, each with
// a log. A run has few users, so most logs would have the changes of one user only. Those of every
// other user do: no later entry shows that one was missed.
var crowded = []uint64{7, 60, 111, 158, 200, 251}

// newUsers returns n user ids. Each has characters that separate the parts of Redis' keys.
func newUsers(n int) []string {
	users := make([]string, n)
	for i := range users {
		for k := 0; users[i] == ""; k++ {
			id := fmt.Sprintf("user{%02d}*%d", i, k)
			if i%2 == 1 || xxhash.Sum64String(id)%256 == crowded[i/2%len(crowded)] {
				users[i] = id
			}
		}
	}
	return users
}

// userCount returns the number of users in a run of a size.
func userCount(s chaos.Size) int {
	if s == chaos.Long {
		return 56
	}
	return 28
}

// newDevices returns the devices of all users.
func (w *world) newDevices() []*device {
	var all []*device
	for i, user := range w.users {
		for k, spec := range kinds[i%len(kinds)] {
			name := fmt.Sprintf("d%02d-%d", i, k)
			d := &device{
				world: w, name: name, user: user, spec: spec, rng: chaos.Source(w.seed, name), clients: w.clientsOf(user),
				node: (i + k) % len(w.addrs),
			}
			d.stays = d.rng.IntN(4) > 0 || spec.habit == steady
			all = append(all, d)
		}
	}
	return all
}

// present is the state of all devices of a run, as they know it.
type present struct {
	states map[string]State
	// busy is the name of a device that is neither online nor stays offline. It is "" if there is
	// none.
	busy string
}

// look returns the present state of devices.
func look(devices []*device) present {
	p := present{states: make(map[string]State)}
	for _, d := range devices {
		d.mu.Lock()
		switch d.phase {
		case phaseOnline:
			p.states[d.user] = p.states[d.user].with(int(d.spec.platform), d.background)
		case phaseBusy:
			p.busy = d.name
		case phaseOut:
		}
		d.mu.Unlock()
	}
	return p
}

// phase is what a device is doing.
//
//	phaseBusy ---it has a stream and the server knows its background flag---> phaseOnline
//	phaseBusy ---it stays offline until the end---> phaseOut
//	phaseOnline ---its stream ends, or its flag changes---> phaseBusy
type phase uint8

const (
	phaseBusy phase = iota
	phaseOnline
	phaseOut
)

// status is the part of a device that others read.
type status struct {
	mu         sync.Mutex // guards the fields below
	phase      phase
	background bool
}

func (s *status) set(p phase, background bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.background = p, background
}
