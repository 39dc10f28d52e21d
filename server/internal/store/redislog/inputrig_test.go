package redislog

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// sharedServer is a server that the tests of producers share, each of which has keys of its own. It
// ends with the process.
var sharedServer = rig.SharedRedis("redislog")

// inputPrefixes numbers the prefixes of the tests' keys.
var inputPrefixes atomic.Int64

// inputRig is a topic of one partition with one group, in a store with keys of its own.
type inputRig struct {
	tb     testing.TB
	s      *Store
	c      redis.UniversalClient
	topic  *qlog.Topic
	ref    qlog.Ref
	bounds qlog.Bounds
}

func newInputRig(tb testing.TB, change func(*qlog.Topic)) *inputRig {
	tb.Helper()
	server, err := sharedServer()
	if err != nil {
		tb.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{
		Network: "unix", Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	tb.Cleanup(func() { _ = c.Close() })
	return inputRigOn(tb, c, change)
}

func inputRigOn(tb testing.TB, c redis.UniversalClient, change func(*qlog.Topic)) *inputRig {
	tb.Helper()
	return inputRigWith(tb, c, StoreConfig{}, change)
}

// inputRigWith is a rig with a store of a configuration, whose prefix it sets.
func inputRigWith(tb testing.TB, c redis.UniversalClient, config StoreConfig, change func(*qlog.Topic)) *inputRig {
	tb.Helper()
	config.Prefix = fmt.Sprintf("input%d:", inputPrefixes.Add(1))
	s := NewStore(c, config)
	topic := &qlog.Topic{
		Name: "jobs", UID: "AAAAAAAAAAAAA", Version: 1, Partitions: 1, Partitioner: qlog.ConsistentHash,
		Bounds: qlog.Bounds{Window: 10 * time.Minute}, CreatedAt: time.UnixMilli(1_700_000_000_000),
		Groups: []qlog.Group{{Name: "work", Retry: qlog.RetryPolicy{MaxAttempts: 16}}},
	}
	if change != nil {
		change(topic)
	}
	r := &inputRig{tb: tb, s: s, c: c, topic: topic, ref: topic.Ref(0), bounds: topic.Bounds}
	if _, err := s.InsertTopic(tb.Context(), topic); err != nil {
		tb.Fatal(err)
	}
	for p := range topic.Partitions {
		r.check(s.MakePartition(tb.Context(), topic, p))
	}
	return r
}

func (r *inputRig) check(err error) {
	r.tb.Helper()
	if err != nil {
		r.tb.Fatal(err)
	}
}

// group names a group of the partition.
func (r *inputRig) group(name string) qlog.GroupRef { return qlog.GroupRef{Ref: r.ref, Group: name} }

// draft returns a message.
func draft(body string) qlog.Draft {
	return qlog.Draft{Body: []byte(body), Digest: "digest of " + body}
}

// drafts makes messages.
func drafts(bodies ...string) (all []qlog.Draft) {
	for _, b := range bodies {
		all = append(all, draft(b))
	}
	return all
}

// put puts drafts.
func (r *inputRig) put(all ...qlog.Draft) []qlog.PutResult {
	r.tb.Helper()
	return r.putAs("", 0, all...)
}

// putAs puts drafts under a producer's sequence.
func (r *inputRig) putAs(producer string, sequence int64, all ...qlog.Draft) []qlog.PutResult {
	r.tb.Helper()
	results, err := r.s.Put(r.tb.Context(), r.ref, r.bounds, qlog.Put{Drafts: all, ProducerID: producer, Sequence: sequence})
	r.check(err)
	if len(results) != len(all) {
		r.tb.Fatalf("%d results for %d drafts", len(results), len(all))
	}
	return results
}

// entry is an entry of the stream, as Redis has it.
type entry struct {
	pos    qlog.Pos
	fields map[string]any
}

// entries reads the whole log.
func (r *inputRig) entries() (all []entry) {
	r.tb.Helper()
	list, err := r.c.XRange(r.tb.Context(), r.s.keys.main(r.ref), "-", "+").Result()
	r.check(err)
	for _, e := range list {
		pos, err := qlog.ParsePos(e.ID)
		r.check(err)
		all = append(all, entry{pos, e.Values})
	}
	return all
}

// settle moves a group's marks to a position, as a commit of its holder would.
func (r *inputRig) settle(group string, to qlog.Pos) {
	r.tb.Helper()
	r.check(r.c.HSet(r.tb.Context(), r.s.keys.state(r.ref, group), "cursor", to.String(), "sent", to.String()).Err())
}

// errorsOf returns what became of drafts: "new", "dup" or the error.
func errorsOf(results []qlog.PutResult) string {
	var words []string
	for _, r := range results {
		switch {
		case r.Err != nil:
			words = append(words, r.Err.Error())
		case r.Duplicate:
			words = append(words, "dup")
		default:
			words = append(words, "new")
		}
	}
	return strings.Join(words, ", ")
}

// wantResults fails the test if errorsOf differs.
func (r *inputRig) wantResults(results []qlog.PutResult, want string) {
	r.tb.Helper()
	if got := errorsOf(results); got != want {
		r.tb.Fatalf("results: %s; want %s", got, want)
	}
}

// length is how many entries the log has.
func (r *inputRig) length() int64 {
	r.tb.Helper()
	n, err := r.c.XLen(r.tb.Context(), r.s.keys.main(r.ref)).Result()
	r.check(err)
	return n
}

// eventually waits until a condition holds.
func (r *inputRig) eventually(holds func() bool) {
	r.tb.Helper()
	testkit.Eventually(r.tb, 10*time.Second, func() error {
		if !holds() {
			return errors.New("the condition does not hold")
		}
		return nil
	})
}

// settle2 is settle for a Redis that is full: it lets the one write through.
func (r *inputRig) settle2(to qlog.Pos) {
	r.tb.Helper()
	const script = "#!lua flags=allow-oom\nreturn redis.call('HSET', KEYS[1], 'cursor', ARGV[1], 'sent', ARGV[1])"
	r.check(r.c.Eval(r.tb.Context(), script, []string{r.s.keys.state(r.ref, "work")}, to.String()).Err())
}
