package rig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

func TestProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := rig.NewProgram(rig.ProgramConfig{
		Name: "counter", Path: "sh", Args: []string{"-c", `trap 'echo "over $PARLEY_X"; exit 3' TERM; echo up; while :; do sleep 0.01; done`},
		Env: []string{"PARLEY_X=x"}, Log: filepath.Join(dir, "log"),
	})
	if p.Running() || p.Err() != nil {
		t.Errorf("before its first life it runs: %v, and has ended with %v", p.Running(), p.Err())
	}
	if err := p.Stop(); err == nil {
		t.Errorf("what does not run could be stopped")
	}
	start := func(lives int) {
		t.Helper()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); strings.Count(p.LogTail(), "up\n") < lives; {
			if time.Now().After(deadline) {
				t.Fatalf("it is not up: %q", p.LogTail())
			}
			<-time.After(time.Millisecond)
		}
	}
	start(1)
	if err := p.Stop(); err != nil || !p.Running() {
		t.Errorf("stopped, it runs: %v, %v", p.Running(), err)
	}
	if err := p.Cont(); err != nil {
		t.Error(err)
	}
	p.Kill()
	<-p.Exited()
	if p.Running() || p.Err() == nil {
		t.Errorf("killed, it runs: %v, and has ended with %v", p.Running(), p.Err())
	}
	start(2)
	if p.Err() != nil {
		t.Errorf("while it runs it has ended with %v", p.Err())
	}
	if err := p.Term(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("it ended with %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || string(data) != "up\nup\nover x\n" {
		t.Errorf("its log is %q, %v", data, err)
	}
}
