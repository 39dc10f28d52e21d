package testkit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// MongoReplicas is a replica set of three, of one test. Its elections take one to two seconds. Members are named by their
// index, 0 to 2. Its methods fail the test when they can't do what they say.
type MongoReplicas struct {
	tb      testing.TB
	name    string
	members []*mongod
}

// MongoSet starts a replica set of three that lives until the test ends.
func MongoSet(tb testing.TB) *MongoReplicas {
	tb.Helper()
	s := &MongoReplicas{tb: tb, name: "rs" + strings.ToLower(rand.Text()[:6])}
	tb.Cleanup(func() {
		for _, m := range s.members {
			if err := m.remove(); err != nil {
				tb.Errorf("remove mongod: %v", err)
			}
		}
	})
	for range 3 {
		m, err := newMongod(s.name)
		if err != nil {
			tb.Fatalf("mongod: %v", err)
		}
		s.members = append(s.members, m)
		if err := m.start(); err != nil {
			tb.Fatalf("mongod: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), mongoTimeout)
	defer cancel()
	if err := initiate(ctx, s.name, s.members); err != nil {
		tb.Fatalf("mongod: %v", err)
	}
	// The others copy the primary's data first, and until then none of them can take its place.
	s.WaitHealthy()
	return s
}

// For gives the same set with failures that are tb's: a subtest must not end its parent.
func (s *MongoReplicas) For(tb testing.TB) *MongoReplicas {
	return &MongoReplicas{tb: tb, name: s.name, members: s.members}
}

// URI names all members.
func (s *MongoReplicas) URI() string {
	addrs := make([]string, len(s.members))
	for i, m := range s.members {
		addrs[i] = m.addr
	}
	return "mongodb://" + strings.Join(addrs, ",") + "/?replicaSet=" + s.name
}

// Addr is a member's host and port.
func (s *MongoReplicas) Addr(member int) string { return s.members[member].addr }

// Primary waits until a majority of the set agrees on a running primary and gives its index.
func (s *MongoReplicas) Primary() int {
	s.tb.Helper()
	primary := -1
	Eventually(s.tb, mongoTimeout, func() error {
		votes := make(map[string]int)
		for i, m := range s.members {
			h, err := memberState(context.Background(), m)
			if err != nil {
				continue
			}
			votes[h.Primary]++
			if h.Writable {
				primary = i
			}
		}
		if primary < 0 {
			return errors.New("no member is primary")
		}
		if addr := s.members[primary].addr; votes[addr] < 2 {
			return fmt.Errorf("%d members say that %s is primary", votes[addr], addr)
		}
		return nil
	})
	return primary
}

// KillPrimary ends the primary as kill -9 does and gives its index, without waiting for the next primary.
func (s *MongoReplicas) KillPrimary() int {
	s.tb.Helper()
	i := s.Primary()
	if err := s.members[i].kill(); err != nil {
		s.tb.Fatalf("kill mongod: %v", err)
	}
	return i
}

// StepDown makes the primary step down for 10 seconds, and gives its index.
func (s *MongoReplicas) StepDown() int {
	s.tb.Helper()
	i := s.Primary()
	client, err := directClient(s.members[i].addr)
	if err != nil {
		s.tb.Fatalf("connect: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), mongoTimeout)
	defer cancel()
	defer func() { _ = client.Disconnect(ctx) }()
	err = client.Database("admin").RunCommand(ctx, bson.D{
		{Key: "replSetStepDown", Value: 10}, {Key: "secondaryCatchUpPeriodSecs", Value: 5}, {Key: "force", Value: true},
	}).Err()
	if err != nil {
		s.tb.Fatalf("step down: %v", err)
	}
	return i
}

// Stop halts a member with SIGSTOP: its connections stay and nothing answers.
func (s *MongoReplicas) Stop(member int) { s.signal(member, syscall.SIGSTOP) }

// Cont lets a member run on.
func (s *MongoReplicas) Cont(member int) { s.signal(member, syscall.SIGCONT) }

func (s *MongoReplicas) signal(member int, sig syscall.Signal) {
	s.tb.Helper()
	if err := s.members[member].signal(sig); err != nil {
		s.tb.Fatalf("signal mongod: %v", err)
	}
}

// Restart starts a killed member over its data and waits until it answers as a part of the set.
func (s *MongoReplicas) Restart(member int) {
	s.tb.Helper()
	m := s.members[member]
	if err := m.start(); err != nil {
		s.tb.Fatalf("restart mongod: %v", err)
	}
	Eventually(s.tb, mongoTimeout, func() error {
		h, err := memberState(context.Background(), m)
		if err == nil && h.Primary == "" {
			err = errors.New("it knows no primary")
		}
		return err
	})
}

// WaitHealthy waits until every member is primary or secondary.
func (s *MongoReplicas) WaitHealthy() {
	s.tb.Helper()
	primary := s.Primary()
	client, err := directClient(s.members[primary].addr)
	if err != nil {
		s.tb.Fatalf("connect: %v", err)
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	Eventually(s.tb, mongoTimeout, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var status struct {
			Members []struct {
				Name  string `bson:"name"`
				State int    `bson:"state"`
			} `bson:"members"`
		}
		err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "replSetGetStatus", Value: 1}}).Decode(&status)
		if err != nil {
			return err
		}
		for _, m := range status.Members {
			if m.State != 1 && m.State != 2 {
				return fmt.Errorf("%s is in state %d", m.Name, m.State)
			}
		}
		return nil
	})
}
