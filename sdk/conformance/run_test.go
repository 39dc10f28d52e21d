package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/parleyhq/parley/internal/rig"
)

// Time limits of one step and of one scenario, far more than either needs.
const (
	stepLimit     = 30 * time.Second
	scenarioLimit = 3 * time.Minute
)

// run is the state of a running scenario.
type run struct {
	t        *testing.T
	scenario *scenario
	protocol string
	agent    *agent
	backend  *backend
	nodes    []*node
	faults   *faults
	calls    *callLog
	judge    *judge

	mu    sync.Mutex // guards the fields below
	saved map[string]any
	begun map[string]*begun
	// subs contains the names of the subscriptions that were started.
	subs []any
	// presences contains the names of the presences that were started.
	presences []any
}

// begun is a command that was sent to the agent, with its op and arguments, and when it was sent.
type begun struct {
	command *command
	op      string
	args    map[string]any
	at      time.Time
}

// scope contains the variables of the `repeat` blocks around a step, by name.
type scope map[string]any

// play runs one scenario with an agent of its own, and fails the test if a step fails or a fault
// did not happen.
func play(t *testing.T, s *scenario, protocol string, agentCommand []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scenarioLimit)
	defer cancel()
	r := &run{
		t: t, scenario: s, protocol: protocol, backend: startBackend(ctx, t, s), faults: new(faults), calls: new(callLog),
		saved: make(map[string]any), begun: make(map[string]*begun),
	}
	for i := range max(1, s.Nodes) {
		m := r.backend.machines[i%len(r.backend.machines)]
		r.nodes = append(r.nodes, startNode(t, string(rune('a'+i)), m.Addr(), r.faults, r.calls))
	}
	r.agent = startAgent(t, agentCommand)
	r.judge = newJudge(t, r.backend)
	for _, name := range s.Clients {
		if err := r.newClient(ctx, map[string]any{"client": name}); err != nil {
			t.Fatalf("client %s: %v", name, err)
		}
	}
	err := r.steps(ctx, s.steps, nil)
	if err == nil {
		err = r.faults.unused()
	}
	if err != nil {
		t.Error(err)
		r.explain()
	}
}

// explain logs the states of the subscriptions, to explain a failure.
func (r *run) explain() {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sub := range r.subs {
		if got, err := r.agent.call(ctx, "states", map[string]any{"sub": sub}); err == nil {
			r.t.Logf("subscription %v: %s", sub, show(got.Result["states"]))
		}
	}
	for _, name := range r.presences {
		if got, err := r.agent.call(ctx, "presenceStates", map[string]any{"presence": name}); err == nil {
			r.t.Logf("presence %v: %s", name, show(got.Result["states"]))
		}
	}
}

// steps executes steps one after another.
func (r *run) steps(ctx context.Context, steps []step, vars scope) error {
	for _, s := range steps {
		if err := r.step(ctx, s, vars); err != nil {
			return err
		}
	}
	return nil
}

// step executes one step within its time limit. Its error contains the step's line in the file.
func (r *run) step(ctx context.Context, s step, vars scope) error {
	limit := s.mods.Within
	if limit == 0 && blocks[s.action] == nil {
		limit = stepLimit
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	err := func() error {
		if s.mods.Eventually {
			return poll(ctx, func() error { return orFatal(r.once(ctx, s, vars)) })
		}
		return r.once(ctx, s, vars)
	}()
	var withLine lineError
	if err != nil && !errors.As(err, &withLine) {
		return lineError{fmt.Errorf("scenarios.yaml:%d: %s: %w", s.line, s.action, err)}
	}
	return err
}

// orFatal returns err, so that poll continues, only if it is a mismatch. It makes any other error
// fatal: if the driver repeated a failed command, it would hide a missing retry of the SDK.
func orFatal(err error) error {
	if err == nil || isMismatch(err) {
		return err
	}
	return fatal{err}
}

// lineError is an error whose text contains the line of its step already.
type lineError struct{ error }

func (r *run) once(ctx context.Context, s step, vars scope) error {
	if do := blocks[s.action]; do != nil {
		return do(ctx, r, s, vars)
	}
	args, err := value(s.args, r.lookup(vars))
	if err != nil {
		return err
	}
	do := actions[s.action]
	if do == nil {
		do = func(ctx context.Context, r *run, args any) (reply, error) { return r.command(ctx, s, args) }
	}
	got, err := do(ctx, r, args)
	if err != nil {
		return err
	}
	return r.judgeReply(s, got, vars)
}

// judgeReply returns an error if the reply of a step differs from what its modifiers expect. It
// also saves the result, if the step has `save`.
func (r *run) judgeReply(s step, got reply, vars scope) error {
	if s.mods.Begin != "" {
		return nil
	}
	if got.Error != nil && !s.mods.wantsError() {
		return fmt.Errorf("failed: %s", show(got.Error))
	}
	if s.mods.wantsError() {
		if got.Error == nil {
			return &mismatchError{"succeeded, want an error; got " + show(got.Result)}
		}
		if err := r.compare(&s.mods.Error, got.Error, vars); err != nil {
			return fmt.Errorf("the error's %w", err)
		}
	}
	var result any = got.Result
	if list, ok := got.Result[listResult]; ok {
		result = list
	}
	if s.mods.Want.Kind != 0 {
		if err := r.compare(&s.mods.Want, result, vars); err != nil {
			return fmt.Errorf("the result's %w\n%s", err, show(result))
		}
	}
	if s.mods.Took.Kind != 0 {
		if got.at.IsZero() {
			return errors.New("only a command takes time")
		}
		if err := r.compare(&s.mods.Took, float64(got.took)/float64(time.Millisecond), vars); err != nil {
			return fmt.Errorf("the time in milliseconds%w", err)
		}
	}
	if s.mods.Save != "" {
		r.save(s.mods.Save, result)
	}
	return nil
}

func (r *run) save(name string, v any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved[name] = v
}

func (r *run) lookup(vars scope) func(name string) (any, error) {
	return func(name string) (any, error) {
		words := strings.Fields(name)
		switch {
		case len(words) == 0:
			return nil, errors.New("an empty variable")
		case words[0] == "token":
			return r.token("", words[1:])
		case words[0] == "login" && len(words) > 2:
			return r.token(words[1], words[2:])
		case words[0] == "server":
			return "http://" + r.backend.machines[0].Addr(), nil
		case words[0] == "node" && len(words) == 2:
			n := r.node(words[1])
			if n == nil {
				return nil, fmt.Errorf("no node %q", words[1])
			}
			return n.url, nil
		case words[0] == "long" && len(words) == 2:
			n, err := strconv.Atoi(words[1])
			return strings.Repeat("x", n), err
		}
		head, rest, _ := strings.Cut(name, ".")
		if v, ok := vars[head]; ok {
			return lookup(v, rest)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		v, ok := r.saved[head]
		if !ok {
			return nil, fmt.Errorf("no variable %q", head)
		}
		return lookup(v, rest)
	}
}

// token returns a token, of the login ssid unless that is empty. words are a user, how long the
// token is valid (default one hour) and actions, separated by commas: of channels, or connect,
// watch and list of presence. A fourth word is the pattern of the channels (default *). By default
// the token of `admin` may do everything, that of any other user all but manage, moderate, send_as
// and list, also in sessions.
func (r *run) token(ssid string, words []string) (string, error) {
	if len(words) == 0 {
		return "", errors.New("token: user is missing")
	}
	ttl := time.Hour
	if len(words) > 1 {
		var err error
		if ttl, err = time.ParseDuration(words[1]); err != nil {
			return "", err
		}
	}
	actions := map[string][]string{
		"*": {"send", "history", "subscribe"}, "presence": {"connect", "watch"}, "session:*": {"append", "history", "subscribe"},
	}
	if words[0] == "admin" {
		actions = nil
	}
	if len(words) > 2 {
		actions = make(map[string][]string)
		pattern := "*"
		if len(words) > 3 {
			pattern = words[3]
		}
		for action := range strings.SplitSeq(words[2], ",") {
			of := pattern
			if slices.Contains([]string{"connect", "watch", "list"}, action) {
				of = "presence"
			}
			actions[of] = append(actions[of], action)
		}
	}
	return rig.LoginToken(r.backend.secret, words[0], ssid, ttl, actions)
}

func (r *run) node(name string) *node {
	for _, n := range r.nodes {
		if n.name == name || n.url == name {
			return n
		}
	}
	return nil
}

// command sends the command of a step to the agent and, unless the step has `begin`, waits for its
// answer.
func (r *run) command(ctx context.Context, s step, v any) (reply, error) {
	args, ok := v.(map[string]any)
	if !ok {
		return reply{}, errors.New("want a map of arguments")
	}
	if s.action == "newClient" {
		return reply{}, r.newClient(ctx, args)
	}
	c, err := r.agent.begin(s.action, args)
	if err != nil {
		return reply{}, err
	}
	b := &begun{command: c, op: s.action, args: args, at: time.Now()}
	r.mu.Lock()
	switch s.action {
	case "subscribe":
		r.subs = append(r.subs, args["sub"])
	case "connect":
		r.presences = append(r.presences, args["presence"])
	}
	r.mu.Unlock()
	if s.mods.Begin != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.begun[s.mods.Begin] = b
		return reply{}, nil
	}
	return r.finish(ctx, b)
}

// finish waits for the answer to a command, and passes it to the judge. An error of the agent
// itself is fatal.
func (r *run) finish(ctx context.Context, b *begun) (reply, error) {
	got, err := r.agent.await(ctx, b.command)
	if err != nil {
		return got, err
	}
	if got.Error["kind"] == "agent" || got.Error["kind"] == "other" {
		return got, fatal{fmt.Errorf("the agent: %s", show(got.Error))}
	}
	got.took = got.at.Sub(b.at)
	r.judge.note(b, got)
	return got, nil
}

// newClient creates a client in the agent. given overrides the defaults: a token of the user with
// the client's name, the addresses of all nodes, and short waits.
func (r *run) newClient(ctx context.Context, given map[string]any) error {
	args := map[string]any{"backoff": map[string]any{"baseMs": 20, "maxMs": 200}, "protocol": r.protocol}
	var addrs []any
	for _, n := range r.nodes {
		addrs = append(addrs, n.url)
	}
	args["addresses"] = addrs
	maps.Copy(args, given)
	user, ok := args["user"].(string)
	if !ok {
		user, _ = args["client"].(string)
	}
	delete(args, "user")
	if args["token"] == nil && args["tokens"] == nil {
		token, err := r.token("", []string{user})
		if err != nil {
			return err
		}
		args["token"] = token
	}
	got, err := r.agent.call(ctx, "newClient", args)
	if err == nil && got.Error != nil {
		err = fmt.Errorf("failed: %s", show(got.Error))
	}
	return err
}

// compare returns an error if got does not match the expected value in a node of the file.
func (r *run) compare(want *yaml.Node, got any, vars scope) error {
	w, err := value(want, r.lookup(vars))
	if err != nil {
		return fatal{err}
	}
	return match(w, got)
}
