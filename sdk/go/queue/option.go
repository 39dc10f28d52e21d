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
	messages       int64
	bytes          int64
	ackTimeout     time.Duration
	handlerTimeout time.Duration
	stopTimeout    time.Duration
	middleware     []Middleware
	unary          bool
	onLost         func(d *Delivery, err error)
	onState        func(parley.StateChange)
}

func defaultWorkerConfig() workerConfig {
	return workerConfig{
		consumer: consumerName(), concurrency: 16, bytes: 8 << 20, ackTimeout: 30 * time.Second, stopTimeout: 30 * time.Second,
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

// WithConcurrency sets how many handlers of the worker may run at once, at least 1. The default is
// 16.
func WithConcurrency(n int) WorkerOption { return func(c *workerConfig) { c.concurrency = max(n, 1) } }

// WithConsumerName sets the worker's name that operators see: 1 to 64 characters of A-Z a-z 0-9 _
// -. The default is the host's name and a random suffix.
func WithConsumerName(name string) WorkerOption { return func(c *workerConfig) { c.consumer = name } }

// WithWindow sets how many unsettled messages, and how many bytes of their payloads, keys and
// headers, this worker may hold at a time. For messages the maximum is 10,000 and the default twice
// the concurrency. For bytes the maximum is 64 MiB and the default 8 MiB. 0 or less keeps the
// default.
func WithWindow(messages int, bytes int64) WorkerOption {
	return func(c *workerConfig) {
		if messages > 0 {
			c.messages = min(int64(messages), 10_000)
		}
		if bytes > 0 {
			c.bytes = min(bytes, 64<<20)
		}
	}
}

// WithAckTimeout sets how long the server waits for a settlement or an extension before it delivers
// a message to another worker: 1 s to 12 h, by default 30 s. It does not limit handlers: the worker
// extends the deliveries in flight at intervals of a third of d.
func WithAckTimeout(d time.Duration) WorkerOption {
	return func(c *workerConfig) { c.ackTimeout = min(max(d, time.Second), 12*time.Hour) }
}

// WithHandlerTimeout sets a limit for each handler. When it is reached, the handler's context ends
// and the message is nacked. A handler that still runs then counts towards the concurrency. 0, the
// default, means no limit: a handler that hangs keeps its message.
func WithHandlerTimeout(d time.Duration) WorkerOption {
	return func(c *workerConfig) { c.handlerTimeout = max(d, 0) }
}

// WithStopTimeout sets how long Run waits for handlers after its context has ended, before it ends
// their contexts. The default is 30 s; 0 or less means that they end at once.
func WithStopTimeout(d time.Duration) WorkerOption {
	return func(c *workerConfig) { c.stopTimeout = max(d, 0) }
}

// WithMiddleware wraps the handler. The first middleware is the outermost. The option may be used
// several times.
func WithMiddleware(m ...Middleware) WorkerOption {
	return func(c *workerConfig) { c.middleware = append(c.middleware, m...) }
}

// WithUnaryCalls uses a server stream and one call per request instead of a bidirectional stream,
// for HTTP/1.1 and for proxies without bidirectional streams.
func WithUnaryCalls() WorkerOption { return func(c *workerConfig) { c.unary = true } }

// WithOnLost sets a function that is called with each lost delivery: one that was taken from this
// worker before it was settled, or whose settlement was refused or has an unknown outcome. The
// message is delivered again, to this or another worker, unless the settlement arrived. The
// function must not block.
func WithOnLost(f func(d *Delivery, err error)) WorkerOption {
	return func(c *workerConfig) { c.onLost = f }
}

// WithOnState sets a function that is called with each state of the worker's stream: live, waiting
// (with the reason and the wait), ended. It must not block.
func WithOnState(f func(parley.StateChange)) WorkerOption {
	return func(c *workerConfig) { c.onState = f }
}
