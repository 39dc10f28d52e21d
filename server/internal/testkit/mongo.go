package testkit

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/internal/rig"
)

// sharedMongo starts the one server that all tests of the process share. It ends with the process.
var sharedMongo = sync.OnceValues(func() (*mongod, error) {
	return startMongo(1, rig.MongoConfig{ReplicaSet: "rs0", Unwatched: true}) // a goroutine that waits would count as a leak
})

// mongod is a running replica set or server, and its directory.
type mongod struct {
	*rig.Mongo

	dir string
}

// startMongo starts a number of members in a new directory.
func startMongo(members int, c rig.MongoConfig) (*mongod, error) {
	dir, err := rig.TempDir("mongo")
	if err != nil {
		return nil, err
	}
	c.Dir = dir
	if c.Addrs, err = rig.FreeAddrs(members); err != nil {
		return nil, err
	}
	m, err := rig.StartMongo(context.Background(), c)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &mongod{m, dir}, nil
}

// testMongo calls startMongo for one test and stops the members when the test ends.
func testMongo(tb testing.TB, set string, members int, args ...string) *mongod {
	tb.Helper()
	m, err := startMongo(members, rig.MongoConfig{ReplicaSet: set, Args: args})
	if err != nil {
		tb.Fatalf("mongod: %v", err)
	}
	tb.Cleanup(func() {
		m.Close()
		if err := os.RemoveAll(m.dir); err != nil {
			tb.Errorf("remove mongod's directory: %v", err)
		}
	})
	return m
}

// MongoURI returns the URI of a replica set that all tests of the process share: the value of
// MONGO_URI, or else a set with one member that the first call starts.
func MongoURI(tb testing.TB) string {
	tb.Helper()
	if uri := os.Getenv("MONGO_URI"); uri != "" {
		return uri
	}
	return "mongodb://" + MongoAddr(tb) + "/?replicaSet=rs0"
}

// MongoAddr returns the host and port of the one-member set that this process starts for all its
// tests, for a Proxy in front of it. It ignores MONGO_URI.
func MongoAddr(tb testing.TB) string {
	tb.Helper()
	m, err := sharedMongo()
	if err != nil {
		tb.Fatalf("mongod: %v", err)
	}
	return m.Addr(0)
}

// MongoSmallOplog starts a one-member set with an oplog of one megabyte, and returns its URI. The
// set runs until the test ends.
func MongoSmallOplog(tb testing.TB) string {
	tb.Helper()
	return testMongo(tb, "rs0", 1, "--oplogSize", "1", "--syncdelay", "1").URI()
}

// MongoStandalone starts a server without a replica set, and returns its URI. The server runs until
// the test ends.
func MongoStandalone(tb testing.TB) string {
	tb.Helper()
	return testMongo(tb, "", 1).URI()
}

// MongoDatabase returns the name of a database that no other test uses.
func MongoDatabase(tb testing.TB) string {
	tb.Helper()
	return "t_" + strings.ToLower(rand.Text()[:16])
}

// MongoClient returns a client of uri with the driver's defaults. It is closed when the test ends.
func MongoClient(tb testing.TB, uri string) *mongo.Client {
	tb.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		tb.Fatalf("connect to mongod: %v", err)
	}
	tb.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}
