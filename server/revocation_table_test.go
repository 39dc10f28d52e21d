package server_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// engineState is how an engine behaves towards a node.
type engineState int

// The states. An engine that is down refuses all connections or, if all nodes share the trouble,
// answers nothing; a slow one answers each request 60 ms late.
const (
	up engineState = iota
	slow
	down
)

func (s engineState) String() string { return [...]string{"up", "slow", "down"}[s] }

// enginesState is a row of the table.
type enginesState struct{ nats, mongo, redis engineState }

func (s enginesState) String() string {
	return fmt.Sprintf("MongoDB %v, Redis %v, NATS %v", s.mongo, s.redis, s.nats)
}

// links are the proxies between a node and its engines.
type links struct{ nats, mongo, redis *testkit.Proxy }

// connect puts proxies between a node with this configuration and the engines.
func (l *links) connect(t *testing.T, c *config.Config, natsURL, redisAddr string) {
	at, err := url.Parse(natsURL)
	if err != nil {
		t.Fatal(err)
	}
	*l = links{
		nats: testkit.NewProxy(t, "tcp", at.Host), mongo: testkit.NewProxy(t, "tcp", testkit.MongoAddr(t)),
		redis: testkit.NewProxy(t, "unix", redisAddr),
	}
	c.NATS.URL = config.SecretURL("nats://" + l.nats.Addr())
	c.Mongo.URI = config.SecretURL("mongodb://" + l.mongo.Addr() + "/?directConnection=true")
	c.Redis.Addr = l.redis.Addr()
}

// set puts the engines into a state. silent is whether those that are down answer nothing instead
// of refusing.
func (l *links) set(s enginesState, silent bool) {
	for proxy, state := range map[*testkit.Proxy]engineState{l.nats: s.nats, l.mongo: s.mongo, l.redis: s.redis} {
		switch {
		case state == up:
			proxy.Heal()
		case state == slow:
			proxy.Slow(60 * time.Millisecond)
		case silent:
			proxy.Stall()
		default:
			proxy.Cut()
		}
	}
}

// probe is a token that is used on the node that is checked.
type probe struct {
	name   string
	client parleyv1connect.ServerServiceClient
	// revokedAt is when its revocation was acknowledged; zero if it was not revoked. heard is
	// whether the node had refused it before the state of the engines began.
	revokedAt time.Time
	heard     bool

	refusedAt time.Time // when it was first refused as revoked
}

// table is a fleet of two nodes: one revokes, the other is checked.
type table struct {
	t           *testing.T
	here, there *servertest.Server
	links       [2]links
	open        bool
	// all is whether the state is that of both nodes' engines, not only of the checked node's.
	all   bool
	began time.Time // when the state began

	delays map[bool][]time.Duration // from acknowledgement to refusal, without and with NATS
}

func newTable(t *testing.T, open, all bool) *table {
	tb := &table{t: t, open: open, all: all, delays: make(map[bool][]time.Duration)}
	var nats, redis string
	tb.here = servertest.Serve(t, servertest.With(func(c *config.Config) {
		nats, redis = c.NATS.URL.Reveal(), c.Redis.Addr
		tb.links[0].connect(t, c, nats, redis)
		c.Redis.FailOpen = open
	}))
	tb.there = tb.here.Join(servertest.With(func(c *config.Config) { tb.links[1].connect(t, c, nats, redis) }))
	return tb
}

// TestRevocationTable checks what a node says of a token in every state of a real MongoDB, Redis
// and NATS, each up, slow or down, in both fail modes. There are tokens that were revoked before
// the state began, those that another node revoked while it lasted, and one that was not revoked.
// It also checks that all is right once the engines are well again. All states are tried by `make
// revocations`, every third otherwise.
func TestRevocationTable(t *testing.T) {
	t.Parallel()
	var states []enginesState
	for _, nats := range []engineState{up, slow, down} {
		for _, mongo := range []engineState{up, slow, down} {
			for _, redis := range []engineState{up, slow, down} {
				states = append(states, enginesState{nats, mongo, redis})
			}
		}
	}
	for i, open := range []bool{false, true} {
		for j, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("open %v all %v", open, all), func(t *testing.T) {
				t.Parallel()
				tb, cells := newTable(t, open, all), 0
				for n, s := range states {
					// Of each three states with the same NATS and MongoDB another one in each of
					// the fleets.
					if os.Getenv("PARLEY_TEST_REVOCATIONS") == "all" || (n+n/3+n/9+2*i+j)%3 == 0 {
						tb.try(n, s)
						cells += 2
					}
				}
				t.Logf("%d cells", cells)
				for withNATS, all := range tb.delays {
					slices.Sort(all)
					t.Logf("refused after the acknowledgement, NATS %v: p50 %v, max %v of %d", withNATS, all[len(all)/2], all[len(all)-1], len(all))
				}
			})
		}
	}
}

// try checks a state of the engines.
func (tb *table) try(n int, s enginesState) {
	tb.t.Helper()
	login := func(name string) string { // of a user of its own
		name = fmt.Sprint(name, "-", n)
		return login(tb.here, name, name)
	}
	tb.eventually(s, "the engines are up", func() error { return cmp.Or(tb.well(tb.here), tb.well(tb.there)) })
	other, heard := tb.probe("not revoked", login("other")), tb.probe("revoked before", login("heard"))
	tb.signOut(heard, login("heard"))
	tb.eventually(s, "it is refused before", func() error { return tb.says(heard, tokenRevoked) })
	heard.heard = true
	refreshed := tb.probe("of the same ssid", login("heard"))
	refreshed.heard, refreshed.revokedAt = true, heard.revokedAt
	bare := tb.here.TokenOf(fmt.Sprint("bare-", n))
	ssid, token, user := tb.probe("ssid", login("ssid")), tb.probe("token", bare), tb.probe("user", login("user"))
	probes := []*probe{other, heard, refreshed}

	tb.began = time.Now()
	tb.links[1].set(s, tb.all)
	if tb.all {
		tb.links[0].set(s, tb.all)
	}
	if !tb.all || s.mongo != down { // a revocation can be acknowledged
		tb.signOut(ssid, login("ssid"))
		tb.signOut(token, bare)
		tb.revokeUser(user, fmt.Sprint("user-", n))
		probes = append(probes, ssid, token, user)
	}
	hold := 1500 * time.Millisecond
	if tb.all && s == (enginesState{nats: down, mongo: down, redis: up}) {
		hold = 7 * time.Second // longer than a declaration that Redis has everything
	}
	until := time.Now().Add(hold)
	settled := func() (err error) {
		for _, p := range probes {
			err = cmp.Or(err, tb.use(s, p))
		}
		return err
	}
	rounds := 0
	for ; time.Now().Before(until); rounds++ {
		_ = settled()
	}
	tb.eventually(s, "every token is answered as it must be", settled)

	for i := range tb.links {
		tb.links[i].set(enginesState{}, false)
	}
	for _, p := range probes {
		want := tokenRevoked
		if p.revokedAt.IsZero() {
			want = 0
		}
		tb.eventually(s, p.name+", after the state", func() error { return tb.says(p, want) })
	}
	tb.count(s, probes, rounds)
}

// use uses a token on the node that is checked, and returns an error unless it is answered as it
// finally must be in a state. An answer that must not be at any time is an error of the test.
func (tb *table) use(s enginesState, p *probe) error {
	began := time.Now()
	err := tb.call(p)
	got, _ := reasonOf(err)
	told := s.mongo != down || s.redis != down // what is not revoked
	want := parleyv1.ErrorReason(0)
	switch {
	case !p.revokedAt.IsZero() && (told || s.nats != down || p.heard):
		want = tokenRevoked
	case !told && !tb.open:
		want = parleyv1.ErrorReason_ERROR_REASON_REVOCATION_UNKNOWN
	}
	if got == tokenRevoked && p.refusedAt.IsZero() {
		p.refusedAt = time.Now()
	}
	revoked := !p.revokedAt.IsZero()
	limit := time.Second
	if tb.open { // also admits for a moment while nobody can tell
		limit += slowMachine
	}
	switch late := began.Sub(p.revokedAt) > limit; {
	case got == tokenRevoked && !revoked:
		tb.t.Errorf("%v: %s is refused as revoked", s, p.name)
	case p.heard && got != tokenRevoked:
		tb.t.Errorf("%v: %s: %v, %v after the state began", s, p.name, err, began.Sub(tb.began))
	case revoked && late && err == nil && (!tb.open || s.mongo != down):
		tb.t.Errorf("%v: %s is admitted %v after the acknowledgement", s, p.name, began.Sub(p.revokedAt))
	case got == parleyv1.ErrorReason_ERROR_REASON_REVOCATION_UNKNOWN && s.mongo == up && began.Sub(tb.began) > 5*time.Second:
		tb.t.Errorf("%v: nobody can tell about %s, %v after the state began", s, p.name, began.Sub(tb.began))
	case revoked && err == nil && !p.refusedAt.IsZero():
		tb.t.Errorf("%v: %s came back to life", s, p.name)
	case !told && !tb.open && err == nil && began.Sub(tb.began) > 1300*time.Millisecond:
		tb.t.Errorf("%v: %s is admitted %v after the state began", s, p.name, began.Sub(tb.began))
	}
	if got != want || want == 0 && err != nil {
		return fmt.Errorf("%s: %w, want %v", p.name, cmp.Or(err, errAdmitted), want)
	}
	return nil
}

var errAdmitted = errors.New("admitted")

// call makes a call that needs no engine.
func (tb *table) call(p *probe) error {
	ctx, cancel := context.WithTimeout(tb.t.Context(), 5*time.Second)
	defer cancel()
	return callErr(p.client.GetServerInfo(ctx, &parleyv1.GetServerInfoRequest{}))
}

// says returns an error unless a token is answered with a reason; none if it is admitted.
func (tb *table) says(p *probe, want parleyv1.ErrorReason) error {
	err := tb.call(p)
	if got, _ := reasonOf(err); got != want || want == 0 && err != nil {
		return fmt.Errorf("%s: %w, want %v", p.name, cmp.Or(err, errAdmitted), want)
	}
	return nil
}

// well returns an error unless a node is connected to all engines.
func (tb *table) well(s *servertest.Server) error {
	status, outcomes := readiness(tb.t, s)
	for _, outcome := range outcomes {
		if outcome != "ok" {
			status = 0
		}
	}
	if status != http.StatusOK {
		return fmt.Errorf("/readyz: %v", outcomes)
	}
	return nil
}

func (tb *table) eventually(s enginesState, what string, check func() error) {
	tb.t.Helper()
	testkit.Eventually(tb.t, 20*time.Second, func() error {
		if err := check(); err != nil {
			return fmt.Errorf("%v: %s: %w", s, what, err)
		}
		return nil
	})
}

func (tb *table) probe(name, token string) *probe {
	return &probe{name: name, client: parleyv1connect.NewServerServiceClient(servertest.HTTPClient(tb.t, token), tb.there.URL)}
}

// signOut revokes a probe on the other node, with a token of its login.
func (tb *table) signOut(p *probe, token string) {
	tb.t.Helper()
	tb.acknowledge(p, func() error {
		return callErr(tb.here.Presence(token).SignOut(tb.t.Context(), &parleyv1.SignOutRequest{}))
	})
}

// revokeUser revokes a probe on the other node, by its user.
func (tb *table) revokeUser(p *probe, userID string) {
	tb.t.Helper()
	tb.acknowledge(p, func() error {
		return callErr(tb.here.Admin(tb.here.TokenOf("root")).RevokeTokens(tb.t.Context(), &parleyv1.RevokeTokensRequest{
			Target: &parleyv1.RevokeTokensRequest_UserId{UserId: userID},
		}))
	})
}

// acknowledge makes a call that revokes a probe until it is acknowledged. On a busy machine a slow
// store may not be heard in time.
func (tb *table) acknowledge(p *probe, revoke func() error) {
	tb.t.Helper()
	testkit.Eventually(tb.t, 20*time.Second, func() error {
		err := revoke()
		if reason, _ := reasonOf(err); err != nil && reason != tokenRevoked {
			return fmt.Errorf("revoke: %w", err)
		}
		return nil
	})
	p.revokedAt = time.Now()
}

// count logs, and adds, how long after the acknowledgements the tokens were refused.
func (tb *table) count(s enginesState, probes []*probe, rounds int) {
	var delays []time.Duration
	for _, p := range probes {
		if !p.heard && !p.refusedAt.IsZero() {
			delays = append(delays, max(0, p.refusedAt.Sub(p.revokedAt)).Round(time.Millisecond))
		}
	}
	tb.t.Logf("%v: %d rounds of calls, refused %v after the acknowledgements", s, rounds, delays)
	tb.delays[s.nats != down] = append(tb.delays[s.nats != down], delays...)
}
