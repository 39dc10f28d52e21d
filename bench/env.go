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

// Options configure a bench. A zero field means its default.
type Options struct {
	// Addrs are the API addresses (host:port or http://host:port) of a running server or of a
	// fleet's nodes, and Token is the token for them. Without addresses the bench starts servers of
	// its own.
	Addrs []string
	Token string
	// Ops are the ops addresses of the same nodes, for their CPU time and memory. Default: each
	// node's host with port 8081.
	Ops []string
	// Rounds is how often each figure is taken, alternately with its floor. Default: 5. Duration is
	// the length of one measurement. Default: 4 s.
	Rounds   int
	Duration time.Duration
	// Subscribers is the number of streams in the figures on fan-out. Default: 1000. Streams is the
	// number of streams in the figures on memory and reconnecting. Default: 10,000. Senders is the
	// number of concurrent senders. Default: 64, or 512 on MongoDB. Channels is the number of
	// channels in figures about many channels. Default: 1000.
	Subscribers, Streams, Senders, Channels int
	// Users is the number of users in the figures on presence. Default: 10,000.
	Users int
	// Payload is the size of a message's content in bytes, at least 16. Default: 128.
	Payload int
	// QueuePayload is the size of a queue message in bytes, at least 16. Default: 1024.
	QueuePayload int
	// Delayed is the number of messages scheduled for the figure on delays, of which 1000 are due
	// per second. Default: 10,000.
	Delayed int
	// Rivals is the directory of the other queues, built by `make rivals`, to measure alongside. If
	// empty, none are measured.
	Rivals string
	// Parleyd is the path of the server's binary. Default: next to this program, else on the PATH.
	Parleyd string
	// Floor is the command line that runs RunFloor. Default: this program with FloorCommand.
	Floor []string
	// Dir is where servers of the bench keep their data, each in a directory that is removed at the
	// end. It must be on a disk for the figures with fsync. Default: the system's directory for
	// temporary files.
	Dir string
	// MongoURI is the URI of the replica set behind the nodes of Addrs, for the figures on MongoDB
	// and their floor.
	MongoURI string
	// Progress is called with a line of text, without its end, about each step. It may be nil.
	Progress func(line string)
}

func (o *Options) setDefaults() error {
	o.Rounds = cmp.Or(o.Rounds, 5)
	o.Duration = cmp.Or(o.Duration, 4*time.Second)
	o.Subscribers = cmp.Or(o.Subscribers, 1000)
	o.Streams = cmp.Or(o.Streams, 10_000)
	o.Channels = cmp.Or(o.Channels, 1000)
	o.Users = cmp.Or(o.Users, 10_000)
	o.Payload = cmp.Or(o.Payload, 128)
	o.Delayed = cmp.Or(o.Delayed, 10_000)
	o.QueuePayload = cmp.Or(o.QueuePayload, 1024)
	o.Dir = cmp.Or(o.Dir, os.TempDir())
	if min(o.Rounds, o.Subscribers, o.Streams, o.Channels, o.Users, o.Payload, o.QueuePayload, o.Delayed) < 0 || o.Duration < 0 {
		return errors.New("a number is negative")
	}
	if small := min(o.Payload, o.QueuePayload); small < stampSize {
		return fmt.Errorf("a payload of %d bytes is too small for its timestamp: at least %d are required", small, stampSize)
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
			u, _ := url.Parse(base) // baseURL has parsed it
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

// baseURL returns an address as http://host:port.
func baseURL(addr string) (string, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("%q is not an address", addr)
	}
	if u.Scheme != "http" {
		return "", fmt.Errorf("%s: the bench supports only plain http", addr)
	}
	return "http://" + u.Host, nil
}

// Env is the environment of an area's measurements. It is not safe for concurrent use, except for
// Progress.
type Env struct {
	Options

	area string
	// shared is the bench's own server that Target returns.
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

// Progressf formats a line about the current step and passes it to Progress.
func (e *Env) Progressf(format string, args ...any) {
	e.Progress(e.area + ": " + fmt.Sprintf(format, args...))
}

// Each runs all steps in turn, Rounds times, and in reverse order every other time. So a value and
// its floor are measured close together, and neither of them is always first. It stops at the first
// error.
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

// Target returns the server to measure: the running one, or else a server of the bench with the
// settings of `parleyd dev`, which all areas share. The caller must not close it.
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

// Setup returns the conditions that all figures share, with those of more added or replaced. An
// empty value in more removes a condition.
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

// parleyd returns the path of the server's binary.
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
