// Package storetest is the contract suite of message.Store, with a test for each promise of the
// interface's comments. Only tests import it.
package storetest

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parleyhq/parley/server/internal/message"
)

// Factory creates a new, empty place, such as a directory or a database, for a store of four
// shards. open opens the store there; after that store was closed, it opens the same place again.
// Places must not share anything, because the suite uses the same channels in each.
type Factory func(t *testing.T) (open func() message.Store)

// shards is the number of shards of a place's store.
const shards = 4

// patience bounds the suite's waits for expected events.
const patience = 30 * time.Second

// Run tests the stores that f creates against the contract, in parallel subtests.
func Run(t *testing.T, f Factory) {
	for _, group := range [][]contract{
		insertContracts, headContracts, changeContracts, rangeContracts, lookupContracts, feedContracts,
		identityContracts, concurrentContracts, accessContracts, eraseContracts,
	} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.check(t, newFixture(t, f(t)))
			})
		}
	}
}

type contract struct {
	name  string
	check func(t *testing.T, p *fixture)
}

// fixture is the store of one test. open opens it again at the same place after it was closed.
type fixture struct {
	message.Store
	open func() message.Store
}

func newFixture(t *testing.T, open func() message.Store) *fixture {
	t.Helper()
	p := &fixture{open: open, Store: open()}
	t.Cleanup(func() {
		if p.Store == nil {
			return
		}
		// The test's own context has already ended here.
		if err := p.Store.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Logf("close: %v", err)
		}
	})
	return p
}

// reopen closes the store and opens it again at the same place.
func (p *fixture) reopen(t tester) {
	t.Helper()
	err := p.Store.Close(t.Context())
	p.Store = nil
	if err != nil {
		t.Fatalf("close: %v", err)
	}
	p.Store = p.open()
}

// insert inserts entries and fails the test if any is refused.
func (p *fixture) insert(t tester, entries ...message.Entry) {
	t.Helper()
	n, err := p.Insert(t.Context(), message.Shard(entries[0].ChannelID, shards), entries)
	if err != nil || n != len(entries) {
		t.Fatalf("insert: %d of %d, %v", n, len(entries), err)
	}
}

// apply applies changes and fails the test if any is refused.
func (p *fixture) apply(t tester, changes ...message.Entry) {
	t.Helper()
	for i := range changes {
		if err := p.Apply(t.Context(), &changes[i]); err != nil {
			t.Fatalf("apply %s of %d: %v", changes[i].Kind.Name(), changes[i].TargetSeq, err)
		}
	}
}

// head returns a channel's Head, the end of its log, or fails the test.
func (p *fixture) head(t tester, channelID string) message.Head {
	t.Helper()
	h, err := p.Head(t.Context(), channelID)
	if err != nil {
		t.Fatalf("head of %s: %v", channelID, err)
	}
	return h
}

// entries reads a range of a channel's log, after waiting for Entries to return the log's end.
func (p *fixture) entries(t tester, channelID string, r message.Range) []message.Entry {
	t.Helper()
	p.settle(t, channelID)
	return p.settled(t, channelID, r)
}

// settled reads a range of a channel's log, for which the caller has called settle. It fails the
// test if a time is not in UTC.
func (p *fixture) settled(t tester, channelID string, r message.Range) []message.Entry {
	t.Helper()
	got, err := p.Entries(t.Context(), channelID, r)
	if err != nil {
		t.Fatalf("entries %+v of %s: %v", r, channelID, err)
	}
	for i := range got {
		if loc := got[i].MsgTime.Location(); loc != time.UTC {
			t.Fatalf("msg_time of entry %d is in %s, want UTC", got[i].Seq, loc)
		}
	}
	return got
}

// settle waits until Entries returns the log's end, because it may lag behind.
func (p *fixture) settle(t tester, channelID string) {
	t.Helper()
	h := p.head(t, channelID)
	if h.Seq == 0 {
		return
	}
	deadline := time.Now().Add(patience)
	for {
		got, err := p.Entries(t.Context(), channelID, message.Range{After: h.Seq - 1, Limit: 1})
		if err != nil {
			t.Fatalf("entries of %s: %v", channelID, err)
		}
		if len(got) == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("entries of %s do not reach the head %d", channelID, h.Seq)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// all reads a whole log, in ascending order.
func (p *fixture) all(t tester, channelID string) []message.Entry {
	t.Helper()
	return p.entries(t, channelID, message.Range{Limit: 1 << 20})
}

// tester is the part of *testing.T and *rapid.T that the suite uses.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
	Context() context.Context
}

// equal fails the test if entries differ. Nil and empty values are equal.
func equal(t tester, what string, want, got []message.Entry) {
	t.Helper()
	// The usual case, and much faster to check.
	if reflect.DeepEqual(want, got) {
		return
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

// bySeq returns a sorted copy of entries.
func bySeq(entries []message.Entry) []message.Entry {
	return slices.SortedFunc(slices.Values(entries), func(a, b message.Entry) int { return int(a.Seq - b.Seq) })
}
