package mongostore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// bed is a store in a database of its own, and the channel and shard whose feed a test reads.
type bed struct {
	*mongostore.Store
	cfg     mongostore.Config
	db      *mongo.Database
	channel string
	shard   int
}

func newBed(t *testing.T, uri, channel string) *bed {
	t.Helper()
	cfg := mongostore.Config{URI: uri, Database: testkit.MongoDatabase(t)}
	s := open(t, cfg)
	return &bed{
		Store: s, cfg: cfg, db: testkit.MongoClient(t, uri).Database(cfg.Database), channel: channel,
		shard: shardOf(s, channel),
	}
}

func (b *bed) feed(t *testing.T) message.Feed {
	t.Helper()
	f, err := b.OpenFeed(t.Context(), b.shard)
	if err != nil {
		t.Fatalf("open feed: %v", err)
	}
	t.Cleanup(func() { _ = f.Close(context.Background()) })
	return f
}

// row returns the shard's saved position.
func (b *bed) row(t *testing.T) (row struct {
	Time  bson.Timestamp `bson:"cluster_time"`
	Token bson.Raw       `bson:"token"`
},
) {
	t.Helper()
	err := b.db.Collection("feeds").FindOne(t.Context(), bson.D{{Key: "_id", Value: b.shard}}).Decode(&row)
	if err != nil {
		t.Fatalf("position: %v", err)
	}
	return row
}

// setRow changes the shard's saved position directly in the database.
func (b *bed) setRow(t *testing.T, update bson.D) {
	t.Helper()
	r, err := b.db.Collection("feeds").UpdateByID(t.Context(), b.shard, update)
	if err != nil || r.MatchedCount != 1 {
		t.Fatalf("change position: %v, %v", r, err)
	}
}

// readTo reads until the feed has returned seq, and returns the first delivery of each entry. It
// fails the test if a seq is skipped.
func readTo(t *testing.T, f message.Feed, after, seq int64) (first []message.Entry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for last := after; last < seq; {
		entries, err := f.Next(ctx, 10)
		if err != nil {
			t.Fatalf("next after %d: %v", last, err)
		}
		for _, e := range entries {
			if e.Seq > last+1 {
				t.Fatalf("feed skipped from %d to %d", last, e.Seq)
			}
			if e.Seq == last+1 {
				first, last = append(first, e), e.Seq
			}
		}
	}
	return first
}

func published(t *testing.T, f message.Feed) {
	t.Helper()
	if err := f.Published(t.Context()); err != nil {
		t.Fatalf("published: %v", err)
	}
}

func TestPositionIsSavedAfterPublish(t *testing.T) {
	t.Parallel()
	b := newBed(t, testkit.MongoURI(t), "saved")
	f := b.feed(t)
	start := b.row(t)
	if start.Time.IsZero() || start.Token != nil {
		t.Fatalf("first position %+v, want the cluster's time", start)
	}
	insert(t, b.Store, sends(b.channel, 1, 20))
	readTo(t, f, 0, 20)
	// A second round trip through the feed, which would give a premature save enough time.
	insert(t, b.Store, sends(b.channel, 21, 1))
	readTo(t, f, 20, 21)
	<-time.After(500 * time.Millisecond)
	if d := cmp.Diff(start, b.row(t)); d != "" {
		t.Fatalf("position moved before Published:\n%s", d)
	}
	published(t, f)
	testkit.Eventually(t, 5*time.Second, func() error {
		if b.row(t).Token == nil {
			return errors.New("position not saved")
		}
		return nil
	})
	// The first feed is still open, as if its node had been killed.
	again := b.feed(t)
	insert(t, b.Store, sends(b.channel, 22, 1))
	readTo(t, again, 21, 22)
}

func TestPositionNeverGoesBack(t *testing.T) {
	t.Parallel()
	b := newBed(t, testkit.MongoURI(t), "forward")
	slow, fast := b.feed(t), b.feed(t)
	insert(t, b.Store, sends(b.channel, 1, 10))
	readTo(t, slow, 0, 10)
	insert(t, b.Store, sends(b.channel, 11, 10))
	readTo(t, fast, 0, 20)
	published(t, fast)
	if err := fast.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := b.row(t)
	published(t, slow)
	if err := slow.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, b.row(t)); d != "" {
		t.Fatalf("position went back:\n%s", d)
	}
}

func TestIdleFeedMovesItsPosition(t *testing.T) {
	t.Parallel()
	b := newBed(t, testkit.MongoURI(t), "idle")
	f := b.feed(t)
	start := b.row(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := f.Next(ctx, 1)
		done <- err
	}()
	testkit.Eventually(t, 40*time.Second, func() error {
		if row := b.row(t); row.Token == nil || !row.Time.After(start.Time) {
			return errors.New("an idle feed's position stays")
		}
		return nil
	})
	if waited := time.Now().Unix() - int64(start.Time.T); waited < 8 {
		t.Errorf("saved after %d s, want 10: an idle feed should cost no writes", waited)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("next: %v", err)
	}
	insert(t, b.Store, sends(b.channel, 1, 3))
	readTo(t, b.feed(t), 0, 3)
}

func TestOpenFeedSurvivesErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	for _, code := range []int{286, 280, 11601} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			app := fmt.Sprintf("feed%d", code)
			b := newBed(t, ownURI(t, app), "errors")
			f := b.feed(t)
			insert(t, b.Store, sends(b.channel, 1, 3))
			readTo(t, f, 0, 3)
			data := bson.D{
				{Key: "failCommands", Value: bson.A{"getMore"}}, {Key: "errorCode", Value: code},
			}
			if code != 11601 {
				data = append(data, bson.E{Key: "errorLabels", Value: bson.A{"NonResumableChangeStreamError"}})
			}
			lift := failCommand(t, app, bson.D{{Key: "times", Value: 2}}, data)
			insert(t, b.Store, sends(b.channel, 4, 7))
			readTo(t, f, 3, 10)
			lift()
			published(t, f)
			insert(t, b.Store, sends(b.channel, 11, 2))
			readTo(t, f, 10, 12)
		})
	}
}

func TestFeedSurvivesTheRemovalOfItsCollection(t *testing.T) {
	t.Parallel()
	b := newBed(t, testkit.MongoURI(t), "dropped")
	f := b.feed(t)
	insert(t, b.Store, sends(b.channel, 1, 5))
	readTo(t, f, 0, 5)
	if err := b.db.Collection(fmt.Sprintf("messages_%d", b.shard)).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Store = open(t, b.cfg)
	insert(t, b.Store, sends(b.channel, 1, 8))
	readTo(t, f, 5, 8)
}

func TestFeedSurvivesCutAndStalledLinks(t *testing.T) {
	t.Parallel()
	p := testkit.NewProxy(t, "tcp", testkit.MongoAddr(t))
	b := newBed(t, testkit.MongoURI(t), "links")
	far := open(t, mongostore.Config{
		URI: "mongodb://" + p.Addr() + "/?directConnection=true", Database: b.cfg.Database, Timeout: 3 * time.Second,
	})
	f, err := far.OpenFeed(t.Context(), b.shard)
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	more := func() {
		insert(t, b.Store, sends(b.channel, last+1, 5))
		last += 5
	}
	more()
	readTo(t, f, 0, 5)
	for _, fault := range []func(){p.Cut, p.Stall} {
		fault()
		more()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if entries, err := f.Next(ctx, 10); err == nil {
			t.Errorf("next through a broken link: %d entries", len(entries))
		}
		cancel()
		p.Heal()
		more()
		readTo(t, f, int64(last-10), int64(last))
		published(t, f)
	}
}

func TestTokenTimeIsTheEventsClusterTime(t *testing.T) {
	t.Parallel()
	b := newBed(t, testkit.MongoURI(t), "token")
	stream, err := b.db.Collection(fmt.Sprintf("messages_%d", b.shard)).Watch(t.Context(), mongo.Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close(context.Background()) }()
	insert(t, b.Store, sends(b.channel, 1, 3))
	for range 3 {
		if !stream.Next(t.Context()) {
			t.Fatal(stream.Err())
		}
		sec, inc := stream.Current.Lookup("clusterTime").Timestamp()
		at, ok := mongostore.TokenTime(stream.Current.Lookup("_id").Document())
		if want := (bson.Timestamp{T: sec, I: inc}); !ok || at != want {
			t.Errorf("token's time is %v, %v; the event's %v", at, ok, want)
		}
	}
	more := true
	for more { // to the end of the stream, whose token has no event
		more = stream.RemainingBatchLength() > 0 || stream.TryNext(t.Context())
	}
	if at, ok := mongostore.TokenTime(stream.ResumeToken()); !ok || time.Since(time.Unix(int64(at.T), 0)).Abs() > time.Minute {
		t.Errorf("time of a token without event: %v, %v", at, ok)
	}
	for _, data := range []string{"", "82", "not hex, but long enough", "92" + "0123456789abcdef"} {
		raw, err := bson.Marshal(bson.D{{Key: "_data", Value: data}})
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := mongostore.TokenTime(raw); ok {
			t.Errorf("token %q has time %v", data, at)
		}
	}
}
