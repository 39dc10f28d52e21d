package redisstore

import (
	_ "embed" // for the scripts

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

//go:embed lua/lib_state.lua
var libState string

//go:embed lua/lib_cache.lua
var libCache string

//go:embed lua/lib_list.lua
var libList string

//go:embed lua/cache_append.lua
var cacheAppendSource string

//go:embed lua/cache_now.lua
var cacheNowSource string

//go:embed lua/cache_page.lua
var cachePageSource string

//go:embed lua/cache_replace.lua
var cacheReplaceSource string

//go:embed lua/list_append.lua
var listAppendSource string

//go:embed lua/list_page.lua
var listPageSource string

//go:embed lua/list_replace.lua
var listReplaceSource string

// The scripts under lua/. A test compares each with its file's header.
var (
	cacheAppend  = redisscript.New("cache_append", 1, libState, libCache, cacheAppendSource)
	cacheNow     = redisscript.New("cache_now", 1, libState, cacheNowSource)
	cachePage    = redisscript.New("cache_page", 1, libState, libCache, cachePageSource)
	cacheReplace = redisscript.New("cache_replace", 1, libState, libCache, cacheReplaceSource)
	listAppend   = redisscript.New("list_append", 1, libState, libList, listAppendSource)
	listPage     = redisscript.New("list_page", 1, libState, libList, listPageSource)
	listReplace  = redisscript.New("list_replace", 1, libState, libList, listReplaceSource)
)

// integers returns the results of script calls as integers, or the first call's error.
func integers(results []*redis.Cmd) ([]int64, error) {
	numbers := make([]int64, len(results))
	for i, r := range results {
		n, err := r.Int64()
		if err != nil {
			return nil, err
		}
		numbers[i] = n
	}
	return numbers, nil
}
