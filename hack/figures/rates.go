package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/internal/rig"
)

// bench is a fleet and what is measured on it.
type bench struct {
	*flags
	fleet *rig.Fleet
	token string
	say   func(figure) error
	// cost is the CPU time per acknowledged message of the last measurement, in microseconds, by who spent it.
	cost map[string]float64
}

// cpu is the CPU time that all have used so far.
func (b *bench) cpu() map[string]time.Duration {
	used := map[string]time.Duration{"load": usedBy(os.Getpid())}
	for _, n := range b.fleet.Nodes() {
		used["nodes"] += usedBy(n.PID())
	}
	for i := range b.fleet.Mongo.Size() {
		used["mongod"] += usedBy(b.fleet.Mongo.PID(i))
	}
	used["nats"] = usedBy(b.fleet.NATS.PID(0))
	return used
}

// usedBy reads user and system time of a process from /proc, in the hundredths of a second that Linux tells; 0 if it can't.
func usedBy(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ") // behind the name, which may hold spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// payload is what each message holds.
var payload = strings.Repeat("x", 128)

// connections is how many the senders of one node share.
const connections = 8

type bearer struct {
	next  http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// clients gives a node's clients, each on a connection of its own.
func (b *bench) clients(node int) []parleyv1connect.MessageServiceClient {
	cs := make([]parleyv1connect.MessageServiceClient, connections)
	for i := range cs {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		cs[i] = parleyv1connect.NewMessageServiceClient(&http.Client{Transport: bearer{transport, b.token}},
			"http://"+b.fleet.Node(node).Addr(), connect.WithGRPC())
	}
	return cs
}

// rates tells sends per second, of each kind in turn.
func (b *bench) rates(ctx context.Context) error {
	floor, closeFloor, err := b.floor(ctx)
	if err != nil {
		return err
	}
	defer closeFloor()
	one := func(i int) string { return fmt.Sprintf("many-%d", i%b.Channels) }
	kinds := []struct {
		name string
		run  func(ctx context.Context) (float64, error)
	}{
		{"one insert a round trip (driver, majority, journaled)", floor},
		{"hot channel, all senders on node 0", b.sending([]int{0}, func(int) string { return "hot" })},
		{"hot channel, all senders on node 1", b.sending([]int{1}, func(int) string { return "hot" })},
		{"hot channel, all senders on node 2", b.sending([]int{2}, func(int) string { return "hot" })},
		{"hot channel, senders on three nodes", b.sending([]int{0, 1, 2}, func(int) string { return "hot" })},
		{fmt.Sprintf("%d channels, three nodes", b.Channels), b.sending([]int{0, 1, 2}, one)},
		{fmt.Sprintf("%d channels, all senders on one of three nodes", b.Channels), b.sending([]int{0}, one)},
	}
	results := make([][]float64, len(kinds)+1)
	spent := make([]map[string]float64, len(kinds)+1)
	timed := func(i int, run func(context.Context) (float64, error)) error {
		b.cost = nil
		rate, err := run(ctx)
		results[i], spent[i] = append(results[i], rate), b.cost
		return err
	}
	for range b.Rounds {
		for i, k := range kinds {
			if i > 0 && !strings.Contains(k.name, b.Only) {
				continue
			}
			if err := timed(i, k.run); err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
		}
		// The floor of the last two: a fleet of one node.
		if err := timed(len(kinds), func(ctx context.Context) (float64, error) {
			return b.alone(ctx, kinds[len(kinds)-1].run)
		}); err != nil {
			return err
		}
	}
	single := median(results[len(kinds)])
	for i, r := range results {
		if len(r) == 0 {
			continue
		}
		slices.Sort(r)
		name, base := fmt.Sprintf("%d channels, a fleet of one node", b.Channels), single
		if i < len(kinds) {
			name = kinds[i].name
		}
		if i < 5 {
			base = median(results[0])
		}
		more := map[string]float64{"ratio": median(r) / base}
		maps.Copy(more, spent[i])
		if err := b.say(figure{
			Name: name, Unit: "acked/s", Value: median(r), Low: r[0], High: r[len(r)-1], More: more,
		}); err != nil {
			return err
		}
	}
	return nil
}

// alone runs with node 0 as the only one.
func (b *bench) alone(ctx context.Context, run func(context.Context) (float64, error)) (float64, error) {
	for _, i := range []int{1, 2} {
		if err := b.fleet.Node(i).Term(ctx); err != nil {
			return 0, err
		}
	}
	rate, err := run(ctx)
	for _, i := range []int{1, 2} {
		if err := b.fleet.Node(i).Restart(ctx); err != nil {
			return 0, err
		}
	}
	return rate, err
}

func median(sorted []float64) float64 {
	sorted = slices.Sorted(slices.Values(sorted))
	return sorted[len(sorted)/2]
}

// floor inserts documents of about an entry's size one after another.
func (b *bench) floor(ctx context.Context) (run func(context.Context) (float64, error), closing func(), err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(b.fleet.Mongo.URI()).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: new(true)}))
	if err != nil {
		return nil, nil, err
	}
	c := client.Database("figures").Collection("floor")
	index := mongo.IndexModel{Keys: bson.D{{Key: "channel_id", Value: 1}, {Key: "seq", Value: 1}}, Options: options.Index().SetUnique(true)}
	if _, err := c.Indexes().CreateOne(ctx, index); err != nil {
		return nil, nil, err
	}
	seq := 0
	run = func(ctx context.Context) (float64, error) {
		began, n := time.Now(), 0
		for time.Since(began) < time.Duration(b.Seconds)*time.Second {
			seq++
			if _, err := c.InsertOne(ctx, bson.D{
				{Key: "channel_id", Value: "hot"}, {Key: "seq", Value: seq}, {Key: "content", Value: payload},
			}); err != nil {
				return 0, err
			}
			n++
		}
		return float64(n) / time.Since(began).Seconds(), nil
	}
	return run, func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }, nil
}

// sending has all senders send, shared out among nodes, sender i to channel(i), and gives the rate of what was
// acknowledged. A send that fails ends it.
func (b *bench) sending(nodes []int, channel func(i int) string) func(ctx context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var clients [][]parleyv1connect.MessageServiceClient
		for _, n := range nodes {
			clients = append(clients, b.clients(n))
		}
		var acked atomic.Int64
		var counting atomic.Bool
		var wg sync.WaitGroup
		for i := range b.Senders {
			node := clients[i%len(clients)]
			client := node[i/len(clients)%len(node)]
			wg.Go(func() {
				for j := i; ctx.Err() == nil; j += b.Senders {
					_, err := client.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: channel(j), Content: payload})
					if err != nil && ctx.Err() == nil {
						cancel(err)
					}
					if err == nil && counting.Load() {
						acked.Add(1)
					}
				}
			})
		}
		wait(ctx, time.Second) // connections, heads and rows
		before := b.cpu()
		counting.Store(true)
		began := time.Now()
		wait(ctx, time.Duration(b.Seconds)*time.Second)
		took, n := time.Since(began), acked.Load()
		b.cost = make(map[string]float64)
		for who, spent := range b.cpu() {
			b.cost[who+"_us"] = float64((spent - before[who]).Microseconds()) / float64(max(n, 1))
		}
		err := context.Cause(ctx)
		cancel(nil)
		wg.Wait()
		return float64(n) / took.Seconds(), err
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
