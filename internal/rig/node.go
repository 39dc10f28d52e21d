package rig

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"
	"time"
)

// Node is one parleyd of a fleet. Its address stays the same over all its lives. Its methods may be called concurrently,
// but faults are for one goroutine at a time.
type Node struct {
	proc      process
	index     int
	addr, ops string
	link      string // its end of the wire in the rig's namespace; empty on loopback
}

// Index is the node's place in the fleet, from 0.
func (n *Node) Index() int { return n.index }

// Addr is host:port of the API.
func (n *Node) Addr() string { return n.addr }

// OpsAddr is host:port of health and metrics, reached from the rig's own namespace.
func (n *Node) OpsAddr() string { return n.ops }

// LogFile has the log of all the node's lives.
func (n *Node) LogFile() string { return n.proc.log }

// Start starts the node, unless it runs. It does not wait until it is ready.
func (n *Node) Start() error { return n.proc.start() }

// Restart is Start and Ready.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Start(); err != nil {
		return err
	}
	return n.Ready(ctx)
}

// Running reports whether the process exists, be it stopped.
func (n *Node) Running() bool { return n.proc.current() != nil }

// PID is the process id of the running node, 0 if it does not run.
func (n *Node) PID() int { return n.proc.pid() }

// Exited gives a channel that is closed when the node's present life ends, and is closed already if it does not run.
func (n *Node) Exited() <-chan struct{} { return n.proc.exited() }

// Kill ends the node by SIGKILL and waits until it is gone. It does nothing if it does not run.
func (n *Node) Kill() { n.proc.kill() }

// Term ends the node by SIGTERM, which lets it drain, and waits. An exit code other than 0 is an error, and so is the
// end of ctx before the node's; the node is then still there.
func (n *Node) Term(ctx context.Context) error { return n.proc.term(ctx) }

// Stop halts the node with SIGSTOP: its connections stay and nothing answers.
func (n *Node) Stop() error { return n.proc.signal(syscall.SIGSTOP) }

// Cont lets a stopped node run on.
func (n *Node) Cont() error { return n.proc.signal(syscall.SIGCONT) }

// Ready waits until the node says that it is ready. It fails, with the end of the node's log, when ctx ends, when the
// node does, and after a minute.
func (n *Node) Ready(ctx context.Context) error {
	return n.proc.ready(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return n.CheckReady(ctx)
	})
}

// CheckReady asks the node once whether it is ready: nil if so.
func (n *Node) CheckReady(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.ops+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	// A connection of its own: one that a stop or a cut left behind must not tell of a node's health.
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}

// Isolate takes the node's wire out: packets between it and its clients vanish in silence, until Rejoin. The engines'
// links are not touched. Namespaced fleets only.
func (n *Node) Isolate(ctx context.Context) error { return n.setLink(ctx, "down") }

// Rejoin ends Isolate.
func (n *Node) Rejoin(ctx context.Context) error { return n.setLink(ctx, "up") }

func (n *Node) setLink(ctx context.Context, state string) error {
	if n.link == "" {
		return fmt.Errorf("node %d: %w", n.index, errNoNamespace)
	}
	return runIP(ctx, "link set "+n.link+" "+state)
}

// Log gives what the node has logged so far.
func (n *Node) Log() ([]byte, error) { return os.ReadFile(n.proc.log) }
