package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	parley "github.com/parleyhq/parley/sdk/go"
)

// readers read who is online from each node, and from Redis.
type readers struct {
	nodes []*parley.Client
	redis *redis.Client
	ids   []string
}

func newReaders(c *crowd, token string) (*readers, error) {
	r := &readers{redis: c.fleet.Redis.Client(), ids: c.ids}
	for _, addr := range c.fleet.Addresses() {
		client, err := parley.New(addr, parley.WithToken(token))
		if err != nil {
			r.close()
			return nil, err
		}
		r.nodes = append(r.nodes, client)
	}
	return r, nil
}

func (r *readers) close() {
	for _, client := range r.nodes {
		client.Close()
	}
	_ = r.redis.Close()
}

// differs describes the differences between GetPresence and ListOnlineUsers of each node and who is
// online, or returns "".
func (r *readers) differs(ctx context.Context, online map[string]bool) string {
	var mu sync.Mutex
	var d difference
	var g errgroup.Group
	for i, client := range r.nodes {
		check := func(name string, read func(ctx context.Context, client *parley.Client) (map[string]string, error)) {
			g.Go(func() error {
				states, err := read(ctx, client)
				var one difference
				if one.compare(states, online); err != nil {
					one = difference{}
					one.addf("%v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if text := one.String(); text != "" {
					d.addf("%s of node %d: %s", name, i, text)
				}
				return nil
			})
		}
		check("GetPresence", r.get)
		check("ListOnlineUsers", r.list)
	}
	_ = g.Wait() // no function returns an error
	return d.String()
}

func (r *readers) get(ctx context.Context, client *parley.Client) (map[string]string, error) {
	states := make(map[string]string)
	users, err := client.PresenceOf(ctx, r.ids...)
	for _, u := range users {
		states[u.GetUserId()] = stateOf(u)
	}
	return states, err
}

// list returns the users of ListOnlineUsers. One that is on two pages is an error.
func (*readers) list(ctx context.Context, client *parley.Client) (map[string]string, error) {
	states := make(map[string]string)
	for u, err := range client.OnlineUsers(ctx) {
		if err != nil {
			return nil, err
		}
		if _, ok := states[u.GetUserId()]; ok {
			return nil, fmt.Errorf("%s is listed twice", u.GetUserId())
		}
		states[u.GetUserId()] = stateOf(u)
	}
	return states, nil
}

// stored is what Redis has: the parts of users' states, the members of the sets of online users,
// and the members of the nodes' sets.
type stored struct {
	parts         map[string][]string
	online, nodes map[string]string
}

// storeDiffers describes the differences between Redis, read without the server, and who is online,
// or returns "". Each user has one part, because each has one connection.
func (r *readers) storeDiffers(ctx context.Context, online map[string]bool) string {
	var d difference
	s, err := r.readStore(ctx)
	if err != nil {
		d.addf("%v", err)
		return d.String()
	}
	states := make(map[string]string)
	for id, parts := range s.parts {
		states[id] = strings.Join(parts, " ")
	}
	d.compare(states, online)
	d.compare(s.online, online)
	d.compare(s.nodes, online)
	return d.String()
}

func (r *readers) readStore(ctx context.Context) (*stored, error) {
	s := &stored{parts: make(map[string][]string), online: make(map[string]string), nodes: make(map[string]string)}
	keys := r.redis.Scan(ctx, 0, "presence:{p*", 1000).Iterator()
	for keys.Next(ctx) {
		_, rest, _ := strings.Cut(keys.Val(), "}:")
		kind, name, _ := strings.Cut(rest, ":")
		switch kind {
		case "user":
			members, err := r.redis.ZRange(ctx, keys.Val(), 0, -1).Result()
			if err != nil {
				return nil, err
			}
			for _, m := range members {
				_, state, _ := strings.Cut(m, " ")
				s.parts[name] = append(s.parts[name], state)
			}
		case "online":
			members, err := r.redis.ZRange(ctx, keys.Val(), 0, -1).Result()
			if err != nil {
				return nil, err
			}
			for _, id := range members {
				s.online[id] = shown
			}
		case "node":
			members, err := r.redis.SMembers(ctx, keys.Val()).Result()
			if err != nil {
				return nil, err
			}
			for _, id := range members {
				s.nodes[id] += shown
			}
		default: // the log, its end, and logins
		}
	}
	return s, keys.Err()
}
