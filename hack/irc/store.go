package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/parleyhq/parley/hack/internal/verdict"
)

// The kinds of stored entries.
const (
	kindSend    = 0
	kindEdit    = 1
	kindRecall  = 2
	kindExpired = 7
)

// document is a stored entry. The engines are read without the server's code, because a check must
// not trust what it checks.
type document struct {
	MsgID   string    `bson:"msg_id"`
	Seq     int64     `bson:"seq"`
	Channel string    `bson:"channel_id"`
	Content string    `bson:"content"`
	From    string    `bson:"from_id"`
	Time    time.Time `bson:"msg_time"`
	Status  int       `bson:"status"`
	Count   int64     `bson:"count"`
	Kind    int       `bson:"kind"`
	Target  int64     `bson:"target_seq"`
	ID      string    `bson:"client_msg_id"`
	Pending bool      `bson:"pending"`
	Changed int64     `bson:"changed_seq"`
}

// row is what is stored of a channel.
type row struct {
	Name     string `bson:"_id"`
	Oldest   int64  `bson:"oldest"`
	Stripped int64  `bson:"stripped"`
}

// storedStatus returns the status of a message in a version, as the store and the cache number it.
func storedStatus(v version) int { return int(statusOf(v)) - 1 }

// database connects to the store. The caller must disconnect.
func (j *job) database() (*mongo.Database, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(j.fleet.Mongo.URI()).SetReadConcern(readconcern.Majority()))
	if err != nil {
		return nil, err
	}
	return client.Database("parley"), nil
}

// trimmed waits until each log has no more messages than are retained, and the content of
// everything before its boundary is removed. It returns the boundaries by channel.
func (j *job) trimmed(ctx context.Context, db *mongo.Database) ([]int64, error) {
	oldest := make([]int64, len(j.days.channels))
	for {
		waiting := ""
		for c, name := range j.days.channels {
			var r row
			if err := db.Collection("channels").FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Decode(&r); err != nil {
				return nil, fmt.Errorf("the row of %s: %w", name, err)
			}
			oldest[c] = max(1, r.Oldest)
			if n := len(j.settled(c, oldest[c]).messages); r.Stripped+1 < oldest[c] || n > j.mostRetained() {
				waiting = fmt.Sprintf("%s begins at %d, has %d messages, and is removed up to %d", name, r.Oldest, n, r.Stripped)
			}
		}
		if waiting == "" {
			return oldest, nil
		}
		if err := verdict.Sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, fmt.Errorf("%w: %s", context.Cause(ctx), waiting)
		}
	}
}

// checkStore compares every stored entry of a channel with the journal. An entry of which no answer
// told must be a change of an expired message: the answer was lost, and the call was repeated after
// the message had expired. It is added to the journal.
func (j *job) checkStore(ctx context.Context, db *mongo.Database, f *final) error {
	names, err := db.ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: "^messages_"}}}})
	if err != nil {
		return err
	}
	next := int64(1)
	for _, name := range names {
		cursor, err := db.Collection(name).Find(ctx, bson.D{{Key: "channel_id", Value: f.name}},
			options.Find().SetSort(bson.D{{Key: "channel_id", Value: 1}, {Key: "seq", Value: 1}}))
		if err != nil {
			return err
		}
		for cursor.Next(ctx) {
			var d document
			if err := cursor.Decode(&d); err != nil {
				return errors.Join(err, cursor.Close(ctx))
			}
			if d.Seq != next {
				j.Wrongf("the store has entry %d of %s instead of %d", d.Seq, f.name, next)
			}
			next = d.Seq + 1
			j.checkDocument(f, &d)
		}
		if err := errors.Join(cursor.Err(), cursor.Close(ctx)); err != nil {
			return err
		}
	}
	if next-1 != f.head {
		j.Wrongf("the store has %s up to %d, and %d was acknowledged", f.name, next-1, f.head)
	}
	j.Add("stored entries", int(next-1))
	return nil
}

// checkDocument compares a stored entry with the journal.
func (j *job) checkDocument(f *final, d *document) {
	log := j.logs[f.channel]
	if d.Seq >= int64(len(log)) {
		return // the end of the log is compared later
	}
	e := log[d.Seq]
	if e.line == noLine {
		j.adopt(f, d)
		return
	}
	l, s := &j.days.lines[e.line], &j.states[e.line]
	kind, content := kindEdit, ""
	switch e.version {
	case 0:
		kind, content = kindSend, l.text(s.version)
	case recalled:
		kind = kindRecall
	}
	problem := ""
	switch {
	case d.ID != l.opID(e.version) || d.From != l.from || d.MsgID != s.msgID || d.Count != f.counts[d.Seq]:
		problem = "it is another entry"
	case d.Seq < f.oldest:
		if d.Kind != kindExpired || d.Content != "" || d.Pending {
			problem = "it has expired and is not removed"
		}
	case d.Kind != kind || d.Content != content || d.Pending:
		problem = "its content is wrong"
	case kind == kindSend && (d.Status != storedStatus(s.version) || d.Changed != int64(s.changed)):
		problem = "its state is wrong"
	case kind != kindSend && d.Target != int64(s.seq):
		problem = "it changes another message"
	}
	if problem != "" {
		j.Wrongf("the store has %+v, which is version %d of %s: %s", *d, e.version, l.id, problem)
	}
}

// adopt adds a stored entry to the journal of which no answer told.
func (j *job) adopt(f *final, d *document) {
	id, _, _ := strings.Cut(d.ID, "/")
	if i, ok := j.find(id); ok && j.states[i].expired {
		s := &j.states[i]
		for _, v := range []version{s.version + 1, recalled} {
			if j.days.lines[i].opID(v) == d.ID && d.Seq > int64(s.changed) {
				j.logs[f.channel][d.Seq] = entry{i, v}
				s.changed, s.version = int32(d.Seq), v //nolint:gosec // far fewer entries
				j.Add("changes whose answer was lost", 1)
				return
			}
		}
	}
	j.Wrongf("the store has %s as entry %d of %s, which nobody acknowledged", d.ID, d.Seq, f.name)
}

// cached is the value of a member of a cached set: a message, or the set's state.
type cached struct {
	Seq     int64  `json:"seq"`
	MsgID   string `json:"msg_id"`
	Count   int64  `json:"count"`
	From    string `json:"from_id"`
	Content string `json:"content"`
	ID      string `json:"client_msg_id"`
	Status  int    `json:"status"`
	Changed int64  `json:"changed_seq"`
}

// mostCached is the maximum number of messages in a cached set.
const mostCached = 150

// checkCache waits until the cached set of a channel reaches the end of its log, and compares it
// with the journal: the newest messages in their last versions, a mark at the place of each change,
// and nothing else.
func (j *job) checkCache(ctx context.Context, f *final) error {
	client := j.fleet.Redis.Client()
	defer client.Close()
	key := "msg_cache:" + f.name
	for {
		values, err := client.ZRangeWithScores(ctx, key, 0, -1).Result()
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		var messages []cached
		var ends int64
		marks := make(map[int64]int64)
		for _, z := range values {
			text, _ := z.Member.(string)
			if z.Score < 0 {
				seq, err := strconv.ParseInt(strings.TrimPrefix(text, "c:"), 10, 64)
				if err != nil {
					j.Wrongf("%s has the mark %q", key, text)
				}
				marks[seq] = -int64(z.Score)
				continue
			}
			var v cached
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if z.Score == 0 {
				ends = v.Seq
			} else {
				messages = append(messages, v)
			}
		}
		if ends == f.head {
			j.checkCached(key, f, messages, marks)
			return nil
		}
		if err := verdict.Sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %s ends at %d, not at %d", context.Cause(ctx), key, ends, f.head)
		}
	}
}

func (j *job) checkCached(key string, f *final, got []cached, marks map[int64]int64) {
	if len(got) == 0 || len(got) > mostCached || len(got) > len(f.messages) {
		j.Wrongf("%s has %d messages", key, len(got))
		return
	}
	for k, i := range f.messages[len(f.messages)-len(got):] {
		l, s, v := &j.days.lines[i], &j.states[i], &got[k]
		want := cached{
			int64(s.seq), s.msgID, f.counts[s.seq], l.from, l.text(s.version), l.id, storedStatus(s.version), int64(s.changed),
		}
		if *v != want {
			j.Wrongf("%s has %+v, not %+v", key, *v, want)
		}
		if mark := marks[want.Seq]; mark != want.Changed && (mark != 0 || want.Changed != want.Seq) {
			j.Wrongf("%s has the mark %d for message %d, which was changed by %d", key, mark, want.Seq, want.Changed)
		}
		delete(marks, want.Seq)
	}
	if len(marks) > 0 {
		j.Wrongf("%s has marks for other messages: %v", key, marks)
	}
	j.Add("cached messages", len(got))
}

// checkStream checks that the event stream has its limit, and returns its size and the number of
// events that it has dropped.
func (j *job) checkStream(ctx context.Context) (bytes, dropped uint64, err error) {
	nc, err := nats.Connect(j.fleet.NATS.URL())
	if err != nil {
		return 0, 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, 0, err
	}
	streams := js.ListStreams(ctx)
	var names []string
	for info := range streams.Info() {
		names = append(names, info.Config.Name)
		bytes += info.State.Bytes
		dropped += max(1, info.State.FirstSeq) - 1
	}
	if bytes > streamBytes || !slices.Contains(names, "message_change_events") {
		j.Wrongf("the streams %v have %.1f MiB", names, float64(bytes)/mib)
	}
	return bytes, dropped, streams.Err()
}

// streamBytes is the limit of JetStream.
const streamBytes = 64 * mib
