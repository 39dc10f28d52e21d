package bench

import (
	"context"
	"errors"
	"fmt"
	randv2 "math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// measurePresenceReconnect measures the time until all Connect streams are back after their server
// was killed and started again.
func measurePresenceReconnect(ctx context.Context, env *Env) ([]Figure, error) {
	var values, floors, away []float64
	err := env.Each(ctx, func(ctx context.Context) error {
		took, gone, err := usersReturn(ctx, env)
		values, away = append(values, took.Seconds()), append(away, gone.Seconds())
		return err
	}, func(ctx context.Context) error {
		took, err := openAll(ctx, env)
		floors = append(floors, took.Seconds())
		return err
	})
	if err != nil {
		return nil, err
	}
	f := Figure{
		ID: "presence-reconnect/time", Name: "kill -9, start again: until all Connect streams are live", Unit: "s",
		Setup: env.Setup(map[string]string{
			"payload": "", "connections": strconv.Itoa(env.Streams) + ", each of a user of its own",
			"backoff": fmt.Sprintf("a random time up to %s, doubled up to %s", backoffBase, backoffMax),
		}),
		Notes: []string{
			fmt.Sprintf("of this the server was away for %s", text(away, "s")),
			"after that GetPresence and ListOnlineUsers returned every user as online",
		},
	}.WithFloor("opening as many streams at a bare connect-go server that runs", values, floors)
	return []Figure{f.WithBar("15 s at most", f.Value.Median <= 15)}, nil
}

// returning is a number of Connect streams that reconnect with their login tokens when they end.
type returning struct {
	base    string
	users   *userSet
	members []*returningUser
	ctx     context.Context //nolint:containedctx // the streams' own life
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// returningUser is one stream of returning.
type returningUser struct {
	token, login string
	// since is when the stream became live, in nanoseconds since 1970, or 0 while it is not.
	since atomic.Int64

	mu     sync.Mutex // guards stream
	stream *rawStream
}

// usersReturn kills a server with streams and starts it again. It returns the time until all
// streams are live, and until the server was ready.
func usersReturn(ctx context.Context, env *Env) (took, away time.Duration, err error) {
	s, err := env.StartServer(ctx, presenceEnv(15*time.Second)...)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r := &returning{base: s.Addrs[0], users: newUserSet(env.Streams, s.userToken)}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer r.close()
	slots := make(chan struct{}, dialers)
	for i := range r.users.n {
		token, err := r.users.token(r.users.id(i))
		if err != nil {
			return 0, 0, err
		}
		m := &returningUser{token: token}
		r.members = append(r.members, m)
		r.running.Go(func() {
			slots <- struct{}{}
			r.run(m, func() { <-slots })
		})
	}
	if _, err := r.live(ctx, time.Time{}); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	s.Kill()
	if err := s.Restart(ctx); err != nil {
		return 0, 0, err
	}
	away = time.Since(began)
	last, err := r.live(ctx, began)
	if err != nil {
		return 0, 0, err
	}
	w, err := watchAll(ctx, s.Addrs, r.users, nil)
	if err != nil {
		return 0, 0, err
	}
	defer w.close()
	return last.Sub(began), away, w.awaitReads(ctx, 10*time.Second, r.users.n)
}

// live waits until all streams are live, each since a time later than after, and returns when the
// last one became so.
func (r *returning) live(ctx context.Context, after time.Time) (last time.Time, err error) {
	err = eventually(ctx, comebackPatience, nil, func() string {
		n := 0
		for _, m := range r.members {
			if since := m.since.Load(); since != 0 && since > after.UnixNano() {
				n++
				last = later(last, time.Unix(0, since))
			}
		}
		if n < len(r.members) {
			return fmt.Sprintf("%d of %d streams are live", n, len(r.members))
		}
		return ""
	})
	return last, err
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// run keeps a stream connected until the end. It calls first after the first attempt.
func (r *returning) run(m *returningUser, first func()) {
	for failures := 0; r.ctx.Err() == nil; failures++ {
		if r.attempt(m, first) {
			failures = 0
		}
		first = nil
		pause(r.ctx, randv2.N(min(backoffBase<<min(failures, 20), backoffMax)))
	}
}

// attempt opens the stream and reads it until it ends. It reports whether the stream was live.
func (r *returning) attempt(m *returningUser, first func()) (live bool) {
	defer func() {
		if first != nil {
			first()
		}
		m.since.Store(0)
	}()
	ctx, cancel := context.WithTimeout(r.ctx, attemptTimeout)
	defer cancel()
	request, err := proto.Marshal(&parleyv1.ConnectRequest{
		Platform: parleyv1.Platform_PLATFORM_WEB, DeviceId: benchDevice, LoginToken: m.login,
	})
	if err != nil {
		return false
	}
	s, err := openStream(ctx, r.base, parleyv1connect.PresenceServiceConnectProcedure, m.token, request, idleBuffer)
	if err != nil {
		return false
	}
	defer s.close()
	m.mu.Lock()
	m.stream = s
	m.mu.Unlock()
	if r.ctx.Err() != nil { // close may have missed the stream
		return false
	}
	for {
		frame, err := s.next()
		if err != nil {
			return live
		}
		var response parleyv1.ConnectResponse
		if !live && proto.Unmarshal(frame, &response) == nil && response.GetInfo() != nil {
			live, m.login = true, response.GetInfo().GetPresence().GetLoginToken()
			m.since.Store(time.Now().UnixNano())
			if first != nil {
				first()
				first = nil
			}
		}
	}
}

func (r *returning) close() {
	r.cancel()
	for _, m := range r.members {
		m.mu.Lock()
		if m.stream != nil {
			m.stream.close()
		}
		m.mu.Unlock()
	}
	r.running.Wait()
}
