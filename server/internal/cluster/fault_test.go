package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/fault"
)

// carry returns in after protobuf encoding and decoding.
func carry(t *testing.T, in *clusterv1.Fault) *clusterv1.Fault {
	t.Helper()
	data, err := proto.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	out := &clusterv1.Fault{}
	if err := proto.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFaultsKeepTheirReason(t *testing.T) {
	t.Parallel()
	kinds := []fault.Kind{}
	for k := fault.Internal; k <= fault.DeadlineExceeded; k++ {
		kinds = append(kinds, k)
	}
	n := 0
	for _, name := range parleyv1.ErrorReason_name {
		reason := fault.Reason(strings.TrimPrefix(name, "ERROR_REASON_"))
		kind := kinds[n%len(kinds)]
		n++
		want := &fault.Error{
			Kind: kind, Reason: reason, Msg: "100% of it", Field: "messages[3].content", Limit: 1 << 40,
			RetryAfter: 250 * time.Millisecond,
		}
		sent := *want
		sent.Cause = errors.New("secret")
		got := cluster.FaultFromWire(carry(t, cluster.FaultToWire(fmt.Errorf("wrapped: %w", &sent))))
		if diff := cmp.Diff(error(want), got); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
		if e, _ := fault.As(got); e.Retryable() != want.Retryable() {
			t.Errorf("%s: retryable is %t", reason, e.Retryable())
		}
	}
	if cluster.FaultToWire(nil) != nil || cluster.FaultFromWire(nil) != nil {
		t.Error("no error became one")
	}
	if e, ok := fault.As(cluster.FaultFromWire(cluster.FaultToWire(errors.New("secret")))); !ok || e.Kind != fault.Internal ||
		e.Reason != fault.InternalError || strings.Contains(e.Msg, "secret") {
		t.Errorf("an error that is no fault became %+v", e)
	}
	for _, kind := range []int32{-1, int32(fault.DeadlineExceeded) + 1, 256 + 1} {
		if e, _ := fault.As(cluster.FaultFromWire(&clusterv1.Fault{Kind: kind})); e.Kind != fault.Internal {
			t.Errorf("kind %d became %d", kind, e.Kind)
		}
	}
	if w := cluster.FaultToWire(&fault.Error{RetryAfter: time.Microsecond}); w.GetRetryAfterMs() != 1 {
		t.Errorf("a wait of 1 µs became %d ms", w.GetRetryAfterMs())
	}
}
