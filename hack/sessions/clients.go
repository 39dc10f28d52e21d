package main

import (
	"strings"
	"time"

	"github.com/parleyhq/parley/hack/internal/user"
	"github.com/parleyhq/parley/internal/rig"
	parley "github.com/parleyhq/parley/sdk/go"
)

const (
	// patience is how long a call may take with all its repeats, across every fault.
	patience = 2 * time.Minute
	// backends is the number of clients that the assistant and the users have. Each stays on a node
	// until that fails.
	backends = 9
	// assistant is the subject of the backend.
	assistant = "assistant"
)

// ofUsers are the capabilities of a user.
var ofUsers = map[string][]string{"session:*": {"append", "history", "subscribe"}} //nolint:gochecknoglobals // a constant

// clients are the clients of a fleet. Without a user in its context, see user.As, a call is the
// assistant's.
type clients struct {
	fleet  *rig.Fleet
	token  string
	tokens *user.Tokens
	// nodes are clients of one node each; the others use any node and fail over.
	nodes []*parley.Client
	all   []*parley.Client
}

func newClients(fleet *rig.Fleet) (_ *clients, err error) {
	c := &clients{fleet: fleet}
	if c.token, err = fleet.Token(assistant, nil); err != nil {
		return nil, err
	}
	c.tokens = user.NewTokens(fleet, c.token, ofUsers)
	for _, addr := range fleet.Addresses() {
		client, err := c.dial(addr)
		if err != nil {
			c.close()
			return nil, err
		}
		c.nodes = append(c.nodes, client)
	}
	for range backends {
		client, err := c.dial(strings.Join(fleet.Addresses(), ","))
		if err != nil {
			c.close()
			return nil, err
		}
		c.all = append(c.all, client)
	}
	return c, nil
}

func (c *clients) dial(addrs string) (*parley.Client, error) {
	return parley.New(addrs, parley.WithToken(c.token), parley.WithCallTimeout(patience), parley.WithInterceptors(c.tokens))
}

// any returns a client that uses any node, chosen by a number.
func (c *clients) any(n uint64) *parley.Client { return c.all[n%uint64(len(c.all))] }

func (c *clients) close() {
	for _, client := range append(c.nodes, c.all...) {
		client.Close()
	}
}
