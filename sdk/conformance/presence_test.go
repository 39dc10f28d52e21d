package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// presences takes events from a presence until each of `want` has come, in their order. It ignores
// other states of users and channels: how many there are between two stable ones depends on when
// the server reads them.
func presences(ctx context.Context, r *run, s step, vars scope) error {
	for _, want := range s.mods.Want.Content {
		w, err := value(want, r.lookup(vars))
		if err != nil {
			return err
		}
		for last := error(nil); ; {
			e, err := r.takePresence(ctx, s.args.Value, stepLimit)
			if err != nil {
				return err
			}
			if e == nil {
				return fmt.Errorf("no event came, want %s; %w", show(w), last)
			}
			if last = match(w, e); last == nil {
				break
			}
			if kind := e["kind"]; kind != "user" && kind != "channel" {
				return fmt.Errorf("the event's %w\n%s", last, show(e))
			}
		}
	}
	return nil
}

// takePresence takes the next event of a presence. It returns nil if none comes within limit.
func (r *run) takePresence(ctx context.Context, name any, limit time.Duration) (map[string]any, error) {
	args := map[string]any{"presence": name, "count": 1, "timeoutMs": limit.Milliseconds()}
	got, err := r.agent.call(ctx, "takePresence", args)
	if err != nil {
		return nil, err
	}
	if got.Error != nil {
		return nil, fmt.Errorf("presence %v: %s", name, show(got.Error))
	}
	list, _ := got.Result["events"].([]any)
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // none came
	}
	e, _ := list[0].(map[string]any)
	return e, nil
}

// presenceQuiet fails if an event of a presence comes within `forMs` milliseconds.
func presenceQuiet(ctx context.Context, r *run, args any) (reply, error) {
	name, err1 := field[string](args, "presence")
	ms, err2 := field[int](args, "forMs")
	if err := errors.Join(err1, err2); err != nil {
		return reply{}, err
	}
	e, err := r.takePresence(ctx, name, time.Duration(ms)*time.Millisecond)
	if err == nil && e != nil {
		err = fmt.Errorf("an event came: %s", show(e))
	}
	return reply{}, err
}
