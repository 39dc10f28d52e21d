// Package servicetest provides a conformance test suite for the Parley API. The real server and
// parleytest both run it, so that the fake behaves like the server. It uses the generated clients,
// so it checks all fields and all error details on the wire.
//
// It does not cover failures, several nodes, restarts and limits that are only reachable by
// configuration. It also does not cover the documented differences of parleytest: tokens without
// meaning, no rate limits, and no backoff between retries.
package servicetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// patience is the maximum duration of one scenario.
const patience = 30 * time.Second

// Target describes a running server.
type Target struct {
	// URL is the base URL of the API. The server speaks HTTP/2 in the clear.
	URL string
	// Token returns a token of a user with the actions on all channels and no other capability. With
	// the action append it has those that there are for sessions on all sessions too. The actions
	// connect, watch and list are those of presence. Without actions, the token has every capability.
	// It must be safe for concurrent use.
	Token func(userID string, actions ...string) string
	// Unsupported lists the unary methods that the server does not implement, in the form
	// AdminService/KickUser. Each must fail as unimplemented, with an error that contains
	// "AdminService/KickUser is not supported".
	Unsupported []string
	// Presence reports whether the server implements PresenceService, with the login policy that
	// allows all devices. Without it, the scenarios of presence do not run.
	Presence bool
}

// Run runs all scenarios against a server as parallel subtests of t. Each uses its own channels,
// topics and users, so other tests can use the server at the same time.
func Run(t *testing.T, target Target) {
	t.Helper()
	all := scenarios()
	if target.Presence {
		maps.Copy(all, presenceScenarios())
	}
	for name, scenario := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			t.Cleanup(cancel)
			id := strings.ToLower(rand.Text()[:12])
			e := &env{T: t, ctx: ctx, target: target, id: id}
			e.ann = e.as("ann-" + id)
			e.bob = e.as("bob-" + id)
			scenario(e)
		})
	}
}

// scenarios returns the scenarios by name, without those of presence.
func scenarios() map[string]func(*env) {
	return map[string]func(*env){
		"every method":                     everyMethod,
		"server info":                      serverInfo,
		"send":                             send,
		"send again":                       sendAgain,
		"send a batch":                     sendBatch,
		"send as another user":             sendAs,
		"edit":                             edit,
		"edit refused":                     editRefused,
		"recall":                           recall,
		"change of another user's message": changeOfAnother,
		"list":                             list,
		"list refused":                     listRefused,
		"list of nothing":                  listOfNothing,
		"invalid fields":                   invalidFields,
		"actions":                          actions,
		"a new token on a live stream":     renewedToken,
		"subscribe from the start":         subscribeFromStart,
		"subscribe live":                   subscribeLive,
		"subscribe from a position":        subscribeFromPosition,
		"subscribe after changes":          subscribeAfterChanges,
		"gaps":                             gaps,
		"update a subscription":            updateSubscription,
		"typing":                           typing,
		"create a channel":                 createChannel,
		"members":                          members,
		"members of an open channel":       membersOfOpen,
		"roles of members":                 roles,
		"settings of a channel":            channelSettings,
		"channels are closed and opened":   channelMode,
		"channels are deleted":             deletion,
		"members only":                     membersOnly,
		"lost channel":                     lostChannel,
		"read marks":                       readMarks,
		"list of channels":                 listChannels,
		"sessions":                         sessions,
		"open messages":                    openMessages,
		"texts of open messages":           deltas,
		"cancelled messages":               cancelled,
		"another's session":                sessionOfAnother,
		"list of sessions":                 sessionList,
		"sessions of all users":            allSessions,
		"titles of sessions":               sessionTitles,
		"topics":                           topics,
		"groups":                           groups,
		"produce":                          produce,
		"partitions of keys":               partitionsOfKeys,
		"paused topic":                     pausedTopic,
		"schedule":                         schedule,
		"consume":                          consume,
		"settle again":                     settleAgain,
		"retries":                          retries,
		"order of a key":                   order,
		"limits of a session":              limits,
		"cancel what waits":                cancelWaiting,
		"unique keys":                      uniqueKeys,
		"sequences of a producer":          sequences,
		"time to live":                     timeToLive,
		"resumed sessions":                 resumed,
		"heartbeats of a session":          heartbeats,
		"exclusive group":                  exclusive,
		"receive":                          receiving,
		"jobs and consumers":               jobs,
		"leave":                            leave,
		"lost consumer":                    lostConsumer,
		"ack timeout":                      ackTimeout,
		"consume on one stream":            streamingConsume,
		"dead letters":                     deadLetters,
		"trim":                             trim,
	}
}

// env is the environment of one scenario.
type env struct {
	*testing.T

	ctx    context.Context
	target Target
	// id is part of every name that the scenario uses.
	id string
	// ann and bob have every capability.
	ann, bob *caller
}

// caller calls all services as one user.
type caller struct {
	parleyv1connect.MessageServiceClient

	queues   parleyv1connect.QueueServiceClient
	admin    parleyv1connect.AdminServiceClient
	presence parleyv1connect.PresenceServiceClient
	server   parleyv1connect.ServerServiceClient
	http     *http.Client
	user     string
}

// as returns a caller whose token has the actions on all channels. Without actions, the token has
// every capability.
func (e *env) as(user string, actions ...string) *caller {
	e.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	e.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: bearer{transport, e.target.Token(user, actions...)}}
	return &caller{
		MessageServiceClient: parleyv1connect.NewMessageServiceClient(client, e.target.URL),
		queues:               parleyv1connect.NewQueueServiceClient(client, e.target.URL),
		admin:                parleyv1connect.NewAdminServiceClient(client, e.target.URL),
		presence:             parleyv1connect.NewPresenceServiceClient(client, e.target.URL),
		server:               parleyv1connect.NewServerServiceClient(client, e.target.URL),
		http:                 client, user: user,
	}
}

// bearer sends a token with every request.
type bearer struct {
	next  http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// name returns a name that starts with part and is unique to the scenario.
func (e *env) name(part string) string { return part + "-" + e.id }

// no fails the scenario if err is not nil.
func (e *env) no(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%v (%+v)", err, detailOf(err))
	}
}

// equal reports an error if got differs from want.
func equal[T comparable](e *env, what string, got, want T) {
	e.Helper()
	if got != want {
		e.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// eventually polls until check returns an empty string. At the end of the scenario's time it fails
// with the last string.
func (e *env) eventually(check func() string) {
	e.Helper()
	var wrong string
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		if wrong = check(); wrong == "" {
			tick.Stop()
			return
		}
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			e.Fatalf("not in time: %s", wrong)
		}
	}
}

// refusal is an expected error. All fields are compared. reason is the name of the ErrorReason
// without ERROR_REASON_.
type refusal struct {
	code   connect.Code
	reason string
	field  string
	limit  int64
}

func (r refusal) String() string {
	return fmt.Sprintf("%s %s %q %d", r.code, r.reason, r.field, r.limit)
}

// refused reports an error of the test if err is not the refusal want, or has no request id.
func (e *env) refused(what string, err error, want refusal) {
	e.Helper()
	if err == nil {
		e.Errorf("%s: no error, want %s", what, want)
		return
	}
	e.compare(what, connect.CodeOf(err), detailOf(err), want)
	if detailOf(err).GetRequestId() == "" {
		e.Errorf("%s: the error has no request id", what)
	}
}

// refusedItem is like refused, for the error of one item of a batch.
func (e *env) refusedItem(what string, err *parleyv1.ItemError, want refusal) {
	e.Helper()
	e.compare(what, connect.Code(err.GetCode()), err.GetDetail(), want)
}

func (e *env) compare(what string, code connect.Code, d *parleyv1.ErrorDetail, want refusal) {
	e.Helper()
	got := refusal{code, strings.TrimPrefix(d.GetReason().String(), "ERROR_REASON_"), d.GetField(), d.GetLimit()}
	if got != want {
		e.Errorf("%s: got %s, want %s", what, got, want)
	}
	if d.GetRetryable() != (d.GetReason() >= 100) {
		e.Errorf("%s: reason %s, retryable is %t", what, d.GetReason(), d.GetRetryable())
	}
}

// detailOf returns the detail of an error, or nil.
func detailOf(err error) *parleyv1.ErrorDetail {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return nil
	}
	for _, d := range wire.Details() {
		if value, err := d.Value(); err == nil {
			if detail, ok := value.(*parleyv1.ErrorDetail); ok {
				return detail
			}
		}
	}
	return nil
}

// invalid returns the refusal for an invalid field.
func invalid(field string, limit int64) refusal {
	return refusal{connect.CodeInvalidArgument, "INVALID_FIELD", field, limit}
}

// openStream is a server stream of any message type.
type openStream interface {
	Receive() bool
	Err() error
	Close() error
}

// opened reads the first frame of a stream, whose StreamInfo info returns. It returns the stream's
// id and a function that ends the stream, which also ends with the scenario.
func (e *env) opened(stream openStream, cancel context.CancelFunc, info func() *parleyv1.StreamInfo) (id string, end func()) {
	e.Helper()
	end = func() { cancel(); _ = stream.Close() }
	e.Cleanup(end)
	if !stream.Receive() {
		e.Fatalf("no first frame: %v", stream.Err())
	}
	first := info()
	if first.GetStreamId() == "" || first.GetHeartbeatInterval().AsDuration() <= 0 {
		e.Fatalf("the first frame has the info %v", first)
	}
	return first.GetStreamId(), end
}
