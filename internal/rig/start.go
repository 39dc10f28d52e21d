package rig

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// layoutFile is the name of the file in Fleet.Dir that stores the fleet's addresses and secret.
const layoutFile = "fleet.json"

// drainWait is how long nodes may drain when the fleet ends.
const drainWait = 15 * time.Second

func start(ctx context.Context, o Options) (*Fleet, error) {
	o.Nodes, o.MongoMembers, o.NATSServers = cmp.Or(o.Nodes, 3), cmp.Or(o.MongoMembers, 3), cmp.Or(o.NATSServers, 3)
	o.Database, o.Logger = cmp.Or(o.Database, "parley"), cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	f := &Fleet{options: o}
	if err := f.build(ctx); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fleet) build(ctx context.Context) error {
	if err := f.makeDir(); err != nil {
		return err
	}
	l, err := f.layout()
	if err != nil {
		return err
	}
	f.secret = []byte(l.Secret)
	if f.options.Binary == "" {
		if f.options.Binary, err = BuildParleyd(ctx); err != nil {
			return err
		}
	}
	if f.options.Namespaced {
		if err := createBridge(ctx, l); err != nil {
			return err
		}
	}
	if err := f.startEngines(ctx, l); err != nil {
		return err
	}
	return f.startNodes(ctx, l)
}

func (f *Fleet) makeDir() error {
	var err error
	if f.options.Dir != "" {
		f.Dir, err = filepath.Abs(f.options.Dir)
		return errors.Join(err, os.MkdirAll(f.Dir, 0o700))
	}
	if f.Dir, err = TempDir("fleet"); err == nil {
		f.undo = append(f.undo, func() error { return os.RemoveAll(f.Dir) })
	}
	return err
}

// layout reads the layout from Fleet.Dir, or creates and stores a new one.
func (f *Fleet) layout() (*layout, error) {
	path := filepath.Join(f.Dir, layoutFile)
	data, err := os.ReadFile(path)
	if err == nil {
		l := new(layout)
		if err := json.Unmarshal(data, l); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(l.Nodes) != f.options.Nodes || len(l.Mongo) != f.options.MongoMembers || len(l.NATS) != f.options.NATSServers {
			return nil, fmt.Errorf("%s contains the data of a fleet of another size", f.Dir)
		}
		return l, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l := namespacedLayout(&f.options)
	if !f.options.Namespaced {
		if l, err = loopbackLayout(&f.options); err != nil {
			return nil, err
		}
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	l.Secret = hex.EncodeToString(secret)
	if data, err = json.MarshalIndent(l, "", "\t"); err != nil { //nolint:gosec // a later fleet requires the secret
		return nil, err
	}
	return l, os.WriteFile(path, data, 0o600)
}

func loopbackLayout(o *Options) (*layout, error) {
	l := new(layout)
	var err error
	for i := range o.Nodes {
		addr, ops := "", ""
		if i < len(o.Ports) {
			addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Ports[i]))
			ops = net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Ports[i]+1))
		}
		if addr == "" || !portFree(addr) || !portFree(ops) {
			free, err := FreeAddrs(2)
			if err != nil {
				return nil, err
			}
			addr, ops = free[0], free[1]
		}
		l.Nodes, l.Ops = append(l.Nodes, addr), append(l.Ops, ops)
	}
	if l.Mongo, err = FreeAddrs(o.MongoMembers); err != nil {
		return nil, err
	}
	if l.NATS, err = FreeAddrs(o.NATSServers); err != nil {
		return nil, err
	}
	if l.NATSCluster, err = FreeAddrs(o.NATSServers); err != nil {
		return nil, err
	}
	l.Redis, err = freePort("127.0.0.1")
	return l, err
}

// startEngines starts the three engines concurrently.
func (f *Fleet) startEngines(ctx context.Context, l *layout) error {
	began := time.Now()
	var g errgroup.Group // waits for all of them even if one fails, so that all are closed
	var mu sync.Mutex
	undo := func(fn func() error) {
		mu.Lock()
		defer mu.Unlock()
		f.undo = append(f.undo, fn)
	}
	g.Go(func() (err error) {
		f.Mongo, err = StartMongo(ctx, MongoConfig{Dir: f.Dir, ReplicaSet: "rs0", Addrs: l.Mongo, Disks: f.options.Disks})
		if err == nil {
			undo(func() error { f.Mongo.Close(); return nil })
		}
		return err
	})
	g.Go(func() (err error) {
		f.Redis, err = StartRedis(ctx, RedisConfig{
			Dir: filepath.Join(f.Dir, "redis"), Addr: l.Redis, AppendOnly: true, MovableClock: f.options.MovableClock,
			Disk: f.options.Disks,
		})
		if err == nil {
			undo(func() error { f.Redis.Close(); return nil })
		}
		return err
	})
	g.Go(func() (err error) {
		f.NATS, err = StartNATS(ctx, NATSConfig{Dir: f.Dir, Addrs: l.NATS, ClusterAddrs: l.NATSCluster, Disks: f.options.Disks})
		if err == nil {
			undo(func() error { f.NATS.Close(context.WithoutCancel(ctx)); return nil })
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	f.options.Logger.InfoContext(ctx, "the engines run", "took", time.Since(began).Round(time.Millisecond))
	return nil
}

func (f *Fleet) startNodes(ctx context.Context, l *layout) error {
	began := time.Now()
	for i := range l.Nodes {
		if err := f.addNode(ctx, i, l); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	// The first node creates the collections and streams of a new store; the others then start
	// quickly.
	if err := f.startNode(ctx, f.nodes[0]); err != nil {
		return err
	}
	var g errgroup.Group
	for _, n := range f.nodes[1:] {
		g.Go(func() error { return f.startNode(ctx, n) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	f.options.Logger.InfoContext(ctx, "the nodes are ready", "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// startNode starts a node and waits until it is ready. If the node exits before that, startNode
// tries twice more, as a supervisor does in production: on a busy machine an engine's first replies
// may be too late.
func (f *Fleet) startNode(ctx context.Context, n *Node) error {
	for try := 1; ; try++ {
		err := n.Restart(ctx)
		if err == nil || n.Running() || try == 3 {
			return err
		}
		f.options.Logger.WarnContext(ctx, "a node ended during its start; retrying", "node", n.index, "error", err)
	}
}

// addNode adds a node that does not run yet, and creates its network if the fleet is namespaced.
func (f *Fleet) addNode(ctx context.Context, i int, l *layout) error {
	name := fmt.Sprintf("node-%d", i)
	clock, err := newNodeClock(filepath.Join(f.Dir, name+".clock"))
	if err != nil {
		return err
	}
	n := &Node{
		proc: process{
			name: name, path: cmp.Or(f.options.Binaries[i], f.options.Binary), args: []string{"serve"}, log: filepath.Join(f.Dir, name+".log"),
			env: append(append(f.env(i, l), clock.variable()), f.options.Env...),
		},
		clock: clock, index: i, addr: l.Nodes[i], ops: l.Ops[i],
	}
	if i < len(f.options.Clocks) {
		if err := n.SetClock(f.options.Clocks[i]); err != nil {
			return err
		}
	}
	if f.options.Namespaced {
		ns, link, err := createNodeNetwork(ctx, i, l)
		if err != nil {
			return err
		}
		f.undo = append(f.undo, ns.Close)
		n.proc.ns, n.link = ns, link
		proxies, err := linkNode(ctx, ns, l)
		if err != nil {
			return err
		}
		for _, p := range proxies {
			f.undo = append(f.undo, func() error { p.Close(); return nil })
		}
		f.links = append(f.links, proxies)
	}
	f.nodes = append(f.nodes, n)
	return nil
}

// env returns a node's configuration as environment variables.
func (f *Fleet) env(i int, l *layout) []string {
	return []string{
		"PARLEY_LISTEN=" + l.Nodes[i],
		"PARLEY_OPS_LISTEN=" + l.Ops[i],
		"PARLEY_MONGO_URI=" + f.Mongo.URI(),
		"PARLEY_MONGO_DATABASE=" + f.options.Database,
		"PARLEY_REDIS_ADDR=" + l.Redis,
		"PARLEY_NATS_URL=" + f.NATS.URL(),
		"PARLEY_NATS_REPLICAS=" + strconv.Itoa(f.NATS.Size()),
		// Many more shards than nodes, so that each node owns some, regardless of the nodes' ids.
		"PARLEY_SHARDS=16",
		"PARLEY_AUTH_HS256_SECRET=" + l.Secret,
	}
}

func (f *Fleet) close() error {
	// A halted node can't drain, so each node is resumed first.
	var wg sync.WaitGroup
	for _, n := range f.nodes {
		wg.Go(func() {
			_ = n.Cont()
			ctx, cancel := context.WithTimeout(context.Background(), drainWait) //nolint:forbidigo // Close must end in any case
			defer cancel()
			_ = n.Term(ctx) // how a node ends here does not matter
			n.Kill()
		})
	}
	wg.Wait()
	var errs []error
	for _, undo := range slices.Backward(f.undo) {
		errs = append(errs, undo())
	}
	f.undo = nil
	return errors.Join(errs...)
}
