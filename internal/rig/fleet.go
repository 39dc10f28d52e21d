package rig

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Engine is a kind of server that Parley's nodes require.
type Engine string

// The engines.
const (
	EngineMongo Engine = "mongo"
	EngineRedis Engine = "redis"
	EngineNATS  Engine = "nats"
)

// Engines are all engines.
var Engines = []Engine{EngineMongo, EngineRedis, EngineNATS}

// errNoNamespace is returned by operations that require Options.Namespaced.
var errNoNamespace = errors.New("the fleet does not use network namespaces")

// Options configures Start. The zero value is three nodes with three MongoDB members, one Redis and
// three NATS servers, on loopback.
type Options struct {
	// Nodes, MongoMembers and NATSServers are the numbers of processes; 0 means 3. MongoMembers and
	// NATSServers must be 1 or 3.
	Nodes, MongoMembers, NATSServers int
	// Namespaced runs each node in its own network namespace. The calling process must run in a
	// namespace created by RunInNamespace, and can run one such fleet at a time.
	Namespaced bool
	// Ports are the nodes' API ports on loopback; each ops port is the next one. A free port
	// replaces one that is taken or missing. Ports is ignored if Namespaced is set or Dir has the
	// data of a fleet.
	Ports []int
	// Dir is the directory for all data and logs. It is created if it is missing, and kept when the
	// fleet ends. Data of an earlier fleet with the same Options is used again. Empty means a
	// temporary directory, which is removed with the fleet.
	Dir string
	// Binary is the path of the parleyd to run. Empty builds it from this source.
	Binary string
	// Binaries are other programs for single nodes, by index, such as those of BuildAhead.
	Binaries map[int]string
	// Env are additional variables for the nodes, such as PARLEY_LOG_LEVEL=debug. They override the
	// rig's own.
	Env []string
	// Disks puts the data of each server of an engine on a Disk.
	Disks bool
	// MovableClock is RedisConfig.MovableClock of the fleet's Redis.
	MovableClock bool
	// Clocks are the offsets of the nodes' clocks; see Node.SetClock. Missing ones are 0.
	Clocks []time.Duration
	// Database is the name of the MongoDB database; empty means "parley".
	Database string
	// Logger logs what the rig does; nil discards it.
	Logger *slog.Logger
}

// Fleet is a running fleet. Its fields do not change.
type Fleet struct {
	Mongo *Mongo
	Redis *Redis
	NATS  *NATS
	// Dir holds the data and logs: node-0.log, mongo-0/log, redis/log, nats-0/log and so on.
	Dir string

	nodes   []*Node
	links   []map[Engine]*Proxy
	secret  []byte
	options Options
	undo    []func() error
}

// Nodes returns the nodes, in order.
func (f *Fleet) Nodes() []*Node { return f.nodes }

// Node returns the node with index i, from 0.
func (f *Fleet) Node(i int) *Node { return f.nodes[i] }

// Addresses returns the host:port of each node's API, in order.
func (f *Fleet) Addresses() []string {
	addrs := make([]string, len(f.nodes))
	for i, n := range f.nodes {
		addrs[i] = n.addr
	}
	return addrs
}

// Link returns the proxy between a node and all servers of an engine. It returns nil unless the
// fleet is namespaced.
func (f *Fleet) Link(node int, e Engine) *Proxy {
	if f.links == nil {
		return nil
	}
	return f.links[node][e]
}

// Secret returns the HS256 key of the nodes' tokens.
func (f *Fleet) Secret() []byte { return f.secret }

// Token returns a token for subject that is valid for a day. See the function Token for
// capabilities; nil allows everything.
func (f *Fleet) Token(subject string, capabilities map[string][]string) (string, error) {
	return Token(f.secret, subject, 24*time.Hour, capabilities)
}

// Start starts the engines, then the nodes, and waits until all are ready. After an error nothing
// is left running. ctx bounds the start only; Close ends the fleet.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	return start(ctx, o)
}

// Close ends the fleet and removes a temporary Dir. Nodes drain for up to 15 s and are then killed.
// MongoDB and Redis are killed, since their data is on disk; NATS servers get 5 s to end. A second
// call does nothing.
func (f *Fleet) Close() error { return f.close() }
