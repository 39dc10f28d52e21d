package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/internal/program"
)

// Options say what to measure with. A zero field takes its default.
type Options struct {
	// Addrs are the API addresses (host:port or http://host:port) of a server that runs, or of a fleet's nodes, and Token
	// lets in. No addresses: the bench starts servers of its own.
	Addrs []string
	Token string
	// Ops are the ops addresses of the same nodes, for their CPU time and memory. Default: each node's host, port 8081.
	Ops []string
	// Rounds is how often each figure is taken, in turn with its floor: 5. Duration is how long each one is taken: 4 s.
	Rounds   int
	Duration time.Duration
	// Subscribers are the streams of one channel: 1000. Streams are those of the figures about memory and reconnecting:
	// 10000. Senders send at once: 64, and 512 on MongoDB. Channels is how many the figures with many have: 1000.
	Subscribers, Streams, Senders, Channels int
	// Payload is the size of a message's content in bytes, at least 16: 128.
	Payload int
	// QueuePayload is the size of a queue's message in bytes, at least 16: 1024.
	QueuePayload int
	// Delayed is how many messages are scheduled for the figure on delays: 10,000. A thousand are due in a second.
	Delayed int
	// Rivals is the directory of other queues that `make rivals` has built, to measure beside; empty measures none.
	Rivals string
	// Parleyd is the server's binary. Default: beside this program, else on the PATH.
	Parleyd string
	// Floor is the command line that runs RunFloor. Default: this program with FloorCommand.
	Floor []string
	// Dir is where own servers keep their data, each in a directory that is removed in the end. It must be on a disk for
	// the figures with fsync. Default: the system's directory for temporary files.
	Dir string
	// MongoURI names the replica set behind the nodes of Addrs, for the figures on MongoDB and their floor.
	MongoURI string
	// Progress is told in a line what is being done; may be nil.
	Progress func(line string)
}

func (o *Options) setDefaults() error {
	o.Rounds = cmp.Or(o.Rounds, 5)
	o.Duration = cmp.Or(o.Duration, 4*time.Second)
	o.Subscribers = cmp.Or(o.Subscribers, 1000)
	o.Streams = cmp.Or(o.Streams, 10_000)
	o.Channels = cmp.Or(o.Channels, 1000)
	o.Payload = cmp.Or(o.Payload, 128)
	o.Delayed = cmp.Or(o.Delayed, 10_000)
	o.QueuePayload = cmp.Or(o.QueuePayload, 1024)
	o.Dir = cmp.Or(o.Dir, os.TempDir())
	if min(o.Rounds, o.Subscribers, o.Streams, o.Channels, o.Payload, o.QueuePayload, o.Delayed) < 0 || o.Duration < 0 {
		return errors.New("a number is negative")
	}
	if small := min(o.Payload, o.QueuePayload); small < stampSize {
		return fmt.Errorf("a payload of %d bytes can't hold the time at which it was sent: %d at least", small, stampSize)
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Floor == nil {
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		o.Floor = []string{exe, FloorCommand}
	}
	for i, addr := range o.Addrs {
		base, err := baseURL(addr)
		if err != nil {
			return err
		}
		o.Addrs[i] = base
		if len(o.Ops) <= i {
			u, _ := url.Parse(base) // baseURL parsed it
			o.Ops = append(o.Ops, net.JoinHostPort(u.Hostname(), "8081"))
		}
	}
	for i, addr := range o.Ops {
		base, err := baseURL(addr)
		if err != nil {
			return err
		}
		o.Ops[i] = base
	}
	return nil
}

// baseURL gives http://host:port of what a user calls an address.
func baseURL(addr string) (string, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("%q is no address", addr)
	}
	if u.Scheme != "http" {
		return "", fmt.Errorf("%s: the bench speaks plain http only", addr)
	}
	return "http://" + u.Host, nil
}

// Env is what an area measures with. It is for one goroutine, but for Progress.
type Env struct {
	Options

	area string
	// shared is the own server that Target gives.
	shared *Server
}

func newEnv(o Options) (*Env, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	return &Env{Options: o}, nil
}

func (e *Env) close() error {
	if e.shared == nil {
		return nil
	}
	return e.shared.Close()
}

// Progressf tells in a line what is being done.
func (e *Env) Progressf(format string, args ...any) {
	e.Progress(e.area + ": " + fmt.Sprintf(format, args...))
}

// Each runs the steps in turn, Rounds times, every other time backwards. So a value and its floor are taken within moments
// of each other, and neither always has the cooler machine.
func (e *Env) Each(ctx context.Context, steps ...func(ctx context.Context) error) error {
	for round := range e.Rounds {
		e.Progressf("round %d of %d", round+1, e.Rounds)
		for i := range steps {
			step := steps[i]
			if round%2 == 1 {
				step = steps[len(steps)-1-i]
			}
			if err := step(ctx); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// Target gives the server to measure: the one that runs, or else one of the bench's own with the settings of `parleyd
// dev`, which all areas share. It is not the caller's to close.
func (e *Env) Target(ctx context.Context) (*Target, error) {
	if len(e.Addrs) > 0 {
		return &Target{Addrs: e.Addrs, Ops: e.Ops, Token: e.Token}, nil
	}
	if e.shared == nil {
		s, err := e.StartServer(ctx)
		if err != nil {
			return nil, err
		}
		e.shared = s
	}
	return &e.shared.Target, nil
}

// Setup gives the conditions that every figure has, with more of them over those; an empty one takes one away.
func (e *Env) Setup(more map[string]string) map[string]string {
	setup := map[string]string{
		"cores":   strconv.Itoa(runtime.NumCPU()) + " (shared with the load)",
		"rounds":  strconv.Itoa(e.Rounds),
		"payload": strconv.Itoa(e.Payload) + " bytes",
	}
	if len(e.Addrs) > 0 {
		setup["server"] = strings.Join(e.Addrs, " ")
	} else {
		setup["server"] = "parleyd dev (Pebble with fsync, redis-server with AOF, NATS in process)"
	}
	for k, v := range more {
		if v == "" {
			delete(setup, k)
			continue
		}
		setup[k] = v
	}
	return setup
}

// parleyd finds the server's binary.
func (e *Env) parleyd() (string, error) {
	if e.Parleyd != "" {
		return e.Parleyd, nil
	}
	path, err := program.Find("parleyd")
	if err != nil {
		return "", fmt.Errorf("%w: name it with --parleyd, or measure a running server with --addr", err)
	}
	return path, nil
}
