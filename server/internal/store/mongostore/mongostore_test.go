package mongostore_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
	"github.com/parleyhq/parley/server/internal/store/storetest"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestMain(m *testing.M) {
	// A step takes milliseconds here, so run fewer than for the embedded store, unless the command
	// line says otherwise.
	if err := flag.Set("rapid.checks", "10"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m)
}

// open opens a store and closes it when the test ends.
func open(tb testing.TB, cfg mongostore.Config) *mongostore.Store {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := mongostore.Open(ctx, cfg)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

// openFresh opens a store in its own database on the replica set of one member that tests share.
func openFresh(tb testing.TB) (*mongostore.Store, mongostore.Config) {
	tb.Helper()
	cfg := mongostore.Config{URI: testkit.MongoURI(tb), Database: testkit.MongoDatabase(tb)}
	return open(tb, cfg), cfg
}

func suite(uri string) storetest.Factory {
	return func(t *testing.T) func() message.Store {
		cfg := mongostore.Config{URI: uri, Database: testkit.MongoDatabase(t)}
		return func() message.Store { return open(t, cfg) }
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, suite(testkit.MongoURI(t)))
}

// sends returns n messages of a channel, starting at seq from.
func sends(channel string, from, n int) []message.Entry {
	entries := make([]message.Entry, n)
	for i := range entries {
		seq := int64(from + i)
		entries[i] = message.Entry{Message: message.Message{
			MsgID: fmt.Sprintf("%s-%d", channel, seq), ChannelID: channel, Seq: seq, Count: seq, FromID: "ann",
			MsgType: "text", Content: fmt.Sprintf("text %d", seq), ClientMsgID: fmt.Sprintf("key %d", seq),
			MsgTime: time.UnixMilli(1_700_000_000_000 + seq).UTC(), ChangedSeq: seq,
		}, Digest: []byte{1, 2, 3}}
	}
	return entries
}

func shardOf(s *mongostore.Store, channel string) int {
	return message.Shard(channel, s.Identity().Shards)
}

// insert stores entries of one channel, or fails the test.
func insert(tb testing.TB, s *mongostore.Store, entries []message.Entry) {
	tb.Helper()
	n, err := s.Insert(context.Background(), shardOf(s, entries[0].ChannelID), entries)
	if err != nil || n != len(entries) {
		tb.Fatalf("insert: %d of %d, %v", n, len(entries), err)
	}
}

// wantLog fails the test unless the channel holds exactly these entries.
func wantLog(tb testing.TB, s *mongostore.Store, channel string, want []message.Entry) {
	tb.Helper()
	got, err := s.Entries(context.Background(), channel, message.Range{Limit: len(want) + 10})
	if err != nil {
		tb.Fatalf("entries: %v", err)
	}
	if d := cmp.Diff(want, got); d != "" {
		tb.Fatalf("log of %s (-want +got):\n%s", channel, d)
	}
}

func TestOpenRefusesAStandaloneServer(t *testing.T) {
	t.Parallel()
	s, err := mongostore.Open(t.Context(), mongostore.Config{
		URI: testkit.MongoStandalone(t), Database: "parley", Timeout: 30 * time.Second,
	})
	if err == nil {
		_ = s.Close(t.Context())
		t.Fatal("opened")
	}
	if !strings.Contains(err.Error(), "replica set") {
		t.Fatalf("error does not say why: %v", err)
	}
}

func TestOpenRefusesAnotherNumberOfShards(t *testing.T) {
	t.Parallel()
	cfg := mongostore.Config{URI: testkit.MongoURI(t), Database: testkit.MongoDatabase(t), Shards: 3}
	if got := open(t, cfg).Identity().Shards; got != 3 {
		t.Fatalf("made %d shards, want 3", got)
	}
	cfg.Shards = 5
	s, err := mongostore.Open(t.Context(), cfg)
	if err == nil {
		_ = s.Close(t.Context())
		t.Fatal("opened")
	}
	if !strings.Contains(err.Error(), "3 shards") || !strings.Contains(err.Error(), "to 5: set shards: 3, or PARLEY_SHARDS=3") {
		t.Fatalf("error does not name both numbers: %v", err)
	}
	cfg.Shards = 0
	if got := open(t, cfg).Identity().Shards; got != 3 {
		t.Fatalf("opened with %d shards, want the store's 3", got)
	}
}

// TestOpenRefusesAnotherFormat checks that Open converts a store of the format before, and refuses
// one of another format, or without one, as the first format was.
func TestOpenRefusesAnotherFormat(t *testing.T) {
	t.Parallel()
	cfg := mongostore.Config{URI: testkit.MongoURI(t), Database: testkit.MongoDatabase(t)}
	open(t, cfg)
	client, err := mongo.Connect(options.Client().ApplyURI(cfg.URI))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) }()
	meta := client.Database(cfg.Database).Collection("meta")
	reopen := func(change bson.D) error {
		t.Helper()
		if res, err := meta.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "identity"}}, change); err != nil || res.ModifiedCount != 1 {
			t.Fatalf("%+v, %v", res, err)
		}
		s, err := mongostore.Open(t.Context(), cfg)
		if err == nil {
			err = s.Close(t.Context())
		}
		return err
	}
	err = reopen(bson.D{{Key: "$set", Value: bson.D{{Key: "format", Value: 4}}}})
	if err == nil || !strings.Contains(err.Error(), "has format 4 and this parleyd reads format 3") {
		t.Errorf("a store of another format: %v", err)
	}
	older := client.Database(cfg.Database).Collection("messages_0")
	for _, name := range []string{"sender", "open"} {
		if err := older.Indexes().DropOne(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	olderKey := mongo.IndexModel{
		Keys:    bson.D{{Key: "channel_id", Value: 1}, {Key: "client_msg_id", Value: 1}, {Key: "from_id", Value: 1}},
		Options: options.Index().SetName("client_msg_id").SetUnique(true),
	}
	if _, err := older.Indexes().CreateOne(t.Context(), olderKey); err != nil {
		t.Fatal(err)
	}
	if err = reopen(bson.D{
		{Key: "$set", Value: bson.D{{Key: "format", Value: 2}}}, {Key: "$rename", Value: bson.D{{Key: "shards", Value: "buckets"}}},
	}); err != nil {
		t.Errorf("a store of the format before: %v", err)
	}
	var row struct{ Format int }
	if err := meta.FindOne(t.Context(), bson.D{{Key: "_id", Value: "identity"}}).Decode(&row); err != nil || row.Format != 3 {
		t.Errorf("after it was opened it has format %d, %v", row.Format, err)
	}
	indexes, err := older.Indexes().ListSpecifications(t.Context())
	has := func(name string) bool {
		return slices.ContainsFunc(indexes, func(index mongo.IndexSpecification) bool { return index.Name == name })
	}
	if err != nil || !has("sender") || !has("open") || has("client_msg_id") {
		t.Errorf("after it was opened it has the indexes %v, %v", indexes, err)
	}
	err = reopen(bson.D{{Key: "$unset", Value: bson.D{{Key: "format", Value: ""}}}})
	if err == nil || !strings.Contains(err.Error(), "has format 1 and this parleyd reads format 3") {
		t.Errorf("a store without a format: %v", err)
	}
}

func TestNodesThatOpenTogetherShareOneIdentity(t *testing.T) {
	t.Parallel()
	cfg := mongostore.Config{URI: testkit.MongoURI(t), Database: testkit.MongoDatabase(t)}
	stores := make([]*mongostore.Store, 4)
	var g errgroup.Group
	for i := range stores {
		g.Go(func() (err error) {
			stores[i], err = mongostore.Open(t.Context(), cfg)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("open: %v", err)
	}
	for _, s := range stores {
		if d := cmp.Diff(stores[0].Identity(), s.Identity()); d != "" {
			t.Errorf("identities differ:\n%s", d)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if id := stores[0].Identity(); len(id.Epoch) != 16 || id.Shards != mongostore.DefaultShards {
		t.Errorf("identity %+v", id)
	}
}

func TestEntryFieldNames(t *testing.T) {
	t.Parallel()
	s, cfg := openFresh(t)
	log := sends("names", 1, 1)
	insert(t, s, log)
	var row bson.M
	err := testkit.MongoClient(t, cfg.URI).Database(cfg.Database).
		Collection(fmt.Sprintf("messages_%d", shardOf(s, "names"))).FindOne(t.Context(), bson.M{}).Decode(&row)
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"_id": "names-1", "msg_id": "names-1", "seq": int64(1), "channel_id": "names", "content": "text 1",
		"from_id": "ann", "msg_type": "text", "msg_time": bson.NewDateTimeFromTime(log[0].MsgTime), "status": int32(0),
	} {
		if d := cmp.Diff(want, row[field]); d != "" {
			t.Errorf("%s (-want +got):\n%s", field, d)
		}
	}
	if ts, ok := row["ts"].(bson.Timestamp); !ok || time.Since(time.Unix(int64(ts.T), 0)).Abs() > time.Minute {
		t.Errorf("ts is %v, want the server's time", row["ts"])
	}
}

func TestRecalledTextIsRemovedFromTheStore(t *testing.T) {
	t.Parallel()
	s, cfg := openFresh(t)
	log := sends("recall", 1, 1)
	log[0].Content, log[0].Metadata = "the secret", map[string]string{"k": "the secret"}
	edit := sends("recall", 2, 1)[0]
	edit.Kind, edit.TargetSeq, edit.MsgID, edit.Content = message.KindEdit, 1, log[0].MsgID, "the secret again"
	recall := sends("recall", 3, 1)[0]
	recall.Kind, recall.TargetSeq, recall.MsgID, recall.Content = message.KindRecall, 1, log[0].MsgID, ""
	insert(t, s, slices.Concat(log, []message.Entry{edit, recall}))
	for _, e := range []message.Entry{edit, recall, edit} {
		if err := s.Apply(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
	cursor, err := testkit.MongoClient(t, cfg.URI).Database(cfg.Database).
		Collection(fmt.Sprintf("messages_%d", shardOf(s, "recall"))).Find(t.Context(), bson.M{})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for cursor.Next(t.Context()) {
		rows++
		if strings.Contains(cursor.Current.String(), "secret") {
			t.Errorf("the text is still there: %s", cursor.Current)
		}
		// The digest of an edit means nothing without that of its message.
		if _, err := cursor.Current.LookupErr("digest"); err == nil && cursor.Current.Lookup("kind").AsInt64() == 0 {
			t.Errorf("a digest is still there: %s", cursor.Current)
		}
	}
	if err := cursor.Err(); err != nil || rows != 3 {
		t.Fatalf("%d rows, %v", rows, err)
	}
}
