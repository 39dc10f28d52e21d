package intercept

import (
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"
)

// statusWriter records the status of a response, and discards what connect writes before an
// interceptor has seen the call.
type statusWriter struct {
	http.ResponseWriter

	call   *call
	status int // 0 until something was written
	// discarded is the status of a discarded response; 0 if it has none.
	discarded int
}

// discards reports whether writes are discarded now: one of connect's handlers has the call, and no
// interceptor has seen it.
func (w *statusWriter) discards() bool { return w.call.inConnect && !w.call.handled }

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	switch status {
	case http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusHTTPVersionNotSupported:
		w.call.inConnect = false // a response of HTTP itself: no code maps to these
	}
	if w.discards() {
		w.discarded = status
		return
	}
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(data []byte) (int, error) {
	if w.discards() {
		return len(data), nil
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(data)
}

// Flush implements http.Flusher, which connect requires for streams.
func (w *statusWriter) Flush() {
	if w.discards() {
		return
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush() // both of net/http's writers support it
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// grpcStatus returns the value of gRPC's status if it is in the header, directly or as a trailer;
// otherwise an empty string.
func grpcStatus(header http.Header) string {
	for _, name := range []string{"Grpc-Status", http.TrailerPrefix + "Grpc-Status"} {
		if v := header[name]; len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

// statusClientClosed is the HTTP status with which connect answers a canceled call.
const statusClientClosed = 499

// code returns the code of connect's discarded response. For gRPC it is in the header, and for a
// unary Connect call it follows from the HTTP status. A Connect stream has it in the body; before
// the interceptors it is invalid_argument, except for an unknown compression, which Explain
// detects.
func (w *statusWriter) code() connect.Code {
	if number, err := strconv.ParseUint(grpcStatus(w.Header()), 10, 32); err == nil {
		return connect.Code(number)
	}
	switch w.discarded {
	case http.StatusBadRequest, 0, http.StatusOK:
		return connect.CodeInvalidArgument
	case http.StatusTooManyRequests:
		return connect.CodeResourceExhausted
	case http.StatusNotImplemented:
		return connect.CodeUnimplemented
	case http.StatusGatewayTimeout:
		return connect.CodeDeadlineExceeded
	case statusClientClosed:
		return connect.CodeCanceled
	default:
		return connect.CodeInternal
	}
}

// failed reports whether the response is an error, for calls that no interceptor has seen. It
// returns true if the error would be in the body, which it can't see.
func (w *statusWriter) failed() bool {
	if status := grpcStatus(w.Header()); status != "" {
		return status != "0"
	}
	contentType := w.Header().Get("Content-Type")
	return w.status >= http.StatusBadRequest ||
		strings.HasPrefix(contentType, "application/grpc-web") || strings.HasPrefix(contentType, "application/connect+")
}
