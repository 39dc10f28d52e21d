package redislog

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var acquireScript = newScript("acquire", 3, "lib_state")

// Acquire implements qlog.Store.
func (s *Store) Acquire(ctx context.Context, ref qlog.GroupRef, node string, expected int64) (qlog.State, error) {
	keys := []string{s.keys.state(ref.Ref, ref.Group), s.keys.meta(ref.Ref), s.keys.sizes(ref.Ref)}
	reply, err := s.write(ctx, acquireScript, keys, ref.UID, node, expected)
	var state qlog.State
	if err == nil {
		state, err = decodeState(reply)
	}
	if err != nil {
		return qlog.State{}, fmt.Errorf("acquire group %s in partition %d of %s: %w", ref.Group, ref.Partition, ref.Topic, err)
	}
	return state, nil
}

func decodeState(reply any) (qlog.State, error) {
	list, ok := reply.([]any)
	if !ok || len(list) != 8 {
		return qlog.State{}, fmt.Errorf("acquire.lua returned %v", reply)
	}
	n, err := numbersOf(list[:5])
	if err != nil {
		return qlog.State{}, err
	}
	sizes, _ := list[6].([]any)
	largestOf, err := numbersOf(sizes)
	if err != nil {
		return qlog.State{}, err
	}
	state := qlog.State{
		Epoch: n[0], Now: time.UnixMicro(n[1]), Last: qlog.Pos{ID: qlog.ID(n[2]), Ord: n[3]}, GroupsVersion: n[4],
		Largest: largest(largestOf), Released: list[7] == int64(1),
	}
	flat, _ := list[5].([]any)
	fields := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		name, _ := flat[i].(string)
		fields[name], _ = flat[i+1].(string)
	}
	state.Holder = fields["holder"]
	if state.Ver, err = strconv.ParseInt(fields["ver"], 10, 64); err != nil {
		return qlog.State{}, fmt.Errorf("field ver is %q", fields["ver"])
	}
	if state.Cursor, err = qlog.ParsePos(fields["cursor"]); err != nil {
		return qlog.State{}, fmt.Errorf("field cursor: %w", err)
	}
	if state.Sent, err = qlog.ParsePos(fields["sent"]); err != nil {
		return qlog.State{}, fmt.Errorf("field sent: %w", err)
	}
	for _, c := range countersOf(&state.Counters) {
		if text, ok := fields[c.name]; ok {
			if *c.value, err = strconv.ParseInt(text, 10, 64); err != nil {
				return qlog.State{}, fmt.Errorf("field %s is %q", c.name, text)
			}
		}
	}
	return state, nil
}

// Lease implements qlog.Store.
func (s *Store) Lease(ctx context.Context, ref qlog.GroupRef) (holder string, epoch int64, err error) {
	fail := func(err error) (string, int64, error) {
		return "", 0, fmt.Errorf("read the lease of group %s in partition %d of %s: %w", ref.Group, ref.Partition, ref.Topic, err)
	}
	fields, err := s.client.HMGet(ctx, s.keys.state(ref.Ref, ref.Group), "uid", "holder", "epoch").Result()
	if err != nil {
		return fail(readError(err))
	}
	if uid, _ := fields[0].(string); uid != ref.UID {
		return fail(qlog.ErrNoGroup)
	}
	holder, _ = fields[1].(string)
	if text, ok := fields[2].(string); ok {
		if epoch, err = strconv.ParseInt(text, 10, 64); err != nil {
			return fail(fmt.Errorf("field epoch is %q", text))
		}
	}
	return holder, epoch, nil
}
