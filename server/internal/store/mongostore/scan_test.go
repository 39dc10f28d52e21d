package mongostore_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// scanned is what the server examined to answer a call.
type scanned struct{ commands, keys, documents int64 }

// scanRig captures the reads of a store's calls and asks the server what they cost.
type scanRig struct {
	t  *testing.T
	s  *mongostore.Store
	db *mongo.Database

	mu    sync.Mutex
	reads []bson.D // guarded by mu
}

func newScanRig(t *testing.T) *scanRig {
	t.Helper()
	r := &scanRig{t: t}
	cfg := mongostore.Config{URI: testkit.MongoURI(t), Database: testkit.MongoDatabase(t)}
	cfg.Monitor = &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName != "find" && e.CommandName != "aggregate" {
			return
		}
		var command bson.D
		if err := bson.Unmarshal(bytes.Clone(e.Command), &command); err != nil {
			t.Error(err)
		}
		// What belongs to the session is not part of an explained command.
		command = slices.DeleteFunc(command, func(f bson.E) bool {
			return slices.Contains([]string{"lsid", "$clusterTime", "readConcern", "$db", "txnNumber", "maxTimeMS", "$readPreference"}, f.Key)
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reads = append(r.reads, command)
	}}
	r.s = open(t, cfg)
	r.db = testkit.MongoClient(t, cfg.URI).Database(cfg.Database)
	return r
}

// cost runs a call and returns what its reads examined. The server executes each read once more to
// tell.
func (r *scanRig) cost(call func() error) scanned {
	r.t.Helper()
	r.mu.Lock()
	r.reads = nil
	r.mu.Unlock()
	if err := call(); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	reads := slices.Clone(r.reads)
	r.mu.Unlock()
	sum := scanned{commands: int64(len(reads))}
	for _, command := range reads {
		var plan bson.M
		err := r.db.RunCommand(r.t.Context(), bson.D{{Key: "explain", Value: command}, {Key: "verbosity", Value: "executionStats"}}).Decode(&plan)
		if err != nil {
			r.t.Fatalf("explain %v: %v", command, err)
		}
		keys, documents, ok := examined(plan)
		if !ok {
			r.t.Fatalf("explain %v: %v", command, plan)
		}
		sum.keys, sum.documents = sum.keys+keys, sum.documents+documents
	}
	return sum
}

// examined finds the execution statistics in the answer to an explain command.
func examined(plan any) (keys, documents int64, ok bool) {
	switch plan := plan.(type) {
	case bson.M:
		if stats, found := plan["executionStats"].(bson.D); found {
			return examinedOf(stats)
		}
		for _, v := range plan {
			if keys, documents, ok = examined(v); ok {
				return keys, documents, ok
			}
		}
	case bson.D:
		for _, e := range plan {
			if stats, found := e.Value.(bson.D); found && e.Key == "executionStats" {
				return examinedOf(stats)
			}
			if keys, documents, ok = examined(e.Value); ok {
				return keys, documents, ok
			}
		}
	case bson.A:
		for _, v := range plan {
			if keys, documents, ok = examined(v); ok {
				return keys, documents, ok
			}
		}
	}
	return 0, 0, false
}

func examinedOf(stats bson.D) (keys, documents int64, ok bool) {
	number := func(v any) int64 {
		switch v := v.(type) {
		case int32:
			return int64(v)
		case int64:
			return v
		}
		return -1
	}
	for _, e := range stats {
		switch e.Key {
		case "totalKeysExamined":
			keys, ok = number(e.Value), true
		case "totalDocsExamined":
			documents = number(e.Value)
		}
	}
	return keys, documents, ok
}

// TestReadsExamineWhatTheyReturn checks, by the server's own count, that reads examine no more than
// what they return. The first message of the log was edited 600 times. The ends of many logs cost
// one read for each shard and a seek for each log.
func TestReadsExamineWhatTheyReturn(t *testing.T) {
	t.Parallel()
	r := newScanRig(t)
	const edits, last = 600, 604
	log := sends("edited", 1, 3)
	insert(t, r.s, log)
	var changes []message.Entry
	for i := range edits {
		e := sends("edited", 4+i, 1)[0]
		e.Kind, e.TargetSeq, e.MsgID, e.Count = message.KindEdit, 1, log[0].MsgID, 3
		changes = append(changes, e)
	}
	insert(t, r.s, changes)
	insert(t, r.s, sends("edited", last, 1))
	applies, ctx := errgroup.WithContext(t.Context())
	applies.SetLimit(32)
	for i := range changes {
		applies.Go(func() error { return r.s.Apply(ctx, &changes[i]) })
	}
	if err := applies.Wait(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	var places []message.Place
	for i := range 40 {
		id := fmt.Sprint("idle", i)
		insert(t, r.s, sends(id, 1, 30))
		ids, places = append(ids, id), append(places, message.Place{ChannelID: id, Seq: 7})
	}
	entries := func(rg message.Range) func() error {
		return func() error {
			got, err := r.s.Entries(t.Context(), "edited", rg)
			if err == nil && len(got) == 0 {
				err = fmt.Errorf("no entries in %+v", rg)
			}
			return err
		}
	}
	for name, c := range map[string]struct {
		call func() error
		most scanned
	}{
		"the oldest messages": {entries(message.Range{Limit: 2, MessagesOnly: true}), scanned{1, 3, 2}},
		"the newest messages": {entries(message.Range{Desc: true, Limit: 2, MessagesOnly: true}), scanned{1, 3, 2}},
		"messages over edits": {entries(message.Range{After: 2, Limit: 2, MessagesOnly: true}), scanned{1, 3, 2}},
		"one entry":           {entries(message.Range{After: 300, Before: 302, Limit: 1}), scanned{1, 2, 1}},
		"changed messages": {func() error {
			_, err := r.s.Changed(t.Context(), "edited", 0, last+1, 100, 0)
			return err
		}, scanned{1, 2, 1}},
		"pending changes": {func() error {
			_, err := r.s.Pending(t.Context(), "edited")
			return err
		}, scanned{1, 1, 0}},
		"pending changes of many channels": {func() error {
			_, err := r.s.Pending(t.Context(), ids...)
			return err
		}, scanned{4, 44, 0}},
		"a message": {func() error {
			_, _, err := r.s.Message(t.Context(), "edited", log[0].MsgID)
			return err
		}, scanned{1, 1, 1}},
		"messages of many channels": {func() error {
			got, err := r.s.Messages(t.Context(), places)
			if err == nil && len(got) != len(places) {
				err = fmt.Errorf("%d messages", len(got))
			}
			return err
		}, scanned{4, 80, 40}},
		"the ends of many logs": {func() error {
			got, err := r.s.Heads(t.Context(), append([]string{"edited"}, ids...))
			if err == nil && (len(got) != len(ids)+1 || got["edited"].Seq != last) {
				err = fmt.Errorf("heads %v", got)
			}
			return err
		}, scanned{5, 131, 41}},
		"the end of a log": {func() error {
			_, err := r.s.Head(t.Context(), "edited")
			return err
		}, scanned{2, 2, 1}},
		"entries by client keys": {func() error {
			keys := []message.ClientKey{{FromID: "nobody", ClientMsgID: "x"}}
			for i := range 3 {
				keys = append(keys, message.ClientKey{FromID: log[i].FromID, ClientMsgID: log[i].ClientMsgID})
			}
			got, err := r.s.ByClientKeys(t.Context(), "edited", keys)
			if err == nil && len(got) != 3 {
				err = fmt.Errorf("%d entries", len(got))
			}
			return err
		}, scanned{1, 8, 3}},
		"entries of an unknown user": {func() error {
			_, err := r.s.BySender(t.Context(), "nobody", 10)
			return err
		}, scanned{4, 4, 0}},
		"open messages without any": {func() error {
			_, err := r.s.OpenMessages(t.Context(), []int{0, 1, 2, 3}, time.Time{}, time.Now(), 10)
			return err
		}, scanned{4, 0, 0}},
		"messages to change": {func() error {
			_, err := r.s.Targets(t.Context(), "edited", []string{log[0].MsgID})
			return err
		}, scanned{2, 2, 1}},
	} {
		if got := r.cost(c.call); got.commands > c.most.commands || got.keys > c.most.keys || got.documents > c.most.documents {
			t.Errorf("%s: examined %+v, want at most %+v", name, got, c.most)
		}
	}
}

// TestOpenMessagesExamineWhatTheyReturn checks, by the server's own count, that the messages that
// are not open cost a read of open ones nothing.
func TestOpenMessagesExamineWhatTheyReturn(t *testing.T) {
	t.Parallel()
	r := newScanRig(t)
	log := sends("lobby", 1, 400)
	for i := range 5 {
		log[20*i].Status = message.StatusOpen
	}
	insert(t, r.s, log)
	shard := []int{shardOf(r.s, "lobby")}
	read := func(from, before time.Time, limit, want int) func() error {
		return func() error {
			got, err := r.s.OpenMessages(t.Context(), shard, from, before, limit)
			if err == nil && len(got) != want {
				err = fmt.Errorf("%d messages", len(got))
			}
			return err
		}
	}
	for name, c := range map[string]struct {
		call func() error
		most scanned
	}{
		"all":       {read(time.Time{}, time.Now(), 10, 5), scanned{1, 5, 5}},
		"the first": {read(time.Time{}, time.Now(), 2, 2), scanned{1, 2, 2}},
		"before":    {read(time.Time{}, log[40].MsgTime, 10, 2), scanned{1, 2, 2}},
		"of before": {read(time.Time{}, log[0].MsgTime, 10, 0), scanned{1, 0, 0}},
		"from":      {read(log[40].MsgTime, time.Now(), 10, 3), scanned{1, 3, 3}},
	} {
		if got := r.cost(c.call); got.commands > c.most.commands || got.keys > c.most.keys || got.documents > c.most.documents {
			t.Errorf("%s: examined %+v, want at most %+v", name, got, c.most)
		}
	}
}

// TestSessionsExamineWhatTheyReturn checks, by the server's own count, that a page of sessions
// costs the same wherever it is in the list. Some sessions have the same activity.
func TestSessionsExamineWhatTheyReturn(t *testing.T) {
	t.Parallel()
	r := newScanRig(t)
	c := r.s.Channels()
	const all, owners, limit = 400, 4, 10
	rows := make([]channel.Row, all)
	var ids []string
	creates, ctx := errgroup.WithContext(t.Context())
	creates.SetLimit(32)
	for i := range rows {
		owner := fmt.Sprint("owner", i%owners)
		id := ident.SessionChannel(fmt.Sprintf("s%03d", i))
		ids = append(ids, id)
		creates.Go(func() (err error) {
			rows[i], err = c.Create(ctx, channel.Row{
				ChannelID: id, MembersOnly: true, Rev: 1, CreatedBy: owner, CreatedAt: time.UnixMilli(1_700_000_000_000 - int64(i/2)).UTC(),
			}, []string{owner})
			return err
		})
	}
	if err := creates.Wait(); err != nil {
		t.Fatal(err)
	}
	check := func(what string, most scanned, call func() (int, error), want int) {
		t.Helper()
		got := r.cost(func() error {
			n, err := call()
			if err == nil && n != want {
				err = fmt.Errorf("%s: %d, want %d", what, n, want)
			}
			return err
		})
		if got.commands > most.commands || got.keys > most.keys || got.documents > most.documents {
			t.Errorf("%s: examined %+v, want at most %+v", what, got, most)
		}
	}
	for _, at := range []int{-1, 0, 1, 200, 301, 389} {
		after := channel.SessionPlace{}
		if at >= 0 {
			after = channel.SessionPlace{Active: rows[at].Active, ChannelID: rows[at].ChannelID}
		}
		check(fmt.Sprint("all sessions after ", at), scanned{1, limit + 3, limit + 2}, func() (int, error) {
			got, err := c.EverySession(t.Context(), after, limit)
			return len(got), err
		}, limit)
		left := 0
		for i := at + 1; i < all; i++ {
			if i%owners == 1 {
				left++
			}
		}
		check(fmt.Sprint("an owner's sessions after ", at), scanned{1, limit + 3, limit + 2}, func() (int, error) {
			got, err := c.Sessions(t.Context(), "owner1", after, limit)
			return len(got), err
		}, min(limit, left))
	}
	check("owners of 200 sessions", scanned{2, 450, 450}, func() (int, error) {
		got, err := c.Owners(t.Context(), ids[:200])
		return len(got), err
	}, 200)
}
