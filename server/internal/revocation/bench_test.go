package revocation_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/revocation/revocationtest"
)

// benchList returns a List that knows 100,000 revoked tokens and a revoked user.
func benchList(b *testing.B) *revocation.List {
	b.Helper()
	l, err := revocation.New(revocation.Config{Store: &revocationtest.Store{}})
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Stop(context.WithoutCancel(b.Context())) })
	until := time.Now().Add(time.Hour)
	for i := range 100_000 {
		l.Heard(revocation.Entry{Key: fmt.Sprintf("s:%d", i), Until: until})
	}
	l.Heard(revocation.Entry{Key: revocation.UserKey("bob"), Until: until, Before: time.Now()})
	return l
}

func BenchmarkCheck(b *testing.B) {
	l, p := benchList(b), user("ann", "phone", time.Now())
	for b.Loop() {
		if err := l.Check(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCheckParallel measures the checks of all processors at once, which share a lock.
func BenchmarkCheckParallel(b *testing.B) {
	l, p := benchList(b), user("ann", "phone", time.Now())
	ctx := b.Context()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := l.Check(ctx, p); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
