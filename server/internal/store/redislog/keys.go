package redislog

import (
	"strconv"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// keys builds every key. Nothing else does, and no script joins one from parts.
type keys struct {
	// prefix stands in front of every key. It contains no brace.
	prefix string
}

// layout has the version of the layout.
func (k keys) layout() string           { return k.prefix + "streaming:mq:layout" }
func (k keys) registry() string         { return k.prefix + "streaming:mq:topics:registry" }
func (k keys) topic(name string) string { return k.prefix + "streaming:mq:topic:" + name + ":meta" }

// wakeups is the channel on which scripts announce earlier due times, as "<topic>:<partition>".
func (k keys) wakeups() string { return k.prefix + "streaming:mq:wakeups" }

func (k keys) scheduled(bucket int) string {
	return k.prefix + "streaming:mq:delayed:{" + strconv.Itoa(bucket) + "}"
}

// main is a partition's stream. The names of its other keys begin with it.
func (k keys) main(r qlog.Ref) string {
	return k.prefix + "stream:topic:{" + r.Topic + ":" + strconv.Itoa(r.Partition) + "}"
}

func (k keys) meta(r qlog.Ref) string        { return k.main(r) + ":meta" }
func (k keys) sizes(r qlog.Ref) string       { return k.main(r) + ":sizes" }
func (k keys) delayed(r qlog.Ref) string     { return k.main(r) + ":delayed" }
func (k keys) delayedData(r qlog.Ref) string { return k.main(r) + ":delayed:data" }
func (k keys) moved(r qlog.Ref) string       { return k.main(r) + ":moved" }
func (k keys) deadLetters(r qlog.Ref) string { return k.main(r) + ":dlq" }
func (k keys) replayed(r qlog.Ref) string    { return k.main(r) + ":replayed" }
func (k keys) deadData(r qlog.Ref) string    { return k.main(r) + ":dlq:data" }

func (k keys) idempotency(r qlog.Ref, key string) string {
	return k.main(r) + ":idem:" + r.UID + ":" + key
}
func (k keys) unique(r qlog.Ref, key string) string  { return k.main(r) + ":uniq:" + key }
func (k keys) producer(r qlog.Ref, id string) string { return k.main(r) + ":prod:" + r.UID + ":" + id }

// state is what a group keeps about a partition. The names of its other keys begin with it.
func (k keys) state(r qlog.Ref, g string) string { return k.main(r) + ":g:" + g }
func (k keys) open(r qlog.Ref, g string) string  { return k.state(r, g) + ":open" }
func (k keys) rows(r qlog.Ref, g string) string  { return k.state(r, g) + ":rows" }
func (k keys) due(r qlog.Ref, g string) string   { return k.state(r, g) + ":due" }
