package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

const (
	// mongoSenders is the default number of senders in the figures on MongoDB.
	mongoSenders = 512
	// batchMessages is the number of messages in a batching sender's call. All senders together
	// stay below the 20,000 messages that may wait in one shard of a node.
	batchMessages = 32
)

// needsMongo returns an error unless the options have addresses of nodes and their MongoDB's URI.
func needsMongo(o *Options) error {
	if len(o.Addrs) == 0 || o.MongoURI == "" {
		return errors.New("requires nodes on MongoDB: set --addr and --mongo-uri, or run `make figures`, which starts them")
	}
	return nil
}

// measureHot measures sends to one channel on MongoDB, against one insert after another.
func measureHot(ctx context.Context, env *Env) ([]Figure, error) {
	target, err := env.Target(ctx)
	if err != nil {
		return nil, err
	}
	mongod, err := openMongod(env.MongoURI)
	if err != nil {
		return nil, err
	}
	defer mongod.close(ctx)
	senders := cmp.Or(env.Senders, mongoSenders)
	channel := "bench-hot-" + rand.Text()[:8]
	hot := func(int, int) string { return channel }
	var single, batched mongoRuns
	var floors []float64
	err = env.Each(ctx,
		func(ctx context.Context) error {
			rate, err := env.floorRate(ctx, "inserts", env.MongoURI, strconv.Itoa(env.Payload), env.Duration.String())
			floors = append(floors, rate)
			return err
		},
		func(ctx context.Context) error {
			return single.take(ctx, mongod, target, env.sendTo(senders, hot), env.Duration)
		},
		func(ctx context.Context) error {
			return batched.take(ctx, mongod, target, env.sendBatchesTo(senders, hot), env.Duration)
		})
	if err != nil {
		return nil, err
	}
	setup := env.mongoSetup(senders, target)
	floor := "one insert a round trip: the driver alone, majority, journaled"
	one := Figure{ID: "hot/single/rate", Name: "one hot channel on MongoDB, each sender one message at a time", Unit: "acked/s", Setup: setup}.
		WithFloor(floor, single.rates, floors)
	one.Notes = single.notes()
	many := Figure{
		ID: "hot/batched/rate", Name: fmt.Sprintf("one hot channel on MongoDB, each sender %d messages a call", batchMessages),
		Unit: "acked/s", Setup: setup,
	}.WithFloor(floor, batched.rates, floors)
	many.Notes = batched.notes()
	return []Figure{one.WithRatioBar("at least 20 times the floor", atLeast(20)), many}, nil
}

// SpreadArea returns the area that measures sends to many channels through all nodes of a fleet,
// against the same through one node. alone must stop all nodes but the first of Options.Addrs, call
// the function, and start them again.
func SpreadArea(alone func(ctx context.Context, fn func(context.Context) error) error) Area {
	return Area{
		Name: "spread", Help: "Many channels on several nodes, against one node.", Needs: needsMongo,
		Measure: func(ctx context.Context, env *Env) ([]Figure, error) { return measureSpread(ctx, env, alone) },
	}
}

func measureSpread(
	ctx context.Context, env *Env, alone func(context.Context, func(context.Context) error) error,
) ([]Figure, error) {
	target, err := env.Target(ctx)
	if err != nil {
		return nil, err
	}
	first := &Target{Addrs: target.Addrs[:1], Ops: target.Ops[:1], Token: target.Token}
	mongod, err := openMongod(env.MongoURI)
	if err != nil {
		return nil, err
	}
	defer mongod.close(ctx)
	senders := cmp.Or(env.Senders, mongoSenders)
	name := "bench-spread-" + rand.Text()[:8] + "-"
	load := env.sendTo(senders, func(caller, n int) string { return name + strconv.Itoa((caller+n*senders)%env.Channels) })
	load.warm = time.Second // every channel's row and head is created or read once
	var fleet, single mongoRuns
	err = env.Each(ctx,
		func(ctx context.Context) error { return fleet.take(ctx, mongod, target, load, env.Duration) },
		func(ctx context.Context) error {
			return alone(ctx, func(ctx context.Context) error { return single.take(ctx, mongod, first, load, env.Duration) })
		})
	if err != nil {
		return nil, err
	}
	setup := env.mongoSetup(senders, target)
	setup["channels"] = strconv.Itoa(env.Channels)
	f := Figure{
		ID: "spread/rate", Name: fmt.Sprintf("%d channels through %d nodes on one MongoDB", env.Channels, len(target.Addrs)), Unit: "acked/s",
		Setup: setup,
	}.WithFloor("the same through a single node", fleet.rates, single.rates)
	f.Notes = append(fleet.notes(), "a single node: "+strings.Join(single.notes(), "; "))
	return []Figure{f.WithRatioBar("at least 0.5 of a single node's", atLeast(0.5))}, nil
}

// sendBatchesTo returns the same load as sendTo, but with batchMessages messages per call.
func (e *Env) sendBatchesTo(callers int, channel func(caller, n int) string) *work {
	content := e.text()
	return &work{
		callers: callers, procedure: parleyv1connect.MessageServiceSendMessagesProcedure,
		request: func(caller, n int) proto.Message {
			messages := make([]*parleyv1.SendMessageRequest, batchMessages)
			for i := range messages {
				messages[i] = &parleyv1.SendMessageRequest{ChannelId: channel(caller, n*batchMessages+i), Content: content}
			}
			return &parleyv1.SendMessagesRequest{Messages: messages}
		},
		answered: func(body []byte) (int, error) {
			var answer parleyv1.SendMessagesResponse
			if err := proto.Unmarshal(body, &answer); err != nil {
				return 0, err
			}
			return len(answer.GetResults()), refusalOf(&answer)
		},
	}
}

func (e *Env) mongoSetup(senders int, t *Target) map[string]string {
	return e.Setup(map[string]string{
		"senders": strconv.Itoa(senders), "connections": strconv.Itoa(senders) + " (HTTP/1.1, Connect, binary)",
		"duration": e.Duration.String(), "nodes": strconv.Itoa(len(t.Addrs)), "store": "MongoDB, w majority, journaled",
	})
}

// mongoRuns are the results of one load on MongoDB by round: messages per second, and the CPU time
// per message in microseconds of the nodes and of mongod.
type mongoRuns struct {
	rates, nodes, mongod []float64
}

// take runs a load once and adds its results.
func (r *mongoRuns) take(ctx context.Context, m *mongod, t *Target, load *work, duration time.Duration) error {
	watched := *load
	watched.store = m.cpu
	got, err := watched.run(ctx, t, duration)
	if err != nil {
		return err
	}
	r.rates, r.nodes, r.mongod = append(r.rates, got.rate), append(r.nodes, got.cpu), append(r.mongod, got.store)
	return nil
}

func (r *mongoRuns) notes() []string {
	return []string{fmt.Sprintf("CPU time per message: nodes %s, mongod about %s", Summarize(r.nodes).microseconds(),
		Summarize(r.mongod).microseconds())}
}

// mongod is a connection to the nodes' MongoDB.
type mongod struct{ client *mongo.Client }

func openMongod(uri string) (*mongod, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		return nil, fmt.Errorf("MongoDB: %w", err)
	}
	return &mongod{client}, nil
}

func (m *mongod) close(ctx context.Context) { _ = m.client.Disconnect(context.WithoutCancel(ctx)) }

// cpu returns the CPU time that the primary has used so far.
func (m *mongod) cpu(ctx context.Context) (time.Duration, error) {
	var status struct {
		Extra struct {
			User   int64 `bson:"user_time_us"`
			System int64 `bson:"system_time_us"`
		} `bson:"extra_info"`
	}
	err := m.client.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status)
	if err != nil {
		return 0, fmt.Errorf("MongoDB: %w", err)
	}
	return time.Duration(status.Extra.User+status.Extra.System) * time.Microsecond, nil
}
