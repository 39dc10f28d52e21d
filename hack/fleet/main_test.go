package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output collects the output of the program.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func TestServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out output
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, flags{Nodes: 1, Mongo: 1, NATS: 1, Dir: dir, Binary: os.Getenv("PARLEYD")}, &out)
	}()
	wait := func(what string, check func() error) {
		t.Helper()
		for {
			err := check()
			if err == nil {
				return
			}
			select {
			case err := <-ended:
				t.Fatalf("it ended: %v\n%s", err, out.String())
			case <-ctx.Done():
				t.Fatalf("%s: %v\n%s", what, err, out.String())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	line := regexp.MustCompile(`node 0 .*metrics http://([^,]+), pid (\d+)\)`)
	wait("banner", func() error {
		if !line.MatchString(out.String()) {
			return errors.New("no node in the banner")
		}
		return nil
	})
	token, err := os.ReadFile(dir + "/token")
	if err != nil || !strings.Contains(out.String(), strings.TrimSpace(string(token))) {
		t.Errorf("the token's file has %q: %v", token, err)
	}
	found := line.FindStringSubmatch(out.String())
	pid, err := strconv.Atoi(found[2])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait("the node's end", func() error {
		if syscall.Kill(pid, 0) == nil {
			return errors.New("it is still there")
		}
		return nil
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	wait("the node's next life", func() error {
		resp, err := client.Get("http://" + found[1] + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
