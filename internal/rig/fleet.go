package rig

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Engine is a kind of server that nodes talk to.
type Engine string

// The engines.
const (
	EngineMongo Engine = "mongo"
	EngineRedis Engine = "redis"
	EngineNATS  Engine = "nats"
)

// Engines are all of them.
var Engines = []Engine{EngineMongo, EngineRedis, EngineNATS}

// errNoNamespace is what needs Options.Namespaced.
var errNoNamespace = errors.New("the fleet does not live in namespaces")

// Options say what Start starts. The zero value is three nodes on three MongoDB and three NATS servers, on loopback.
type Options struct {
	// Nodes, MongoMembers and NATSServers are how many processes there are of each: 3 if 0. Of the last two 1 or 3.
	Nodes, MongoMembers, NATSServers int
	// Namespaced gives each node a network namespace. The process itself must run in one that is its own: see
	// RunInNamespace. One such fleet at a time.
	Namespaced bool
	// Ports are the nodes' ports on loopback; the ops port is the next one. One that is taken or missing is replaced by a
	// free one. Not used if Namespaced.
	Ports []int
	// Dir is where everything keeps its data and log, one folder for each process. It is made if it is missing, and stays
	// when the fleet ends; data of a fleet with the same Options that was there before is used again. Empty is a
	// temporary directory that goes with the fleet.
	Dir string
	// Binary is the parleyd to run. Empty builds it from this source.
	Binary string
	// Env are more variables for the nodes, as in PARLEY_LOG_LEVEL=debug. They override the rig's own.
	Env []string
	// Database is MongoDB's: "parley" if empty.
	Database string
	// Logger says what the rig does; nothing is said if nil.
	Logger *slog.Logger
}

// Fleet is a running fleet. The fields are its engines, and don't change.
type Fleet struct {
	Mongo *Mongo
	Redis *Redis
	NATS  *NATS
	// Dir has the data and logs: node-0.log, mongo-0/log, redis/log, nats-0/log and so on.
	Dir string

	nodes   []*Node
	links   []map[Engine]*Proxy
	secret  []byte
	options Options
	undo    []func() error
}

// Nodes are the parleyd processes, in order.
func (f *Fleet) Nodes() []*Node { return f.nodes }

// Node is one of them, from 0.
func (f *Fleet) Node(i int) *Node { return f.nodes[i] }

// Addresses are host:port of the nodes' APIs, in order.
func (f *Fleet) Addresses() []string {
	addrs := make([]string, len(f.nodes))
	for i, n := range f.nodes {
		addrs[i] = n.addr
	}
	return addrs
}

// Link is what stands between a node and all servers of an engine; nil unless the fleet is namespaced.
func (f *Fleet) Link(node int, e Engine) *Proxy {
	if f.links == nil {
		return nil
	}
	return f.links[node][e]
}

// Secret is the HS256 key of the nodes' tokens.
func (f *Fleet) Secret() []byte { return f.secret }

// Token gives a token of the subject that holds for a day. capabilities has the actions that are allowed, by channel
// pattern ("*" for all, "room-*"); nil allows everything on all channels.
func (f *Fleet) Token(subject string, capabilities map[string][]string) (string, error) {
	return Token(f.secret, subject, 24*time.Hour, capabilities)
}

// Start starts the engines, then the nodes, and waits until all are ready. On an error nothing is left running. ctx bounds
// the start only; Close ends the fleet.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	return start(ctx, o)
}

// Close ends everything and removes a temporary Dir. Nodes are drained for up to 15 s, then killed; the engines,
// whose data is on disk, are not asked for long. A second call does nothing.
func (f *Fleet) Close() error { return f.close() }
