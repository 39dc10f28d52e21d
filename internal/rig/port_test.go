package rig

import "testing"

// TestFreeAddrsAreUnique checks that a returned port is not returned again although nothing listens
// on it yet. In the conformance tests two processes had picked the same port.
func TestFreeAddrsAreUnique(t *testing.T) {
	t.Parallel()
	addr, err := freePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	// A lock on one open file excludes every other open file, in this process as in others.
	if claimed, err := claim(addr); err != nil || claimed {
		t.Errorf("%s was claimed again: %v, %v", addr, claimed, err)
	}
}
