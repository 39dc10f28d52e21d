package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"gopkg.in/yaml.v3"
)

// listResult is the key in reply.Result under which an action stores its result if that is a list.
const listResult = "\x00list"

// agentOps are the commands of sdk/conformance/PROTOCOL.md that steps can use.
var agentOps = []string{
	"newClient", "closeClient", "tokenCalls", "signOut", "send", "sendBatch", "edit", "recall", "get", "history", "channels", "members",
	"createChannel", "setMembersOnly", "deleteChannel", "addMembers", "removeMembers", "markRead", "typing", "subscribe", "take",
	"position", "states", "add", "remove", "closeSub", "connect", "takePresence", "presenceStates", "presenceInfo", "userPresence", "channelPresence", "watch",
	"unwatch", "watchChannel", "unwatchChannel", "setBackground", "closePresence", "getPresence", "onlineUsers",
	"append", "sessions", "renameSession", "deleteSession", "cancelMessage", "open", "writeText", "ended", "complete", "cancelOpen", "failOpen",
}

func knownAction(name string) bool {
	return actions[name] != nil || blockNames[name] || slices.Contains(agentOps, name)
}

// blocks are the actions of steps that contain further steps, by name.
var blocks map[string]func(ctx context.Context, r *run, s step, vars scope) error

var blockNames = map[string]bool{"parallel": true, "repeat": true, "events": true, "presences": true}

// actions are the actions that the driver executes itself rather than send to the agent, by name.
var actions map[string]func(ctx context.Context, r *run, args any) (reply, error)

func init() { //nolint:gochecknoinits // the tables and what is in them need each other
	blocks = map[string]func(ctx context.Context, r *run, s step, vars scope) error{
		"parallel": parallel, "repeat": repeat, "events": events, "presences": presences,
	}
	actions = map[string]func(ctx context.Context, r *run, args any) (reply, error){
		"await": await, "cancel": cancelCommand, "fault": setFault, "heal": heal, "net": netFault, "server": serverFault,
		"requests": requests, "forget": forget, "entries": entries, "quiet": quiet, "log": readLog, "write": write,
		"agent": agentFault, "check": check, "waits": waits, "pause": pause, "longBatch": longBatch, "manyMembers": manyMembers,
		"presenceQuiet": presenceQuiet, "eraseUser": eraseUser, "expire": expire, "revoke": revoke,
	}
}

// parallel executes several lists of steps concurrently, each list in order. It returns the errors
// of all.
func parallel(ctx context.Context, r *run, s step, vars scope) error {
	var mu sync.Mutex
	var all error
	var work sync.WaitGroup
	for _, n := range s.args.Content {
		steps, err := parseSteps(n)
		if err != nil {
			return err
		}
		work.Go(func() {
			if err := r.steps(ctx, steps, vars); err != nil {
				mu.Lock()
				defer mu.Unlock()
				all = errors.Join(all, err)
			}
		})
	}
	work.Wait()
	if all != nil {
		return lineError{all}
	}
	return nil
}

// repeat executes steps the given number of times, one after another or, with `parallel`,
// concurrently. The variable named by `as` holds the number of the repetition, from 1.
func repeat(ctx context.Context, r *run, s step, vars scope) error {
	var args struct {
		Times    int       `yaml:"times"`
		As       string    `yaml:"as"`
		Parallel bool      `yaml:"parallel"`
		Steps    yaml.Node `yaml:"steps"`
	}
	if err := s.args.Decode(&args); err != nil {
		return err
	}
	steps, err := parseSteps(&args.Steps)
	if err != nil {
		return err
	}
	errs := make([]error, args.Times)
	var work sync.WaitGroup
	for i := range args.Times {
		inner := maps.Clone(vars)
		if inner == nil {
			inner = make(scope)
		}
		inner[args.As] = i + 1
		if !args.Parallel {
			if err := r.steps(ctx, steps, inner); err != nil {
				return err
			}
			continue
		}
		work.Go(func() { errs[i] = r.steps(ctx, steps, inner) })
	}
	work.Wait()
	if err := errors.Join(errs...); err != nil {
		return lineError{err}
	}
	return nil
}

// events takes one event after another from a subscription, and compares each with the next one in
// `want`. Channel states that are not expected are ignored: there is one after each reconnect.
func events(ctx context.Context, r *run, s step, vars scope) error {
	sub := s.args.Value
	for _, want := range s.mods.Want.Content {
		w, err := value(want, r.lookup(vars))
		if err != nil {
			return err
		}
		wanted, _ := w.(map[string]any)
		for {
			e, err := r.takeOne(ctx, sub, stepLimit)
			if err != nil {
				return err
			}
			if e == nil {
				return fmt.Errorf("no event came, want %s", show(w))
			}
			if e["kind"] == "channel_state" && wanted["kind"] != "channel_state" {
				continue
			}
			if err := match(w, e); err != nil {
				return fmt.Errorf("the event's %w\n%s", err, show(e))
			}
			break
		}
	}
	return nil
}

// takeOne takes the next event of a subscription. It returns nil if none comes within limit.
func (r *run) takeOne(ctx context.Context, sub string, limit time.Duration) (map[string]any, error) {
	taken, err := r.take(ctx, sub, 1, limit)
	if err != nil || len(taken) == 0 {
		return nil, err
	}
	return taken[0], nil
}

func (r *run) take(ctx context.Context, sub string, count int, limit time.Duration) ([]map[string]any, error) {
	c, err := r.agent.begin("take", map[string]any{"sub": sub, "count": count, "timeoutMs": limit.Milliseconds()})
	if err != nil {
		return nil, err
	}
	got, err := r.finish(ctx, &begun{command: c, op: "take", args: map[string]any{"sub": sub}})
	if err != nil {
		return nil, err
	}
	if got.Error != nil {
		return nil, fmt.Errorf("subscription %s: %s", sub, show(got.Error))
	}
	list, _ := got.Result["events"].([]any)
	all := make([]map[string]any, len(list))
	for i, e := range list {
		all[i], _ = e.(map[string]any)
	}
	return all, nil
}

// field returns the argument with this name as a T, or the zero value if it is absent.
func field[T any](args any, name string) (T, error) {
	var zero T
	in, ok := args.(map[string]any)
	if !ok {
		return zero, errors.New("want a map of arguments")
	}
	v, ok := in[name]
	if !ok {
		return zero, nil
	}
	typed, ok := v.(T)
	if !ok {
		return zero, fmt.Errorf("%s is %s", name, show(v))
	}
	return typed, nil
}

// entries takes events until the channel's entries first to last have come, both inclusive. It
// fails if one is repeated, missing or out of order.
func entries(ctx context.Context, r *run, args any) (reply, error) {
	sub, err1 := field[string](args, "sub")
	channel, err2 := field[string](args, "channelId")
	first, err3 := field[int](args, "first")
	last, err4 := field[int](args, "last")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return reply{}, err
	}
	for want := first; want <= last; {
		taken, err := r.take(ctx, sub, min(last-want+1, 50), stepLimit/3)
		if err != nil {
			return reply{}, err
		}
		if len(taken) == 0 {
			return reply{}, fmt.Errorf("entry %d does not come", want)
		}
		for _, e := range taken {
			if e["channelId"] != channel || e["kind"] == "channel_state" || e["kind"] == "typing" {
				continue
			}
			if n, _ := number(e["seq"]); e["kind"] == "gap" || int(n) != want {
				return reply{}, fmt.Errorf("want entry %d, got %s", want, show(e))
			}
			want++
		}
	}
	return reply{}, nil
}

// quiet fails if an event other than a channel state comes within `forMs` milliseconds.
func quiet(ctx context.Context, r *run, args any) (reply, error) {
	sub, err1 := field[string](args, "sub")
	ms, err2 := field[int](args, "forMs")
	if err := errors.Join(err1, err2); err != nil {
		return reply{}, err
	}
	until := time.Now().Add(time.Duration(ms) * time.Millisecond)
	for left := time.Until(until); left > 0; left = time.Until(until) {
		e, err := r.takeOne(ctx, sub, left)
		if err != nil {
			return reply{}, err
		}
		if e != nil && e["kind"] != "channel_state" {
			return reply{}, fmt.Errorf("an event came: %s", show(e))
		}
	}
	return reply{}, nil
}

func (r *run) begunAs(name any) (*begun, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, _ := name.(string)
	if b := r.begun[text]; b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("no command was begun as %v", name)
}

// await returns the result of a command that an earlier step began.
func await(ctx context.Context, r *run, args any) (reply, error) {
	b, err := r.begunAs(args)
	if err != nil {
		return reply{}, err
	}
	return r.finish(ctx, b)
}

func cancelCommand(ctx context.Context, r *run, args any) (reply, error) {
	b, err := r.begunAs(args)
	if err != nil {
		return reply{}, err
	}
	return r.agent.call(ctx, "cancel", map[string]any{"call": b.command.id})
}

func setFault(_ context.Context, r *run, args any) (reply, error) { return reply{}, r.faults.add(args) }

func heal(_ context.Context, r *run, _ any) (reply, error) {
	r.faults.heal()
	return reply{}, nil
}

// netFault applies a fault to the client's connections to one node, or to all nodes if none is
// named.
func netFault(_ context.Context, r *run, args any) (reply, error) {
	do, err1 := field[string](args, "do")
	name, err2 := field[string](args, "node")
	if err := errors.Join(err1, err2); err != nil {
		return reply{}, err
	}
	targets := r.nodes
	if name != "" {
		n := r.node(name)
		if n == nil {
			return reply{}, fmt.Errorf("no node %q", name)
		}
		targets = []*node{n}
	}
	for _, n := range targets {
		switch do {
		case "cut": // breaks all connections, and refuses new ones
			n.wire.Cut()
		case "break": // breaks all connections, and accepts new ones
			n.wire.Cut()
			n.wire.Restore()
		case "stall": // keeps connections open, but lets no byte pass
			n.wire.Stall()
		case "heal":
			n.wire.Heal()
		default:
			return reply{}, fmt.Errorf("unknown fault of the net %q", do)
		}
	}
	return reply{}, nil
}

// serverFault applies a fault to the server process of a node, by default the first one.
func serverFault(ctx context.Context, r *run, args any) (reply, error) {
	do, err := field[string](args, "do")
	if err != nil {
		return reply{}, err
	}
	name, err := field[string](args, "node")
	if err != nil {
		return reply{}, err
	}
	m := r.backend.machines[0]
	if name != "" {
		i := slices.IndexFunc(r.nodes, func(n *node) bool { return n.name == name })
		if i < 0 || i >= len(r.backend.machines) {
			return reply{}, fmt.Errorf("no server behind node %q", name)
		}
		m = r.backend.machines[i]
	}
	switch do {
	case "kill":
		m.Kill()
	case "start":
		err = m.Restart(ctx)
	case "restart":
		m.Kill()
		err = m.Restart(ctx)
	case "term":
		err = m.Term(ctx)
	case "stop":
		err = m.Stop()
	case "cont":
		err = m.Cont()
	case "restored":
		err = r.backend.restored(ctx)
	default:
		err = fmt.Errorf("unknown fault of a server %q", do)
	}
	return reply{}, err
}

// agentFault stops and continues the agent's process, like a machine that sleeps.
func agentFault(_ context.Context, r *run, args any) (reply, error) {
	do, err := field[string](args, "do")
	if err != nil {
		return reply{}, err
	}
	switch do {
	case "stop":
		err = r.agent.cmd.Process.Signal(syscall.SIGSTOP)
	case "cont":
		err = r.agent.cmd.Process.Signal(syscall.SIGCONT)
	default:
		err = fmt.Errorf("unknown fault of the agent %q", do)
	}
	return reply{}, err
}

// requests returns the calls of a procedure that reached the proxies of the nodes, of one node or
// of all.
func requests(_ context.Context, r *run, args any) (reply, error) {
	of, err1 := field[string](args, "of")
	name, err2 := field[string](args, "node")
	if procedure(of) == nil {
		return reply{}, fmt.Errorf("unknown procedure %q", of)
	}
	return reply{Result: map[string]any{listResult: r.calls.of(of, name)}}, errors.Join(err1, err2)
}

func forget(_ context.Context, r *run, _ any) (reply, error) {
	r.calls.forget()
	return reply{}, nil
}

// pause waits for `ms` milliseconds, in which the program under test makes no calls of its own.
func pause(ctx context.Context, _ *run, args any) (reply, error) {
	ms, err := field[int](args, "ms")
	if err != nil {
		return reply{}, err
	}
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
		return reply{}, nil
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
}

// longBatch makes the agent run sendBatch with count messages. manyMembers makes it run addMembers
// with count users.
func longBatch(ctx context.Context, r *run, args any) (reply, error) {
	return r.many(ctx, "sendBatch", "messages", args, func(i int, channel string) any {
		return map[string]any{"channelId": channel, "content": fmt.Sprintf("message %d", i)}
	})
}

func manyMembers(ctx context.Context, r *run, args any) (reply, error) {
	return r.many(ctx, "addMembers", "userIds", args, func(i int, _ string) any { return fmt.Sprintf("user-%d", i) })
}

func (r *run) many(ctx context.Context, op, key string, args any, item func(i int, channel string) any) (reply, error) {
	client, err1 := field[string](args, "client")
	channel, err2 := field[string](args, "channelId")
	count, err3 := field[int](args, "count")
	if err := errors.Join(err1, err2, err3); err != nil {
		return reply{}, err
	}
	items := make([]any, count)
	for i := range items {
		items[i] = item(i+1, channel)
	}
	full := map[string]any{"client": client, "channelId": channel, key: items}
	c, err := r.agent.begin(op, full)
	if err != nil {
		return reply{}, err
	}
	return r.finish(ctx, &begun{command: c, op: op, args: full, at: time.Now()})
}

// waits checks the waits before reconnects that a subscription reported. The n-th wait must be at
// most the n-th bound, later ones at most the last bound. Of the waits with the last bound, at
// least 3 must be in its lower half and at least 3 in its upper half.
func waits(ctx context.Context, r *run, args any) (reply, error) {
	sub, err1 := field[string](args, "sub")
	bounds, err2 := field[[]any](args, "boundsMs")
	if err := errors.Join(err1, err2); err != nil {
		return reply{}, err
	}
	got, err := r.agent.call(ctx, "states", map[string]any{"sub": sub})
	if err != nil {
		return reply{}, err
	}
	states, _ := got.Result["states"].([]any)
	n, low, high := 0, 0, 0
	for _, s := range states {
		state, _ := s.(map[string]any)
		if state["state"] != "waiting" {
			continue
		}
		wait, _ := number(state["waitMs"])
		bound, _ := number(bounds[min(n, len(bounds)-1)])
		switch {
		case wait < 0 || wait > bound:
			return reply{}, fmt.Errorf("wait %d is %g ms, and its bound %g ms", n+1, wait, bound)
		case n < len(bounds)-1:
		case wait > bound/2:
			high++
		default:
			low++
		}
		n++
	}
	if low < 3 || high < 3 {
		return reply{}, fmt.Errorf("of the last bound's waits %d are in its lower half and %d in its upper half", low, high)
	}
	return reply{}, nil
}
