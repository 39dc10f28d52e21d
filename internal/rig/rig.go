// Package rig runs a fleet of real processes on one machine: a MongoDB replica set, redis-server, a
// NATS cluster and parleyd nodes. Each process can be killed, halted and disconnected. `make
// fleet`, `make chaos` and tests use it.
//
// Everything that the rig starts ends with the process that started it, however that ends, and its
// temporary directories are removed (see keeper). The package does not import the server's
// packages: a node is a binary and its environment.
//
// On Linux a fleet can run in network namespaces (Options.Namespaced). Every byte between a node
// and an engine then passes a Proxy for that pair, even if the MongoDB and NATS drivers use
// addresses announced by the servers. A node can also be disconnected from its clients.
package rig

import (
	"context"
	"time"
)

// startTimeout limits each wait until a process or an engine is ready. The caller's context may end
// it earlier.
const startTimeout = 60 * time.Second

// poll calls check until it returns nil. If ctx ends first, poll returns the last error of check
// from before that: check may use ctx, whose end then says nothing of the cause.
func poll(ctx context.Context, check func() error) error {
	var last error
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := check()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(wait):
		}
	}
}
