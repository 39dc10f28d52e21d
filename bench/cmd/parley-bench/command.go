package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/parleyhq/parley/clients/bench"
)

type benchCommand struct {
	benchOptions

	Areas []string `arg:"" optional:"" help:"What to measure: ${areas}. Default: all."`
}

// benchOptions are the flags of `bench`, and of `queue bench`.
type benchOptions struct {
	Ops          string  `help:"The nodes' ops addresses, for their CPU time and memory. Default: each node's host, port 8081." placeholder:"ADDR,..."`
	Rounds       int     `help:"How often each figure is taken, in turn with its floor; the median is told." default:"5"`
	Seconds      float64 `help:"How long each one is taken." default:"4"`
	Subscribers  int     `help:"Subscribers of fan-out, each a connection of its own." default:"1000"`
	Streams      int     `help:"Streams of the figures about memory and reconnecting, each a connection of its own." default:"10000"`
	Senders      int     `help:"Senders at once. Default: 64, and 512 on MongoDB." placeholder:"N"`
	Channels     int     `help:"Channels of the figures with many." default:"1000"`
	Payload      int     `help:"Bytes of a message's content." default:"128"`
	QueuePayload int     `help:"Bytes of a queue's message." default:"1024"`
	Delayed      int     `help:"Messages that are scheduled for the figure on delays, a thousand due in a second." default:"10000"`
	Rivals       string  `help:"Measure other queues on Redis beside: hack/rivals, once make rivals has built them." type:"existingdir" placeholder:"DIR"`
	Parleyd      string  `help:"The server to start where --addr is not given. Default: the parleyd beside this program, else on the PATH." type:"existingfile"`
	Dir          string  `help:"Where servers that are started keep their data; a real disk, for its fsync is measured." type:"existingdir" placeholder:"DIR"`
	MongoURI     string  `name:"mongo-uri" help:"The replica set behind the nodes of --addr, for the figures on MongoDB." placeholder:"URI"`
}

// Run measures.
func (c *benchCommand) Run(s *session) error { return c.measure(s, c.Areas) }

// measure measures a running server if its address is given, else servers of its own.
func (c *benchOptions) measure(s *session, names []string) error {
	areas, err := bench.Select(bench.Areas(), names)
	if err != nil {
		return usageError{err}
	}
	if min(c.Rounds, c.Subscribers, c.Streams, c.Channels, c.Payload, c.QueuePayload, c.Delayed) <= 0 || c.Seconds <= 0 || c.Senders < 0 {
		return usagef("a number of bench must be positive")
	}
	options := bench.Options{
		Rounds: c.Rounds, Duration: time.Duration(c.Seconds * float64(time.Second)),
		Subscribers: c.Subscribers, Streams: c.Streams, Senders: c.Senders, Channels: c.Channels, Payload: c.Payload,
		QueuePayload: c.QueuePayload, Delayed: c.Delayed, Rivals: c.Rivals,
		Parleyd: c.Parleyd, Dir: c.Dir, MongoURI: c.MongoURI,
		Progress: func(line string) { _, _ = fmt.Fprintln(s.stderr, line) },
	}
	if s.flags.Addr != "" || s.getenv("PARLEY_ADDR") != "" {
		access, err := s.access()
		if err != nil {
			return err
		}
		options.Addrs, options.Token = splitList(access.addr), access.token
		options.Ops = splitList(c.Ops)
	} else if c.Ops != "" || c.MongoURI != "" {
		return usagef("--ops and --mongo-uri go with --addr")
	}
	var report bench.Report = &bench.Text{W: s.stdout}
	if s.flags.JSON {
		report = bench.JSON{W: s.stdout}
	}
	if err := bench.Run(s.ctx, areas, options, report); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}

// splitList takes a list with commas.
func splitList(text string) []string {
	var all []string
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

// benchFloorCommand is what `bench` starts beside itself.
type benchFloorCommand struct {
	Args []string `arg:"" passthrough:"" help:"Floor and its arguments."`
}

// Run runs a floor until the standard input ends.
func (c *benchFloorCommand) Run(s *session) error {
	if err := bench.RunFloor(s.ctx, c.Args, s.stdin, s.stdout); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("bench-floor: %w", err)
	}
	return nil
}

// areaNames are what `bench` can measure.
func areaNames() string {
	var names []string
	for _, a := range bench.Areas() {
		names = append(names, a.Name)
	}
	return strings.Join(names, ", ")
}
