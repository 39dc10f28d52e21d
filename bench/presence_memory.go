package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// watchedIdle is the number of users that an idle stream watches.
const watchedIdle = 10

// rawCrowd is a number of raw streams that are only read, each on a connection of its own.
type rawCrowd struct {
	streams []*rawStream
	failed  chan error
	closing atomic.Bool
	reading sync.WaitGroup
}

// rawCall is how a stream of a rawCrowd is opened.
type rawCall struct {
	method, token string
	request       proto.Message
}

// openRaw opens n streams at the server with a base URL, and waits for the first frame of each.
func openRaw(ctx context.Context, base string, n int, call func(i int) (rawCall, error)) (*rawCrowd, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c := &rawCrowd{streams: make([]*rawStream, n), failed: make(chan error, 1)}
	var opening errgroup.Group
	opening.SetLimit(dialers)
	for i := range n {
		opening.Go(func() error {
			how, err := call(i)
			if err != nil {
				return err
			}
			request, err := proto.Marshal(how.request)
			if err != nil {
				return err
			}
			s, err := openStream(ctx, base, how.method, how.token, request, idleBuffer)
			if err != nil {
				return err
			}
			c.streams[i] = s
			if _, err := s.next(); err != nil {
				return err
			}
			c.reading.Go(func() {
				for {
					if _, err := s.next(); err != nil {
						if !c.closing.Load() {
							fail(c.failed, err)
						}
						return
					}
				}
			})
			return nil
		})
	}
	if err := opening.Wait(); err != nil {
		c.close()
		return nil, fmt.Errorf("%d streams (is the limit of open files high enough?): %w", n, err)
	}
	return c, nil
}

// close closes all connections and waits until their readers have ended.
func (c *rawCrowd) close() {
	c.closing.Store(true)
	for _, s := range c.streams {
		if s != nil {
			s.close()
		}
	}
	c.reading.Wait()
}

// idlePresence is the memory of idle streams: of the server in KiB, and of Redis in bytes.
type idlePresence struct{ server, redis float64 }

// measurePresenceMemory measures the memory of idle streams with presence, alone and on a Subscribe
// stream, and the memory of Redis for each user who is online.
func measurePresenceMemory(ctx context.Context, env *Env) ([]Figure, error) {
	heartbeat := max(env.Duration/2, 100*time.Millisecond)
	var alone, joined []idlePresence
	var bare, bareRedis []float64
	with := func(call func(users *userSet, i int) proto.Message, method string, into *[]idlePresence) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			got, err := idleUsers(ctx, env, heartbeat, method, call)
			*into = append(*into, got)
			return err
		}
	}
	err := env.Each(ctx,
		with(connectIdle, parleyv1connect.PresenceServiceConnectProcedure, &alone),
		func(ctx context.Context) error {
			floor, process, err := env.StartFloorServer(ctx, "fanout")
			if err != nil {
				return err
			}
			perStream, err := idle(ctx, env, floor)
			bare = append(bare, perStream)
			return errors.Join(err, process.Close())
		},
		with(subscribeIdle, parleyv1connect.MessageServiceSubscribeProcedure, &joined),
		func(ctx context.Context) error {
			perUser, err := bareMemory(ctx, env)
			bareRedis = append(bareRedis, perUser)
			return err
		})
	if err != nil {
		return nil, err
	}
	setup := env.Setup(map[string]string{
		"payload": "", "connections": strconv.Itoa(env.Streams), "watched": strconv.Itoa(watchedIdle) + " users per stream",
		"duration":  env.Duration.String() + " after the last stream was live",
		"heartbeat": heartbeat.String(), "GC": runtime.Version() + "'s, as parleyd sets it",
	})
	server := func(p idlePresence) float64 { return p.server }
	one := Figure{ID: "presence-memory/stream", Name: "resident memory of the server per idle Connect stream", Unit: "KiB", Setup: setup}.
		WithFloor("a bare connect-go server", each(alone, server), bare)
	two := Figure{
		ID: "presence-memory/joined", Name: "resident memory of the server per idle Subscribe stream with presence", Unit: "KiB", Setup: setup,
	}.WithFloor("a bare connect-go server", each(joined, server), bare)
	inRedis := Figure{ID: "presence-memory/redis", Name: "memory of Redis per user who is online, all keys", Unit: "bytes", Setup: setup}.
		WithFloor("one key per user with a TTL: SET user 8f EX 1800", each(alone, func(p idlePresence) float64 { return p.redis }), bareRedis)
	const bar = "25 KiB at most"
	return []Figure{one.WithBar(bar, one.Value.Median <= 25), two.WithBar(bar, two.Value.Median <= 25), inRedis}, nil
}

// connectIdle is the request of an idle Connect stream.
func connectIdle(users *userSet, i int) proto.Message { return idleDevice(users, i) }

// subscribeIdle is the request of an idle Subscribe stream with presence.
func subscribeIdle(users *userSet, i int) proto.Message {
	return &parleyv1.SubscribeRequest{
		Channels: []*parleyv1.ChannelPosition{{ChannelId: "idle-" + strconv.Itoa(i/idlePerChannel)}}, Presence: idleDevice(users, i),
	}
}

func idleDevice(users *userSet, i int) *parleyv1.ConnectRequest {
	r := &parleyv1.ConnectRequest{Platform: parleyv1.Platform_PLATFORM_WEB, DeviceId: benchDevice}
	for k := range min(watchedIdle, users.n) {
		r.Watch = append(r.Watch, users.id((i+k*users.n/watchedIdle)%users.n))
	}
	return r
}

// idleUsers opens env.Streams streams at a server of its own, each of a user of its own, waits for
// env.Duration, and returns the growth of memory per stream.
func idleUsers(
	ctx context.Context, env *Env, heartbeat time.Duration, method string, call func(users *userSet, i int) proto.Message,
) (got idlePresence, err error) {
	s, err := env.StartServer(ctx, presenceEnv(heartbeat)...)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	client := redisAt(s.redis)
	defer func() { err = errors.Join(err, client.Close()) }()
	users := newUserSet(env.Streams, s.userToken)
	pause(ctx, env.Duration/4)
	before, err := s.Usage(ctx)
	if err != nil {
		return got, err
	}
	redisBefore, err := redisMemory(ctx, client)
	if err != nil {
		return got, err
	}
	crowd, err := openRaw(ctx, s.Addrs[0], users.n, func(i int) (rawCall, error) {
		token, err := users.token(users.id(i))
		return rawCall{method: method, token: token, request: call(users, i)}, err
	})
	if err != nil {
		return got, err
	}
	defer crowd.close()
	pause(ctx, env.Duration)
	after, err := s.Usage(ctx)
	if err != nil {
		return got, err
	}
	redisAfter, err := redisMemory(ctx, client)
	select {
	case failure := <-crowd.failed:
		err = errors.Join(err, failure)
	default:
	}
	return idlePresence{
		server: (after.RSS - before.RSS) / 1024 / float64(users.n), redis: (redisAfter - redisBefore) / float64(users.n),
	}, err
}

// bareMemory returns the memory of a bare Redis per user with one key, in bytes.
func bareMemory(ctx context.Context, env *Env) (float64, error) {
	client, stop, err := env.ownRedis(ctx)
	if err != nil {
		return 0, err
	}
	defer stop()
	before, err := redisMemory(ctx, client)
	if err != nil {
		return 0, err
	}
	for i := range env.Streams {
		if err := client.Set(ctx, "presence:bench-ABCDEFGH-"+strconv.Itoa(i), "8f", 30*time.Minute).Err(); err != nil {
			return 0, err
		}
	}
	after, err := redisMemory(ctx, client)
	return (after - before) / float64(env.Streams), err
}

// redisMemory returns the memory of all keys of presence in a redis-server, in bytes.
func redisMemory(ctx context.Context, client *redis.Client) (sum float64, err error) {
	for cursor := uint64(0); ; {
		var keys []string
		if keys, cursor, err = client.Scan(ctx, cursor, "presence:*", 1000).Result(); err != nil {
			return 0, fmt.Errorf("redis-server: %w", err)
		}
		sizes, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range keys {
				p.MemoryUsage(ctx, key, 0)
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("redis-server: %w", err)
		}
		for _, size := range sizes {
			if size, ok := size.(*redis.IntCmd); ok {
				sum += float64(size.Val())
			}
		}
		if cursor == 0 {
			return sum, nil
		}
	}
}
