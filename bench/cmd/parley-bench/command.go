package main

import (
	"errors"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/parleyhq/parley/bench"
	"github.com/parleyhq/parley/internal/access"
)

// command is the arguments and flags, from which kong creates the parser. The flags that `parley`
// has too have the same names.
type command struct {
	Areas []string `arg:"" optional:"" help:"What to measure: ${areas}. Default: all."`

	Addr    string           `help:"Server to measure: host:port or URL; several with commas for a fleet. Default: $PARLEY_ADDR, else servers that are started for the run." aliases:"server" placeholder:"ADDR,..."`
	Token   string           `help:"Bearer token. Default: $PARLEY_TOKEN, else the token that a local 'parleyd dev' wrote." placeholder:"TOKEN"`
	DataDir string           `help:"Data directory of a local 'parleyd dev'." default:"data" placeholder:"DIR"`
	JSON    bool             `name:"json" help:"Write JSON objects, one a line."`
	Version kong.VersionFlag `help:"Print the version."`

	Ops          string  `help:"The nodes' ops addresses, for their CPU time and memory. Default: each node's host, port 8081." placeholder:"ADDR,..."`
	Rounds       int     `help:"How often each figure is measured, in turn with its floor; the median is shown." default:"5"`
	Seconds      float64 `help:"Duration of each measurement." default:"4"`
	Subscribers  int     `help:"Subscribers of fan-out, each with a connection of its own." default:"1000"`
	Streams      int     `help:"Streams of the figures about memory and reconnecting, each with a connection of its own." default:"10000"`
	Senders      int     `help:"Senders at once. Default: 64, and 512 on MongoDB." placeholder:"N"`
	Channels     int     `help:"Channels of the figures with many." default:"1000"`
	Users        int     `help:"Users who are online in the figures on presence." default:"10000"`
	Payload      int     `help:"Bytes of a message's content." default:"128"`
	QueuePayload int     `help:"Bytes of a queue's message." default:"1024"`
	Delayed      int     `help:"Messages that are scheduled for the figure on delays, a thousand due in a second." default:"10000"`
	Rivals       string  `help:"Also measure other queues on Redis: hack/rivals, after 'make rivals' has built them." type:"existingdir" placeholder:"DIR"`
	Parleyd      string  `help:"The server to start without --addr. Default: the parleyd beside this program, else in PATH." type:"existingfile"`
	Dir          string  `help:"Directory for the data of servers that are started; on a real disk, because the fsync is measured." type:"existingdir" placeholder:"DIR"`
	MongoURI     string  `name:"mongo-uri" help:"The replica set of the nodes of --addr, for the figures on MongoDB." placeholder:"URI"`
}

// options returns the options of a run: of a running server if its address is given, else of
// servers that the run starts.
func (c *command) options(getenv func(string) string) (bench.Options, error) {
	if c.Seconds <= 0 || c.Senders < 0 ||
		min(c.Rounds, c.Subscribers, c.Streams, c.Channels, c.Users, c.Payload, c.QueuePayload, c.Delayed) <= 0 {
		return bench.Options{}, errors.New("a flag that is a number must be positive")
	}
	o := bench.Options{
		Rounds: c.Rounds, Duration: time.Duration(c.Seconds * float64(time.Second)),
		Subscribers: c.Subscribers, Streams: c.Streams, Senders: c.Senders, Channels: c.Channels, Users: c.Users, Payload: c.Payload,
		QueuePayload: c.QueuePayload, Delayed: c.Delayed, Rivals: c.Rivals,
		Parleyd: c.Parleyd, Dir: c.Dir, MongoURI: c.MongoURI,
	}
	if c.Addr == "" && getenv("PARLEY_ADDR") == "" {
		if c.Ops != "" || c.MongoURI != "" {
			return bench.Options{}, errors.New("--ops and --mongo-uri require --addr")
		}
		return o, nil
	}
	found, err := access.Find(access.Options{Addr: c.Addr, Token: c.Token, DataDir: c.DataDir, Getenv: getenv})
	if err != nil {
		return bench.Options{}, err
	}
	o.Addrs, o.Token, o.Ops = splitList(found.Addr), found.Token, splitList(c.Ops)
	return o, nil
}

// splitList splits a list at commas and drops empty elements.
func splitList(text string) []string {
	var all []string
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}
