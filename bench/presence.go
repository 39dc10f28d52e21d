package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

const (
	// streamsPerConn is the number of streams that share one HTTP/2 connection: the server's default
	// limit.
	streamsPerConn = 250
	// watchedPerStream is the number of users that one stream watches: the server's default limit.
	watchedPerStream = 1000
	// benchDevice is the device id of every stream.
	benchDevice = "bench"
)

// userSet is a number of users whose ids are a prefix and a number.
type userSet struct {
	prefix string
	n      int
	// token returns a token of a user for the API, with all actions of presence.
	token func(user string) (string, error)
}

// newUserSet names n users that no other run uses.
func newUserSet(n int, token func(user string) (string, error)) *userSet {
	return &userSet{prefix: "bench-" + rand.Text()[:8] + "-", n: n, token: token}
}

// id returns the id of user i, from 0.
func (u *userSet) id(i int) string { return u.prefix + strconv.Itoa(i) }

// ids returns the ids of the users from first to before end.
func (u *userSet) ids(first, end int) []string {
	all := make([]string, 0, end-first)
	for i := first; i < end; i++ {
		all = append(all, u.id(i))
	}
	return all
}

// number returns the number of the user with an id. ok is false if the id is not of the set.
func (u *userSet) number(id string) (i int, ok bool) {
	digits, found := strings.CutPrefix(id, u.prefix)
	i, err := strconv.Atoi(digits)
	return i, found && err == nil && i >= 0 && i < u.n
}

// userToken returns a token for a user of the server, with all actions of presence.
func (s *Server) userToken(user string) (string, error) {
	secret, err := os.ReadFile(filepath.Join(s.dir, "dev-secret"))
	if err != nil {
		return "", err
	}
	now := time.Now()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": user, "iat": now.Unix(), "exp": now.Add(24 * time.Hour).Unix(),
		"cap": map[string][]string{"presence": {"connect", "watch", "list"}, "channel:*": {"subscribe"}},
	}).SignedString([]byte(strings.TrimSpace(string(secret))))
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return token, nil
}

// link is a client of one node's PresenceService on HTTP/2 connections of its own: on one
// connection, up to the server's limit of concurrent calls.
type link struct {
	parleyv1connect.PresenceServiceClient

	transport *http.Transport
	dialed    atomic.Int64
}

func newLink(base string) *link {
	l := &link{transport: &http.Transport{Protocols: new(http.Protocols)}}
	l.transport.Protocols.SetUnencryptedHTTP2(true)
	dialer := new(net.Dialer)
	l.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		l.dialed.Add(1)
		return dialer.DialContext(ctx, network, addr)
	}
	l.PresenceServiceClient = parleyv1connect.NewPresenceServiceClient(&http.Client{Transport: l.transport}, base, connect.WithGRPC())
	return l
}

// close closes the idle connections. Streams must have ended before.
func (l *link) close() { l.transport.CloseIdleConnections() }

// authorized returns a context whose call has the token.
func authorized(ctx context.Context, token string) context.Context {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+token)
	return ctx
}

// eventually calls check every 10 ms until it returns "". After a time it returns check's last text
// as an error, and the error of failed as soon as there is one.
func eventually(ctx context.Context, within time.Duration, failed <-chan error, check func() string) error {
	deadline := time.After(within)
	for {
		missing := check()
		if missing == "" {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case err := <-failed:
			return err
		case <-deadline:
			return fmt.Errorf("after %s: %s", within, missing)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), errors.New(missing))
		}
	}
}

// fail puts an error into a channel that has room for one, unless it has one.
func fail(failed chan<- error, err error) {
	select {
	case failed <- err:
	default:
	}
}
