package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// MongoConfig configures StartMongo.
type MongoConfig struct {
	// Dir holds a directory for each member, mongo-0 and so on, with its data and log.
	Dir string
	// ReplicaSet is the name of the set. Empty means a single server without a set.
	ReplicaSet string
	// Addrs are the members' addresses, host:port, by which members and drivers reach them.
	Addrs []string
	// Args are additional arguments for each mongod.
	Args []string
	// Disks puts the data of each member on a Disk. The members' journals then have small files, so
	// that a full disk stops them soon.
	Disks bool
	// Unwatched is for members that end with this process. If it is set, no goroutine waits for their
	// end, and only Kill and Close notice that a member has ended.
	Unwatched bool
}

// Mongo is a MongoDB replica set of mongod processes, or a single server. Its members are
// identified by index, from 0. Elections take one to two seconds. Methods may be called
// concurrently, but those that kill, halt, resume or restart a member only by one goroutine at a
// time.
type Mongo struct {
	name    string
	members []*mongod
}

type mongod struct {
	process

	addr string
	disk *Disk // nil without MongoConfig.Disks
}

// StartMongo starts the members, forms a set unless their data already has one, and waits until
// every member is primary or secondary. After an error nothing is left running.
func StartMongo(ctx context.Context, c MongoConfig) (*Mongo, error) {
	bin, err := Mongod()
	if err != nil {
		return nil, err
	}
	m := &Mongo{name: c.ReplicaSet}
	for i, addr := range c.Addrs {
		d, err := newMongod(bin, i, addr, &c)
		if err != nil {
			m.Close()
			return nil, err
		}
		m.members = append(m.members, d)
	}
	if err := m.start(ctx); err != nil {
		m.Close()
		return nil, fmt.Errorf("start MongoDB: %w", err)
	}
	return m, nil
}

func newMongod(bin string, i int, addr string, c *MongoConfig) (*mongod, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	name := "mongo-" + strconv.Itoa(i)
	dir := filepath.Join(c.Dir, name)
	disk, err := newDisk(diskDir(dir, true), c.Disks)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--dbpath", diskDir(dir, c.Disks), "--port", port, "--bind_ip", host, "--nounixsocket", "--wiredTigerCacheSizeGB", "0.25",
		"--setParameter", "enableTestCommands=1", "--setParameter", "diagnosticDataCollectionEnabled=false",
	}
	if c.Disks {
		args = append(args, "--wiredTigerEngineConfigString", "log=(file_max=1MB,prealloc=false)")
	}
	args = append(args, c.Args...)
	if c.ReplicaSet != "" {
		args = append(args, "--replSet", c.ReplicaSet)
	}
	return &mongod{
		process: process{
			name: name, path: bin, args: args, log: filepath.Join(dir, "log"), unwatched: c.Unwatched,
		},
		addr: addr, disk: disk,
	}, os.MkdirAll(dir, 0o700)
}

func (m *Mongo) start(ctx context.Context) error {
	for _, d := range m.members {
		if err := d.start(); err != nil {
			return err
		}
	}
	for _, d := range m.members {
		if err := d.answers(ctx); err != nil {
			return err
		}
	}
	if m.name == "" {
		return nil
	}
	if err := m.initiate(ctx); err != nil {
		return err
	}
	return m.WaitHealthy(ctx)
}

// initiate forms a replica set of the members. It does nothing if they already form one.
func (m *Mongo) initiate(ctx context.Context) error {
	list := make(bson.A, len(m.members))
	for i, d := range m.members {
		list[i] = bson.D{{Key: "_id", Value: i}, {Key: "host", Value: d.addr}}
	}
	config := bson.D{
		{Key: "_id", Value: m.name},
		{Key: "members", Value: list},
		{Key: "settings", Value: bson.D{
			{Key: "electionTimeoutMillis", Value: 1000}, {Key: "heartbeatIntervalMillis", Value: 250},
		}},
	}
	err := m.members[0].command(ctx, bson.D{{Key: "replSetInitiate", Value: config}}, nil)
	var failed mongo.CommandError
	if errors.As(err, &failed) && failed.Name == "AlreadyInitialized" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("replSetInitiate: %w; %s", err, m.members[0].logTail())
	}
	return nil
}

// Name returns the name of the replica set, empty for a single server.
func (m *Mongo) Name() string { return m.name }

// URI returns a connection URI that lists all members.
func (m *Mongo) URI() string {
	addrs := make([]string, len(m.members))
	for i, d := range m.members {
		addrs[i] = d.addr
	}
	uri := "mongodb://" + strings.Join(addrs, ",") + "/"
	if m.name != "" {
		uri += "?replicaSet=" + m.name
	}
	return uri
}

// Size returns the number of members.
func (m *Mongo) Size() int { return len(m.members) }

// Addr returns a member's host:port.
func (m *Mongo) Addr(member int) string { return m.members[member].addr }

// Running reports whether a member's process exists, including one halted by Stop.
func (m *Mongo) Running(member int) bool { return m.members[member].current() != nil }

// PID returns a member's process id, 0 if it does not run.
func (m *Mongo) PID(member int) int { return m.members[member].pid() }

// Primary waits up to a minute until a majority of the set agrees on a running primary, and returns
// its index.
func (m *Mongo) Primary(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	primary := -1
	err := poll(ctx, func() error {
		primary = -1
		votes := make(map[string]int)
		for i, d := range m.members {
			h, err := d.hello(ctx)
			if err != nil {
				continue
			}
			votes[h.Primary]++
			if h.Writable {
				primary = i
			}
		}
		if primary < 0 {
			return errors.New("no member is primary")
		}
		if addr := m.members[primary].addr; votes[addr] <= len(m.members)/2 {
			return fmt.Errorf("%d members say that %s is primary", votes[addr], addr)
		}
		return nil
	})
	return primary, err
}

// Kill ends a member with SIGKILL and waits until it has exited. Its data stays. It does nothing if
// the member does not run.
func (m *Mongo) Kill(member int) { m.members[member].kill() }

// Stop halts a member with SIGSTOP: its connections stay open and nothing answers.
func (m *Mongo) Stop(member int) error { return m.members[member].signal(syscall.SIGSTOP) }

// Cont resumes a halted member.
func (m *Mongo) Cont(member int) error { return m.members[member].signal(syscall.SIGCONT) }

// Restart starts a member on its data, unless it runs, and waits until it answers and knows a
// primary.
func (m *Mongo) Restart(ctx context.Context, member int) error {
	d := m.members[member]
	if err := d.start(); err != nil {
		return err
	}
	return d.ready(ctx, func(ctx context.Context) error {
		h, err := d.hello(ctx)
		if err == nil && h.Primary == "" && m.name != "" {
			err = errors.New("no primary is known")
		}
		return err
	})
}

// StepDown makes the primary step down for 10 seconds, and returns the index of that member. It
// does not wait for a new primary.
func (m *Mongo) StepDown(ctx context.Context) (int, error) {
	i, err := m.Primary(ctx)
	if err != nil {
		return i, err
	}
	err = m.members[i].command(ctx, bson.D{
		{Key: "replSetStepDown", Value: 10}, {Key: "secondaryCatchUpPeriodSecs", Value: 5}, {Key: "force", Value: true},
	}, nil)
	if err != nil {
		return i, fmt.Errorf("step down: %w", err)
	}
	return i, nil
}

// States of members, as replSetGetStatus numbers them. A member in its rollback removes what the
// others do not have.
const (
	statePrimary, stateSecondary = 1, 2
	stateRollback                = 9
)

// unhealthyError says that a member is neither primary nor secondary.
type unhealthyError struct {
	addr  string
	state int
}

func (e *unhealthyError) Error() string { return fmt.Sprintf("%s is in state %d", e.addr, e.state) }

// WaitHealthy waits up to a minute until every member is primary or secondary. Members of a new set
// first copy the primary's data, and until then can't take over. A member that is still in its
// rollback after that minute is restarted once, as an operator would do, and has another one: that
// has been seen of a running member while another one's full disk was freed.
func (m *Mongo) WaitHealthy(ctx context.Context) error {
	err := m.pollHealthy(ctx)
	var unhealthy *unhealthyError
	if !errors.As(err, &unhealthy) || unhealthy.state != stateRollback || ctx.Err() != nil {
		return err
	}
	stuck := slices.IndexFunc(m.members, func(d *mongod) bool { return d.addr == unhealthy.addr })
	if stuck < 0 {
		return err
	}
	fmt.Fprintf(os.Stderr, "rig: mongo-%d stays in its rollback and is restarted\n", stuck)
	m.Kill(stuck)
	if err := m.Restart(ctx, stuck); err != nil {
		return err
	}
	return m.pollHealthy(ctx)
}

func (m *Mongo) pollHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, func() error {
		primary, err := m.Primary(ctx)
		if err != nil {
			return err
		}
		var status struct {
			Members []struct {
				Name  string `bson:"name"`
				State int    `bson:"state"`
			} `bson:"members"`
		}
		if err := m.members[primary].command(ctx, bson.D{{Key: "replSetGetStatus", Value: 1}}, &status); err != nil {
			return err
		}
		var unhealthy error
		for _, member := range status.Members {
			switch member.State {
			case statePrimary, stateSecondary:
			case stateRollback:
				return &unhealthyError{member.Name, member.State}
			default:
				unhealthy = &unhealthyError{member.Name, member.State}
			}
		}
		return unhealthy
	})
}

// Disk returns a member's disk, or nil without MongoConfig.Disks.
func (m *Mongo) Disk(member int) *Disk { return m.members[member].disk }

// Close kills all members. Their data stays, unless it is on disks.
func (m *Mongo) Close() {
	for _, d := range m.members {
		d.kill()
		d.disk.close()
	}
}

// hello is a member's reply to the hello command.
type hello struct {
	Writable bool   `bson:"isWritablePrimary"`
	Primary  string `bson:"primary"`
}

// hello runs the hello command on the member, for up to a second.
func (d *mongod) hello(ctx context.Context) (hello, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var h hello
	if d.current() == nil {
		return h, ErrNotRunning
	}
	err := d.command(ctx, bson.D{{Key: "hello", Value: 1}}, &h)
	return h, err
}

// answers waits up to a minute until the member answers the hello command.
func (d *mongod) answers(ctx context.Context) error {
	return d.ready(ctx, func(ctx context.Context) error {
		_, err := d.hello(ctx)
		return err
	})
}

// command runs an admin command on this member, for up to 30 s, and decodes the reply into result
// unless that is nil.
func (d *mongod) command(ctx context.Context, cmd bson.D, result any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client, err := mongo.Connect(options.Client().SetHosts([]string{d.addr}).SetDirect(true).
		SetServerSelectionTimeout(30 * time.Second))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	answer := client.Database("admin").RunCommand(ctx, cmd)
	if result == nil {
		return answer.Err()
	}
	return answer.Decode(result)
}
