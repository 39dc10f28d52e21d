package redisstore

// keys builds every key. Nothing else does, and no script joins one from parts.
type keys struct {
	// prefix stands in front of every key; empty by default.
	prefix string
}

// messages is the cache of a channel's newest entries.
//
// ZSET JSON of message.Cached -> seq; expires 7 days after the last message.
func (k keys) messages(channelID string) string { return k.prefix + "msg_cache:" + channelID }
