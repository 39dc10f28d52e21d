package redisstore

import (
	"context"
	_ "embed" // for the scripts
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/lib_cache.lua
var libCache string

//go:embed lua/cache_append.lua
var cacheAppendSource string

//go:embed lua/cache_now.lua
var cacheNowSource string

//go:embed lua/cache_replace.lua
var cacheReplaceSource string

// script is one file under lua/, with the shared part that it needs in front.
type script struct {
	name    string
	numKeys int
	lua     *redis.Script
}

// The scripts. A test holds each to its file's header.
var (
	cacheAppend  = newScript("cache_append", 1, libCache, cacheAppendSource)
	cacheNow     = newScript("cache_now", 1, libCache, cacheNowSource)
	cacheReplace = newScript("cache_replace", 1, libCache, cacheReplaceSource)
)

func newScript(name string, numKeys int, lib, source string) *script {
	return &script{name: name, numKeys: numKeys, lua: redis.NewScript(lib + "\n" + source)}
}

// call is one call of a script.
type call struct {
	keys []string
	args []any
}

// run calls the script once for each of calls, in one round trip, and returns their integer results. After an error any
// of them may have run. EVALSHA in a pipeline can't fall back to the source, so a server that does not know the script,
// being new or restarted or flushed, is given it, and the calls that it refused are repeated.
func (s *script) run(ctx context.Context, client redis.UniversalClient, calls []call) ([]int64, error) {
	results := make([]int64, len(calls))
	pending := make([]int, len(calls))
	for i := range calls {
		pending[i] = i
	}
	for attempt := 0; ; attempt++ {
		cmds := make([]*redis.Cmd, len(pending))
		_, pipeErr := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for n, i := range pending {
				cmds[n] = p.EvalSha(ctx, s.lua.Hash(), calls[i].keys, calls[i].args...)
			}
			return nil
		})
		var refused []int
		for n, i := range pending {
			result, err := cmds[n].Int64()
			switch {
			case err == nil:
				results[i] = result
			case redis.HasErrorPrefix(err, "NOSCRIPT") && attempt < 2:
				refused = append(refused, i)
			default:
				return nil, fmt.Errorf("script %s: %w", s.name, err)
			}
		}
		if len(refused) == 0 {
			if pipeErr != nil && !redis.HasErrorPrefix(pipeErr, "NOSCRIPT") {
				return nil, fmt.Errorf("script %s: %w", s.name, pipeErr)
			}
			return results, nil
		}
		if err := s.lua.Load(ctx, client).Err(); err != nil {
			return nil, fmt.Errorf("load script %s: %w", s.name, err)
		}
		pending = refused
	}
}
