package server_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// budgetRig is a server whose engines are behind gauges, with clients that record which methods
// they call.
type budgetRig struct {
	t            *testing.T
	mongo, redis *gauge
	server       *servertest.Server
	c            client
	presence     parleyv1connect.PresenceServiceClient
	queues       parleyv1connect.QueueServiceClient
	topics       parleyv1connect.AdminServiceClient
	admin        parleyv1connect.AdminServiceClient
	info         parleyv1connect.ServerServiceClient
	started      time.Time
	idle         cost // of a second
	// database is the name of the server's database.
	database string

	mu     sync.Mutex
	called map[string]int // by the method's name; guarded by mu
}

func newBudgetRig(t *testing.T) *budgetRig {
	t.Helper()
	r := &budgetRig{t: t, called: map[string]int{}}
	r.server = servertest.Serve(t, servertest.With(func(c *config.Config) {
		var addr string
		addr, r.mongo = gaugeMongo(t, testkit.MongoAddr(t))
		c.Mongo.URI = config.SecretURL("mongodb://" + addr + "/?directConnection=true")
		r.database = c.Mongo.Database
		c.Redis.Addr, r.redis = gaugeRedis(t, c.Redis.Addr)
		c.Limits.RequestsPerSecond, c.Limits.RequestBurst = 1e6, 1e6
		// Heartbeats would allocate while other calls are measured.
		c.Limits.HeartbeatInterval, c.Limits.FrameTimeout = 5*time.Minute, 10*time.Minute
		c.Sessions.OpenTimeout = time.Hour // some messages stay open
	}))
	r.started = time.Now()
	opts := connect.WithInterceptors(r)
	r.c, r.presence = r.server.Client(r.server.Token, opts), r.server.Presence(r.server.Token, opts)
	r.queues, r.topics = r.server.Queues(r.server.Token, opts), r.server.QueueAdmin(r.server.Token, opts)
	r.admin = r.server.Admin(r.server.Token, opts)
	r.info = parleyv1connect.NewServerServiceClient(servertest.HTTPClient(t, r.server.Token), r.server.URL, opts)
	return r
}

// WrapUnary implements connect.Interceptor.
func (r *budgetRig) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		r.record(req.Spec().Procedure)
		return next(ctx, req)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (r *budgetRig) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		r.record(spec.Procedure)
		return next(ctx, spec)
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (*budgetRig) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// record counts a call of a procedure.
func (r *budgetRig) record(procedure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.called[methodOf(procedure)]++
}

// calls returns how often a method was called.
func (r *budgetRig) calls(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.called[method]
}

// must fails the test if err is not nil.
func (r *budgetRig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// httpClients returns n clients without a token, each with its own connection.
func (r *budgetRig) httpClients(n int) []*http.Client {
	r.t.Helper()
	all := make([]*http.Client, n)
	for i := range all {
		all[i] = servertest.HTTPClient(r.t, "")
	}
	return all
}

// cost is what a call cost: requests to MongoDB, round trips to Redis, KiB.
type cost struct{ requests, trips, mongoKiB, redisKiB, allocated, answered float64 }

// sub returns c without o, and nothing below zero.
func (c cost) sub(o cost) cost {
	return cost{
		max(0, c.requests-o.requests), max(0, c.trips-o.trips), max(0, c.mongoKiB-o.mongoKiB), max(0, c.redisKiB-o.redisKiB),
		max(0, c.allocated-o.allocated), max(0, c.answered-o.answered),
	}
}

// times returns c times x.
func (c cost) times(x float64) cost {
	return cost{c.requests * x, c.trips * x, c.mongoKiB * x, c.redisKiB * x, c.allocated * x, c.answered * x}
}

// total returns what the server has cost since it was started.
func (r *budgetRig) total() cost {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return cost{
		requests: float64(r.mongo.requests.Load()), trips: float64(r.redis.requests.Load()),
		mongoKiB: float64(r.mongo.received.Load()) / 1024, redisKiB: float64(r.redis.received.Load()) / 1024,
		allocated: float64(m.TotalAlloc) / 1024,
	}
}

// quartile returns the lower quartile of each number: that of three is the least.
func quartile(costs []cost) cost {
	of := func(number func(c cost) float64) float64 {
		all := make([]float64, len(costs))
		for i, c := range costs {
			all[i] = number(c)
		}
		slices.Sort(all)
		return all[len(all)/4]
	}
	return cost{
		of(func(c cost) float64 { return c.requests }), of(func(c cost) float64 { return c.trips }),
		of(func(c cost) float64 { return c.mongoKiB }), of(func(c cost) float64 { return c.redisKiB }),
		of(func(c cost) float64 { return c.allocated }), of(func(c cost) float64 { return c.answered }),
	}
}

// observeIdle measures what the server costs in a second without calls. Its longest interval of
// work that counts is 2 s, so it is observed for that time.
func (r *budgetRig) observeIdle() {
	r.t.Helper()
	// A node that has just started reads the logs of presence, and more, for a few seconds.
	<-time.After(time.Until(r.started.Add(4 * time.Second)))
	r.settle()
	before, began := r.total(), time.Now()
	<-time.After(2 * time.Second)
	r.idle = r.total().sub(before).times(1 / time.Since(began).Seconds())
	r.t.Logf("an idle second: %+v", r.idle)
}

// measure makes a row's call n times, after one that is not counted. It returns the lower quartile
// of what one cost with the work that follows it, without what an idle server costs in that time.
// The server also works in the background in bursts, and a busy machine delays it, which adds to
// some calls. A call that has become more expensive costs more each time.
func (r *budgetRig) measure(row budgetRow) cost {
	r.t.Helper()
	var calls []cost
	for i := range row.n + 1 {
		if row.prepare != nil {
			r.must(row.prepare(i))
		}
		r.settle()
		before, began := r.total(), time.Now()
		answer, err := row.call(i)
		r.must(err)
		r.settle()
		if i == 0 { // does what is only done once
			continue
		}
		c := r.total().sub(before).sub(r.idle.times(time.Since(began).Seconds()))
		if answer != nil {
			c.answered = float64(proto.Size(answer)) / 1024
		}
		calls = append(calls, c)
	}
	return quartile(calls)
}

// settle waits until the engines have answered little for a while: what was published is cached.
func (r *budgetRig) settle() {
	r.t.Helper()
	quiet, last := 0, int64(-1)
	testkit.Eventually(r.t, 60*time.Second, func() error {
		<-time.After(30 * time.Millisecond)
		now := r.mongo.received.Load() + r.redis.received.Load()
		if quiet++; last < 0 || now-last > 8<<10 {
			quiet = 0
		}
		if last = now; quiet < 2 {
			return fmt.Errorf("the engines are busy")
		}
		return nil
	})
}
