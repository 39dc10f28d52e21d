package messages

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/gen/go/parley/next/v1/nextv1connect"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// loginPrefix begins the names of the users who sign in and out, and of the channels to which they
// send. Every login has a user of its own, so that nothing else revokes its tokens.
const loginPrefix = "login-"

// LoginToken names a token of a login.
type LoginToken string

// The tokens of a login.
const (
	// Phone is the token that is signed out.
	Phone LoginToken = "phone"
	// Twin is a later token of the same ssid, as after a refresh. It is revoked with Phone.
	Twin LoginToken = "twin"
	// Laptop is a token of the same user with another ssid. It is never revoked.
	Laptop LoginToken = "laptop"
)

// The kinds of LoginCall, besides Send, List and Stream.
const (
	SignOut Kind = "sign_out"
	Info    Kind = "info"
	Join    Kind = "join"    // a stream of presence
	Consume Kind = "consume" // a stream of a queue that does not exist
)

// LoginCall is a call or a stream with a token of a login, and its result.
type LoginCall struct {
	User  string     `json:"user"`
	Token LoginToken `json:"token"`
	// Addr is the node's address, or several for a call of the SDK.
	Addr    string        `json:"addr"`
	Kind    Kind          `json:"kind"`
	Begin   int64         `json:"begin"`
	End     int64         `json:"end"`
	Outcome chaos.Outcome `json:"outcome"`
	Code    string        `json:"code,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Err     string        `json:"err,omitempty"`
	// First and Last are when a stream received its first and its last message, or 0.
	First int64 `json:"first,omitempty"`
	Last  int64 `json:"last,omitempty"`
	// Left is set if the client ended the stream. The outcome is OK then.
	Left bool `json:"left,omitempty"`
	// Final is set for the calls after all faults were mended.
	Final bool `json:"final,omitempty"`
}

// streaming reports whether the call is a stream.
func (c *LoginCall) streaming() bool { return c.Kind == Stream || c.Kind == Join || c.Kind == Consume }

// end records the ending of a call.
func (c *LoginCall) end(err error) {
	e := chaos.EndingOf(err)
	if c.Kind == SignOut && strings.Contains(c.Addr, ",") {
		e = chaos.EndingOfSDK(err)
	}
	if c.Outcome, c.Code, c.Err = e.Outcome, e.Code, e.Err; e.Reason != 0 {
		c.Reason = e.Reason.String()
	}
}

// loginKey is a token of a login, as the clients hold it.
type loginKey struct {
	user  string
	name  LoginToken
	token string
}

// mintLogin returns the tokens of a login. Without an ssid there is no Twin, because a sign-out
// then revokes one token only.
func mintLogin(secret []byte, user string, ssid bool) ([]loginKey, error) {
	names := map[LoginToken]string{Phone: user, Twin: user, Laptop: user + "-laptop"}
	if !ssid {
		names = map[LoginToken]string{Phone: "", Laptop: user + "-laptop"}
	}
	now := time.Now()
	var keys []loginKey
	for _, name := range []LoginToken{Phone, Twin, Laptop} {
		id, ok := names[name]
		if !ok {
			continue
		}
		claims := jwt.MapClaims{
			"sub": user, "iat": now.Unix(), "exp": now.Add(2 * time.Hour).Unix(),
			"cap": map[string][]string{
				"channel:*": {"send", "history", "subscribe"}, "queue:*": {"consume"}, "presence": {"connect", "watch"},
			},
		}
		if id != "" {
			claims["ssid"] = id
		}
		if name == Twin {
			claims["exp"] = now.Add(3 * time.Hour).Unix()
		}
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
		if err != nil {
			return nil, fmt.Errorf("sign a token: %w", err)
		}
		keys = append(keys, loginKey{user: user, name: name, token: token})
	}
	return keys, nil
}

// loginNode has the generated clients of one node, for calls with any token.
type loginNode struct {
	*chaos.Conn
	messages parleyv1connect.MessageServiceClient
	presence parleyv1connect.PresenceServiceClient
	queues   nextv1connect.QueueServiceClient
	server   parleyv1connect.ServerServiceClient
}

func newLoginNode(addr string) *loginNode {
	c := chaos.NewConn(addr, "")
	grpc := connect.WithGRPC()
	return &loginNode{
		Conn:     c,
		messages: parleyv1connect.NewMessageServiceClient(c.HTTP, c.URL(), grpc),
		presence: parleyv1connect.NewPresenceServiceClient(c.HTTP, c.URL(), grpc),
		queues:   nextv1connect.NewQueueServiceClient(c.HTTP, c.URL(), grpc),
		server:   parleyv1connect.NewServerServiceClient(c.HTTP, c.URL(), grpc),
	}
}

// authorized returns a context that adds the token to a call.
func (k *loginKey) authorized(ctx context.Context) context.Context {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+k.token)
	return ctx
}

// errLeft is the cause of a stream's end that the client chose.
var errLeft = errors.New("the client left")
