package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

const (
	// readUsers is the number of users in a call of GetPresence.
	readUsers = 100
	// flipRate is the number of SetBackground calls per second in the figure on the cost of a change.
	flipRate = 1000
	// flippers is the number of concurrent callers of SetBackground.
	flippers = 32
)

// presenceEnv configures servers for many users in one process of the bench. Heartbeats would be
// counted as the cost of the measured calls.
func presenceEnv(heartbeat time.Duration) []string {
	return []string{
		"PARLEY_PRESENCE_CONNECTIONS=1000000", "PARLEY_LIMITS_STREAMS=1000000",
		"PARLEY_LIMITS_HEARTBEAT_INTERVAL=" + heartbeat.String(), "PARLEY_LIMITS_FRAME_TIMEOUT=" + max(time.Minute, 2*heartbeat).String(),
	}
}

// crowdedServer is a server of the bench with users who are online.
type crowdedServer struct {
	*Server

	online *onlineUsers
	// flips counts the changes of each user, which decide the next one.
	flips []atomic.Int64
}

func (e *Env) startCrowded(ctx context.Context, users int) (*crowdedServer, error) {
	s, err := e.StartServer(ctx, presenceEnv(5*time.Minute)...)
	if err != nil {
		return nil, err
	}
	online, err := bringOnline(ctx, s.Addrs[0], newUserSet(users, s.userToken))
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &crowdedServer{Server: s, online: online, flips: make([]atomic.Int64, users)}, nil
}

// Close ends the users' streams and the server.
func (s *crowdedServer) Close() error {
	s.online.close()
	return s.Server.Close()
}

// reads is a load of GetPresence for readUsers of the users in turn.
func (s *crowdedServer) reads() *work {
	users := s.online.users
	return &work{
		callers: readers, procedure: parleyv1connect.PresenceServiceGetPresenceProcedure,
		request: func(caller, n int) proto.Message {
			request := &parleyv1.GetPresenceRequest{UserIds: make([]string, readUsers)}
			for i := range readUsers {
				request.UserIds[i] = users.id(((n*readers+caller)*readUsers + i) % users.n)
			}
			return request
		},
		answered: func(body []byte) (int, error) {
			var answer parleyv1.GetPresenceResponse
			if err := proto.Unmarshal(body, &answer); err != nil {
				return 0, err
			}
			if last := answer.GetPresence(); len(last) != readUsers || len(last[readUsers-1].GetPlatforms()) == 0 {
				return 0, errors.New("GetPresence: a user who is connected is not online")
			}
			return 1, nil
		},
	}
}

// changed is the CPU time of a change in microseconds, of the server and of its Redis.
type changed struct{ server, redis float64 }

// changes flips the background of users at flipRate for the duration.
func (s *crowdedServer) changes(ctx context.Context, duration time.Duration) (c changed, err error) {
	client := redisAt(s.redis)
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := settle(ctx, &s.Target); err != nil {
		return c, err
	}
	server, err := s.Usage(ctx)
	if err != nil {
		return c, err
	}
	inRedis, err := redisCPU(ctx, client)
	if err != nil {
		return c, err
	}
	n, err := s.flip(ctx, duration)
	if err != nil {
		return c, err
	}
	pause(ctx, 100*time.Millisecond) // the last changes are written
	after, err := s.Usage(ctx)
	if err != nil {
		return c, err
	}
	redisAfter, err := redisCPU(ctx, client)
	return changed{
		server: float64((after.CPU - server.CPU).Microseconds()) / float64(n),
		redis:  float64((redisAfter - inRedis).Microseconds()) / float64(n),
	}, err
}

// flip calls SetBackground for users in turn, and returns how often.
func (s *crowdedServer) flip(ctx context.Context, duration time.Duration) (n int, err error) {
	var calls sync.WaitGroup
	failed := make(chan error, 1)
	next := make(chan int)
	for range flippers {
		calls.Go(func() {
			for i := range next {
				d := s.online.devices[i]
				background := s.flips[i].Add(1)%2 == 1
				if _, err := d.link.SetBackground(authorized(ctx, d.token), &parleyv1.SetBackgroundRequest{
					StreamId: d.id, Background: background,
				}); err != nil {
					fail(failed, err)
				}
			}
		})
	}
	tick := time.NewTicker(time.Second / flipRate)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < duration && err == nil; n++ {
		select {
		case <-tick.C:
			next <- n % len(s.flips)
		case err = <-failed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	close(next)
	calls.Wait()
	select {
	case err = <-failed:
	default:
	}
	return n, err
}

// measurePresence measures the server's CPU time of a read and of a change, with many users online
// and with a tenth of them.
func measurePresence(ctx context.Context, env *Env) (figures []Figure, err error) {
	users, fewUsers := env.Users, max(env.Users/growthFactor, 1)
	many, err := env.startCrowded(ctx, users)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, many.Close()) }()
	few, err := env.startCrowded(ctx, fewUsers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, few.Close()) }()
	size, err := many.answerSize(ctx)
	if err != nil {
		return nil, err
	}
	floor, process, err := env.StartFloorServer(ctx, "presence", strconv.Itoa(size))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Close()) }()
	echo := many.reads()
	echo.procedure, echo.answered = echoProcedure, nil
	var readMany, readFew, bare []worked
	var changeMany, changeFew []changed
	read := func(load *work, t *Target, into *[]worked) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			got, err := load.run(ctx, t, env.Duration)
			*into = append(*into, got)
			return err
		}
	}
	change := func(s *crowdedServer, into *[]changed) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			got, err := s.changes(ctx, env.Duration)
			*into = append(*into, got)
			return err
		}
	}
	err = env.Each(ctx, read(many.reads(), &many.Target, &readMany), read(echo, floor, &bare), read(few.reads(), &few.Target, &readFew),
		change(many, &changeMany), change(few, &changeFew))
	if err != nil {
		return nil, err
	}
	setup := env.Setup(map[string]string{
		"payload": "", "duration": env.Duration.String(), "users": strconv.Itoa(users), "heartbeat": "5m0s",
		"connections": fmt.Sprintf("%d for the reads (HTTP/1.1, Connect, binary), one for %d users", readers, streamsPerConn),
	})
	cpuOf := func(w worked) float64 { return w.cpu }
	serverOf := func(c changed) float64 { return c.server }
	redisOf := func(c changed) float64 { return c.redis }
	reads := Figure{
		ID: "presence/read/cpu", Name: fmt.Sprintf("GetPresence of %d users from the cache: server CPU", readUsers), Unit: "us", Setup: setup,
		Notes: []string{text(each(readMany, func(w worked) float64 { return w.rate }), "calls/s")},
	}.WithFloor("a bare Connect handler that answers as many bytes", each(readMany, cpuOf), each(bare, cpuOf))
	tenth := fmt.Sprintf("with %d users online", fewUsers)
	return []Figure{
		reads,
		Figure{ID: "presence/read/growth", Name: fmt.Sprintf("the same, with %d users online", users), Unit: "us", Setup: setup}.
			WithFloor(tenth, each(readMany, cpuOf), each(readFew, cpuOf)).WithRatioBar(growthBar, atMost(1.2)),
		Figure{
			ID: "presence/change/cpu", Unit: "us", Setup: setup,
			Name: fmt.Sprintf("a SetBackground with %d users online, %d/s: server CPU", users, flipRate),
		}.WithFloor(tenth, each(changeMany, serverOf), each(changeFew, serverOf)).WithRatioBar(growthBar, atMost(1.2)),
		Figure{ID: "presence/change/redis", Name: "the same: CPU of Redis", Unit: "us", Setup: setup}.
			WithFloor(tenth, each(changeMany, redisOf), each(changeFew, redisOf)).WithRatioBar(growthBar, atMost(1.2)),
	}, nil
}

// answerSize returns the size of an answer to reads, in bytes.
func (s *crowdedServer) answerSize(ctx context.Context) (int, error) {
	load := s.reads()
	c, err := newCaller(ctx, s.Addrs[0], load.procedure, s.Token)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.conn.Close() }()
	request, err := proto.Marshal(load.request(0, 0))
	if err != nil {
		return 0, err
	}
	body, err := c.call(request)
	return len(body), err
}

// floorPresence is a server that decodes a GetPresenceRequest and answers a number of bytes, its
// argument.
func floorPresence(ctx context.Context, args []string, out *json.Encoder) error {
	if len(args) != 1 {
		return errors.New("requires the argument answer bytes")
	}
	size, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	answer := make([]byte, size)
	mux := http.NewServeMux()
	mux.Handle(echoProcedure, connect.NewUnaryHandlerSimple(echoProcedure,
		func(context.Context, *parleyv1.GetPresenceRequest) (*wrapperspb.BytesValue, error) {
			return wrapperspb.Bytes(answer), nil
		}))
	return serveFloor(ctx, mux, out)
}
