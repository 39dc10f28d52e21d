package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"
	"time"
)

// Node is one parleyd of a fleet. Its address stays the same when it is restarted. Methods may be
// called concurrently, but those that end, halt, resume, restart or isolate the node only by one
// goroutine at a time.
type Node struct {
	proc      process
	index     int
	addr, ops string
	link      string // the veth pair's end in the rig's namespace; empty on loopback
	clock     *clock
	offset    time.Duration // what the clock is set to
}

// Index returns the node's index in the fleet, from 0.
func (n *Node) Index() int { return n.index }

// Addr returns the API's host:port.
func (n *Node) Addr() string { return n.addr }

// OpsAddr returns the host:port of health and metrics. It is reachable from the rig's namespace.
func (n *Node) OpsAddr() string { return n.ops }

// LogFile returns the path of the node's log, which all its runs append to.
func (n *Node) LogFile() string { return n.proc.log }

// Start starts the node, unless it runs. It does not wait until the node is ready.
func (n *Node) Start() error { return n.proc.start() }

// Restart calls Start and Ready.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Start(); err != nil {
		return err
	}
	return n.Ready(ctx)
}

// Running reports whether the process exists, including one halted by Stop.
func (n *Node) Running() bool { return n.proc.current() != nil }

// PID returns the node's process id, 0 if it does not run.
func (n *Node) PID() int { return n.proc.pid() }

// Exited returns a channel that is closed when the current run ends. If the node does not run, the
// channel is already closed.
func (n *Node) Exited() <-chan struct{} { return n.proc.exited() }

// Kill ends the node with SIGKILL and waits until it has exited. It does nothing if the node does
// not run.
func (n *Node) Kill() { n.proc.kill() }

// Term ends the node with SIGTERM, which lets it drain, and waits. It returns an error if the exit
// code is not 0, or if ctx ends first; the node then still runs.
func (n *Node) Term(ctx context.Context) error { return n.proc.term(ctx) }

// Stop halts the node with SIGSTOP: its connections stay open and nothing answers.
func (n *Node) Stop() error { return n.proc.signal(syscall.SIGSTOP) }

// Cont resumes a halted node.
func (n *Node) Cont() error { return n.proc.signal(syscall.SIGCONT) }

// Ready waits until the node reports that it is ready. It returns an error with the end of the
// node's log when ctx ends, when the node exits, or after a minute.
func (n *Node) Ready(ctx context.Context) error {
	return n.proc.ready(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return n.CheckReady(ctx)
	})
}

// CheckReady asks the node once whether it is ready, and returns nil if so.
func (n *Node) CheckReady(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.ops+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	// Keep-alive is off: a connection broken by an earlier stop or cut must not affect the check.
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 10_000))
	if err != nil {
		return err
	}
	// A node is ready without NATS. A rig waits for that, too, for its other nodes.
	var outcomes map[string]string
	if err := json.Unmarshal(body, &outcomes); err != nil || resp.StatusCode != http.StatusOK || outcomes["nats"] != "ok" {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}

// Isolate disconnects the node from its clients: packets are dropped silently, until Rejoin. The
// links to the engines still work. It returns an error unless the fleet is namespaced.
func (n *Node) Isolate(ctx context.Context) error { return n.setLink(ctx, "down") }

// Rejoin undoes Isolate.
func (n *Node) Rejoin(ctx context.Context) error { return n.setLink(ctx, "up") }

func (n *Node) setLink(ctx context.Context, state string) error {
	if n.link == "" {
		return fmt.Errorf("node %d: %w", n.index, errNoNamespace)
	}
	return runIP(ctx, "link set "+n.link+" "+state)
}

// SetClock moves the node's clock to this machine's time plus offset, now and after restarts. A Go
// program reads the clock without a library that could be replaced, so this has an effect only on a
// program that was built to add the offset in the file that the variable RIG_CLOCK names.
func (n *Node) SetClock(offset time.Duration) error {
	n.offset = offset
	return n.clock.set(offset)
}

// Clock returns the offset of the node's clock.
func (n *Node) Clock() time.Duration { return n.offset }

// Log returns the content of the node's log.
func (n *Node) Log() ([]byte, error) { return os.ReadFile(n.proc.log) }
