package rpc

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/revocation"
)

// fakeKicks records the kicks, and answers as two nodes do.
type fakeKicks struct{ got []revocation.Kick }

func (f *fakeKicks) Kick(_ context.Context, what revocation.Kick) (ended map[string]int, unanswered []string, err error) {
	f.got = append(f.got, what)
	return map[string]int{"b": 2, "a": 1, "c": 0}, []string{"d"}, nil
}

// TestKickUser checks what KickUser passes on and answers, and which requests it refuses.
func TestKickUser(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	admin := b.adminClient(0, b.mintAs(operator("ada")))
	res, err := admin.KickUser(t.Context(), &parleyv1.KickUserRequest{
		UserId: "ann", DeviceId: "phone", Platform: parleyv1.Platform_PLATFORM_IOS, ConnectionId: strings.Repeat("A", 26), Reason: "stolen",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &parleyv1.KickUserResponse{
		Nodes: []*parleyv1.KickedStreams{{NodeId: "a", Ended: 1}, {NodeId: "b", Ended: 2}}, UnansweredNodeIds: []string{"d"},
	}
	if diff := cmp.Diff(want, res, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	passed := []revocation.Kick{{
		User: "ann", Reason: "stolen", Login: revocation.Login{Platform: 1, Device: "phone", Connection: strings.Repeat("A", 26)},
	}}
	if diff := cmp.Diff(passed, b.kicks.got); diff != "" {
		t.Error(diff)
	}
	for field, req := range map[string]*parleyv1.KickUserRequest{
		"user_id":       {},
		"device_id":     {UserId: "ann", DeviceId: "a b"},
		"platform":      {UserId: "ann", Platform: 99},
		"connection_id": {UserId: "ann", ConnectionId: "lower"},
		"reason":        {UserId: "ann", Reason: strings.Repeat("r", 257)},
	} {
		if _, err := admin.KickUser(t.Context(), req); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
