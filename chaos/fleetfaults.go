package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/internal/rig"
)

// lostEvery is the number of replies of which one is dropped.
const lostEvery = 100

// fleetFaults are the faults of a fleet's nodes, engines and links.
type fleetFaults struct {
	fleet   *rig.Fleet
	log     FaultLog
	logger  *slog.Logger
	silence func(ctx context.Context, p Planned)
	lossy   []rig.Engine
	// down counts, for each node, the faults and restarts that keep it down. While it is 0, an exit
	// of the node is unexpected.
	down   []atomic.Int32
	clocks atomic.Int32 // counts the faults NodeClock
	// past is the path of an old copy of Redis' append-only file, made at copied. A copy older than
	// pastAge is replaced.
	past    string
	copied  time.Time
	pastAge time.Duration
}

func newFleetFaults(r *Run, c *NemesisConfig) *fleetFaults {
	return &fleetFaults{
		fleet: r.Fleet, log: c.Log, logger: r.Logger, silence: c.Silence, lossy: c.Lossy,
		down:    make([]atomic.Int32, len(r.Fleet.Nodes())),
		pastAge: max(10*time.Second, time.Duration(r.Plan.Scale*float64(time.Minute))), past: filepath.Join(r.Fleet.Dir, "aof-past"),
	}
}

// breaks returns all faults by name.
func (n *fleetFaults) breaks() map[FaultName]Break {
	all := map[FaultName]Break{NodeClock: n.breakClock}
	for _, name := range []FaultName{NodeKill, NodeStop, NodeIsolate, Roll} {
		all[name] = n.breakNode
	}
	for _, name := range []FaultName{MongoKill, MongoStepDown, MongoStop, MongoAlone, MongoLost} {
		all[name] = n.breakMongo
	}
	for _, name := range []FaultName{RedisKill, RedisAway, RedisFlush, RedisPast} {
		all[name] = n.breakRedis
	}
	all[NATSAway], all[NATSKill] = n.breakNATS, n.breakNATS
	all[MongoDisk], all[MongoDisks], all[RedisDisk] = n.breakMongoDisk, n.breakMongoDisk, n.breakRedisDisk
	all[NATSDisk], all[NATSDisks] = n.breakNATSDisk, n.breakNATSDisk
	all[RedisMemory], all[NATSBytes] = n.breakRedisMemory, n.breakNATSBytes
	for name, e := range map[FaultName]rig.Engine{CutMongo: rig.EngineMongo, CutRedis: rig.EngineRedis, CutNATS: rig.EngineNATS} {
		all[name] = n.breakLink(e, (*rig.Proxy).Cut)
	}
	for name, e := range map[FaultName]rig.Engine{StallMongo: rig.EngineMongo, StallRedis: rig.EngineRedis, StallNATS: rig.EngineNATS} {
		all[name] = n.breakLink(e, (*rig.Proxy).Stall)
	}
	return all
}

// breakLink returns a fault that breaks the connections between one node and an engine.
func (n *fleetFaults) breakLink(e rig.Engine, how func(*rig.Proxy)) Break {
	return func(_ context.Context, p Planned) (target string, mend Mend, err error) {
		link := n.fleet.Link(p.Node, e)
		how(link)
		return n.fleet.Node(p.Node).Addr(), func(context.Context) error { link.Restore(); return nil }, nil
	}
}

func (n *fleetFaults) breakNode(ctx context.Context, p Planned) (target string, mend Mend, err error) {
	node := n.fleet.Node(p.Node)
	switch p.Name {
	case NodeStop:
		return node.Addr(), func(context.Context) error { return node.Cont() }, node.Stop()
	case NodeIsolate:
		return node.Addr(), node.Rejoin, node.Isolate(ctx)
	case Roll:
		return "all", n.roll, nil
	default:
		n.down[p.Node].Add(1)
		node.Kill()
		return node.Addr(), func(ctx context.Context) error { return n.restart(ctx, p.Node) }, nil
	}
}

func (n *fleetFaults) breakMongo(ctx context.Context, p Planned) (target string, mend Mend, err error) {
	set := n.fleet.Mongo
	if p.Name == MongoStepDown {
		i, err := set.StepDown(ctx)
		return fmt.Sprintf("mongo-%d", i), set.WaitHealthy, err
	}
	i, err := set.Primary(ctx)
	if err != nil {
		return "", nil, err
	}
	target = fmt.Sprintf("mongo-%d", i)
	switch p.Name {
	case MongoAlone:
		return target, func(ctx context.Context) error { return n.resumeOthers(ctx, i) }, n.eachSecondary(i, set.Stop)
	case MongoLost:
		return target, func(ctx context.Context) error { return n.losePrimary(ctx, i) },
			n.eachSecondary(i, func(member int) error { set.Kill(member); return nil })
	default:
	}
	if p.Name == MongoStop {
		return target, func(ctx context.Context) error { return errors.Join(set.Cont(i), set.WaitHealthy(ctx)) }, set.Stop(i)
	}
	set.Kill(i)
	return target, func(ctx context.Context) error { return errors.Join(set.Restart(ctx, i), set.WaitHealthy(ctx)) }, nil
}

// eachSecondary calls do with the index of each member except the primary, and joins the errors.
func (n *fleetFaults) eachSecondary(primary int, do func(member int) error) error {
	var errs []error
	for i := range n.fleet.Mongo.Size() {
		if i != primary {
			errs = append(errs, do(i))
		}
	}
	return errors.Join(errs...)
}

// resumeOthers continues all stopped members, which are all except the primary.
func (n *fleetFaults) resumeOthers(ctx context.Context, primary int) error {
	return errors.Join(n.eachSecondary(primary, n.fleet.Mongo.Cont), n.fleet.Mongo.WaitHealthy(ctx))
}

// losePrimary kills the primary, which was running alone, and restarts the other members before it.
// They elect a primary that lacks all writes that only the killed one had.
func (n *fleetFaults) losePrimary(ctx context.Context, primary int) error {
	set := n.fleet.Mongo
	set.Kill(primary)
	var g errgroup.Group // a Restart waits for a primary, whose election requires both members
	err := n.eachSecondary(primary, func(member int) error {
		g.Go(func() error { return set.Restart(ctx, member) })
		return nil
	})
	return errors.Join(err, g.Wait(), set.Restart(ctx, primary), set.WaitHealthy(ctx))
}

func (n *fleetFaults) breakRedis(ctx context.Context, p Planned) (target string, mend Mend, err error) {
	server := n.fleet.Redis
	switch p.Name {
	case RedisFlush:
		return "redis", func(context.Context) error { return nil }, server.FlushAll(ctx)
	case RedisPast:
		server.Kill()
		return "redis", func(ctx context.Context) error {
			return errors.Join(server.RestoreAOF(n.past), server.Restart(ctx))
		}, nil
	default:
		server.Kill()
		return "redis", server.Restart, nil
	}
}

func (n *fleetFaults) breakNATS(ctx context.Context, p Planned) (target string, mend Mend, err error) {
	cluster := n.fleet.NATS
	if p.Name == NATSKill {
		i := p.Node % cluster.Size()
		cluster.Kill(i)
		return fmt.Sprintf("nats-%d", i), func(ctx context.Context) error { return cluster.Restart(ctx, i) }, nil
	}
	cluster.KillAll()
	var done sync.WaitGroup
	if n.silence != nil {
		done.Go(func() { n.silence(ctx, p) })
	}
	return "nats", func(ctx context.Context) error {
		done.Wait()
		return cluster.StartAll(ctx)
	}, nil
}

// restart tries to restart a node until it is ready, as a process supervisor does.
func (n *fleetFaults) restart(ctx context.Context, i int) error {
	node := n.fleet.Node(i)
	for {
		err := node.Restart(ctx)
		if err == nil {
			n.down[i].Add(-1)
			return nil
		}
		if !Sleep(ctx, 500*time.Millisecond) {
			return err
		}
	}
}

// roll restarts all nodes one after another, as an upgrade does.
func (n *fleetFaults) roll(ctx context.Context) error {
	for i, node := range n.fleet.Nodes() {
		n.down[i].Add(1)
		termCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := node.Term(termCtx)
		cancel()
		if err != nil {
			n.log.Exit(node.Addr(), fmt.Sprintf("a graceful end: %v: %s", err, n.logTail(i)))
			node.Kill()
		}
		if err := n.restart(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// watch records each unexpected exit of a node and restarts the node, until ctx ends.
func (n *fleetFaults) watch(ctx context.Context, i int) {
	node := n.fleet.Node(i)
	for {
		select {
		case <-ctx.Done():
			return
		case <-node.Exited():
		}
		if n.down[i].Load() == 0 && ctx.Err() == nil {
			n.down[i].Add(1)
			n.log.Exit(node.Addr(), n.logTail(i))
			_ = n.restart(ctx, i)
		}
		if !Sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
}

func (n *fleetFaults) logTail(i int) string {
	data, err := n.fleet.Node(i).Log()
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-3000):])
}

// panics returns excerpts of the nodes' logs that show a panic or a data race.
func (n *fleetFaults) panics() []string {
	var found []string
	for i, node := range n.fleet.Nodes() {
		data, err := node.Log()
		if err != nil {
			continue
		}
		for _, sign := range []string{"panic:", "fatal error:", "WARNING: DATA RACE", "panicked"} {
			if at := bytes.Index(data, []byte(sign)); at >= 0 {
				found = append(found, fmt.Sprintf("node %d: %s", i, data[at:min(len(data), at+2000)]))
			}
		}
	}
	return found
}

// loseReplies drops every hundredth reply of the lossy engines to every node, until stop is called.
func (n *fleetFaults) loseReplies() (stop func()) {
	f := Fault{Name: string(LostReplies), Target: "all"}
	n.log.BeginFault(&f)
	each := func(do func(p *rig.Proxy)) {
		for i := range n.fleet.Nodes() {
			for _, e := range n.lossy {
				do(n.fleet.Link(i, e))
			}
		}
	}
	each(func(p *rig.Proxy) { p.LoseReplies(lostEvery, nil) })
	return func() {
		each(func(p *rig.Proxy) { p.LoseReplies(0, nil) })
		n.log.EndFault(&f)
	}
}

// lostReplies returns the number of replies that were dropped, by engine.
func (n *fleetFaults) lostReplies() map[string]int64 {
	sum := make(map[string]int64)
	for i := range n.fleet.Nodes() {
		for _, e := range n.lossy {
			sum[string(e)] += n.fleet.Link(i, e).Lost()
		}
	}
	return sum
}

// copyAppendOnlyFile copies Redis' append-only file, at most once in pastAge, for the fault
// RedisPast, which restores the copy.
func (n *fleetFaults) copyAppendOnlyFile() {
	if time.Since(n.copied) < n.pastAge {
		return
	}
	if err := os.RemoveAll(n.past); err != nil {
		return
	}
	if n.fleet.Redis.SaveAOF(n.past) == nil {
		n.copied = time.Now()
	}
}

// ready blocks until all nodes are ready.
func (n *fleetFaults) ready(ctx context.Context) error {
	for _, node := range n.fleet.Nodes() {
		if err := node.Ready(ctx); err != nil {
			return fmt.Errorf("restart node %d: %w", node.Index(), err)
		}
	}
	return nil
}
