package stream_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/stream"
)

// item is a stream with an identity and nothing else.
type item struct{ stream.Identity }

func newItem(id stream.Identity) *item { return &item{id} }

type registry = stream.Registry[*item]

func admit(t *testing.T, r *registry, subject string) *item {
	t.Helper()
	s, err := r.Admit(subject, time.Time{}, newItem)
	if err != nil {
		t.Fatalf("admit for %s: %v", subject, err)
	}
	return s
}

// refused checks that Admit fails with this reason, limit and message, without calling create.
func refused(t *testing.T, r *registry, subject string, reason fault.Reason, limit int64, msg string) {
	t.Helper()
	s, err := r.Admit(subject, time.Time{}, func(stream.Identity) *item {
		t.Error("created a stream that is refused")
		return &item{}
	})
	f, ok := fault.As(err)
	if s != nil || !ok || f.Reason != reason || f.Limit != limit || f.Msg != msg {
		t.Errorf("admitted %v with %#v", s, err)
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	r := stream.NewRegistry[*item](stream.Config{Node: "node-1_x"})
	r.Open()
	form := regexp.MustCompile(`^[A-Z2-7]{26}node-1_x$`)
	expires := time.Now().Add(time.Hour)
	seen := map[string]bool{}
	for range 100 {
		s, err := r.Admit("ada", expires, newItem)
		if err != nil {
			t.Fatal(err)
		}
		if !form.MatchString(s.ID) || seen[s.ID] || s.Subject != "ada" || !s.Expires.Equal(expires) {
			t.Fatalf("identity %+v", s.Identity)
		}
		seen[s.ID] = true
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	r := stream.NewRegistry[*item](stream.Config{MaxStreams: 3, MaxPerSubject: 2, Plural: "consumers"})
	r.Open()
	a := admit(t, r, "ada")
	admit(t, r, "ada")
	refused(t, r, "ada", fault.NodeFull, 2, "this node serves at most 2 consumers per subject")
	b := admit(t, r, "bob")
	// The node's limit is checked first: another node may have room.
	refused(t, r, "ada", fault.NodeFull, 3, "this node serves at most 3 consumers")
	refused(t, r, "eve", fault.NodeFull, 3, "this node serves at most 3 consumers")
	r.Remove(b.ID)
	refused(t, r, "ada", fault.NodeFull, 2, "this node serves at most 2 consumers per subject")
	if !r.Remove(a.ID) || r.Remove(a.ID) {
		t.Error("a stream is removed once")
	}
	admit(t, r, "ada")
	admit(t, r, "bob")
}

func TestNoLimits(t *testing.T) {
	t.Parallel()
	r := stream.NewRegistry[*item](stream.Config{})
	r.Open()
	for range 1000 {
		admit(t, r, "ada")
	}
	one := stream.NewRegistry[*item](stream.Config{MaxStreams: 1})
	one.Open()
	admit(t, one, "ada")
	refused(t, one, "bob", fault.NodeFull, 1, "this node serves at most 1 streams")
}

func TestFind(t *testing.T) {
	t.Parallel()
	r := stream.NewRegistry[*item](stream.Config{})
	r.Open()
	a1, b, a2 := admit(t, r, "ada"), admit(t, r, "bob"), admit(t, r, "ada")
	found := func(id, subject string, want *item) {
		t.Helper()
		if got, ok := r.Find(id, subject); got != want || ok != (want != nil) {
			t.Errorf("found %v, %v", got, ok)
		}
	}
	subject := func(name string, want ...*item) {
		t.Helper()
		if got := r.OfSubject(name); !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", name, got, want)
		}
	}
	all := func(want ...*item) {
		t.Helper()
		got := r.All()
		byID := func(a, b *item) int { return strings.Compare(a.ID, b.ID) }
		slices.SortFunc(got, byID)
		slices.SortFunc(want, byID)
		if !slices.Equal(got, want) {
			t.Errorf("all are %v, want %v", got, want)
		}
	}
	found(a1.ID, "ada", a1)
	found(a1.ID, "bob", nil) // another subject's
	found(b.ID, "bob", b)
	found("", "", nil)
	subject("ada", a1, a2)
	subject("bob", b)
	subject("eve")
	all(a1, a2, b)

	r.Remove(a1.ID)
	found(a1.ID, "ada", nil)
	subject("ada", a2)
	r.Remove(a2.ID)
	r.Remove(b.ID)
	subject("ada")
	subject("bob")
	all()
}

func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := stream.NewRegistry[*item](stream.Config{})
		r.Open()
		a, b := admit(t, r, "ada"), admit(t, r, "bob")
		var told []*item
		done := make(chan error, 1)
		go func() { done <- r.Drain(t.Context(), func(s *item) { told = append(told, s) }) }()
		synctest.Wait()
		if len(told) != 2 || !slices.Contains(told, a) || !slices.Contains(told, b) {
			t.Errorf("drained %v", told)
		}
		refused(t, r, "ada", fault.ShuttingDown, 0, "the server is shutting down")
		for i, s := range []*item{a, b} {
			select {
			case err := <-done:
				t.Fatalf("drained with %d streams: %v", 2-i, err)
			default:
			}
			r.Remove(s.ID)
			synctest.Wait()
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := r.Drain(t.Context(), func(*item) { t.Error("drained a stream that is removed") }); err != nil {
			t.Errorf("again: %v", err)
		}
		<-r.Drained()
	})
}

func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := stream.NewRegistry[*item](stream.Config{})
		r.Open()
		admit(t, r, "ada")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Drain(ctx, func(*item) {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain: %v", err)
		}
		select {
		case <-r.Drained():
			t.Error("drained with a stream")
		default:
		}
	})
}

func TestRefuseEmpty(t *testing.T) {
	t.Parallel()
	r := stream.NewRegistry[*item](stream.Config{})
	r.Open()
	select {
	case <-r.Drained():
		t.Fatal("drained before it refuses")
	default:
	}
	for range 2 {
		if left := r.Refuse(); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
		<-r.Drained()
	}
	refused(t, r, "ada", fault.ShuttingDown, 0, "the server is shutting down")
}

// TestRace checks that no limit is ever exceeded and no stream is left, if many goroutines open,
// find, end and remove streams while the registry drains.
func TestRace(t *testing.T) {
	t.Parallel()
	for range 50 {
		hub := &bulletins{streams: stream.NewRegistry[*bulletin](stream.Config{MaxStreams: 20, MaxPerSubject: 3})}
		hub.streams.Open()
		var clients sync.WaitGroup
		for i := range 16 {
			subject := fmt.Sprint("subject ", i%8)
			clients.Go(func() {
				for {
					b, err := hub.open(subject, time.Time{})
					if fault.Is(err, fault.ShuttingDown) {
						return
					}
					if err != nil {
						continue // full
					}
					if n, all := len(hub.streams.OfSubject(subject)), len(hub.streams.All()); n > 3 || all > 20 {
						t.Errorf("%d streams of a subject, %d in all", n, all)
					}
					if got, ok := hub.streams.Find(b.core.ID, subject); !ok || got != b {
						t.Error("an admitted stream is not found")
					}
					b.publish("text")
					if i == 0 {
						hub.endSubject(subject, fault.New(fault.Aborted, fault.TokenRevoked, "revoked"))
					}
					for err = nil; err == nil; { // until another goroutine ends it
						if i%2 == 1 {
							b.end(stream.NotFound())
						}
						_, err = b.next(t.Context())
					}
					if _, ok := fault.As(err); !ok {
						t.Errorf("ended with %v", err)
					}
					b.close()
				}
			})
		}
		if err := hub.drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		clients.Wait()
		if left := hub.streams.All(); len(left) > 0 {
			t.Fatalf("%d streams are left", len(left))
		}
	}
}
