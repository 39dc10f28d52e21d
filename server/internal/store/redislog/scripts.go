package redislog

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are all that newScript created. A test compares each with the header of its file.
var scripts []*redisscript.Script

// plain maps each script to one without the line of flags, for StoreConfig.InProcess.
var plain = map[*redisscript.Script]*redisscript.Script{}

// needsMemory are the scripts that Redis refuses, before they change anything, if it is out of
// memory.
var needsMemory = map[string]bool{"put": true, "replay": true}

// newScript creates the script lua/<name>.lua, with lua/lib_log.lua and further libs in front of
// it. It is for variables of the package. numKeys is -1 if it varies.
func newScript(name string, numKeys int, libs ...string) *redisscript.Script {
	var parts []string
	for _, file := range append(append([]string{"lib_log"}, libs...), name) {
		source, err := sources.ReadFile("lua/" + file + ".lua")
		if err != nil {
			source = fmt.Appendf(nil, "error('there is no %s.lua')", file) // a test of the scripts sees it
		}
		parts = append(parts, string(source))
	}
	flags := "#!lua flags=allow-oom"
	if needsMemory[name] {
		flags = "#!lua"
	}
	s := redisscript.New(name, numKeys, append([]string{flags}, parts...)...)
	scripts, plain[s] = append(scripts, s), redisscript.New(name, numKeys, parts...)
	return s
}

// write calls a script that changes something. Its errors are those of qlog.Store.
func (s *Store) write(ctx context.Context, script *redisscript.Script, keys []string, args ...any) (any, error) {
	if s.inProcess {
		script = plain[script]
	}
	reply, err := script.Run(ctx, s.client, []redisscript.Call{{Keys: keys, Args: args}})[0].Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, writeError(err)
	}
	return reply, nil
}
