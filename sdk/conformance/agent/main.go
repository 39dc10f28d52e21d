// Command agent is the Go SDK's agent for the conformance scenarios. It reads commands from stdin,
// calls the SDK, and writes the results to stdout. sdk/conformance/PROTOCOL.md specifies the
// format.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	parley "github.com/parleyhq/parley/sdk/go"
)

func main() {
	a := &agent{
		log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
		out:     json.NewEncoder(os.Stdout),
		clients: make(map[string]*client), subs: make(map[string]*subscription),
		presences: make(map[string]*presence),
		opened:    make(map[string]*parley.OpenMessage),
		calls:     make(map[int64]context.CancelFunc),
	}
	if err := a.serve(context.Background(), os.Stdin); err != nil {
		a.log.Error("the agent ends", "error", err)
		os.Exit(1)
	}
}

// agent holds the clients, subscriptions, presences and calls of the driver. Safe for concurrent
// use.
type agent struct {
	log *slog.Logger
	// running waits for the commands in flight.
	running sync.WaitGroup

	writing sync.Mutex // guards out
	out     *json.Encoder

	mu        sync.Mutex // guards the fields below
	clients   map[string]*client
	subs      map[string]*subscription
	presences map[string]*presence
	opened    map[string]*parley.OpenMessage
	calls     map[int64]context.CancelFunc
}

// command is one line from the driver.
type command struct {
	ID   int64     `json:"id"`
	Op   string    `json:"op"`
	Args arguments `json:"args"`
}

// answer is one line to the driver.
type answer struct {
	ID     int64    `json:"id"`
	Result any      `json:"result,omitempty"`
	Error  *failure `json:"error,omitempty"`
}

// serve answers commands until the input ends. It then cancels those in flight and closes all
// presences, subscriptions and clients.
func (a *agent) serve(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			a.answer(answer{ID: c.ID, Error: ownFailure(fmt.Errorf("read a command: %w", err))})
			continue
		}
		// The call must be known before the next line is read, which may cancel it.
		callCtx, end := context.WithCancel(ctx)
		a.mu.Lock()
		a.calls[c.ID] = end
		a.mu.Unlock()
		a.running.Go(func() { a.run(callCtx, end, c) })
	}
	cancel()
	a.running.Wait()
	for _, p := range a.presences {
		p.Close()
	}
	for _, s := range a.subs {
		s.Close()
	}
	for _, c := range a.clients {
		c.Close()
	}
	return lines.Err()
}

func (a *agent) run(ctx context.Context, end context.CancelFunc, c command) {
	result, err := a.do(ctx, c)
	said := answer{ID: c.ID, Result: result}
	if err == nil && result == nil {
		said.Result = struct{}{}
	}
	if err != nil {
		said.Error = toFailure(ctx, err)
	}
	end()
	a.mu.Lock()
	delete(a.calls, c.ID)
	a.mu.Unlock()
	a.answer(said)
}

func (a *agent) answer(said answer) {
	a.writing.Lock()
	defer a.writing.Unlock()
	if err := a.out.Encode(said); err != nil {
		a.log.Error("write an answer", "error", err)
	}
}

// errAgent is wrapped by errors of the agent itself, rather than of the SDK.
var errAgent = errors.New("agent")

// do returns the result of a command. It may return a partial result together with an error.
func (a *agent) do(ctx context.Context, c command) (any, error) {
	switch c.Op {
	case "hello":
		return map[string]any{"sdk": "go", "protocols": []string{"connect", "grpc", "grpc-web"}}, nil
	case "newClient":
		return nil, a.newClient(c.Args)
	case "cancel":
		a.mu.Lock()
		defer a.mu.Unlock()
		if end := a.calls[c.Args.Call]; end != nil {
			end()
		}
		return nil, nil //nolint:nilnil // an answer without a result
	}
	if op := subscriptionOps[c.Op]; op != nil {
		a.mu.Lock()
		s := a.subs[c.Args.Sub]
		a.mu.Unlock()
		if s == nil {
			return nil, fmt.Errorf("%w: no subscription %q", errAgent, c.Args.Sub)
		}
		return op(ctx, s, c.Args)
	}
	if op := presenceOps[c.Op]; op != nil {
		a.mu.Lock()
		p := a.presences[c.Args.Presence]
		a.mu.Unlock()
		if p == nil {
			return nil, fmt.Errorf("%w: no presence %q", errAgent, c.Args.Presence)
		}
		return op(ctx, p, c.Args)
	}
	if op := openOps[c.Op]; op != nil {
		a.mu.Lock()
		m := a.opened[c.Args.Message]
		a.mu.Unlock()
		if m == nil {
			return nil, fmt.Errorf("%w: no open message %q", errAgent, c.Args.Message)
		}
		return op(ctx, m, c.Args)
	}
	a.mu.Lock()
	cl := a.clients[c.Args.Client]
	a.mu.Unlock()
	if cl == nil {
		return nil, fmt.Errorf("%w: no client %q", errAgent, c.Args.Client)
	}
	switch c.Op {
	case "subscribe":
		return nil, a.subscribe(cl, c.Args)
	case "connect":
		return nil, a.connect(cl, c.Args)
	case "open":
		return a.open(ctx, cl, c.Args)
	}
	op := clientOps[c.Op]
	if op == nil {
		op = sessionOps[c.Op]
	}
	if op == nil {
		return nil, fmt.Errorf("%w: unknown op %q", errAgent, c.Op)
	}
	if c.Args.DeadlineMs > 0 {
		limited, cancel := context.WithTimeout(ctx, millis(c.Args.DeadlineMs))
		defer cancel()
		ctx = limited
	}
	return op(ctx, cl, c.Args)
}

// subscribe starts a subscription, which lasts until a command or the end of the input closes it.
func (a *agent) subscribe(c *client, args arguments) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.subs[args.Sub] != nil {
		return fmt.Errorf("%w: subscription %q already exists", errAgent, args.Sub)
	}
	s := new(subscription)
	opts := []parley.SubscribeOption{parley.OnState(s.onState)}
	for _, start := range toStarts(args.Starts) {
		opts = append(opts, start)
	}
	s.Subscription = c.Subscribe(context.Background(), opts...)
	a.subs[args.Sub] = s
	return nil
}
