package messages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
)

// The kinds of entries, as the store numbers them.
const (
	entrySend   = 0
	entryEdit   = 1
	entryRecall = 2
	// The last three close an open message.
	entryComplete = 3
	entryCancel   = 4
	entryFail     = 5
)

// closedStatus is the status of a message after each kind of close.
var closedStatus = map[int]Status{entryComplete: StatusComplete, entryCancel: StatusCancelled, entryFail: StatusFailed}

// Entry is one entry of a log, as it is stored. The field names are those of the server's
// documents. They are read without the server's code, because a check must not trust what it
// checks.
type Entry struct {
	ID          string            `bson:"_id"                json:"id"`
	MsgID       string            `bson:"msg_id"             json:"msg_id"`
	Seq         int64             `bson:"seq"                json:"seq"`
	Channel     string            `bson:"channel_id"         json:"channel"`
	Content     string            `bson:"content"            json:"content"`
	From        string            `bson:"from_id"            json:"from"`
	Type        string            `bson:"msg_type"           json:"type"`
	Time        time.Time         `bson:"msg_time"           json:"time"`
	Status      Status            `bson:"status"             json:"status"`
	Count       int64             `bson:"count"              json:"count"`
	Kind        int               `bson:"kind"               json:"kind"`
	TargetSeq   int64             `bson:"target_seq"         json:"target_seq,omitempty"`
	Metadata    map[string]string `bson:"metadata,omitempty" json:"metadata,omitempty"`
	ClientMsgID string            `bson:"client_msg_id"      json:"cmid"`
	Pending     bool              `bson:"pending,omitempty"  json:"pending,omitempty"`
	Digest      []byte            `bson:"digest,omitempty"   json:"digest,omitempty"`
	ChangedSeq  int64             `bson:"changed_seq"        json:"changed_seq"`
}

// CachedValue is one member of a channel's cached set, the sorted set of its newest messages in
// Redis. The score is the seq; see checkSet for those of 0 and below.
type CachedValue struct {
	Score int64  `json:"score"`
	Value string `json:"value"`
}

// Truth is the final contents of the stores, read directly. Only Marks covers the channels that
// have a check of their own: gated ones, and those whose messages expire.
type Truth struct {
	// Entries are the entries of all logs, in no order.
	Entries []Entry `json:"entries"`
	// Cache is every cached set by channel, in ascending order.
	Cache map[string][]CachedValue `json:"cache"`
	// Lists is every session's cached list by channel, in its order.
	Lists map[string][]string `json:"lists"`
	// Marks are, for the mark of each content (see markOf), the documents and keys that contain it.
	Marks map[string][]string `json:"marks"`
	Epoch string              `json:"epoch"`
	// Published is the change stream, in its order. Dropped is the number up to which the stream has
	// dropped events, or some of them; 0 if it has all.
	Published []Published `json:"published"`
	Dropped   uint64      `json:"dropped,omitempty"`
}

// database is the name of the database in MongoDB.
const database = "parley"

// cachePrefix is the prefix of the key of a channel's cached set.
const cachePrefix = "msg_cache:"

// readTruth reads all stores: every document of every collection, every value of every key, and
// every event.
func readTruth(ctx context.Context, mongoURI string, cache *redis.Client, natsURL string) (*Truth, error) {
	t := &Truth{Cache: make(map[string][]CachedValue), Lists: make(map[string][]string), Marks: make(map[string][]string)}
	client, err := mongo.Connect(options.Client().ApplyURI(mongoURI).SetReadConcern(readconcern.Majority()))
	if err != nil {
		return nil, fmt.Errorf("truth: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	if err := t.readMongo(ctx, client.Database(database)); err != nil {
		return nil, fmt.Errorf("truth: MongoDB: %w", err)
	}
	if err := t.readRedis(ctx, cache); err != nil {
		return nil, fmt.Errorf("truth: Redis: %w", err)
	}
	if t.Published, t.Dropped, err = readPublished(ctx, natsURL); err != nil {
		return nil, fmt.Errorf("truth: NATS: %w", err)
	}
	return t, nil
}

func (t *Truth) readMongo(ctx context.Context, db *mongo.Database) error {
	names, err := db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return err
	}
	for _, name := range names {
		cursor, err := db.Collection(name).Find(ctx, bson.D{})
		if err != nil {
			return err
		}
		for cursor.Next(ctx) {
			id := cursor.Current.Lookup("_id")
			t.note(fmt.Sprintf("MongoDB %s %s", name, id), cursor.Current.String())
			if !strings.HasPrefix(name, "messages_") {
				continue
			}
			var e Entry
			if err := cursor.Decode(&e); err != nil {
				return errors.Join(err, cursor.Close(ctx))
			}
			if !own(e.Channel) {
				t.Entries = append(t.Entries, e)
			}
		}
		if err := errors.Join(cursor.Err(), cursor.Close(ctx)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	var identity struct {
		Epoch string `bson:"epoch"`
	}
	err = db.Collection("meta").FindOne(ctx, bson.D{{Key: "_id", Value: "identity"}}).Decode(&identity)
	t.Epoch = identity.Epoch
	return err
}

func (t *Truth) readRedis(ctx context.Context, cache *redis.Client) error {
	keys := cache.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		dump, err := cache.Dump(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("%s: %w", key, err)
		}
		// A dump may compress long values, so the values below are read uncompressed.
		t.note("Redis "+key, dump)
		if strings.HasPrefix(key, sessionKeys) {
			if err := t.readSession(ctx, cache, key); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			continue
		}
		channel, ok := strings.CutPrefix(key, cachePrefix)
		if !ok || own(channel) {
			continue
		}
		values, err := cache.ZRangeWithScores(ctx, key, 0, -1).Result()
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		for _, z := range values {
			value, _ := z.Member.(string)
			t.Cache[channel] = append(t.Cache[channel], CachedValue{Score: int64(z.Score), Value: value})
			t.note(fmt.Sprintf("Redis %s at %.0f", key, z.Score), value)
		}
	}
	return keys.Err()
}

// The keys of a session are its id between sessionKeys and one of the suffixes: that of the list of
// its newest messages, or that of the texts of its open ones.
const sessionKeys, listSuffix, openSuffix = "chat:session:", ":messages", ":open"

// readSession reads a key of a session.
func (t *Truth) readSession(ctx context.Context, cache *redis.Client, key string) error {
	id := strings.TrimPrefix(key, sessionKeys)
	if list, ok := strings.CutSuffix(id, listSuffix); ok {
		values, err := cache.LRange(ctx, key, 0, -1).Result()
		for i, v := range values {
			t.note(fmt.Sprintf("Redis %s at %d", key, i), v)
		}
		if len(values) > 0 && !own(sessionPrefix+list) {
			t.Lists[sessionPrefix+list] = values
		}
		return err
	}
	if !strings.HasSuffix(id, openSuffix) {
		return nil
	}
	texts, err := cache.HGetAll(ctx, key).Result()
	for field, text := range texts {
		t.note(fmt.Sprintf("Redis %s %s", key, field), text)
	}
	return err
}

// note records for each mark in text that it was found at a location.
func (t *Truth) note(where, text string) {
	for {
		mark, rest, ok := nextMark(text)
		if !ok {
			return
		}
		t.Marks[mark] = append(t.Marks[mark], where)
		text = rest
	}
}

// The mark of a content is its op's client_msg_id between markBegin and markEnd. Neither BSON's
// extended JSON nor the cache's JSON escapes these.
const markBegin, markEnd = "[op:", "]"

// markOf returns the mark for the content of an op: its unique name between markBegin and markEnd.
func markOf(name string) string { return markBegin + name + markEnd }

// nextMark returns the name in the first mark in text, and the text after the mark. ok is false if
// there is no mark.
func nextMark(text string) (mark, rest string, ok bool) {
	_, after, ok := strings.Cut(text, markBegin)
	if !ok {
		return "", "", false
	}
	mark, rest, ok = strings.Cut(after, markEnd)
	return mark, rest, ok
}

// logs returns the entries by channel, each log in order of seq.
func (t *Truth) logs() map[string][]Entry {
	logs := make(map[string][]Entry)
	for _, e := range t.Entries {
		logs[e.Channel] = append(logs[e.Channel], e)
	}
	for _, log := range logs {
		slices.SortFunc(log, func(a, b Entry) int { return int(a.Seq - b.Seq) })
	}
	return logs
}

// cachedEntry is the decoded value of a member of a cached set: a message, or the set's state,
// which has Epoch, Seq, Count and Unknown.
type cachedEntry struct {
	Epoch       string            `json:"epoch"`
	Seq         int64             `json:"seq"`
	Unknown     int64             `json:"unknown"`
	MsgID       string            `json:"msg_id"`
	Count       int64             `json:"count"`
	From        string            `json:"from_id"`
	Type        string            `json:"msg_type"`
	Content     string            `json:"content"`
	Metadata    map[string]string `json:"metadata"`
	ClientMsgID string            `json:"client_msg_id"`
	Time        time.Time         `json:"msg_time"`
	Status      Status            `json:"status"`
	ChangedSeq  int64             `json:"changed_seq"`
}

func (v *CachedValue) decode() (e cachedEntry, err error) { return decodeCached(v.Value) }

func decodeCached(value string) (e cachedEntry, err error) {
	err = json.Unmarshal([]byte(value), &e)
	return e, err
}
