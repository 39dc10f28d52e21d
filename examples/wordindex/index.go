package main

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	queue "github.com/parleyhq/parley/sdk/go/queue"
)

//go:embed index.lua
var indexSource string

var indexScript = redis.NewScript(indexSource)

// readBatch is the number of keys that are read in one round trip.
const readBatch = 500

// index is a consumer group's index of the topic's messages, in Redis. It contains every line once,
// however often its message is delivered. All its keys have the same hash slot, so that one script
// can write them on a cluster too.
type index struct {
	redis *redis.Client
	// prefix is the prefix of all keys.
	prefix string
}

func newIndex(store *redis.Client, topic, group string) *index {
	return &index{redis: store, prefix: "wordindex:{" + topic + ":" + group + "}:"}
}

func (x *index) done() string               { return x.prefix + "done" }
func (x *index) words() string              { return x.prefix + "words" }
func (x *index) tally() string              { return x.prefix + "tally" }
func (x *index) deliveries() string         { return x.prefix + "deliveries" }
func (x *index) failures() string           { return x.prefix + "failures" }
func (x *index) order(nick string) string   { return x.prefix + "order:" + nick }
func (x *index) linesOf(word string) string { return x.prefix + "word:" + word }

// add adds the line of a delivery to the index, with its words.
func (x *index) add(ctx context.Context, d *queue.Delivery, words map[string]int) error {
	line, early, lost := d.Headers[lineHeader], 0, 0
	if time.Now().Before(d.ProduceTime) {
		early = 1
	}
	if d.Headers[faultHeader] == "" {
		// A job without a fault never fails, so its earlier attempts were lost with a worker.
		lost = d.Attempt - 1
	}
	keys := []string{x.done(), x.order(d.Key), x.words(), x.tally()}
	args := []any{d.MessageID, line, d.ProduceTime.UnixMilli(), early, lost}
	for _, word := range slices.Sorted(maps.Keys(words)) {
		keys = append(keys, x.linesOf(word))
		args = append(args, word, words[word])
	}
	return indexScript.Run(ctx, x.redis, keys, args...).Err()
}

// counts returns the fields of the Redis hash at key, whose values are all integers.
func (x *index) counts(ctx context.Context, key string) (map[string]int, error) {
	fields, err := x.redis.HGetAll(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int, len(fields))
	for name, value := range fields {
		if counts[name], err = strconv.Atoi(value); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", name, key, err)
		}
	}
	return counts, nil
}

// postings reads the whole index: for each word the lines that contain it, and how often.
func (x *index) postings(ctx context.Context) (map[string]map[string]int, error) {
	words, err := x.redis.ZRange(ctx, x.words(), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	postings := make(map[string]map[string]int, len(words))
	return postings, readAll(ctx, x.redis, words,
		func(p redis.Pipeliner, word string) *redis.ZSliceCmd {
			return p.ZRangeWithScores(ctx, x.linesOf(word), 0, -1)
		},
		func(word string, lines []redis.Z) error {
			of := make(map[string]int, len(lines))
			for _, z := range lines {
				of[fmt.Sprint(z.Member)] = int(z.Score)
			}
			postings[word] = of
			return nil
		})
}

// indexedLine is a line that was indexed.
type indexedLine struct {
	line string
	// at is when the message appeared or, if it was delayed, was due, in Unix milliseconds.
	at int64
}

// orders reads the lines of each nick, in the order in which they were indexed.
func (x *index) orders(ctx context.Context, nicks []string) (map[string][]indexedLine, error) {
	orders := make(map[string][]indexedLine, len(nicks))
	return orders, readAll(ctx, x.redis, nicks,
		func(p redis.Pipeliner, nick string) *redis.StringSliceCmd { return p.LRange(ctx, x.order(nick), 0, -1) },
		func(nick string, entries []string) error {
			for _, entry := range entries {
				at, line, _ := strings.Cut(entry, " ")
				ms, err := strconv.ParseInt(at, 10, 64)
				if err != nil {
					return fmt.Errorf("the order of %s: %w", nick, err)
				}
				orders[nick] = append(orders[nick], indexedLine{line: line, at: ms})
			}
			return nil
		})
}

// readAll makes one Redis request per item with ask, readBatch of them in one round trip, and calls
// take with each answer, in order.
func readAll[T any, C interface {
	redis.Cmder
	Result() (T, error)
}](
	ctx context.Context, store *redis.Client, items []string,
	ask func(p redis.Pipeliner, item string) C, take func(item string, answer T) error,
) error {
	for batch := range slices.Chunk(items, readBatch) {
		answers := make([]C, len(batch))
		_, err := store.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, item := range batch {
				answers[i] = ask(p, item)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, item := range batch {
			answer, err := answers[i].Result()
			if err != nil {
				return err
			}
			if err := take(item, answer); err != nil {
				return err
			}
		}
	}
	return nil
}
