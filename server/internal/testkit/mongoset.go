package testkit

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/parleyhq/parley/internal/rig"
)

// MongoReplicas is a MongoDB replica set of three members, for one test. Its elections take one to
// two seconds. Members are identified by their index, 0 to 2. Methods that fail end the test.
type MongoReplicas struct {
	tb  testing.TB
	set *rig.Mongo
}

// MongoSet starts a MongoDB replica set of three members. It runs until the test ends.
func MongoSet(tb testing.TB) *MongoReplicas {
	tb.Helper()
	return &MongoReplicas{tb, testMongo(tb, "rs"+strings.ToLower(rand.Text()[:6]), 3).Mongo}
}

// For returns the same set for use in a subtest: failures are reported to tb, because a subtest
// must not end its parent.
func (s *MongoReplicas) For(tb testing.TB) *MongoReplicas { return &MongoReplicas{tb, s.set} }

// URI returns a URI with all members.
func (s *MongoReplicas) URI() string { return s.set.URI() }

// Addr returns the host and port of a member.
func (s *MongoReplicas) Addr(member int) string { return s.set.Addr(member) }

// Primary waits until a majority of the set agrees on a running primary, and returns its index.
func (s *MongoReplicas) Primary() int {
	s.tb.Helper()
	i, err := s.set.Primary(context.Background())
	s.check(err)
	return i
}

// KillPrimary kills the primary as kill -9 does, and returns its index. It does not wait for the
// next primary.
func (s *MongoReplicas) KillPrimary() int {
	s.tb.Helper()
	i := s.Primary()
	s.set.Kill(i)
	return i
}

// StepDown makes the primary step down for 10 seconds, and returns its index.
func (s *MongoReplicas) StepDown() int {
	s.tb.Helper()
	i, err := s.set.StepDown(context.Background())
	s.check(err)
	return i
}

// Stop halts a member with SIGSTOP: its connections stay open and it does not answer.
func (s *MongoReplicas) Stop(member int) {
	s.tb.Helper()
	s.check(s.set.Stop(member))
}

// Cont resumes a member that Stop halted.
func (s *MongoReplicas) Cont(member int) {
	s.tb.Helper()
	s.check(s.set.Cont(member))
}

// Restart starts a killed member on its data, and waits until it answers as a member of the set.
func (s *MongoReplicas) Restart(member int) {
	s.tb.Helper()
	s.check(s.set.Restart(context.Background(), member))
}

// WaitHealthy waits until every member is primary or secondary.
func (s *MongoReplicas) WaitHealthy() {
	s.tb.Helper()
	s.check(s.set.WaitHealthy(context.Background()))
}

func (s *MongoReplicas) check(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatalf("mongod: %v", err)
	}
}
