package redispresence

import "strconv"

// keys builds every key; no script builds one.
type keys struct {
	// prefix stands in front of every key. It must not contain a brace. Empty by default.
	prefix string
}

// shard returns the start of all keys of a shard.
func (k keys) shard(shard int) string { return k.prefix + "presence:{p" + strconv.Itoa(shard) + "}:" }

func (k keys) meta(shard int) string                 { return k.shard(shard) + "meta" }
func (k keys) online(shard int) string               { return k.shard(shard) + "online" }
func (k keys) log(shard int) string                  { return k.shard(shard) + "log" }
func (k keys) members(shard int, node string) string { return k.shard(shard) + "node:" + node }
func (k keys) user(shard int, user string) string    { return k.shard(shard) + "user:" + user }
func (k keys) logins(shard int, user string) string  { return k.shard(shard) + "login:" + user }

func (k keys) nodes() string { return k.prefix + "presence:{nodes}:meta" }
func (k keys) alive() string { return k.prefix + "presence:{nodes}:alive" }
func (k keys) dead() string  { return k.prefix + "presence:{nodes}:dead" }
