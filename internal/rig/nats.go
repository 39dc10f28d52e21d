package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATSConfig configures StartNATS.
type NATSConfig struct {
	// Dir holds a directory for each server, nats-0 and so on, with its configuration, store and
	// log.
	Dir string
	// Binary is the path of the nats-server to run. Empty builds the one that go.mod pins.
	Binary string
	// Addrs are the client addresses, host:port, one for each server.
	Addrs []string
	// ClusterAddrs are the addresses between servers, one for each. They are ignored for a single
	// server.
	ClusterAddrs []string
	// Disks puts the store of each server on a Disk.
	Disks bool
}

// NATS is a cluster of nats-server processes with JetStream, or a single one, identified by index.
// Methods may be called concurrently, but those that kill, halt, resume or restart a server only by
// one goroutine at a time.
type NATS struct {
	servers []*process
	addrs   []string
	disks   []*Disk // nil ones without NATSConfig.Disks
}

// StartNATS starts the servers and waits until JetStream answers. After an error nothing is left
// running.
func StartNATS(ctx context.Context, c NATSConfig) (*NATS, error) {
	if c.Binary == "" {
		var err error
		if c.Binary, err = BuildNATS(ctx); err != nil {
			return nil, err
		}
	}
	n := &NATS{addrs: c.Addrs}
	for i := range c.Addrs {
		p, disk, err := newNATSServer(i, &c)
		if err != nil {
			n.removeDisks()
			return nil, err
		}
		n.servers, n.disks = append(n.servers, p), append(n.disks, disk)
	}
	if err := n.StartAll(ctx); err != nil {
		n.KillAll()
		n.removeDisks()
		return nil, err
	}
	return n, nil
}

// newNATSServer creates a server that does not run yet, and its disk, which is nil without
// NATSConfig.Disks.
func newNATSServer(i int, c *NATSConfig) (*process, *Disk, error) {
	name := "nats-" + strconv.Itoa(i)
	dir := filepath.Join(c.Dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	disk, err := newDisk(diskDir(dir, true), c.Disks)
	if err != nil {
		return nil, nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "server_name: %s\nlisten: %q\nmax_payload: 1048576\n", name, c.Addrs[i])
	fmt.Fprintf(&b, "jetstream: {store_dir: %q, max_memory_store: 256MB, max_file_store: 20GB}\n", filepath.Join(diskDir(dir, c.Disks), "store"))
	if len(c.Addrs) > 1 {
		routes := make([]string, 0, len(c.ClusterAddrs))
		for j, addr := range c.ClusterAddrs {
			if j != i {
				routes = append(routes, strconv.Quote("nats://"+addr))
			}
		}
		fmt.Fprintf(&b, "cluster: {name: parley, listen: %q, routes: [%s]}\n", c.ClusterAddrs[i], strings.Join(routes, ", "))
	}
	conf := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(conf, []byte(b.String()), 0o600); err != nil {
		disk.close()
		return nil, nil, err
	}
	return &process{name: name, path: c.Binary, args: []string{"-c", conf}, log: filepath.Join(dir, "log")}, disk, nil
}

// URL returns the URLs of all servers, separated by commas.
func (n *NATS) URL() string {
	urls := make([]string, len(n.addrs))
	for i, addr := range n.addrs {
		urls[i] = "nats://" + addr
	}
	return strings.Join(urls, ",")
}

// Size returns the number of servers.
func (n *NATS) Size() int { return len(n.servers) }

// Addr returns a server's host:port.
func (n *NATS) Addr(server int) string { return n.addrs[server] }

// Running reports whether a server's process exists, including one halted by Stop.
func (n *NATS) Running(server int) bool { return n.servers[server].current() != nil }

// PID returns a server's process id, 0 if it does not run.
func (n *NATS) PID(server int) int { return n.servers[server].pid() }

// Kill ends a server with SIGKILL and waits until it has exited. Its store stays. It does nothing
// if the server does not run.
func (n *NATS) Kill(server int) { n.servers[server].kill() }

// Stop halts a server with SIGSTOP: its connections stay open and nothing answers.
func (n *NATS) Stop(server int) error { return n.servers[server].signal(syscall.SIGSTOP) }

// Cont resumes a halted server.
func (n *NATS) Cont(server int) error { return n.servers[server].signal(syscall.SIGCONT) }

// Restart starts a server on its store, unless it runs, and waits until it accepts connections. It
// does not wait until the server has caught up with the cluster.
func (n *NATS) Restart(ctx context.Context, server int) error {
	p := n.servers[server]
	if err := p.start(); err != nil {
		return err
	}
	return p.ready(ctx, func(ctx context.Context) error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", n.addrs[server])
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// KillAll kills every server.
func (n *NATS) KillAll() {
	for _, p := range n.servers {
		p.kill()
	}
}

// StartAll starts every server that does not run, and waits up to a minute until JetStream answers
// and all its streams have a leader.
func (n *NATS) StartAll(ctx context.Context) error {
	for _, p := range n.servers {
		if err := p.start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := poll(ctx, func() error { return n.check(ctx) }); err != nil {
		return fmt.Errorf("NATS is not ready: %w; a log ends with:\n%s", err, n.servers[0].logTail())
	}
	return nil
}

// check checks once whether all servers run, JetStream answers and every stream has a leader.
func (n *NATS) check(ctx context.Context) error {
	for _, p := range n.servers {
		if p.current() == nil {
			return fmt.Errorf("%s: %w", p.name, ErrNotRunning)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	nc, err := nats.Connect(n.URL(), nats.Timeout(time.Second), nats.NoReconnect())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.AccountInfo(ctx); err != nil {
		return err
	}
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		if len(n.servers) > 1 && (info.Cluster == nil || info.Cluster.Leader == "") {
			return fmt.Errorf("stream %s has no leader", info.Config.Name)
		}
	}
	return streams.Err()
}

// Disk returns a server's disk, or nil without NATSConfig.Disks.
func (n *NATS) Disk(server int) *Disk { return n.disks[server] }

func (n *NATS) removeDisks() {
	for _, d := range n.disks {
		d.close()
	}
}

// Close asks all servers to end, and kills those that have not ended within 5 s.
// Their stores stay, unless they are on disks.
func (n *NATS) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, p := range n.servers {
		_ = p.signal(syscall.SIGCONT)
		_ = p.signal(syscall.SIGTERM)
	}
	for _, p := range n.servers {
		select {
		case <-p.exited():
		case <-ctx.Done():
			p.kill()
		}
	}
	n.removeDisks()
}
