package natsbus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func ask(t testing.TB, bus *Bus, wait time.Duration, node, topic, payload string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	answer, err := bus.Nodes().Request(ctx, node, topic, []byte(payload))
	return string(answer), err
}

func serve(t testing.TB, bus *Bus, node, topic string, fn func(ctx context.Context, payload []byte) []byte) (cancel func()) {
	t.Helper()
	cancel, err := bus.Nodes().Serve(node, topic, fn)
	if err != nil {
		t.Fatal(err)
	}
	cancel = sync.OnceFunc(cancel)
	t.Cleanup(cancel)
	return cancel
}

func echo(_ context.Context, payload []byte) []byte { return append([]byte("re:"), payload...) }

func TestBroadcastReachesAllListeners(t *testing.T) {
	t.Parallel()
	url := testkit.NATS(t).URL()
	a, b := connect(t, Config{URL: url}), connect(t, Config{URL: url})
	got := make(chan string, 8)
	for _, bus := range []*Bus{a, b} {
		cancel, err := bus.Nodes().Listen("nodes", func(payload []byte) { got <- string(payload) })
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
	}
	if err := a.Nodes().Broadcast("nodes", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if s := <-got; s != "hello" {
			t.Errorf("got %q", s)
		}
	}
}

func TestRequestsReachTheirNodeAndTopic(t *testing.T) {
	t.Parallel()
	url := testkit.NATS(t).URL()
	a, b := connect(t, Config{URL: url}), connect(t, Config{URL: url})
	cancel := serve(t, b, "B", "append", echo)
	serve(t, b, "B", "session", func(context.Context, []byte) []byte { return []byte{} })
	if got, err := ask(t, a, patience, "B", "append", "x"); err != nil || got != "re:x" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := ask(t, a, patience, "B", "session", "x"); err != nil || got != "" {
		t.Errorf("got %q, %v", got, err)
	}
	began := time.Now()
	for _, to := range [][2]string{{"B", "other"}, {"C", "append"}, {"*", "append"}, {">", "append"}, {"", "append"}, {"B", "*"}} {
		if got, err := ask(t, a, patience, to[0], to[1], "x"); !errors.Is(err, cluster.ErrNoResponder) || errors.Is(err, cluster.ErrDisconnected) {
			t.Errorf("%q: got %q, %v", to, got, err)
		}
	}
	cancel()
	if _, err := ask(t, a, patience, "B", "append", "x"); !errors.Is(err, cluster.ErrNoResponder) {
		t.Errorf("after the end: %v", err)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("nobody was only found out after %s", took)
	}
	for _, to := range [][2]string{{"*", "append"}, {"B", ">"}, {"", "append"}, {"a.b", "append"}} {
		if cancel, err := b.Nodes().Serve(to[0], to[1], echo); err == nil {
			cancel()
			t.Errorf("served %q", to)
		}
	}
}

func TestRequestWithoutNATSFailsAtOnce(t *testing.T) {
	t.Parallel()
	broker := testkit.NATS(t)
	a, b := connect(t, Config{URL: broker.URL()}), connect(t, Config{URL: broker.URL()})
	var served, heard atomic.Int64
	serve(t, b, "B", "append", func(_ context.Context, payload []byte) []byte {
		if string(payload) == "early" {
			served.Add(1)
		}
		return payload
	})
	if _, err := b.Nodes().Listen("nodes", func([]byte) { heard.Add(1) }); err != nil {
		t.Fatal(err)
	}
	broker.Stop()
	testkit.Eventually(t, patience, func() error {
		if a.nc.IsConnected() || b.nc.IsConnected() {
			return errors.New("still connected")
		}
		return nil
	})
	began := time.Now()
	if _, err := ask(t, a, patience, "B", "append", "early"); !errors.Is(err, cluster.ErrDisconnected) || !errors.Is(err, cluster.ErrNoResponder) {
		t.Errorf("got %v", err)
	}
	if err := a.Nodes().Broadcast("nodes", []byte("early")); err == nil {
		t.Error("broadcast without NATS")
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the refusal took %s", took)
	}
	broker.Start()
	testkit.Eventually(t, patience, func() error {
		got, err := ask(t, a, time.Second, "B", "append", "late")
		if err == nil && got != "late" {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
	if served.Load() != 0 || heard.Load() != 0 {
		t.Error("what was refused was sent later")
	}
}

func TestServedRequestsEndWithTheirRequester(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	ended := make(chan error, 1)
	serve(t, bus, "B", "append", func(ctx context.Context, _ []byte) []byte {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil
	})
	if _, err := ask(t, bus, 200*time.Millisecond, "B", "append", "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the request outlives its asker")
	}
}

func TestServeCancelWaitsForRequestsInFlight(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	entered, release := make(chan struct{}), make(chan struct{})
	cancel := serve(t, bus, "B", "append", func(_ context.Context, payload []byte) []byte {
		close(entered)
		<-release
		return payload
	})
	answered := make(chan error, 1)
	go func() {
		_, err := ask(t, bus, patience, "B", "append", "x")
		answered <- err
	}()
	<-entered
	cancelled := make(chan struct{})
	go func() {
		cancel()
		close(cancelled)
	}()
	select {
	case <-cancelled:
		t.Error("cancel did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	<-cancelled
	if err := <-answered; err != nil {
		t.Errorf("what was under way got no answer: %v", err)
	}
}

func TestNoRequestIsLostWhenServingEnds(t *testing.T) {
	t.Parallel()
	url := testkit.NATS(t).URL()
	a, b := connect(t, Config{URL: url}), connect(t, Config{URL: url})
	for range 5 {
		cancel := serve(t, b, "B", "append", echo)
		var asking sync.WaitGroup
		var n atomic.Int64
		for range 16 {
			asking.Go(func() {
				for {
					_, err := ask(t, a, 5*time.Second, "B", "append", "x")
					if errors.Is(err, cluster.ErrNoResponder) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					n.Add(1)
				}
			})
		}
		testkit.Eventually(t, patience, func() error {
			if n.Load() < 100 {
				return errors.New("nothing was served yet")
			}
			return nil
		})
		cancel()
		asking.Wait()
	}
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	var n atomic.Int64
	release := make(chan struct{})
	serve(t, bus, "B", "append", func(_ context.Context, payload []byte) []byte {
		n.Add(1)
		<-release
		return payload
	})
	var asking sync.WaitGroup
	for range maxServing {
		asking.Go(func() {
			if _, err := ask(t, bus, patience, "B", "append", "x"); err != nil {
				t.Error(err)
			}
		})
	}
	testkit.Eventually(t, patience, func() error {
		if n := n.Load(); n != maxServing {
			return fmt.Errorf("%d under way", n)
		}
		return nil
	})
	if _, err := ask(t, bus, patience, "B", "append", "x"); !errors.Is(err, cluster.ErrBusy) || !errors.Is(err, cluster.ErrNoResponder) {
		t.Errorf("one too many: %v", err)
	}
	close(release)
	asking.Wait()
	if _, err := ask(t, bus, patience, "B", "append", "x"); err != nil {
		t.Errorf("once there is room: %v", err)
	}
	if n := n.Load(); n != maxServing+1 {
		t.Errorf("%d were served", n)
	}
}

func TestLateRequestsAreDropped(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	got := make(chan string, 4)
	s := &requestServer{bus: bus, fn: func(_ context.Context, payload []byte) []byte {
		got <- string(payload)
		return nil
	}}
	cancel, err := bus.listen("parley.node.B.append", 16, 1<<20, func(msg *nats.Msg) {
		if string(msg.Data) == "late" {
			s.respond(msg, time.Now().Add(-time.Millisecond))
			return
		}
		s.accept(msg)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	defer cancel()
	for _, payload := range []string{"late", "timely"} {
		if err := bus.nc.Publish("parley.node.B.append", []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	if s := <-got; s != "timely" {
		t.Errorf("%q was served", s)
	}
}

func TestLargestForwardedPieceIsDelivered(t *testing.T) {
	t.Parallel()
	bus := connect(t, Config{URL: testkit.NATS(t).URL()})
	serve(t, bus, "B", "append", echo)
	if got, err := ask(t, bus, patience, "B", "append", string(make([]byte, 900<<10))); err != nil || len(got) != 900<<10+3 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	// A request that NATS refuses has reached no node.
	if _, err := ask(t, bus, patience, "B", "append", string(make([]byte, 2<<20))); !errors.Is(err, cluster.ErrNoResponder) {
		t.Errorf("got %v", err)
	}
}

// natsCluster starts a cluster of three servers in this process.
func natsCluster(t *testing.T) [3]*server.Server {
	t.Helper()
	var servers [3]*server.Server
	var routes []string
	for i := range servers {
		opts := &server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
			JetStream: true, StoreDir: t.TempDir(),
			Cluster: server.ClusterOpts{Name: "three", Host: "127.0.0.1", Port: server.RANDOM_PORT, PoolSize: -1},
			Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
		}
		s, err := server.NewServer(opts)
		if err != nil {
			t.Fatal(err)
		}
		servers[i] = s
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		s.Start()
		if !s.ReadyForConnections(patience) {
			t.Fatal("a NATS server takes no connections")
		}
		addr := s.ClusterAddr()
		routes = append(routes, "nats-route://"+net.JoinHostPort("127.0.0.1", fmt.Sprint(addr.Port)))
	}
	for _, s := range servers {
		testkit.Eventually(t, patience, func() error {
			if n := s.NumRoutes(); n < 2 {
				return fmt.Errorf("%d routes", n)
			}
			return nil
		})
	}
	return servers
}

func TestThreeServers(t *testing.T) {
	t.Parallel()
	servers := natsCluster(t)
	var buses [3]*Bus
	for i, s := range servers {
		buses[i] = connect(t, Config{URL: s.ClientURL(), Replicas: 3, ConnectWait: patience})
	}
	serve(t, buses[2], "C", "append", echo)
	heard := make(chan string, 8)
	if _, err := buses[1].Nodes().Listen("nodes", func(payload []byte) { heard <- string(payload) }); err != nil {
		t.Fatal(err)
	}
	// A subscription takes a moment to reach the other servers.
	testkit.Eventually(t, patience, func() error {
		got, err := ask(t, buses[0], time.Second, "C", "append", "x")
		if err == nil && got != "re:x" {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
	if _, err := ask(t, buses[0], patience, "D", "append", "x"); !errors.Is(err, cluster.ErrNoResponder) {
		t.Errorf("asked nobody: %v", err)
	}
	testkit.Eventually(t, patience, func() error {
		if err := buses[0].Nodes().Broadcast("nodes", []byte("hello")); err != nil {
			return err
		}
		select {
		case <-heard:
			return nil
		case <-time.After(50 * time.Millisecond):
			return errors.New("nobody has heard")
		}
	})
	publish(t, buses[0], sent("room", 1, 3))
	testkit.Eventually(t, patience, func() error {
		e, ok, err := buses[1].LastPublished(t.Context(), 0)
		if err == nil && (!ok || e.Seq != 3) {
			err = fmt.Errorf("last published is %d, %t", e.Seq, ok)
		}
		return err
	})
	// With one server gone, the other two continue.
	servers[0].Shutdown()
	var got inbox
	consumeGroup(t, buses[1].Group(ChannelGroup, 0), 0, into(&got))
	publish(t, buses[2], sent("room", 4, 4))
	got.wait(t, 1, 2, 3, 4)
}
