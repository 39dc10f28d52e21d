// Package redisscript runs Lua scripts on Redis, one server or a cluster, many calls in one round trip.
package redisscript

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Script is one script with the shared parts that it needs in front. It is immutable and safe for concurrent use.
type Script struct {
	name    string
	numKeys int
	lua     *redis.Script
}

// New makes a script that takes numKeys keys; -1 if their number differs from call to call. parts are joined by newlines.
func New(name string, numKeys int, parts ...string) *Script {
	return &Script{name: name, numKeys: numKeys, lua: redis.NewScript(strings.Join(parts, "\n"))}
}

// Name is the script's, which is its file's.
func (s *Script) Name() string { return s.name }

// NumKeys is how many keys it takes; -1 if that differs.
func (s *Script) NumKeys() int { return s.numKeys }

// Call is one call of a script.
type Call struct {
	Keys []string
	Args []any
}

// once is a command that the client of a cluster does not send again by itself when its answer is lost. Any other it does,
// whatever its MaxRetries says.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

func (s *Script) command(ctx context.Context, c Call) *redis.Cmd {
	args := append(make([]any, 0, 3+len(c.Keys)+len(c.Args)), "evalsha", s.lua.Hash(), len(c.Keys))
	for _, k := range c.Keys {
		args = append(args, k)
	}
	cmd := redis.NewCmd(ctx, append(args, c.Args...)...)
	if len(c.Keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// Run calls the script once for each of calls, in one round trip, and returns what became of each, in order. Of a call whose
// answer did not come it is not known whether it ran. EVALSHA in a pipeline can't fall back to the source, so a server that
// does not know the script, being new or restarted or flushed, is given it, and the calls that it refused are repeated.
func (s *Script) Run(ctx context.Context, client redis.UniversalClient, calls []Call) []*redis.Cmd {
	results := make([]*redis.Cmd, len(calls))
	pending := make([]int, len(calls))
	for i := range calls {
		pending[i] = i
	}
	for attempt := 0; ; attempt++ {
		_, pipeErr := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, i := range pending {
				results[i] = s.command(ctx, calls[i])
				if err := p.Process(ctx, once{results[i]}); err != nil {
					return err
				}
			}
			return nil
		})
		var refused []int
		for _, i := range pending {
			err := results[i].Err()
			switch {
			case redis.HasErrorPrefix(err, "NOSCRIPT") && attempt < 2:
				refused = append(refused, i)
			case err != nil:
				results[i].SetErr(fmt.Errorf("script %s: %w", s.name, err))
			case pipeErr != nil && !redis.HasErrorPrefix(pipeErr, "NOSCRIPT") && results[i].Val() == nil:
				results[i].SetErr(fmt.Errorf("script %s: %w", s.name, pipeErr))
			}
		}
		if len(refused) == 0 {
			return results
		}
		if err := s.lua.Load(ctx, client).Err(); err != nil {
			for _, i := range refused {
				results[i].SetErr(fmt.Errorf("load script %s: %w", s.name, err))
			}
			return results
		}
		pending = refused
	}
}
