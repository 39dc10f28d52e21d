package rpc

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/rpc/intercept"
)

// checkedGet returns next with a check that refuses a GET whose query is not that of a call.
// connect detects some of these errors only while it reads, and answers `unknown` with status 500.
func checkedGet(calls *intercept.Calls, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			if f := checkQuery(r.URL.Query()); f != nil {
				calls.Refuse(w, r, f)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// checkQuery returns a fault unless q has the form of a call by GET. An unknown `encoding` is left
// to connect, which answers 415.
func checkQuery(q url.Values) *fault.Error {
	bad := func(parameter, says string) *fault.Error {
		f := malformed("query parameter %s: %s", parameter, says)
		f.Field = parameter
		return f
	}
	switch version := q.Get("connect"); {
	case version != "" && version != "v1":
		return bad("connect", `must be "v1"`)
	case !supported(q.Get("compression")):
		f := unsupportedCompression()
		f.Field = "compression"
		return f
	case !q.Has("message"):
		return bad("message", "is missing")
	case q.Get("base64") == "1" && !isBase64(q.Get("message")):
		return bad("message", "is not URL-safe base64")
	default:
		return nil
	}
}

// isBase64 reports whether connect can decode a GET's message: URL-safe base64, padded if its
// length is a multiple of 4, and otherwise unpadded.
func isBase64(message string) bool {
	encoding := base64.URLEncoding
	if len(message)%4 != 0 {
		encoding = base64.RawURLEncoding
	}
	_, err := encoding.DecodeString(message)
	return err == nil
}

// bodyError converts an error of reading a request's body. It sets the code invalid_argument if the
// body ends early or its chunks are broken, for which connect has no code and would answer
// `unknown`. It leaves the errors of a body that is too large and of a lost connection without a
// code: connect recognizes them. The error contains no network address.
func bodyError(err error) error {
	if netErr, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("read the request's body: %w", netErr.Err)
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("read the request's body: %w", err))
}

// connectTimeout and grpcTimeout match the valid values of the headers Connect-Timeout-Ms and
// Grpc-Timeout.
var (
	connectTimeout = regexp.MustCompile(`^[0-9]{1,10}$`)
	grpcTimeout    = regexp.MustCompile(`^[0-9]{1,8}[HMSmun]$`)
)

// explain implements intercept.Explain for all procedures: it returns the error of a request that
// connect refused. It uses the code of connect's error and the request's header, and depends on
// none of connect's texts.
func (c *Config) explain(procedure string, header http.Header, code connect.Code) error {
	contentType := header.Get("Content-Type")
	grpc := strings.HasPrefix(contentType, "application/grpc")
	if !supported(header.Get(compressionHeader(contentType))) {
		return unsupportedCompression()
	}
	switch code {
	case connect.CodeCanceled:
		return connect.NewError(code, errors.New("the client canceled the call"))
	case connect.CodeDeadlineExceeded:
		return fault.New(fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed before the request was read")
	case connect.CodeResourceExhausted:
		limit := api.forProcedure(procedure).readBytes(c)
		f := fault.New(fault.ResourceExhausted, fault.TooLarge, "the request is larger than %d bytes", limit)
		f.Limit = int64(limit)
		return f
	case connect.CodeUnimplemented:
		return notOneMessage()
	case connect.CodeInvalidArgument:
		switch {
		case grpc && badTimeout(header, "Grpc-Timeout", grpcTimeout):
			return malformed("header Grpc-Timeout: must be 1 to 8 digits and a unit, one of H M S m u n")
		case !grpc && badTimeout(header, "Connect-Timeout-Ms", connectTimeout):
			return malformed("header Connect-Timeout-Ms: must be 1 to 10 digits")
		case !grpc && header.Get("Connect-Protocol-Version") != "" && header.Get("Connect-Protocol-Version") != "1":
			return malformed("header Connect-Protocol-Version: must be 1")
		default:
			return malformed("the request's body is incomplete, or not encoded as its header says")
		}
	default:
		// `internal` is gRPC's code for a broken frame.
		return fault.New(fault.Internal, fault.MalformedRequest,
			"the request's frames are malformed: one is truncated, has unknown flags, or is compressed without an encoding in the header")
	}
}

func badTimeout(header http.Header, name string, form *regexp.Regexp) bool {
	value := header.Get(name)
	return value != "" && !form.MatchString(value)
}

// compressionHeader returns the name of the header in which a request with this content type names
// its compression.
func compressionHeader(contentType string) string {
	switch {
	case strings.HasPrefix(contentType, "application/grpc"):
		return "Grpc-Encoding"
	case strings.HasPrefix(contentType, "application/connect+"):
		return "Connect-Content-Encoding"
	default:
		return "Content-Encoding"
	}
}

func supported(compression string) bool {
	return compression == "" || compression == "identity" || compression == "gzip"
}

func unsupportedCompression() *fault.Error {
	return fault.New(fault.Unimplemented, fault.UnimplementedCall, "the compression of the request is not supported: use gzip or identity")
}

func notOneMessage() *fault.Error {
	return fault.New(fault.Unimplemented, fault.UnimplementedCall, "the request must be exactly one message")
}
