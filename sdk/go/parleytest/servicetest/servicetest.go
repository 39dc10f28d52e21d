// Package servicetest is the contract of the Parley API as tests, which run over the real server and over
// parleytest, so that the fake behaves as the server does. It speaks the wire format by the generated
// clients, so it sees every field, and every detail of an error.
//
// It does not cover what needs a broken server, several nodes, a restart or a limit that only
// configuration can reach, nor what parleytest documents as different: tokens without meaning, the
// absence of rate limits, and the backoff of retries.
package servicetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// patience is how long a scenario may take.
const patience = 30 * time.Second

// Target is a running server.
type Target struct {
	// URL is the base URL of the API. The server speaks HTTP/2 in the clear.
	URL string
	// Token returns a token of a user that allows the actions on every channel, and nothing else.
	// Without actions it allows everything.
	Token func(userID string, actions ...string) string
	// Unsupported lists the unary methods that the server does not have, as AdminService/UpdateTopic.
	// Each must fail with an error that says so.
	Unsupported []string
}

// Run runs every scenario against a server, all at once. Each uses channels, topics and users of its
// own, so that a server may serve other tests meanwhile.
func Run(t *testing.T, target Target) {
	t.Helper()
	for name, scenario := range scenarios() {
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

// scenarios returns all scenarios by name.
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
		"members only":                     membersOnly,
		"lost channel":                     lostChannel,
		"read marks":                       readMarks,
		"list of channels":                 listChannels,
		"topics":                           topics,
		"groups":                           groups,
		"produce":                          produce,
		"partitions of keys":               partitionsOfKeys,
		"paused topic":                     pausedTopic,
		"schedule":                         schedule,
		"consume":                          consume,
		"settle again":                     settleAgain,
		"retries":                          retries,
		"credits":                          credits,
		"leave":                            leave,
		"lost consumer":                    lostConsumer,
		"ack timeout":                      ackTimeout,
		"consume on one stream":            streamingConsume,
		"dead letters":                     deadLetters,
		"trim":                             trim,
	}
}

// env is what a scenario runs in.
type env struct {
	*testing.T

	ctx    context.Context
	target Target
	// id is part of every name that the scenario uses.
	id string
	// ann and bob may do everything.
	ann, bob *caller
}

// caller calls all services as one user.
type caller struct {
	parleyv1connect.MessageServiceClient

	queues parleyv1connect.QueueServiceClient
	admin  parleyv1connect.AdminServiceClient
	server parleyv1connect.ServerServiceClient
	http   *http.Client
	user   string
}

// as returns a caller whose token allows the actions; without actions, everything.
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

// name returns a name of the scenario's own.
func (e *env) name(part string) string { return part + "-" + e.id }

// no fails the scenario if there is an error.
func (e *env) no(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%v (%+v)", err, detailOf(err))
	}
}

// equal reports a difference of plain values.
func equal[T comparable](e *env, what string, got, want T) {
	e.Helper()
	if got != want {
		e.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// eventually polls until check returns an empty string, and fails with the last one otherwise.
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

// refusal is what an error must say. The limit counts if the field does.
type refusal struct {
	code   connect.Code
	reason string
	field  string
	limit  int64
}

func (r refusal) String() string {
	return fmt.Sprintf("%s %s %q %d", r.code, r.reason, r.field, r.limit)
}

// refused fails the scenario unless err is the refusal.
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

// refusedItem is refused for an item of a batch.
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

// invalid is the refusal of a field that breaks its rule.
func invalid(field string, limit int64) refusal {
	return refusal{connect.CodeInvalidArgument, "INVALID_FIELD", field, limit}
}
