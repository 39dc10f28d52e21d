package redisqueue

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

// scripts are all that newScript made. A test holds each to its file's header.
var scripts []*redisscript.Script

// newScript makes the script lua/<name>.lua, with lua/lib_queue.lua and further libs in front of it. It is for variables of
// the package. numKeys is -1 if it differs from call to call.
func newScript(name string, numKeys int, libs ...string) *redisscript.Script {
	var parts []string
	for _, file := range append(append([]string{"lib_queue"}, libs...), name) {
		source, err := sources.ReadFile("lua/" + file + ".lua")
		if err != nil {
			source = fmt.Appendf(nil, "error('there is no %s.lua')", file) // a test of the scripts sees it
		}
		parts = append(parts, string(source))
	}
	s := redisscript.New(name, numKeys, parts...)
	scripts = append(scripts, s)
	return s
}

// write calls a script that changes something. Its errors are those of queue.Store.
func (s *Store) write(ctx context.Context, script *redisscript.Script, keys []string, args ...any) (any, error) {
	reply, err := script.Run(ctx, s.client, []redisscript.Call{{Keys: keys, Args: args}})[0].Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, writeError(err)
	}
	return reply, nil
}

// read calls a script that changes nothing, so that a lost answer leaves nothing unknown.
func (s *Store) read(ctx context.Context, script *redisscript.Script, keys []string, args ...any) (any, error) {
	reply, err := script.Run(ctx, s.client, []redisscript.Call{{Keys: keys, Args: args}})[0].Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, readError(err)
	}
	return reply, nil
}
