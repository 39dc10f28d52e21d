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
	source  string
	hash    string
}

// New makes a script that takes numKeys keys; -1 if their number differs from call to call. parts are joined by newlines.
func New(name string, numKeys int, parts ...string) *Script {
	source := strings.Join(parts, "\n")
	return &Script{name: name, numKeys: numKeys, source: source, hash: redis.NewScript(source).Hash()}
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

// command calls the script by its hash, or by its source, which the server then knows.
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

// Run calls the script once for each of calls, in one round trip, and returns what became of each, in order. Of a call whose
// answer did not come it is not known whether it ran. What a server refuses that does not know the script, being new or restarted or
// flushed, is called again by its source: of a cluster that goes to the one master only.
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
