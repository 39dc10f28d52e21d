package mongostore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestLostPositionIsRecoveredFromTheStore(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, b *bed){
		"TokenUnreadable": func(t *testing.T, b *bed) {
			b.setRow(t, bson.D{{Key: "$set", Value: bson.D{
				{Key: "token", Value: bson.D{{Key: "_data", Value: "8263"}}},
			}}})
		},
		// An entry gets its ts before its place in the oplog. Here all entries' ts are well before the
		// feed's saved position.
		"EntriesOlderThanThePlace": func(t *testing.T, b *bed) {
			b.setRow(t, bson.D{{Key: "$set", Value: bson.D{
				{Key: "cluster_time", Value: bson.Timestamp{T: b.row(t).Time.T + 60}},
				{Key: "token", Value: bson.D{{Key: "_data", Value: "8263"}}},
			}}})
		},
		"RowRemoved": func(t *testing.T, b *bed) {
			if _, err := b.db.Collection("feeds").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: b.shard}}); err != nil {
				t.Fatal(err)
			}
			b.Store = open(t, b.cfg) // which creates the row again
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, testkit.MongoURI(t), "lost")
			insert(t, b.Store, sends(b.channel, 1, 30))
			spoil(t, b)
			wantWholeLog(t, b)
		})
	}
}

// wantWholeLog fails the test unless a new feed returns the 30 existing entries, none of them
// published, and later ones, and has a valid position again once all are published.
func wantWholeLog(t *testing.T, b *bed) {
	t.Helper()
	f := b.feed(t)
	if d := cmp.Diff(sends(b.channel, 1, 10), readTo(t, f, 0, 10)); d != "" {
		t.Errorf("feed (-want +got):\n%s", d)
	}
	insert(t, b.Store, sends(b.channel, 31, 5))
	readTo(t, f, 10, 35)
	published(t, f)
	// After reading the whole store, the feed is on the stream and gets new entries from there.
	idle, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if entries, err := f.Next(idle, 10); err == nil && entries[len(entries)-1].Seq > 35 {
		t.Fatalf("next returned %d, 35 are stored", entries[len(entries)-1].Seq)
	}
	insert(t, b.Store, sends(b.channel, 36, 5))
	readTo(t, f, 35, 40)
	published(t, f)
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if row := b.row(t); row.Time.T < uint32(time.Now().Add(-time.Minute).Unix()) {
		t.Fatalf("position is %v after all was published", row.Time)
	}
	insert(t, b.Store, sends(b.channel, 41, 1))
	readTo(t, b.feed(t), 40, 41)
}

// rollOplog writes until the server's small oplog no longer contains the shard's saved position.
func rollOplog(t *testing.T, b *bed) {
	t.Helper()
	row := b.row(t)
	opts := options.ChangeStream().SetStartAtOperationTime(&row.Time)
	if row.Token != nil {
		opts = options.ChangeStream().SetStartAfter(row.Token)
	}
	junk := bson.D{{Key: "junk", Value: strings.Repeat("x", 1<<20)}}
	testkit.Eventually(t, time.Minute, func() error {
		if _, err := b.db.Collection("junk").InsertOne(t.Context(), junk); err != nil {
			t.Fatal(err)
		}
		stream, err := b.db.Collection("messages_0").Watch(t.Context(), mongo.Pipeline{}, opts)
		if err == nil {
			return errors.Join(errors.New("the oplog still has it"), stream.Close(t.Context()))
		}
		var failed mongo.CommandError
		if !errors.As(err, &failed) || failed.Code != 286 {
			t.Fatalf("watch: %v, want ChangeStreamHistoryLost", err)
		}
		return nil
	})
}

func TestFeedBehindTheOplogReturnsEveryEntry(t *testing.T) {
	t.Parallel()
	uri := testkit.MongoSmallOplog(t)
	b := newBed(t, uri, "short")
	insert(t, b.Store, sends(b.channel, 1, 30))
	open := b.feed(t)
	first, err := open.Next(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	// Nobody reads this shard's feed for longer than the oplog lasts.
	rollOplog(t, b)
	wantWholeLog(t, b)
	// A slow feed that was open all the time has lost its position as well.
	last := first[len(first)-1].Seq
	readTo(t, open, last, 41)

	// A saved position, and the entries after it.
	f := b.feed(t)
	readTo(t, f, 40, 41)
	published(t, f)
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert(t, b.Store, sends(b.channel, 42, 200))
	rollOplog(t, b)
	f = b.feed(t)
	before := b.row(t)
	if _, err := f.Next(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	published(t, f)
	<-time.After(500 * time.Millisecond)
	if d := cmp.Diff(before, b.row(t)); d != "" {
		t.Errorf("position moved while the store was read:\n%s", d)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	readTo(t, b.feed(t), 41, 241)
}
