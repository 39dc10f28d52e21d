package rig

import "testing"

// Conformance once failed because two test processes had picked one port, each while neither listened yet.
func TestAnAddressIsGivenOutOnce(t *testing.T) {
	t.Parallel()
	addr, err := freePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	// A lock of one open file excludes every other open file, in this process as in others.
	if claimed, err := claim(addr); err != nil || claimed {
		t.Errorf("%s was claimed again: %v, %v", addr, claimed, err)
	}
}
