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
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// gauge counts what passes between a server and one engine.
type gauge struct {
	// requests counts the requests, except those that the driver makes on its own and those that wait
	// for changes. received counts the bytes of the engine's answers.
	requests, received atomic.Int64
}

// gaugeMongo returns the address of a forwarder to a mongod, and what it counts.
func gaugeMongo(t *testing.T, target string) (string, *gauge) {
	t.Helper()
	g := &gauge{}
	return forward(t, target, func(to io.Writer, from io.Reader) error { return g.copyMongo(to, from) }, g), g
}

// gaugeRedis returns the address of a forwarder to a redis-server, and what it counts. It does not
// count requests.
func gaugeRedis(t *testing.T, target string) (string, *gauge) {
	t.Helper()
	g := &gauge{}
	return forward(t, target, func(to io.Writer, from io.Reader) error { _, err := io.Copy(to, from); return err }, g), g
}

// forward listens on a loopback port and forwards each connection to target until the test ends.
func forward(t *testing.T, target string, requests func(to io.Writer, from io.Reader) error, g *gauge) string {
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
			open.Go(func() { _ = requests(engine, client); _ = engine.Close(); _ = client.Close(); end() })
			open.Go(func() {
				_, _ = io.Copy(io.MultiWriter(client, counting{&g.received}), engine)
				_ = client.Close()
				_ = engine.Close()
			})
		}
	})
	return listener.Addr().String()
}

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

// budget is a row of the table in docs/budgets.md: the most that a call may cost.
type budget struct {
	requests, mongoKiB, redisKiB, allocated float64
}

// readBudgets reads the rows of the table in docs/budgets.md, by call.
func readBudgets(t *testing.T) map[string]budget {
	t.Helper()
	text, err := os.ReadFile("../docs/budgets.md")
	if err != nil {
		t.Fatal(err)
	}
	budgets := map[string]budget{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 {
			continue
		}
		var numbers [4]float64
		valid := true
		for i := range numbers {
			numbers[i], err = strconv.ParseFloat(strings.TrimSpace(cells[i+1]), 64)
			valid = valid && err == nil
		}
		if valid {
			budgets[strings.TrimSpace(cells[0])] = budget{numbers[0], numbers[1], numbers[2], numbers[3]}
		}
	}
	return budgets
}

// budgetRig is a server whose engines are behind gauges.
type budgetRig struct {
	t            *testing.T
	mongo, redis *gauge
	server       *servertest.Server
	c            client
}

func newBudgetRig(t *testing.T) *budgetRig {
	t.Helper()
	r := &budgetRig{t: t}
	r.server = servertest.Serve(t, servertest.With(func(c *config.Config) {
		var addr string
		addr, r.mongo = gaugeMongo(t, testkit.MongoAddr(t))
		c.Mongo.URI = config.SecretURL("mongodb://" + addr + "/?directConnection=true")
		c.Redis.Addr, r.redis = gaugeRedis(t, c.Redis.Addr)
		c.Limits.RequestsPerSecond, c.Limits.RequestBurst = 1e6, 1e6
	}))
	r.c = r.server.Client(r.server.Token)
	return r
}

// cost is what a call cost on average.
type cost struct {
	budget

	answered float64 // KiB
}

// measure makes a call n times and returns what one cost, without what the idle server costs in
// that time.
func (r *budgetRig) measure(n int, call func(i int) (proto.Message, error)) cost {
	r.t.Helper()
	if _, err := call(0); err != nil { // what is only done once
		r.t.Fatal(err)
	}
	type sample struct {
		requests, mongo, redis int64
		allocated              uint64
		at                     time.Time
	}
	take := func() sample {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return sample{r.mongo.requests.Load(), r.mongo.received.Load(), r.redis.received.Load(), m.TotalAlloc, time.Now()}
	}
	r.settle()
	idleFrom := take()
	<-time.After(time.Second) // the idle server's own rate
	idleTo := take()
	answered := 0
	for i := range n {
		answer, err := call(i + 1)
		if err != nil {
			r.t.Fatal(err)
		}
		if answer != nil {
			answered += proto.Size(answer)
		}
	}
	r.settle()
	end := take()
	idle := end.at.Sub(idleTo.at).Seconds() / idleTo.at.Sub(idleFrom.at).Seconds()
	of := func(a, b, c int64) float64 { return max(0, float64(c-b)-idle*float64(b-a)) / float64(n) }
	return cost{
		answered: float64(answered) / 1024 / float64(n),
		budget: budget{
			requests: of(idleFrom.requests, idleTo.requests, end.requests),
			mongoKiB: of(idleFrom.mongo, idleTo.mongo, end.mongo) / 1024,
			redisKiB: of(idleFrom.redis, idleTo.redis, end.redis) / 1024,
			allocated: max(0, float64(end.allocated-idleTo.allocated)-idle*float64(idleTo.allocated-idleFrom.allocated)) /
				float64(n) / 1024,
		},
	}
}

// settle waits until the engines have answered little for a while: what was published is cached.
func (r *budgetRig) settle() {
	r.t.Helper()
	last := int64(-1)
	testkit.Eventually(r.t, 60*time.Second, func() error {
		<-time.After(100 * time.Millisecond)
		now := r.mongo.received.Load() + r.redis.received.Load()
		quiet := last >= 0 && now-last < 16<<10
		last = now
		if !quiet {
			return fmt.Errorf("the engines are busy")
		}
		return nil
	})
}

// TestCallsStayWithinTheirBudgets measures what calls cost under hostile data: a message with 300
// edits, the largest texts, many members and channels. docs/budgets.md has the budgets.
func TestCallsStayWithinTheirBudgets(t *testing.T) { //nolint:paralleltest // it measures allocations, which all tests share
	r := newBudgetRig(t)
	ctx := t.Context()
	large := strings.Repeat("x", 64<<10)
	edited := send(t, r.c, "edited", "0")
	send(t, r.c, "edited", "next")
	edit := func(text string) (*parleyv1.EditMessageResponse, error) {
		return r.c.EditMessage(ctx, &parleyv1.EditMessageRequest{ChannelId: "edited", MsgId: edited.GetMsgId(), Content: text})
	}
	for i := range 300 {
		if _, err := edit(fmt.Sprint(i, large[:60<<10])); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		send(t, r.c, "large", large)
		send(t, r.c, fmt.Sprintf("mine-%02d", i), large)
	}
	recalls := r.editedMessages("recalls", 6, 300, 1<<10)
	var members []*parleyv1.ChannelMember
	for i := range 400 {
		members = append(members, &parleyv1.ChannelMember{UserId: fmt.Sprintf("user-%04d", i)})
	}
	if _, err := r.c.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: "members", MembersOnly: true, Members: members}); err != nil {
		t.Fatal(err)
	}
	msg := func(m proto.Message, err error) (proto.Message, error) { return m, err }
	uncached := func(channel string, call func(i int) (proto.Message, error)) func(i int) (proto.Message, error) {
		client := r.server.Redis.Client(t)
		return func(i int) (proto.Message, error) {
			deleted, err := client.Del(ctx, "msg_cache:"+channel).Result()
			if err == nil && i == 0 && deleted == 0 {
				err = errors.New("nothing was cached")
			}
			if err != nil {
				return nil, err
			}
			return call(i)
		}
	}
	list := func(channel string, size int32) func(int) (proto.Message, error) {
		return func(int) (proto.Message, error) {
			return msg(r.c.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: channel, PageSize: size}))
		}
	}
	budgets := readBudgets(t)
	defer func() {
		for name := range budgets {
			t.Errorf("docs/budgets.md has a budget for %s, which is not measured", name)
		}
	}()
	for _, tc := range []struct {
		name string
		n    int
		call func(i int) (proto.Message, error)
	}{
		{"SendMessage, 64 KiB", 20, func(int) (proto.Message, error) {
			return msg(r.c.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "sends", Content: large}))
		}},
		{"EditMessage, 64 KiB, the 300th edit", 20, func(i int) (proto.Message, error) { return msg(edit(fmt.Sprint(i, large[:60<<10]))) }},
		{"GetMessage, 60 KiB, edited 300 times", 20, func(int) (proto.Message, error) {
			return msg(r.c.GetMessage(ctx, &parleyv1.GetMessageRequest{ChannelId: "edited", MsgId: edited.GetMsgId()}))
		}},
		{"ListMessages, 2 messages, one edited 300 times", 20, list("edited", 50)},
		{"ListMessages, the same without Redis", 20, uncached("edited", list("edited", 50))},
		{"ListMessages, a page of 1 MiB", 10, list("large", 1000)},
		{"ListMessages, a page of 1 MiB without Redis", 10, uncached("large", list("large", 1000))},
		{"ListChannels, 40 channels, last messages of 64 KiB", 5, func(int) (proto.Message, error) {
			return msg(r.c.ListChannels(ctx, &parleyv1.ListChannelsRequest{PageSize: 200}))
		}},
		{"ListMembers, 50 of 400", 20, func(int) (proto.Message, error) {
			return msg(r.c.ListMembers(ctx, &parleyv1.ListMembersRequest{ChannelId: "members", PageSize: 50}))
		}},
		{"MarkRead", 20, func(i int) (proto.Message, error) {
			return msg(r.c.MarkRead(ctx, &parleyv1.MarkReadRequest{ChannelId: "large", Seq: int64(i%40 + 1)}))
		}},
		{"Subscribe, replay of 2 messages and 300 edits", 10, func(int) (proto.Message, error) { return r.replay("edited") }},
		{"Subscribe, replay of 2.5 MiB", 5, func(int) (proto.Message, error) { return r.replay("large") }},
		{"RecallMessage, edited 300 times", len(recalls) - 1, func(i int) (proto.Message, error) {
			return msg(r.c.RecallMessage(ctx, &parleyv1.RecallMessageRequest{ChannelId: "recalls", MsgId: recalls[i]}))
		}},
	} {
		got := r.measure(tc.n, tc.call)
		t.Logf("%s: %.1f requests, %.0f KiB from MongoDB, %.0f KiB from Redis, %.0f KiB allocated, %.1f KiB answered",
			tc.name, got.requests, got.mongoKiB, got.redisKiB, got.allocated, got.answered)
		want, ok := budgets[tc.name]
		if !ok {
			t.Errorf("%s: no budget in docs/budgets.md", tc.name)
			continue
		}
		delete(budgets, tc.name)
		if got.requests > want.requests || got.mongoKiB > want.mongoKiB || got.redisKiB > want.redisKiB || got.allocated > want.allocated {
			t.Errorf("%s: costs %+v, and may cost %+v", tc.name, got, want)
		}
	}
}

// editedMessages sends n messages to a channel, edits each of them with texts of size bytes, and
// returns their ids.
func (r *budgetRig) editedMessages(channel string, n, edits, size int) []string {
	r.t.Helper()
	ids := make([]string, n)
	var editing errgroup.Group
	for i := range ids {
		ids[i] = send(r.t, r.c, channel, "0").GetMsgId()
		editing.Go(func() error {
			for k := range edits {
				if _, err := r.c.EditMessage(r.t.Context(), &parleyv1.EditMessageRequest{
					ChannelId: channel, MsgId: ids[i], Content: fmt.Sprint(k, strings.Repeat("x", size)),
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := editing.Wait(); err != nil {
		r.t.Fatal(err)
	}
	return ids
}

// replay reads a channel from its beginning to its head and returns the last event.
func (r *budgetRig) replay(channel string) (proto.Message, error) {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	stream, err := r.c.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from(channel, 0)}})
	if err != nil {
		return nil, err
	}
	head := int64(-1)
	all := &parleyv1.EventBatch{}
	for stream.Receive() {
		for _, e := range stream.Msg().GetEvents().GetEvents() {
			all.Events = append(all.Events, e)
			if st := e.GetState(); st != nil {
				head = st.GetHeadSeq()
			} else if e.GetSeq() >= head && head >= 0 {
				return all, nil
			}
		}
	}
	return nil, stream.Err()
}
