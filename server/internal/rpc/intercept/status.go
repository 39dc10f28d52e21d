package intercept

import (
	"net/http"
	"strings"
)

// statusWriter remembers how a response began.
type statusWriter struct {
	http.ResponseWriter

	status int // 0 until something was written
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(data []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(data)
}

// Flush implements http.Flusher, which connect asks for before it streams.
func (w *statusWriter) Flush() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush() // both of net/http's writers can
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// grpcStatus gives the status that gRPC puts into trailers, where it can be seen; empty elsewhere.
func (w *statusWriter) grpcStatus() string {
	for _, name := range []string{"Grpc-Status", http.TrailerPrefix + "Grpc-Status"} {
		if v := w.Header()[name]; len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

// failed reports whether the response tells an error. Where that stands in the body it can't be seen: then a call that
// no interceptor has seen counts as failed.
func (w *statusWriter) failed() bool {
	if status := w.grpcStatus(); status != "" {
		return status != "0"
	}
	contentType := w.Header().Get("Content-Type")
	return w.status >= http.StatusBadRequest ||
		strings.HasPrefix(contentType, "application/grpc-web") || strings.HasPrefix(contentType, "application/connect+")
}
