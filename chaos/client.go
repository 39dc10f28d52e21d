package chaos

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// NewHTTPClient makes a client for the generated code: HTTP/2 without TLS, which notices a node that is gone within
// seconds and repeats nothing.
func NewHTTPClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		Protocols:   protocols,
		DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		HTTP2:       &http.HTTP2Config{SendPingTimeout: 4 * time.Second, PingTimeout: 3 * time.Second},
	}}
}

// Authorize gives the context of a call with a token.
func Authorize(ctx context.Context, token string) context.Context {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+token)
	return ctx
}

// OutcomeOf judges a call of the generated client: nil is OK.
func OutcomeOf(err error) (o Outcome, reason parleyv1.ErrorReason, text string) {
	if err == nil {
		return OK, 0, ""
	}
	o, code, text := rawOutcome(err)
	return o, detailOf(err).GetReason(), code + ": " + text
}

// CodeText returns the name of an item's status code, as the codes of calls are written: `already_exists`.
func CodeText(c parleyv1.StatusCode) string {
	return connect.Code(c).String() //nolint:gosec // gRPC's numbers, as connect's
}

// OutcomeOfSDK judges a call by the SDK, which may have made several attempts: nil is OK, and only a refusal for good says that none
// of them did anything.
func OutcomeOfSDK(err error) (o Outcome, reason parleyv1.ErrorReason, text string) {
	if err == nil {
		return OK, 0, ""
	}
	if e, ok := errors.AsType[*parley.Error](err); ok {
		reason = e.Reason
	}
	o, code, text := outcomeOf(err)
	return o, reason, code + ": " + text
}

// Sleep waits. It is false if ctx ended before.
func Sleep(ctx context.Context, d time.Duration) bool { return sleep(ctx, d) }
