package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/parleyhq/parley/internal/rig"
)

// superviseEvery is the pause after which a supervisor starts a server again that has ended.
const superviseEvery = 500 * time.Millisecond

// breakMongoDisk fills the disks of the primary or of all members.
func (n *fleetFaults) breakMongoDisk(ctx context.Context, p Planned) (target string, mend Mend, err error) {
	set := n.fleet.Mongo
	primary, err := set.Primary(ctx)
	if err != nil {
		return "", nil, err
	}
	target, members := fmt.Sprintf("mongo-%d", primary), []int{primary}
	if p.Name == MongoDisks {
		target, members = "mongo", upTo(set.Size())
	}
	disks := make([]*rig.Disk, len(members))
	for k, i := range members {
		disks[k] = set.Disk(i)
	}
	free, err := fillUntilEnd(ctx, disks, func() bool {
		// Without a majority the primary may write nothing, and so run on.
		return !slices.ContainsFunc(members, func(i int) bool { return !set.Running(i) })
	}, func() {
		for _, i := range members {
			set.Kill(i)
		}
	}, func(ctx context.Context) error { return n.restartMongo(ctx, members) })
	return target, func(ctx context.Context) error { return errors.Join(free(ctx), set.WaitHealthy(ctx)) }, err
}

func (n *fleetFaults) breakRedisDisk(ctx context.Context, _ Planned) (target string, mend Mend, err error) {
	server := n.fleet.Redis
	mend, err = fillUntilEnd(ctx, []*rig.Disk{server.Disk()}, server.Running, server.Kill, server.Restart)
	return "redis", mend, err
}

// breakNATSDisk fills the disks of one server or of all servers. The servers do not end. They never
// write to a stream again whose file they could not write to, until they are restarted.
func (n *fleetFaults) breakNATSDisk(_ context.Context, p Planned) (target string, mend Mend, err error) {
	cluster := n.fleet.NATS
	servers := []int{p.Node % cluster.Size()}
	target = fmt.Sprintf("nats-%d", servers[0])
	if p.Name == NATSDisks {
		target, servers = "nats", upTo(cluster.Size())
	}
	disks := make([]*rig.Disk, len(servers))
	for k, i := range servers {
		disks[k] = cluster.Disk(i)
	}
	return target, func(ctx context.Context) error {
		err := eachDisk(disks, (*rig.Disk).Free)
		for _, i := range servers {
			cluster.Kill(i)
		}
		return errors.Join(err, cluster.StartAll(ctx))
	}, eachDisk(disks, (*rig.Disk).Fill)
}

// endLimit bounds the time from when disks are full until a server ends that writes to one.
const endLimit = time.Minute

// fillUntilEnd fills disks, waits until running returns false because a server has ended, and
// starts a supervisor, which restarts servers although there is no space. The Mend kills and
// restarts the servers once there is: one that the supervisor has just restarted can still end of
// what it could not write before.
func fillUntilEnd(
	ctx context.Context, disks []*rig.Disk, running func() bool, kill func(), restart func(ctx context.Context) error,
) (Mend, error) {
	err := eachDisk(disks, (*rig.Disk).Fill)
	for began := time.Now(); err == nil && running(); {
		if !Sleep(ctx, 20*time.Millisecond) || time.Since(began) > endLimit {
			err = errors.New("the server runs on with a full disk")
		}
	}
	if err != nil {
		return nil, err
	}
	stop := supervise(ctx, restart)
	return func(ctx context.Context) error {
		err := eachDisk(disks, (*rig.Disk).Free)
		stop()
		kill()
		return errors.Join(err, restart(ctx))
	}, err
}

// supervise calls restart again and again until stop is called, which waits for its end.
func supervise(ctx context.Context, restart func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for Sleep(ctx, superviseEvery) {
			_ = restart(ctx) // it ends again while there is no space
		}
	})
	return func() { cancel(); running.Wait() }
}

// restartMongo starts those of the members that do not run. It waits until all know a primary.
func (n *fleetFaults) restartMongo(ctx context.Context, members []int) error {
	errs := make([]error, len(members))
	var wg sync.WaitGroup // a primary may require several of them
	for k, i := range members {
		if !n.fleet.Mongo.Running(i) {
			wg.Go(func() { errs[k] = n.fleet.Mongo.Restart(ctx, i) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func eachDisk(disks []*rig.Disk, do func(*rig.Disk) error) error {
	var errs []error
	for _, d := range disks {
		errs = append(errs, do(d))
	}
	return errors.Join(errs...)
}

// breakRedisMemory sets Redis' memory limit to what it uses, so that it refuses every command that
// needs more.
func (n *fleetFaults) breakRedisMemory(ctx context.Context, _ Planned) (target string, mend Mend, err error) {
	limit := func(ctx context.Context, to string) error {
		client := n.fleet.Redis.Client()
		defer client.Close()
		return client.ConfigSet(ctx, "maxmemory", to).Err()
	}
	return "redis", func(ctx context.Context) error { return limit(ctx, "0") }, limit(ctx, "1mb")
}

// natsFull is the share of its present size to which NATSBytes limits a stream.
const natsFull = 0.5

// breakNATSBytes limits each stream of JetStream to half of its present bytes, so that it drops its
// oldest messages now and for each new one.
func (n *fleetFaults) breakNATSBytes(ctx context.Context, _ Planned) (target string, mend Mend, err error) {
	limits, err := n.streamLimits(ctx)
	full := make(map[string]int64, len(limits))
	for name, l := range limits {
		full[name] = max(1, int64(natsFull*float64(l.used)))
	}
	if err == nil {
		err = n.limitStreams(ctx, full)
	}
	return "nats", func(ctx context.Context) error {
		before := make(map[string]int64, len(limits))
		for name, l := range limits {
			before[name] = l.most
		}
		return n.limitStreams(ctx, before)
	}, err
}

// streamLimit is the present size of a stream and its limit, in bytes.
type streamLimit struct{ used, most int64 }

func (n *fleetFaults) streamLimits(ctx context.Context) (map[string]streamLimit, error) {
	limits := make(map[string]streamLimit)
	err := n.withStreams(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		streams := js.ListStreams(ctx)
		for info := range streams.Info() {
			limits[info.Config.Name] = streamLimit{int64(info.State.Bytes), info.Config.MaxBytes} //nolint:gosec // a size
		}
		return streams.Err()
	})
	return limits, err
}

func (n *fleetFaults) limitStreams(ctx context.Context, to map[string]int64) error {
	return n.withStreams(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		for name, most := range to {
			stream, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			config := stream.CachedInfo().Config
			config.MaxBytes = most
			if _, err := js.UpdateStream(ctx, config); err != nil {
				return fmt.Errorf("limit stream %s: %w", name, err)
			}
		}
		return nil
	})
}

// withStreams calls do with JetStream until it succeeds, for up to mendLimit: while a stream's
// leader is elected, nobody answers.
func (n *fleetFaults) withStreams(ctx context.Context, do func(ctx context.Context, js jetstream.JetStream) error) error {
	ctx, cancel := context.WithTimeout(ctx, mendLimit)
	defer cancel()
	nc, err := nats.Connect(n.fleet.NATS.URL())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := do(try, js)
		cancel()
		if err == nil || !Sleep(ctx, 200*time.Millisecond) {
			return err
		}
	}
}

// needsDisks reports whether a run has a fault that fills disks.
func (c *Config) needsDisks() bool {
	disk := func(f FaultName) bool { return slices.Contains(diskFaults, f) }
	for name, n := range c.Plan.Counts {
		if n > 0 && c.Steps == nil && disk(name) {
			return true
		}
	}
	return slices.ContainsFunc(c.Steps, func(s Step) bool {
		return slices.ContainsFunc(s.Faults, func(p Planned) bool { return disk(p.Name) })
	})
}

// diskFaults are the faults that fill disks.
var diskFaults = []FaultName{MongoDisk, MongoDisks, RedisDisk, NATSDisk, NATSDisks}
