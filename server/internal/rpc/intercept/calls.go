package intercept

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/telemetry"
)

// RequestIDHeader is the header with a request's id, in requests and in responses.
const RequestIDHeader = "X-Request-Id"

// validRequestID matches the ids that are accepted from clients. Any other id is replaced, and
// never logged or echoed.
var validRequestID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Mapper converts any error of a call to the error that the client gets.
type Mapper func(ctx context.Context, err error) *connect.Error

// Explain returns the error of a request that connect refuses on its own, because it can't read the
// request. code is the code of connect's own error, header the request's header.
type Explain func(procedure string, header http.Header, code connect.Code) error

// Config configures how errors are mapped and logged. All fields must be set.
type Config struct {
	// Logger logs a line for each failed call.
	Logger *slog.Logger
	// ToWire converts every error of a call.
	ToWire Mapper
	// Explain returns the errors that replace connect's own.
	Explain Explain
	// DecodeError returns why a message could not be decoded; nil if it was decoded.
	DecodeError func(message any) error
}

// Calls is the outermost middleware: it sets the id of each request, recovers from panics outside
// of the interceptors, and answers and logs the calls that fail before they reach the interceptors.
// The interceptor that Errors returns maps and logs the errors of all other calls. It is safe for
// concurrent use.
type Calls struct {
	Config

	errors *connect.ErrorWriter
}

// NewCalls creates the middleware.
func NewCalls(cfg Config) *Calls {
	return &Calls{Config: cfg, errors: connect.NewErrorWriter()}
}

// call is the state of one request that the middleware and the interceptors share.
type call struct {
	start    time.Time
	method   string
	path     string
	protocol string
	subject  string
	// handled is set once an interceptor has seen the call, or the call's failure has been logged. It
	// needs no lock: middleware and handler run on one goroutine.
	handled bool
	// failed is set when the call's failure has been logged.
	failed bool
	// inConnect is set when the call is passed to one of connect's handlers. See EnterConnect.
	inConnect bool
	// atEnd is called when the response was written or the call failed; nil for most calls.
	atEnd func()
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil { // outside Calls, as in tests of one interceptor
		c = &call{start: time.Now()}
	}
	return c
}

// short returns at most 128 bytes of a value that the client chose, so that the log does not repeat
// it at any length.
func short(s string) string { return s[:min(len(s), 128)] }

// SetSubject records the subject of the call's token, for the log.
func SetSubject(ctx context.Context, subject string) { callOf(ctx).subject = subject }

// AtEnd arranges for f to be called once the call's response was written, or could not be. A later
// f replaces an earlier one. The context of a call may end long before that.
func AtEnd(ctx context.Context, f func()) { callOf(ctx).atEnd = f }

// EnterConnect records that the call is now passed to one of connect's handlers.
//
// connect reads the header of every request, and reads and decodes a unary request, before it calls
// any interceptor. Its errors from there have no detail, and their texts are for Go programmers. So
// its response to a call that no interceptor has seen is discarded and replaced with Explain's
// error. Responses that exist only in HTTP (405, 415 and 505) are left unchanged.
func EnterConnect(ctx context.Context) { callOf(ctx).inConnect = true }

// Failed reports whether the call has failed, or has ended before any interceptor has seen it. It
// is for middleware within Wrap, after its handler has returned.
func Failed(ctx context.Context) bool {
	this := callOf(ctx)
	return this.failed || !this.handled
}

// Wrap returns next with the middleware around it.
func (c *Calls) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// This function stays on the stack for as long as a stream lives, so work that needs
		// variables is done in other functions.
		out, r := c.begin(w, r)
		defer c.recover(out, r) // also ends the call
		next.ServeHTTP(out, r)
		c.end(out, r)
	})
}

func (c *Calls) begin(w http.ResponseWriter, r *http.Request) (*statusWriter, *http.Request) {
	id := r.Header.Get(RequestIDHeader)
	if len(r.Header.Values(RequestIDHeader)) != 1 || !validRequestID.MatchString(id) {
		id = uuid.NewString()
		r.Header.Set(RequestIDHeader, id)
	}
	w.Header().Set(RequestIDHeader, id)
	this := &call{
		start: time.Now(), method: r.Method, path: short(r.URL.Path),
		protocol: r.Proto + " " + short(r.Header.Get("Content-Type")),
	}
	ctx := telemetry.WithRequestID(r.Context(), id)
	return &statusWriter{ResponseWriter: w, call: this}, r.WithContext(context.WithValue(ctx, callKey{}, this))
}

func (c *Calls) end(out *statusWriter, r *http.Request) {
	switch this := callOf(r.Context()); {
	case out.discards():
		c.replace(out, r)
	case !this.handled && out.failed():
		c.Logger.InfoContext(r.Context(), "call refused", append(this.attributes(),
			slog.Int("http_status", out.status), slog.String("grpc_status", grpcStatus(out.Header())))...)
	}
}

// replace answers a call whose response by connect was discarded, with Explain's error.
func (c *Calls) replace(out *statusWriter, r *http.Request) {
	err := c.Explain(r.URL.Path, r.Header, out.code())
	header := out.Header()
	for name := range header {
		if strings.HasPrefix(name, http.TrailerPrefix) || strings.HasPrefix(name, "Grpc-Status") || name == "Grpc-Message" {
			delete(header, name)
		}
	}
	// A version that is refused must not decide the form of the error.
	r.Header.Del("Connect-Protocol-Version")
	c.Refuse(out, r, err)
}

// recover logs a panic and answers the call with an internal error. If a part of the response was
// written already, it aborts the response instead. http.ErrAbortHandler is net/http's own panic and
// passes.
func (c *Calls) recover(w *statusWriter, r *http.Request) {
	p := recover()
	if end := callOf(r.Context()).atEnd; end != nil {
		flush(w, r)
		end()
	}
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { //nolint:errorlint // the value itself is what net/http compares
		panic(p)
	}
	err := &PanicError{Value: p, Stack: debug.Stack()}
	wire := c.Fail(r.Context(), err)
	if w.status != 0 {
		panic(http.ErrAbortHandler) // the response has begun and can't be completed
	}
	_ = c.errors.Write(w, r, wire) // the client may be gone
}

// flush waits until the connection has taken what was written of a response over HTTP/2: net/http
// would write its last 4 KiB after the handlers, where nothing can tell that they wait. HTTP/1 has
// one response at a time on each connection.
func flush(w *statusWriter, r *http.Request) {
	if r.ProtoMajor == 2 && w.status != 0 {
		_ = http.NewResponseController(w).Flush() // the client may be gone
	}
}

// Fail logs the error of a failed call, and returns the error that the client gets.
func (c *Calls) Fail(ctx context.Context, err error) *connect.Error {
	wire := c.ToWire(ctx, err)
	logFailure(ctx, c.Logger, err, wire)
	return wire
}

// Refuse answers a request with an error, for middleware that does not call its handler. It also
// logs the error.
func (c *Calls) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	_ = c.errors.Write(w, r, c.Fail(r.Context(), err)) // the client may be gone
}

// PanicError is a recovered panic. Its text is only for the log.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

func (c *call) attributes() []any {
	return []any{
		slog.String("http_method", c.method), slog.String("procedure", c.path), slog.String("protocol", c.protocol),
		slog.String("subject", c.subject), slog.Duration("duration", time.Since(c.start)),
	}
}

// logFailure logs a failed call in one line, with the causes that the client does not get. wire is
// the error that the client gets.
func logFailure(ctx context.Context, log *slog.Logger, err error, wire *connect.Error) {
	this := callOf(ctx)
	this.handled, this.failed = true, true
	attributes := append(this.attributes(), slog.String("code", wire.Code().String()), slog.String("error", full(err)))
	level := slog.LevelInfo
	switch wire.Code() {
	case connect.CodeInternal, connect.CodeUnknown, connect.CodeDataLoss:
		if fault.Is(err, fault.MalformedRequest) {
			break // a broken frame is the client's fault
		}
		level = slog.LevelError
		if p, ok := errors.AsType[*PanicError](err); ok {
			attributes = append(attributes, slog.String("stack", string(p.Stack)))
		}
	case connect.CodeUnavailable:
		level = slog.LevelWarn
	case connect.CodeCanceled:
		level = slog.LevelDebug // clients leave all the time
	default:
	}
	log.Log(ctx, level, "call failed", attributes...)
}

// full returns an error's text, with the causes that a fault hides from clients.
func full(err error) string {
	text := err.Error()
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(cause) {
		inner := cause.Error()
		if len(inner) > 0 && !strings.Contains(text, inner) {
			text += ": " + inner
		}
	}
	return text
}
