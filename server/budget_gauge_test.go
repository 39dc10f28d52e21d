package server_test

import (
	"bufio"
	"bytes"
	"context"
	wire "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// gauge counts what passes between a server and one engine.
type gauge struct {
	// requests counts the round trips, except those that the driver makes on its own and those that
	// wait for changes. received counts the bytes of the engine's answers.
	requests, received atomic.Int64
}

// gaugeMongo returns the address of a forwarder to a mongod, and what it counts.
func gaugeMongo(t *testing.T, target string) (string, *gauge) {
	t.Helper()
	g := &gauge{}
	return g.forward(t, target, g.copyMongo), g
}

// gaugeRedis returns the address of a forwarder to a redis-server, and what it counts. A pipeline
// is one round trip.
func gaugeRedis(t *testing.T, target string) (string, *gauge) {
	t.Helper()
	g := &gauge{}
	return g.forward(t, target, g.copyRedis), g
}

// forward listens on a loopback port and forwards each connection to target until the test ends.
// requests copies what the server sends.
func (g *gauge) forward(t *testing.T, target string, requests func(to io.Writer, from io.Reader) error) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { cancel(); _ = listener.Close(); open.Wait() })
	open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			network := "tcp"
			if strings.HasPrefix(target, "/") {
				network = "unix"
			}
			engine, err := new(net.Dialer).DialContext(ctx, network, target)
			if err != nil {
				_ = client.Close()
				continue
			}
			end := context.AfterFunc(ctx, func() { _ = client.Close(); _ = engine.Close() })
			open.Go(func() {
				// A protocol that the gauge cannot read would be counted as nothing.
				if err := requests(engine, client); errors.Is(err, errRequest) {
					t.Errorf("the requests to %s: %v", target, err)
				}
				_ = engine.Close()
				_ = client.Close()
				end()
			})
			open.Go(func() {
				_, _ = io.Copy(io.MultiWriter(client, counting{&g.received}), engine)
				_ = client.Close()
				_ = engine.Close()
			})
		}
	})
	return listener.Addr().String()
}

// errRequest is a request that a gauge cannot read.
var errRequest = errors.New("cannot be read")

// counting adds the bytes that are written to it to n.
type counting struct{ n *atomic.Int64 }

func (c counting) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// copyMongo copies messages of MongoDB's wire protocol and counts them.
func (g *gauge) copyMongo(to io.Writer, from io.Reader) error {
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		header, err := in.Peek(16)
		if err != nil {
			return err
		}
		size := int64(wire.LittleEndian.Uint32(header))
		start, _ := in.Peek(int(min(size, 64)))
		own := false
		for _, command := range []string{"\x12getMore\x00", "hello\x00", "isMaster\x00", "endSessions\x00"} {
			own = own || bytes.Contains(start, []byte(command))
		}
		if !own {
			g.requests.Add(1)
		}
		if _, err := io.CopyN(to, in, size); err != nil {
			return err
		}
	}
}

// copyRedis copies commands of Redis' protocol and counts pipelines of them. A client sends each
// command as an array of bulk strings.
func (g *gauge) copyRedis(to io.Writer, from io.Reader) error {
	in, out := bufio.NewReaderSize(from, 64<<10), bufio.NewWriterSize(to, 64<<10)
	own := true
	for {
		if in.Buffered() == 0 {
			if !own {
				g.requests.Add(1)
			}
			own = true
			if err := out.Flush(); err != nil {
				return err
			}
		}
		parts, err := copyLength(out, in, '*')
		if err != nil {
			return err
		}
		for i := range parts {
			size, err := copyLength(out, in, '$')
			if err != nil {
				return err
			}
			if i == 0 {
				name, _ := in.Peek(int(size))
				switch strings.ToLower(string(name)) {
				case "hello", "client", "ping", "auth", "select", "info", "config":
				default:
					own = false
				}
			}
			if _, err := io.CopyN(out, in, size+2); err != nil {
				return err
			}
		}
	}
}

// copyLength copies a line of Redis' protocol, a kind and a number, and returns the number.
func copyLength(to io.Writer, from *bufio.Reader, kind byte) (int64, error) {
	line, err := from.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	n, bad := strconv.ParseInt(strings.TrimSpace(string(line[1:])), 10, 64)
	if bad != nil || line[0] != kind || n < 0 {
		return 0, fmt.Errorf("%.40q %w: a length with %c must be there", line, errRequest, kind)
	}
	_, err = to.Write(line)
	return n, err
}
