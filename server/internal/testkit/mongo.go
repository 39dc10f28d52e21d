package testkit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// mongoTimeout bounds each wait for a server of the kit.
const mongoTimeout = 60 * time.Second

// sharedMongo is the test process's one server; it ends with the process.
var sharedMongo = sync.OnceValues(func() (*mongod, error) { return startSetOfOne() })

func startSetOfOne(more ...string) (*mongod, error) {
	m, err := newMongod("rs0")
	if err != nil {
		return nil, err
	}
	m.more = more
	if err := m.start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), mongoTimeout)
	defer cancel()
	if err := initiate(ctx, "rs0", []*mongod{m}); err != nil {
		return nil, errors.Join(err, m.remove())
	}
	return m, nil
}

// MongoURI gives the URI of a replica set that all tests of the process share: what MONGO_URI names, or else a set of one
// that the first call starts.
func MongoURI(tb testing.TB) string {
	tb.Helper()
	if uri := os.Getenv("MONGO_URI"); uri != "" {
		return uri
	}
	return "mongodb://" + MongoAddr(tb) + "/?replicaSet=rs0"
}

// MongoAddr gives host and port of the process's own set of one, for a Proxy in front of it.
func MongoAddr(tb testing.TB) string {
	tb.Helper()
	m, err := sharedMongo()
	if err != nil {
		tb.Fatalf("mongod: %v", err)
	}
	return m.addr
}

// MongoSmallOplog starts a set of one that lives until the test ends and whose oplog keeps a megabyte, and gives its URI.
func MongoSmallOplog(tb testing.TB) string {
	tb.Helper()
	m, err := startSetOfOne("--oplogSize", "1", "--syncdelay", "1")
	if err != nil {
		tb.Fatalf("mongod: %v", err)
	}
	tb.Cleanup(func() { _ = m.remove() })
	return "mongodb://" + m.addr + "/?replicaSet=rs0"
}

// MongoStandalone starts a server that is in no replica set and lives until the test ends, and gives its URI.
func MongoStandalone(tb testing.TB) string {
	tb.Helper()
	m, err := newMongod("")
	if err != nil {
		tb.Fatalf("mongod: %v", err)
	}
	tb.Cleanup(func() { _ = m.remove() })
	if err := m.start(); err != nil {
		tb.Fatalf("mongod: %v", err)
	}
	return "mongodb://" + m.addr + "/"
}

// MongoDatabase gives the name of a database that no other test uses.
func MongoDatabase(tb testing.TB) string {
	tb.Helper()
	return "t_" + strings.ToLower(rand.Text()[:16])
}

// MongoClient connects to uri with the driver's defaults until the test ends.
func MongoClient(tb testing.TB, uri string) *mongo.Client {
	tb.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		tb.Fatalf("connect to mongod: %v", err)
	}
	tb.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}

// initiate makes a replica set of running members and waits until one is primary.
func initiate(ctx context.Context, name string, members []*mongod) error {
	list := make(bson.A, len(members))
	for i, m := range members {
		list[i] = bson.D{{Key: "_id", Value: i}, {Key: "host", Value: m.addr}}
	}
	config := bson.D{
		{Key: "_id", Value: name},
		{Key: "members", Value: list},
		{Key: "settings", Value: bson.D{
			{Key: "electionTimeoutMillis", Value: 1000}, {Key: "heartbeatIntervalMillis", Value: 250},
		}},
	}
	for _, m := range members {
		err := poll(ctx, func() bool {
			_, err := memberState(ctx, m)
			return err == nil
		})
		if err != nil {
			return fmt.Errorf("mongod does not answer: %w; %s", err, m.logTail())
		}
	}
	client, err := directClient(members[0].addr)
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	admin := client.Database("admin")
	if err := admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: config}}).Err(); err != nil {
		return fmt.Errorf("replSetInitiate: %w; %s", err, members[0].logTail())
	}
	err = poll(ctx, func() bool {
		for _, m := range members {
			if state, err := memberState(ctx, m); err == nil && state.Writable {
				return true
			}
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("no primary: %w; %s", err, members[0].logTail())
	}
	return nil
}

// poll calls check until it is true or ctx ends.
func poll(ctx context.Context, check func() bool) error {
	for !check() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// hello is what a member says of itself.
type hello struct {
	Writable bool   `bson:"isWritablePrimary"`
	Primary  string `bson:"primary"`
}

// memberState asks one member, within a second.
func memberState(ctx context.Context, m *mongod) (hello, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var h hello
	client, err := directClient(m.addr)
	if err != nil {
		return h, err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	err = client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h)
	return h, err
}

func directClient(addr string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().SetHosts([]string{addr}).SetDirect(true).
		SetServerSelectionTimeout(mongoTimeout))
}
