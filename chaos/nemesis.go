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

const (
	// mendLimit bounds the mending of a fault.
	mendLimit = 90 * time.Second
	// lostEvery is how rarely a reply is lost.
	lostEvery = 100
)

// FaultLog is told of what was broken.
type FaultLog interface {
	// BeginFault notes when a fault begins, EndFault that it is mended.
	BeginFault(f *Fault)
	EndFault(f *Fault)
	// Exit records that a node ended by itself.
	Exit(node, log string)
}

// NemesisConfig says what a Nemesis breaks.
type NemesisConfig struct {
	Fleet *rig.Fleet
	Log   FaultLog
	// Scale is the plan's.
	Scale  float64
	Logger *slog.Logger
	// Silence is called while NATS is away, and returns before that comes back; nil does nothing.
	Silence func(ctx context.Context, p Planned)
	// Own are faults of the room's own clients, by name.
	Own map[FaultName]Break
	// Lossy are the engines that lose replies.
	Lossy []rig.Engine
}

// Nemesis breaks things by a schedule and mends them again.
type Nemesis struct {
	c     NemesisConfig
	rec   FaultLog
	fleet *rig.Fleet
	log   *slog.Logger
	// down counts, for each node, who keeps it down on purpose.
	down []atomic.Int32
	// past is an append-only file as it was once, taken when; a new one is taken every so often.
	past    string
	taken   time.Time
	pastAge time.Duration
}

// NewNemesis makes one that has broken nothing yet.
func NewNemesis(c NemesisConfig) *Nemesis {
	return &Nemesis{
		c: c, rec: c.Log, fleet: c.Fleet, log: c.Logger, down: make([]atomic.Int32, len(c.Fleet.Nodes())),
		pastAge: max(10*time.Second, time.Duration(c.Scale*float64(time.Minute))), past: filepath.Join(c.Fleet.Dir, "aof-past"),
	}
}

// Run does the steps, one after another. Its error is that something could not be broken or mended: the run is then
// worth nothing.
func (n *Nemesis) Run(ctx context.Context, steps []Step) error {
	for i, step := range steps {
		n.keepPast()
		if !sleep(ctx, step.Wait) {
			return ctx.Err()
		}
		n.log.InfoContext(ctx, "step", "number", i+1, "of", len(steps), "faults", step.String())
		errs := make([]error, len(step.Faults))
		var wg sync.WaitGroup
		for i, f := range step.Faults {
			wg.Go(func() {
				if sleep(ctx, f.Delay) {
					errs[i] = n.one(ctx, f)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// keepPast copies Redis's append-only file now and then, for the day on which it is given back.
func (n *Nemesis) keepPast() {
	if time.Since(n.taken) < n.pastAge {
		return
	}
	if err := os.RemoveAll(n.past); err != nil {
		return
	}
	if n.fleet.Redis.SaveAOF(n.past) == nil {
		n.taken = time.Now()
	}
}

// Mend ends a fault.
type Mend func(ctx context.Context) error

// Break begins a fault, and tells what it hit and how that ends.
type Break func(ctx context.Context, p Planned) (target string, heal Mend, err error)

// one breaks something, holds it broken and mends it.
func (n *Nemesis) one(ctx context.Context, p Planned) error {
	f := Fault{Name: string(p.Name), Holds: p.Name.holds()}
	n.rec.BeginFault(&f)
	target, heal, err := n.breakIt(ctx, p)
	f.Target = target
	if err == nil {
		sleep(ctx, p.Hold)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mendLimit)
		err = heal(ctx)
		cancel()
	}
	if err != nil {
		f.Err = err.Error()
		err = fmt.Errorf("%s of %s: %w", p.Name, f.Target, err)
	}
	n.rec.EndFault(&f)
	n.log.InfoContext(ctx, "mended", "fault", p.Name, "target", target, "open_writes", f.OpenWrites, "open_reads", f.OpenReads,
		"took", time.Duration(f.End-f.Begin).Round(time.Millisecond), "err", f.Err)
	return err
}

// holds reports whether a fault may hold back what was under way, and let it go afterwards.
func (f FaultName) holds() bool {
	return f == NodeStop || f == NodeIsolate || f == StallNATS
}

// breakIt begins a fault.
func (n *Nemesis) breakIt(ctx context.Context, p Planned) (target string, heal Mend, err error) {
	if own := n.c.Own[p.Name]; own != nil {
		return own(ctx, p)
	}
	node := n.fleet.Node(p.Node)
	links := map[FaultName]rig.Engine{
		CutMongo: rig.EngineMongo, CutRedis: rig.EngineRedis, CutNATS: rig.EngineNATS,
		StallMongo: rig.EngineMongo, StallRedis: rig.EngineRedis, StallNATS: rig.EngineNATS,
	}
	switch p.Name {
	case NodeKill:
		n.down[p.Node].Add(1)
		node.Kill()
		return node.Addr(), func(ctx context.Context) error { return n.raise(ctx, p.Node) }, nil
	case NodeStop:
		return node.Addr(), func(context.Context) error { return node.Cont() }, node.Stop()
	case NodeIsolate:
		return node.Addr(), node.Rejoin, node.Isolate(ctx)
	case Roll:
		return "all", n.roll, nil
	case MongoKill, MongoStepDown, MongoStop, MongoAlone, MongoLost:
		return n.breakMongo(ctx, p.Name)
	case RedisKill, RedisFlush, RedisPast:
		return n.breakRedis(ctx, p.Name)
	case NATSAway, NATSKill:
		return n.breakNATS(ctx, p)
	case CutMongo, CutRedis, CutNATS:
		n.fleet.Link(p.Node, links[p.Name]).Cut()
	case StallMongo, StallRedis, StallNATS:
		n.fleet.Link(p.Node, links[p.Name]).Stall()
	default:
		return "", nil, fmt.Errorf("no such fault: %s", p.Name)
	}
	return node.Addr(), func(context.Context) error { n.fleet.Link(p.Node, links[p.Name]).Restore(); return nil }, nil
}

func (n *Nemesis) breakMongo(ctx context.Context, name FaultName) (target string, heal Mend, err error) {
	set := n.fleet.Mongo
	if name == MongoStepDown {
		i, err := set.StepDown(ctx)
		return fmt.Sprintf("mongo-%d", i), set.WaitHealthy, err
	}
	i, err := set.Primary(ctx)
	if err != nil {
		return "", nil, err
	}
	target = fmt.Sprintf("mongo-%d", i)
	switch name {
	case MongoAlone:
		return target, func(ctx context.Context) error { return n.wake(ctx, i) }, n.eachOther(i, set.Stop)
	case MongoLost:
		return target, func(ctx context.Context) error { return n.lose(ctx, i) },
			n.eachOther(i, func(member int) error { set.Kill(member); return nil })
	default:
	}
	if name == MongoStop {
		return target, func(ctx context.Context) error { return errors.Join(set.Cont(i), set.WaitHealthy(ctx)) }, set.Stop(i)
	}
	set.Kill(i)
	return target, func(ctx context.Context) error { return errors.Join(set.Restart(ctx, i), set.WaitHealthy(ctx)) }, nil
}

// eachOther does something to all members but one.
func (n *Nemesis) eachOther(primary int, do func(member int) error) error {
	var errs []error
	for i := range n.fleet.Mongo.Size() {
		if i != primary {
			errs = append(errs, do(i))
		}
	}
	return errors.Join(errs...)
}

// wake lets all members but one run on.
func (n *Nemesis) wake(ctx context.Context, primary int) error {
	return errors.Join(n.eachOther(primary, n.fleet.Mongo.Cont), n.fleet.Mongo.WaitHealthy(ctx))
}

// lose kills the primary, which was alone, with all that only it has, and starts the others first: these choose a primary
// that knows nothing of it.
func (n *Nemesis) lose(ctx context.Context, primary int) error {
	set := n.fleet.Mongo
	set.Kill(primary)
	var g errgroup.Group // each waits until it knows a primary, for which it needs the other
	err := n.eachOther(primary, func(member int) error {
		g.Go(func() error { return set.Restart(ctx, member) })
		return nil
	})
	return errors.Join(err, g.Wait(), set.Restart(ctx, primary), set.WaitHealthy(ctx))
}

func (n *Nemesis) breakRedis(ctx context.Context, name FaultName) (target string, heal Mend, err error) {
	server := n.fleet.Redis
	switch name {
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

func (n *Nemesis) breakNATS(ctx context.Context, p Planned) (target string, heal Mend, err error) {
	cluster := n.fleet.NATS
	if p.Name == NATSKill {
		i := p.Node % cluster.Size()
		cluster.Kill(i)
		return fmt.Sprintf("nats-%d", i), func(ctx context.Context) error { return cluster.Restart(ctx, i) }, nil
	}
	cluster.KillAll()
	var done sync.WaitGroup
	if n.c.Silence != nil {
		done.Go(func() { n.c.Silence(ctx, p) })
	}
	return "nats", func(ctx context.Context) error {
		done.Wait()
		return cluster.StartAll(ctx)
	}, nil
}

// raise starts a node again and again until it is ready: what keeps nodes running does so too.
func (n *Nemesis) raise(ctx context.Context, i int) error {
	node := n.fleet.Node(i)
	for {
		err := node.Restart(ctx)
		if err == nil {
			n.down[i].Add(-1)
			return nil
		}
		if !sleep(ctx, 500*time.Millisecond) {
			return err
		}
	}
}

// roll restarts all nodes, one after another, as an upgrade does.
func (n *Nemesis) roll(ctx context.Context) error {
	for i, node := range n.fleet.Nodes() {
		n.down[i].Add(1)
		termCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := node.Term(termCtx)
		cancel()
		if err != nil {
			n.rec.Exit(node.Addr(), fmt.Sprintf("a graceful end: %v: %s", err, n.logTail(i)))
			node.Kill()
		}
		if err := n.raise(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// Watch records nodes that end though nobody told them to, and starts them again, until ctx ends.
func (n *Nemesis) Watch(ctx context.Context, i int) {
	node := n.fleet.Node(i)
	for {
		select {
		case <-ctx.Done():
			return
		case <-node.Exited():
		}
		if n.down[i].Load() == 0 && ctx.Err() == nil {
			n.down[i].Add(1)
			n.rec.Exit(node.Addr(), n.logTail(i))
			_ = n.raise(ctx, i)
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
}

func (n *Nemesis) logTail(i int) string {
	data, err := n.fleet.Node(i).Log()
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-3000):])
}

// Panics gives what nodes said as they broke down.
func (n *Nemesis) Panics() []string {
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

// LoseReplies loses every hundredth reply of the lossy engines to every node, until stop.
func (n *Nemesis) LoseReplies() (stop func()) {
	f := Fault{Name: string(LostReplies), Target: "all"}
	n.rec.BeginFault(&f)
	each := func(do func(p *rig.Proxy)) {
		for i := range n.fleet.Nodes() {
			for _, e := range n.c.Lossy {
				do(n.fleet.Link(i, e))
			}
		}
	}
	each(func(p *rig.Proxy) { p.LoseReplies(lostEvery, nil) })
	return func() {
		each(func(p *rig.Proxy) { p.LoseReplies(0, nil) })
		n.rec.EndFault(&f)
	}
}

// Lost counts the replies that were lost, by engine.
func (n *Nemesis) Lost() map[string]int64 {
	sum := make(map[string]int64)
	for i := range n.fleet.Nodes() {
		for _, e := range n.c.Lossy {
			sum[string(e)] += n.fleet.Link(i, e).Lost()
		}
	}
	return sum
}
