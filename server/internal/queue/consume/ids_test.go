package consume_test

import (
	"strings"
	"testing"

	"github.com/parleyhq/parley/server/internal/queue/consume"
)

// TestSessionIDs: an id is valid for its subject only, on every node with the secret, and not when a
// part of it was changed.
func TestSessionIDs(t *testing.T) {
	t.Parallel()
	group := strings.Repeat("g", 64)
	id := consume.NewSessionIDs([]byte("secret")).New("alice", group)
	if len(id) > 128 {
		t.Errorf("the id has %d bytes", len(id))
	}
	other := consume.NewSessionIDs([]byte("secret"))
	if got, ok := other.Group(id, "alice"); !ok || got != group {
		t.Errorf("another node reads the group %q, %t", got, ok)
	}
	flipped := "A" + id[1:]
	if id[0] == 'A' {
		flipped = "B" + id[1:]
	}
	for name, bad := range map[string]string{
		"empty": "", "no group": strings.TrimSuffix(id, "."+group), "other group": strings.TrimSuffix(id, group) + "other",
		"line break": id[:5] + "\n" + id[5:], "longer": "AAAA" + id, "changed": flipped,
	} {
		if _, ok := other.Group(bad, "alice"); ok {
			t.Errorf("%s: %q was accepted", name, bad)
		}
	}
	if _, ok := other.Group(id, "bob"); ok {
		t.Error("another subject's call was accepted")
	}
	if _, ok := consume.NewSessionIDs([]byte("other")).Group(id, "alice"); ok {
		t.Error("another fleet accepted the id")
	}
	if consume.Digest(id) == consume.Digest(flipped) || len(consume.Digest(id)) != 12 {
		t.Errorf("the digest is %q", consume.Digest(id))
	}
}

// TestToken: a token is read back, and every other text is refused.
func TestToken(t *testing.T) {
	t.Parallel()
	token := consume.Token{Topic: "orders-2", Partition: 255, ID: 1795341234567890, Gen: 3}
	if got, ok := consume.ParseToken(token.String()); !ok || got != token {
		t.Errorf("%s was read as %+v, %t", token, got, ok)
	}
	for _, bad := range []string{
		"", "a", "a.1.2", "a.1.2.3.4", ".1.2.3", "a.-1.2.3", "a.1.0.3", "a.1.2.0", "a.01.2.3", "a.1.2.+3", "a.1.2.3 ",
		"a.70000.2.3", "a.1.99999999999999999999.3", strings.Repeat("a", 130) + ".1.2.3",
	} {
		if _, ok := consume.ParseToken(bad); ok {
			t.Errorf("%q was accepted", bad)
		}
	}
}
