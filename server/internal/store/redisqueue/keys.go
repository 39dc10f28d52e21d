package redisqueue

import (
	"strconv"

	"github.com/parleyhq/parley/server/internal/queue"
)

// keys builds every key. Nothing else does, and no script joins one from parts.
type keys struct {
	// prefix stands in front of every key; empty by default. It must hold no brace.
	prefix string
}

func (k keys) registry() string { return k.prefix + "streaming:mq:topics:registry" }

// layout holds layoutVersion.
func (k keys) layout() string { return k.prefix + "streaming:mq:layout" }

func (k keys) topic(name string) string { return k.prefix + "streaming:mq:topic:" + name + ":meta" }

func (k keys) members(topic, group string) string {
	return k.prefix + "streaming:mq:topic:" + topic + ":group:" + group + ":members"
}

// wakeups is the channel on which scripts tell of earlier due times, as "<topic>:<partition>".
func (k keys) wakeups() string { return k.prefix + "streaming:mq:wakeups" }

// main is a partition's stream, and what the names of all its other keys begin with.
func (k keys) main(r queue.Ref) string {
	return k.prefix + "stream:topic:{" + r.Topic + ":" + strconv.Itoa(r.Partition) + "}"
}

func (k keys) meta(r queue.Ref) string        { return k.main(r) + ":meta" }
func (k keys) deadLetters(r queue.Ref) string { return k.main(r) + ":dlq" }
func (k keys) moving(r queue.Ref) string      { return k.main(r) + ":dlq:moving" }
func (k keys) delayed(r queue.Ref) string     { return k.main(r) + ":delayed" }
func (k keys) delayedData(r queue.Ref) string { return k.main(r) + ":delayed:data" }

// arrived marks, in the partition r, that the dead letter id of the partition from has been replayed to it.
func (k keys) arrived(r queue.Ref, from int, id queue.EntryID) string {
	return k.main(r) + ":dlq:arrived:" + strconv.Itoa(from) + "-" + id.String()
}

func (k keys) idempotency(r queue.Ref, key string) string {
	return k.main(r) + ":idem:" + r.UID + ":" + key
}

// group is what the names of a group's keys in a partition begin with.
func (k keys) group(r queue.Ref, group string) string { return k.main(r) + ":g:" + group }

func (k keys) lease(r queue.Ref, g string) string        { return k.group(r, g) + ":lease" }
func (k keys) epoch(r queue.Ref, g string) string        { return k.group(r, g) + ":epoch" }
func (k keys) retry(r queue.Ref, g string) string        { return k.group(r, g) + ":retry" }
func (k keys) retrying(r queue.Ref, g string) string     { return k.group(r, g) + ":retrying" }
func (k keys) retryingData(r queue.Ref, g string) string { return k.group(r, g) + ":retrying:data" }
func (k keys) unsettled(r queue.Ref, g string) string    { return k.group(r, g) + ":keys" }
func (k keys) parked(r queue.Ref, g string) string       { return k.group(r, g) + ":parked" }
func (k keys) parkedData(r queue.Ref, g string) string   { return k.group(r, g) + ":parked:data" }
func (k keys) stats(r queue.Ref, g string) string        { return k.group(r, g) + ":stats" }
