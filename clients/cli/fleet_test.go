package cli_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// TestFleetLosesNodes imports into a fleet and follows it, while each node that serves the import
// is killed and restarted. Everything must be stored once, and the follower must see it once and in
// order.
func TestFleetLosesNodes(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 3)
	addrs := parleytest.Addrs(fleet...)
	dir, want := bigLog(t, 2600)
	tail := startTail(t, "--addr", addrs, "tail", "room", "--from-start", "--count", "2600", "--json")
	var calls atomic.Int32
	doomed := make(chan *parleytest.Server, 100)
	for _, node := range fleet {
		node.Fault(func(method string, _ proto.Message) *parleytest.Fault {
			if method != "SendMessages" || calls.Add(1)%3 != 2 {
				return nil
			}
			doomed <- node
			return &parleytest.Fault{Drop: true, Applied: true}
		})
	}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for node := range doomed {
			node.Kill()
			node.Restart()
		}
	}()
	env := map[string]string{"PARLEY_ADDR": addrs, "PARLEY_TOKEN": "tester"}
	got := runWith(t, env, "", "import", dir, "--channel", "room")
	code := <-tail.done
	close(doomed)
	<-killed
	if got.code != 0 || !strings.Contains(got.stdout, "2600 total") {
		t.Errorf("import: exit code %d, stdout %q, stderr %s", got.code, got.stdout, got.stderr)
	}
	if code != 0 {
		t.Errorf("tail: exit code %d, stderr %s", code, tail.stderr.String())
	}
	if diff := cmp.Diff(want, stored(fleet[0], "room")); diff != "" {
		t.Errorf("the room (-want +got):\n%s", diff)
	}
	var seen []string
	for _, m := range (outcome{stdout: tail.stdout.String()}).objects(t) {
		seen = append(seen, fmt.Sprintf("%s|%s|%s|%s", m["client_msg_id"], m["from_id"], m["msg_type"], m["content"]))
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("the follower's (-want +got):\n%s", diff)
	}
}

// TestLocalTokenIsSentToLocalNodesOnly checks that the token of a local server is not used if one
// of several addresses is not local.
func TestLocalTokenIsSentToLocalNodesOnly(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	dir := t.TempDir()
	writeFile(t, dir, "dev-token", "from-file")
	local := s.Addr() + ", http://localhost:1"
	runWith(t, nil, "", "--addr", local, "--data-dir", dir, "send", "room", "hello").wantOK(t)
	got := runWith(t, nil, "", "--addr", s.Addr()+",parley.example.com:443", "--data-dir", dir, "send", "room", "hello")
	if got.code != 2 || !strings.Contains(got.stderr, "no token") {
		t.Errorf("a local token for another server: exit code %d, stderr %q", got.code, got.stderr)
	}
}
