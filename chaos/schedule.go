package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultName is the name of a kind of fault.
type FaultName string

// The faults.
const (
	NodeKill      FaultName = "node-kill"    // kill -9, and a restart a moment later
	NodeStop      FaultName = "node-stop"    // SIGSTOP and SIGCONT: it resumes with stale leases and roles
	NodeIsolate   FaultName = "node-isolate" // no packets between a node and its clients
	NodeClock     FaultName = "node-clock"   // a node's clock is 10 s fast or slow; see MovedClock
	Roll          FaultName = "roll"         // SIGTERM and restart, one node after another
	MongoKill     FaultName = "mongo-kill"   // kill -9 of the primary
	MongoStepDown FaultName = "mongo-step"   // the primary steps down
	MongoStop     FaultName = "mongo-stop"   // SIGSTOP and SIGCONT of the primary
	MongoAlone    FaultName = "mongo-alone"  // SIGSTOP and SIGCONT of all but the primary: no majority
	MongoLost     FaultName = "mongo-lost"   // all others killed, then the primary; the others restart first
	RedisKill     FaultName = "redis-kill"   // kill -9
	RedisAway     FaultName = "redis-away"   // as redis-kill, for longer than beats and sessions last without it
	RedisFlush    FaultName = "redis-flush"  // FLUSHALL
	RedisPast     FaultName = "redis-past"   // killed, and restarted with an older append-only file
	NATSAway      FaultName = "nats-away"    // every server killed; see NemesisConfig.Silence
	NATSKill      FaultName = "nats-kill"    // one server killed
	MongoDisk     FaultName = "mongo-disk"   // the primary's disk is full
	MongoDisks    FaultName = "mongo-disks"  // the disks of all members are full
	RedisDisk     FaultName = "redis-disk"   // the disk is full
	RedisMemory   FaultName = "redis-memory" // the memory limit is reached: all that needs memory is refused
	NATSDisk      FaultName = "nats-disk"    // one server's disk is full, and the server restarts once it is not
	NATSDisks     FaultName = "nats-disks"   // as nats-disk, of all servers
	NATSBytes     FaultName = "nats-bytes"   // streams have half of the bytes that they use, and drop messages
	CutMongo      FaultName = "cut-mongo"    // a node's connections to MongoDB break, and new ones are refused
	CutRedis      FaultName = "cut-redis"    // as cut-mongo
	CutNATS       FaultName = "cut-nats"     // as cut-mongo; this cuts the node off from other nodes, too
	StallMongo    FaultName = "stall-mongo"  // a node's connections to MongoDB stay open, but no byte passes
	StallRedis    FaultName = "stall-redis"  // as stall-mongo
	StallNATS     FaultName = "stall-nats"   // as stall-mongo
	LostReplies   FaultName = "lost-replies" // see NemesisConfig.Lossy; lasts as long as Nemesis.Run
)

// Step is one step of a schedule. It may have no faults, or several at the same time.
type Step struct {
	// Wait is the time without faults before the step.
	Wait   time.Duration
	Faults []Planned
}

// Planned is a fault in a schedule.
type Planned struct {
	Name FaultName
	// Node is the index of the target, from 0: a node, a client of the harness, or a NATS server
	// (modulo their number). Faults of MongoDB ignore it: they depend on which member is primary.
	Node int
	// Delay is the time from the end of Step.Wait until the fault begins. Hold is the time from
	// then until it is mended.
	Delay, Hold time.Duration
}

// Plan is the number and the scale of the faults in a run. Schedule returns its steps.
type Plan struct {
	// Counts is how many times each fault occurs.
	Counts map[FaultName]int
	// Nodes is the number of nodes in the fleet.
	Nodes int
	// Targets is the number of targets of each fault that does not hit a node of the fleet but a
	// client of the harness.
	Targets map[FaultName]int
	// Scale multiplies every Wait, Delay and Hold: 1 for a long run, less for a short one.
	Scale float64
}

// hold returns the range of a fault's duration at scale 1.
func (f FaultName) hold() (from, to time.Duration) {
	switch f {
	case NodeStop, MongoStop:
		return 19 * time.Second, 21 * time.Second
	case NodeKill, RedisKill, RedisPast, NATSKill:
		return time.Second, 8 * time.Second
	case RedisAway:
		return 30 * time.Second, time.Minute
	case MongoKill:
		return 5 * time.Second, 15 * time.Second
	case MongoStepDown, RedisFlush, Roll:
		return 0, 0
	default:
		return 8 * time.Second, 20 * time.Second
	}
}

// holds reports whether the target of a fault may hold data back and deliver it afterwards.
func (f FaultName) holds() bool {
	return f == NodeStop || f == NodeIsolate || f == StallNATS
}

// engine returns the name of the part that a fault disables, such as "mongo" or "node". Schedule
// returns no step with two faults of one engine.
func (f FaultName) engine() string {
	name, rest, _ := strings.Cut(string(f), "-")
	switch name {
	case "cut", "stall":
		return rest
	case "roll":
		return "node"
	default:
		return name
	}
}

// Schedule returns the steps of a run: the faults of the plan in a random order. Some steps have
// two faults, but never two of one engine. The same seed and plan return the same schedule.
func Schedule(seed uint64, p Plan) []Step {
	rng := Source(seed, "schedule")
	var names []FaultName
	for _, name := range slices.Sorted(maps.Keys(p.Counts)) {
		for range p.Counts[name] {
			names = append(names, name)
		}
	}
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var steps []Step
	for len(names) > 0 {
		step := Step{Wait: p.between(rng, 5*time.Second, 15*time.Second), Faults: []Planned{p.fault(rng, names[0])}}
		first := names[0]
		names = names[1:]
		if len(names) > 0 && rng.IntN(3) == 0 && names[0].engine() != first.engine() && first != Roll && names[0] != Roll {
			second := p.fault(rng, names[0])
			second.Delay = p.between(rng, 0, 3*time.Second)
			step.Faults = append(step.Faults, second)
			names = names[1:]
		}
		steps = append(steps, step)
	}
	return steps
}

func (p *Plan) fault(rng *rand.Rand, name FaultName) Planned {
	from, to := name.hold()
	targets, ok := p.Targets[name]
	if !ok {
		targets = p.Nodes
	}
	f := Planned{Name: name, Node: rng.IntN(max(1, targets)), Hold: p.between(rng, from, to)}
	if p.Scale < 1 && from > 0 {
		// A fault of less than two seconds would end before any client notices it.
		f.Hold = max(f.Hold, 2*time.Second)
	}
	return f
}

func (p *Plan) between(rng *rand.Rand, from, to time.Duration) time.Duration {
	d := from
	if to > from {
		d += time.Duration(rng.Int64N(int64(to - from)))
	}
	return time.Duration(float64(d) * p.Scale).Round(time.Millisecond)
}

// String formats the step as one line.
func (s Step) String() string {
	parts := make([]string, len(s.Faults))
	for i, f := range s.Faults {
		parts[i] = fmt.Sprintf("%s (node %d, +%s, for %s)", f.Name, f.Node, f.Delay, f.Hold)
	}
	return fmt.Sprintf("after %s: %s", s.Wait, strings.Join(parts, " and "))
}

// ParseCounts parses a list such as "node-kill=3,nats-away". A fault without a number counts as
// one. It returns an error for a fault that is not in of.Counts.
func ParseCounts(list string, of Plan) (map[FaultName]int, error) {
	counts := make(map[FaultName]int)
	for part := range strings.SplitSeq(list, ",") {
		name, number, ok := strings.Cut(part, "=")
		n := 1
		if ok {
			var err error
			if n, err = strconv.Atoi(number); err != nil || n < 0 {
				return nil, fmt.Errorf("%q must be a fault and a number, as in node-kill=3", part)
			}
		}
		if _, known := of.Counts[FaultName(name)]; !known {
			return nil, fmt.Errorf("unknown fault %q", name)
		}
		counts[FaultName(name)] = n
	}
	return counts, nil
}
