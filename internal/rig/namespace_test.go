package rig_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

func TestNamespacesAreIsolated(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, name := range []string{"one", "two"} {
		ns, err := rig.NewNamespace(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ns.Close() })
		// Both namespaces use the same address, and neither is this process's.
		l, err := ns.Listen(t.Context(), "127.0.0.1:7777")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		addrs = append(addrs, l.Addr().String())
		dial := func(ctx context.Context) error {
			conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", l.Addr().String())
			if err == nil {
				err = conn.Close()
			}
			return err
		}
		if err := dial(t.Context()); err == nil {
			t.Fatal("it was reached from outside")
		}
		if err := ns.Do(func() error { return dial(t.Context()) }); err != nil {
			t.Fatalf("it was not reached from inside: %v", err)
		}
	}
	if addrs[0] != addrs[1] {
		t.Fatal(addrs)
	}
	ns, err := rig.NewNamespace(t.Context(), "closed")
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ns.IP(t.Context(), "link show"); err == nil {
		t.Fatal("a closed namespace was entered")
	}
}
