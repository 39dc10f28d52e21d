package mongostore_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// failPoints is held while a test uses the server's only failCommand.
var failPoints sync.Mutex

// ownURI returns the URI of this process's own server, regardless of MONGO_URI, for a client with
// this name.
func ownURI(tb testing.TB, app string) string {
	tb.Helper()
	return "mongodb://" + testkit.MongoAddr(tb) + "/?replicaSet=rs0&appName=" + app
}

// failCommand makes the server fail commands of the client named app until the test ends or lift is
// called.
func failCommand(t *testing.T, app string, mode any, data bson.D) (lift func()) {
	t.Helper()
	failPoints.Lock()
	admin := testkit.MongoClient(t, ownURI(t, "admin")).Database("admin")
	set := func(mode any) {
		data := append(bson.D{{Key: "appName", Value: app}}, data...)
		err := admin.RunCommand(context.Background(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data},
		}).Err()
		if err != nil {
			t.Errorf("failCommand: %v", err)
		}
	}
	lift = sync.OnceFunc(func() {
		set("off")
		failPoints.Unlock()
	})
	t.Cleanup(lift)
	set(mode)
	return lift
}

func TestInsertIsOrderedAndMajorityJournaled(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var commands []bson.Raw
	s := open(t, mongostore.Config{
		URI: testkit.MongoURI(t) + "&w=1&journal=false&retryWrites=false", Database: testkit.MongoDatabase(t),
		Monitor: &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "insert" || e.CommandName == "update" {
				mu.Lock()
				defer mu.Unlock()
				commands = append(commands, bytes.Clone(e.Command))
			}
		}},
	})
	mu.Lock()
	commands = nil
	mu.Unlock()
	insert(t, s, sends("wire", 1, 100))
	recall := message.Entry{Message: message.Message{ChannelID: "wire", Seq: 101}, Kind: message.KindRecall, TargetSeq: 3}
	if err := s.Apply(t.Context(), &recall); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(commands) != 2 {
		t.Fatalf("%d commands, want one insert and one update", len(commands))
	}
	for _, c := range commands {
		var got struct {
			Ordered bool   `bson:"ordered"`
			WC      bson.D `bson:"writeConcern"`
		}
		if err := bson.Unmarshal(c, &got); err != nil {
			t.Fatal(err)
		}
		want := bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}
		less := func(a, b bson.E) bool { return a.Key > b.Key }
		if d := cmp.Diff(want, got.WC, cmpSort(less)); d != "" {
			t.Errorf("write concern (-want +got):\n%s", d)
		}
		if !got.Ordered {
			t.Errorf("not ordered: %s", c)
		}
	}
	if _, err := commands[0].LookupErr("txnNumber"); err != nil {
		t.Error("the insert can't be retried: no txnNumber")
	}
}

func TestInsertThatReachedNoServerIsNotStored(t *testing.T) {
	t.Parallel()
	p := testkit.NewProxy(t, "tcp", testkit.MongoAddr(t))
	s := open(t, mongostore.Config{
		URI: "mongodb://" + p.Addr() + "/?directConnection=true", Database: testkit.MongoDatabase(t), Timeout: 3 * time.Second,
	})
	log := sends("gone", 1, 3)
	b := shardOf(s, "gone")
	p.Cut()
	testkit.Eventually(t, time.Minute, func() error {
		_, err := s.Insert(t.Context(), b, log)
		switch {
		case err == nil:
			t.Fatal("stored through a cut link")
		case !errors.Is(err, message.ErrNotStored):
			return err // the first attempts may use a connection that is already dead
		}
		return nil
	})
	p.Heal()
	testkit.Eventually(t, time.Minute, func() error { return s.Ping(t.Context()) })
	insert(t, s, log)
	wantLog(t, s, "gone", log)
	if _, err := s.Insert(t.Context(), (b+1)%4, sends("gone", 4, 1)); !errors.Is(err, message.ErrNotStored) {
		t.Errorf("insert into another shard: %v", err)
	}
}

func TestInsertWithoutAReplyIsUnknown(t *testing.T) {
	t.Parallel()
	p := testkit.NewProxy(t, "tcp", testkit.MongoAddr(t))
	s := open(t, mongostore.Config{
		URI: "mongodb://" + p.Addr() + "/?directConnection=true", Database: testkit.MongoDatabase(t), Timeout: 3 * time.Second,
	})
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	n, err := s.Insert(t.Context(), shardOf(s, "stalled"), sends("stalled", 1, 3))
	if n != 0 || !unknownOutcome(err) {
		t.Errorf("insert: %d, %v, want an unknown outcome", n, err)
	}
	p.Heal()
}

// unknownOutcome reports whether an error of Insert means that entries may have been stored.
func unknownOutcome(err error) bool {
	var conflict *message.ConflictError
	return err != nil && !errors.As(err, &conflict) && !errors.Is(err, message.ErrNotStored)
}

func TestAConflictWithoutAMajorityIsUnknown(t *testing.T) {
	t.Parallel()
	s := open(t, mongostore.Config{
		URI: ownURI(t, "wce"), Database: testkit.MongoDatabase(t), Timeout: 2 * time.Second,
	})
	log := sends("wce", 1, 4)
	insert(t, s, log[2:3])
	lift := failCommand(t, "wce", "alwaysOn", bson.D{
		{Key: "failCommands", Value: bson.A{"insert"}},
		{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "errmsg", Value: "no majority"}}},
	})
	n, err := s.Insert(t.Context(), shardOf(s, "wce"), log)
	if n != 0 || !unknownOutcome(err) {
		t.Errorf("conflict behind a write concern error: %d, %v, want 0 and an unknown outcome", n, err)
	}
	lift()
	n, err = s.Insert(t.Context(), shardOf(s, "wce"), sends("wce", 2, 3))
	var conflict *message.ConflictError
	if n != 0 || !errors.As(err, &conflict) || conflict.ChannelID != "wce" {
		t.Errorf("what was stored before the conflict: %d, %v, want a conflict at 0", n, err)
	}
}

// writes reports whether a request to MongoDB inserts or updates entries.
func writes(request []byte) bool {
	return bytes.Contains(request, []byte("messages_")) &&
		(bytes.Contains(request, []byte("\x02insert\x00")) || bytes.Contains(request, []byte("\x02update\x00")))
}

func TestLostRepliesNeitherLoseNorDuplicate(t *testing.T) {
	t.Parallel()
	p := testkit.NewProxy(t, "tcp", testkit.MongoAddr(t))
	s := open(t, mongostore.Config{
		URI: "mongodb://" + p.Addr() + "/?directConnection=true", Database: testkit.MongoDatabase(t),
	})
	const batches, size = 40, 5
	b := shardOf(s, "lossy")
	p.LoseReplies(8, writes)
	var log []message.Entry
	unknown := 0
	for i := range batches {
		batch := sends("lossy", i*size+1, size)
		unknown += insertUntilStored(t, s, b, batch)
		log = append(log, batch...)
	}
	if p.Lost() < batches/8 {
		t.Fatalf("only %d replies were lost", p.Lost())
	}
	t.Logf("%d replies lost, %d outcomes unknown", p.Lost(), unknown)
	wantLog(t, s, "lossy", log)

	lost := p.Lost()
	p.LoseReplies(2, writes)
	for _, target := range log[:4] {
		edit := message.Entry{Message: target.Message, Kind: message.KindEdit, TargetSeq: target.Seq}
		edit.Seq, edit.Content = 1000, "edited"
		for _, change := range []message.Entry{edit, {
			Message: message.Message{ChannelID: "lossy", Seq: 1001}, Kind: message.KindRecall, TargetSeq: target.Seq,
		}} {
			if err := s.Apply(t.Context(), &change); err != nil {
				t.Fatal(err)
			}
		}
	}
	if p.Lost() == lost {
		t.Fatal("no reply to an update was lost")
	}
	p.Heal()
	for i := range log[:4] {
		log[i].Content, log[i].Digest, log[i].Status, log[i].ChangedSeq = "", nil, message.StatusRecalled, 1001
	}
	wantLog(t, s, "lossy", log)
}

// insertUntilStored inserts entries like the Writer, but never gives up a seq. After an unknown
// outcome it retries, and after a conflict it searches for the stored entry. It returns the number
// of unknown outcomes.
func insertUntilStored(tb testing.TB, s *mongostore.Store, shard int, entries []message.Entry) (unknown int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for len(entries) > 0 {
		n, err := s.Insert(ctx, shard, entries)
		if ctx.Err() != nil {
			tb.Errorf("insert: %v", err)
			return unknown
		}
		entries = entries[n:]
		var conflict *message.ConflictError
		switch {
		case err == nil || errors.Is(err, message.ErrNotStored):
			continue
		case !errors.As(err, &conflict):
			unknown++
			continue
		}
		// A conflict means that an earlier attempt has stored the entry, because nobody else writes
		// here.
		found, err := s.ByClientKeys(ctx, conflict.ChannelID, []message.ClientKey{
			{FromID: entries[0].FromID, ClientMsgID: entries[0].ClientMsgID},
		})
		if err != nil {
			continue
		}
		for _, e := range found {
			if e.Seq != entries[0].Seq {
				tb.Errorf("entry %d was stored at %d", entries[0].Seq, e.Seq)
			}
			entries = entries[1:]
		}
	}
	return unknown
}

// cmpSort returns an option with which cmp ignores the order of a document's elements.
func cmpSort(less func(a, b bson.E) bool) cmp.Option {
	return cmpopts.SortSlices(less)
}

func TestHeadTimesOutBehindAStuckCall(t *testing.T) {
	t.Parallel()
	p := testkit.NewProxy(t, "tcp", testkit.MongoAddr(t))
	const limit = 2 * time.Second
	s := open(t, mongostore.Config{
		URI: "mongodb://" + p.Addr() + "/?directConnection=true", Database: testkit.MongoDatabase(t), Timeout: limit,
	})
	if _, err := s.Head(t.Context(), "stuck"); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	type end struct {
		took time.Duration
		err  error
	}
	ends := make(chan end)
	const calls = 6
	for i := range calls {
		go func() {
			began := time.Now()
			var err error
			if i%2 == 0 {
				_, err = s.Head(t.Context(), "stuck")
			} else {
				_, err = s.Targets(t.Context(), "stuck", []string{"m"})
			}
			ends <- end{time.Since(began), err}
		}()
	}
	for range calls {
		e := <-ends
		if e.err == nil {
			t.Error("answered through a stalled link")
		}
		if e.took > limit+limit/2 {
			t.Errorf("took %s, limit %s", e.took, limit)
		}
	}
	p.Heal()
	testkit.Eventually(t, 20*time.Second, func() error {
		_, err := s.Head(t.Context(), "stuck")
		return err
	})
}
