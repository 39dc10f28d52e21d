package queues

import (
	"time"

	"github.com/parleyhq/parley/chaos"
)

// step and calm create steps of mutants.
var (
	step = chaos.OneFault
	calm = chaos.Calm
)

// mutants are the mutants of the harness.
var mutants = []chaos.Mutant{}

// asleep is how long an owner of partitions is stopped or cut off. Its leases end after 2 s, and
// other streams acquire them soon after.
const asleep = 3500 * time.Millisecond

// healthy is a schedule without faults but lost replies. takeovers makes partitions change owners.
// zombies lets an owner continue after it has lost its partitions.
var (
	healthy   = []chaos.Step{calm(6 * time.Second)}
	takeovers = []chaos.Step{
		step(ConsumerKill, 0, time.Second), step(ConsumerKill, 2, time.Second), step(chaos.NodeKill, 0, time.Second),
		step(ConsumerKill, 1, time.Second), step(ConsumerKill, 3, time.Second),
	}
	zombies = []chaos.Step{
		step(chaos.StallRedis, 0, asleep), step(chaos.NodeStop, 1, asleep), step(chaos.StallRedis, 1, asleep),
		step(chaos.NodeStop, 0, asleep), step(chaos.StallRedis, 0, asleep), step(chaos.StallRedis, 1, asleep),
		step(chaos.StallRedis, 0, asleep), step(chaos.StallRedis, 1, asleep),
	}
)
