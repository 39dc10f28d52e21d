package redispresence

import (
	"context"
	"embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are the package's scripts.
type scripts struct {
	set, get, heads, since, page, login, beat, fence, open, restored, settle *redisscript.Script

	// all are the same in a list.
	all []*redisscript.Script
}

// production are the scripts with the server's own clock.
var production = newScripts(source("lib_clock"))

// newScripts creates the scripts over a clock: Lua that defines now_us.
func newScripts(clock string) *scripts {
	s := new(scripts)
	add := func(name string, numKeys int) *redisscript.Script {
		script := redisscript.New(name, numKeys, clock, source("lib_presence"), source(name))
		s.all = append(s.all, script)
		return script
	}
	s.set = add("presence_set", -1)
	s.get = add("presence_get", -1)
	s.heads = add("presence_heads", 1)
	s.since = add("presence_since", 2)
	s.page = add("presence_page", 2)
	s.login = add("presence_login", 3)
	s.beat = add("presence_beat", 3)
	s.fence = add("presence_fence", 1)
	s.open = add("presence_open", 2)
	s.restored = add("presence_restored", 1)
	s.settle = add("presence_settle", 1)
	return s
}

// source returns the text of a file in lua/. If there is none, it returns a script that fails.
func source(name string) string {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		return fmt.Sprintf("error('there is no %s.lua')", name)
	}
	return string(text)
}

// run calls a script once.
func (s *Store) run(ctx context.Context, script *redisscript.Script, keys []string, args ...any) *redis.Cmd {
	return script.Run(ctx, s.client, []redisscript.Call{{Keys: keys, Args: args}})[0]
}

// batch is a list of calls of one script, some of which may be invalid and are not sent.
type batch struct {
	calls []redisscript.Call
	// index has, for each call, the index of its result.
	index []int
}

func (b *batch) add(index int, keys []string, args []any) {
	b.index = append(b.index, index)
	b.calls = append(b.calls, redisscript.Call{Keys: keys, Args: args})
}

// run sends the calls in one pipeline, and calls each with the index and the reply of each call.
func (b *batch) run(ctx context.Context, s *Store, script *redisscript.Script, each func(index int, reply *redis.Cmd)) {
	if len(b.calls) == 0 {
		return
	}
	for i, cmd := range script.Run(ctx, s.client, b.calls) {
		each(b.index[i], cmd)
	}
}
