package redisstore

import (
	"strings"

	"github.com/parleyhq/parley/server/internal/ident"
)

// keys builds all Redis keys of this package. Scripts never build one themselves.
type keys struct {
	// prefix is the prefix of every key. Default empty.
	prefix string
}

// messages returns the key of the cache of a channel's newest messages.
//
// ZSET JSON of message.Cached -> seq, with the set's state at 0 and marks of changed messages below
// (lua/lib_state.lua, lua/lib_cache.lua); expires 7 days after the last message.
func (k keys) messages(channelID string) string { return k.prefix + "msg_cache:" + channelID }

// session returns the key of the list of a session's newest messages, by the id of its channel.
//
// LIST of the list's state and JSON of message.Cached, the oldest first (lua/lib_state.lua,
// lua/lib_list.lua); expires 24 hours after the last message.
func (k keys) session(channelID string) string {
	return k.prefix + "chat:session:" + strings.TrimPrefix(channelID, ident.SessionPrefix) + ":messages"
}
