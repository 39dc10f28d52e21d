package queue

import (
	"crypto/rand"
	"os"
	"regexp"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
)

// WorkerOption sets a property of a Worker.
type WorkerOption func(*workerConfig)

type workerConfig struct {
	consumer       string
	concurrency    int
	messages       int
	bytes          int64
	ackTimeout     time.Duration
	handlerTimeout time.Duration
	stopTimeout    time.Duration
	middleware     []Middleware
	unary          bool
	onLost         func(d *Delivery, err error)
	onState        func(parley.StateChange)
}

// defaultHandlerTimeout applies to deliveries without a timeout of their own. It is the default of
// groups.
const defaultHandlerTimeout = 15 * time.Minute

func defaultWorkerConfig() workerConfig {
	return workerConfig{
		consumer: consumerName(), concurrency: 16, ackTimeout: 30 * time.Second, stopTimeout: 30 * time.Second,
		onLost: func(*Delivery, error) {}, onState: func(parley.StateChange) {},
	}
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// consumerName returns the host's name with a random suffix, which distinguishes several workers on
// one host.
func consumerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	host = notInName.ReplaceAllString(host, "-")
	return host[:min(len(host), 48)] + "-" + rand.Text()[:6]
}

// WithConcurrency sets how many handlers of the worker may run at once: 1 to 10,000. The default is
// 16.
func WithConcurrency(n int) WorkerOption {
	return func(c *workerConfig) { c.concurrency = min(max(n, 1), 10_000) }
}

// WithConsumerName sets the worker's name that operators see: 1 to 64 characters of A-Z a-z 0-9 _
// -. The default is the host's name and a random suffix.
func WithConsumerName(name string) WorkerOption { return func(c *workerConfig) { c.consumer = name } }

// WithMaxInFlight sets how many unsettled messages, and how many bytes of their payloads, keys and
// headers, this worker may hold at a time: those that handlers handle and those that wait. For
// messages the minimum is the concurrency, the maximum 10,000 and the default twice the
// concurrency. For bytes the maximum is 64 MiB and the default 8 MiB. 0 or less means the default.
func WithMaxInFlight(messages int, bytes int64) WorkerOption {
	return func(c *workerConfig) { c.messages, c.bytes = min(max(messages, 0), 10_000), min(max(bytes, 0), 64<<20) }
}

// WithAckTimeout sets how long the server waits for a settlement or an extension before a delivery
// is lost: 1 s to 12 h, by default 30 s. It does not limit handlers: the worker extends its
// deliveries at intervals of a third of d.
func WithAckTimeout(d time.Duration) WorkerOption {
	return func(c *workerConfig) { c.ackTimeout = min(max(d, time.Second), 12*time.Hour) }
}

// WithHandlerTimeout limits each handler to d, or to the timeout of its message or group if that is
// shorter. Without this option, and for 0 or less, only the latter applies.
//
// At the timeout the handler's context ends. If the handler then returns an error, its message is
// nacked with CodeTimeout. A handler that still runs 10 s later is no longer extended, so that its
// delivery is lost. It counts towards the concurrency until it returns.
func WithHandlerTimeout(d time.Duration) WorkerOption {
	return func(c *workerConfig) { c.handlerTimeout = max(d, 0) }
}

// WithStopTimeout sets how long Run waits for handlers after its context has ended, before it ends
// their contexts. The default is 30 s; 0 or less means that they end at once.
func WithStopTimeout(d time.Duration) WorkerOption {
	return func(c *workerConfig) { c.stopTimeout = max(d, 0) }
}

// WithMiddleware wraps all handlers of the worker. The first middleware is the outermost. The
// option may be used several times.
func WithMiddleware(m ...Middleware) WorkerOption {
	return func(c *workerConfig) { c.middleware = append(c.middleware, m...) }
}

// WithUnaryCalls uses a server stream and one call per request instead of a bidirectional stream,
// for HTTP/1.1 and for proxies without bidirectional streams.
func WithUnaryCalls() WorkerOption { return func(c *workerConfig) { c.unary = true } }

// WithOnLost sets a function that is called with each lost delivery: one that was taken from this
// worker before it was settled, or whose settlement was refused or has an unknown outcome. The
// message is delivered again, to this or another worker, unless the settlement arrived or the
// message was cancelled. The function must not block.
func WithOnLost(f func(d *Delivery, err error)) WorkerOption {
	return func(c *workerConfig) { c.onLost = f }
}

// WithOnState sets a function that is called with each state of the worker's stream: live, waiting
// (with the reason and the wait), ended. It must not block.
func WithOnState(f func(parley.StateChange)) WorkerOption {
	return func(c *workerConfig) { c.onState = f }
}
