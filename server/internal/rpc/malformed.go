package rpc

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/rpc/intercept"
)

// decodableGet turns away a GET whose message is not the base64 that it says it is. Connect would find that out while
// it reads, and answer `unknown` with a 500.
func decodableGet(calls *intercept.Calls, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			if q := r.URL.Query(); q.Get("base64") == "1" && !isBase64(q.Get("message")) {
				f := fault.New(fault.InvalidArgument, fault.MalformedRequest, "message: is not URL-safe base64")
				f.Field = "message"
				calls.Refuse(w, r, f)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// isBase64 judges as connect does: what has the length of padded base64 is padded.
func isBase64(message string) bool {
	encoding := base64.URLEncoding
	if len(message)%4 != 0 {
		encoding = base64.RawURLEncoding
	}
	_, err := encoding.DecodeString(message)
	return err == nil
}

// brokenBody gives the failure to read a body a code where connect has none for it and would answer `unknown`: the body
// ends before it should, or is not in chunks as it says. Connect knows by itself what is too large and who has left. No
// address is told.
func brokenBody(err error) error {
	if netErr, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("read the request's body: %w", netErr.Err)
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("read the request's body: %w", err))
}
