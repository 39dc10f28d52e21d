// Package rig runs a whole fleet on one machine, of real processes that can be killed, stopped and cut off: a MongoDB
// replica set, redis-server, a NATS cluster and parleyd nodes. `make fleet`, `make chaos` and the tests are built on it.
//
// What it starts ends with the process that started it, however that ends, and the temporary directories go too (see
// keeper). Nothing here knows the server's packages: a node is a binary and its environment.
//
// On Linux a fleet may live in network namespaces (Options.Namespaced). Then every byte between a node and an engine
// passes a Proxy of that node and that engine, also where the MongoDB and NATS drivers find servers by the addresses
// that those tell of themselves, and a node can be cut off from its clients.
package rig

import (
	"context"
	"time"
)

// startTimeout bounds the start of each part, unless the caller's context ends before.
const startTimeout = 60 * time.Second

// poll calls check until it returns nil, and gives check's last error once ctx has ended.
func poll(ctx context.Context, check func() error) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
