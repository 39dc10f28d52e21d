// Package redisscript runs Lua scripts on Redis, a single server or a cluster, with many calls in
// one round trip.
package redisscript

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script, including the shared functions in front of it. It is immutable and safe
// for concurrent use.
type Script struct {
	name    string
	numKeys int
	source  string
	hash    string
}

// New creates a script that takes numKeys keys; -1 means that the number varies. parts are joined
// by newlines.
func New(name string, numKeys int, parts ...string) *Script {
	source := strings.Join(parts, "\n")
	return &Script{name: name, numKeys: numKeys, source: source, hash: redis.NewScript(source).Hash()}
}

// Name returns the script's name, which is also that of its file, without .lua.
func (s *Script) Name() string { return s.name }

// NumKeys returns how many keys the script takes, or -1 if the number varies.
func (s *Script) NumKeys() int { return s.numKeys }

// Call is one call of a script.
type Call struct {
	Keys []string
	Args []any
}

// once is a command that a cluster client of go-redis does not resend on its own if the answer is
// lost. The client resends any other command, regardless of MaxRetries.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// command returns the command that calls the script by its hash or, if bySource is set, by its
// source, which also loads it on the server.
func (s *Script) command(ctx context.Context, c Call, bySource bool) *redis.Cmd {
	name, script := "evalsha", s.hash
	if bySource {
		name, script = "eval", s.source
	}
	args := append(make([]any, 0, 3+len(c.Keys)+len(c.Args)), name, script, len(c.Keys))
	for _, k := range c.Keys {
		args = append(args, k)
	}
	cmd := redis.NewCmd(ctx, append(args, c.Args...)...)
	if len(c.Keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// Run calls the script once for each call, in one round trip, and returns the results in order. If
// a call's answer is lost, it is unknown whether the script ran. A server that is new, restarted or
// flushed refuses an unknown script. Run then repeats those calls with the script's source; in a
// cluster they go only to that master.
func (s *Script) Run(ctx context.Context, client redis.UniversalClient, calls []Call) []*redis.Cmd {
	results := make([]*redis.Cmd, len(calls))
	pending := make([]int, len(calls))
	for i := range calls {
		pending[i] = i
	}
	for attempt := 0; ; attempt++ {
		_, pipeErr := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, i := range pending {
				results[i] = s.command(ctx, calls[i], attempt > 0)
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
			case redis.HasErrorPrefix(err, "NOSCRIPT") && attempt == 0:
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
		pending = refused
	}
}
