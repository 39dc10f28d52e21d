package queue

import (
	"crypto/rand"
	"os"
	"regexp"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
)

// WorkerOption changes how a Worker works.
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

// consumerName names a worker after its machine, with something that tells several apart.
func consumerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	host = notInName.ReplaceAllString(host, "-")
	return host[:min(len(host), 48)] + "-" + rand.Text()[:6]
}

// WithConcurrency sets how many handlers may run at once, 16 by default.
func WithConcurrency(n int) WorkerOption { return func(c *workerConfig) { c.concurrency = max(n, 1) } }

// WithConsumerName names the worker for people who look into the queue: 1 to 64 of A-Z a-z 0-9 _ -. The default is the machine's
// name and something random.
func WithConsumerName(name string) WorkerOption { return func(c *workerConfig) { c.consumer = name } }

// WithWindow sets how much the server may send beyond what is settled: messages up to 10,000, twice the concurrency by default,
// and bytes of payloads, keys and headers up to 64 MiB, 8 MiB by default. 0 keeps a default.
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

// WithAckTimeout sets after how long without a word from this worker the server gives its messages to others, 1 s to 12 h; 30 s by
// default. It does not bound handlers: while the worker lives, what is in flight is extended every third of it.
func WithAckTimeout(d time.Duration) WorkerOption {
	return func(c *workerConfig) { c.ackTimeout = min(max(d, time.Second), 12*time.Hour) }
}

// WithHandlerTimeout bounds each handler: its context ends then, and the message is given back as failed, though the handler may
// still run, and keep its place among the concurrent ones. The default is without bound: a handler that hangs keeps its message.
func WithHandlerTimeout(d time.Duration) WorkerOption {
	return func(c *workerConfig) { c.handlerTimeout = max(d, 0) }
}

// WithStopTimeout bounds how long Run waits for handlers after its context has ended, 30 s by default.
func WithStopTimeout(d time.Duration) WorkerOption {
	return func(c *workerConfig) { c.stopTimeout = max(d, 0) }
}

// WithMiddleware wraps the handler; the first is the outermost. May be given several times.
func WithMiddleware(m ...Middleware) WorkerOption {
	return func(c *workerConfig) { c.middleware = append(c.middleware, m...) }
}

// WithUnaryCalls uses a server stream and a call for each request, in place of one bidirectional stream: for HTTP/1.1, and proxies
// that can't do better.
func WithUnaryCalls() WorkerOption { return func(c *workerConfig) { c.unary = true } }

// WithOnLost sets a function that is told of each delivery that was lost: taken from this worker before it was settled, or whose
// settlement was refused or is not known. The message comes back, here or elsewhere, unless the settlement arrived. It must not block.
func WithOnLost(f func(d *Delivery, err error)) WorkerOption {
	return func(c *workerConfig) { c.onLost = f }
}

// WithOnState sets a function that is told of the worker's connection: live, waiting (with the reason and the wait), ended. It must
// not block.
func WithOnState(f func(parley.StateChange)) WorkerOption {
	return func(c *workerConfig) { c.onState = f }
}
