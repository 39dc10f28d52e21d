package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

var (
	lookReplay = newScript("look_replay", -1, "lib_group", "lib_letters")
	lookClock  = newScript("look_clock", 1)
	lookSend   = newScript("look_send", 3, "lib_letters")
	lookArrive = newScript("look_arrive", 3)
	lookSent   = newScript("look_sent", 3)
)

const (
	// moveLife is how long after the dead letter was read it may arrive: who stood still longer reads it again.
	moveLife = time.Minute
	// markerLife is how long the marker of one that arrived lives, if the replay is not finished: until then a repeat finishes it.
	markerLife = 7 * 24 * time.Hour
	// markerRest is how long it lives after that: longer than moveLife, for the sake of others that do the same replay.
	markerRest = 10 * moveLife
)

// Replay implements queue.LookStore. To another partition it takes three scripts, in turn here and there:
//
//	look_send    here   the dead letter is noted as on its way to a partition, and from now on to no other
//	look_arrive  there  if there is no marker of it: the message and the marker, in one step
//	look_sent    here   the dead letter and the note go
//
// A repeat goes on wherever the last one ended. It must come within 7 days, which the marker lives. One that is on its way to
// another partition already goes there, whatever `to` says. It goes page by page; after an error the earlier ones are done,
// and told.
func (s *Store) Replay(
	ctx context.Context, t *queue.Topic, from, to int, group string, ids []queue.EntryID, n int,
) (replayed int64, more bool, err error) {
	c := choose(group, ids, n)
	for !c.done {
		start, n, args := c.page()
		var did int64
		var last queue.EntryID
		var pageMore bool
		if from == to {
			did, last, pageMore, err = s.replayHere(ctx, t, t.Ref(from), start, n, group, args)
		} else {
			did, last, pageMore, err = s.replayTo(ctx, t, t.Ref(from), to, start, n, group, args)
		}
		replayed += did
		if err != nil {
			return replayed, false, err
		}
		c.turn(did, last, pageMore)
		more = c.more(pageMore)
	}
	return replayed, more, nil
}

// replayHere does one page in the partition itself.
func (s *Store) replayHere(
	ctx context.Context, t *queue.Topic, ref queue.Ref, start string, n int, group string, ids []any,
) (replayed int64, last queue.EntryID, more bool, err error) {
	keys := []string{s.keys.meta(ref), s.keys.deadLetters(ref), s.keys.moving(ref)}
	args := []any{ref.UID, start, n, group, len(t.Groups)}
	for _, g := range t.Groups {
		keys = append(keys, s.keys.retry(ref, g.Name), s.keys.stats(ref, g.Name))
		args = append(args, g.Name)
	}
	reply, err := s.write(ctx, lookReplay, keys, append(args, ids...)...)
	if err != nil {
		return 0, queue.EntryID{}, false, fmt.Errorf("replay dead letters of partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	r := readReply(reply)
	replayed, last, more = r.number(), r.id(), r.number() == 1
	var moving []any
	for r.more() {
		moving = append(moving, r.text())
	}
	if r.err != nil {
		return 0, queue.EntryID{}, false, fmt.Errorf("replay dead letters of partition %d of %s: %w", ref.Partition, ref.Topic, r.err)
	}
	if len(moving) > 0 {
		did, _, err := s.finishMoves(ctx, ref, group, moving)
		return replayed + did, last, more, err
	}
	return replayed, last, more, nil
}

// replayTo does one page to another partition.
func (s *Store) replayTo(
	ctx context.Context, t *queue.Topic, ref queue.Ref, to int, start string, n int, group string, ids []any,
) (replayed int64, last queue.EntryID, more bool, err error) {
	target := fmt.Sprint(to)
	groups := make([]any, 0, len(t.Groups))
	for _, g := range t.Groups {
		groups = append(groups, g.Name)
	}
	// The clock first: how long the rest takes counts from before the dead letters are read.
	began, err := s.clocks(ctx, ref, []int{to})
	if err != nil {
		return 0, queue.EntryID{}, false, err
	}
	page, err := s.send(ctx, ref, start, n, group, target, groups, ids)
	if err != nil {
		return 0, queue.EntryID{}, false, err
	}
	var here, elsewhere []move
	var others []any
	for _, m := range page.moves {
		if m.to == to {
			here = append(here, m)
		} else {
			elsewhere, others = append(elsewhere, m), append(others, m.id.String())
		}
	}
	replayed, _, err = s.carry(ctx, ref, here, began)
	if err == nil && len(elsewhere) > 0 {
		var did int64
		did, _, err = s.finishMoves(ctx, ref, group, others)
		replayed += did
	}
	return replayed, page.last, page.more, err
}

// finishMoves finishes the replays of dead letters that are on their way to other partitions, and tells how many it finished,
// and of how many the group is gone there.
func (s *Store) finishMoves(ctx context.Context, ref queue.Ref, group string, ids []any) (did int64, stuck int, err error) {
	// Where they go is known only when they are read, and the clocks must be read before. So they are read twice.
	page, err := s.send(ctx, ref, "-", len(ids), group, "", nil, ids)
	if err != nil {
		return 0, 0, err
	}
	var targets []int
	for _, m := range page.moves {
		targets = append(targets, m.to)
	}
	began, err := s.clocks(ctx, ref, targets)
	if err != nil {
		return 0, 0, err
	}
	if page, err = s.send(ctx, ref, "-", len(ids), group, "", nil, ids); err != nil {
		return 0, 0, err
	}
	return s.carry(ctx, ref, page.moves, began)
}

// move is a dead letter on its way to another partition.
type move struct {
	id    queue.EntryID
	to    int
	group string
	// message, key, due and data are the fields i, k, t and d.
	message, key, due, data string
}

type movePage struct {
	last  queue.EntryID
	more  bool
	moves []move
}

// send is step 1. Without a target it changes nothing, and gives those that are on their way.
func (s *Store) send(
	ctx context.Context, ref queue.Ref, start string, n int, group, target string, groups, ids []any,
) (movePage, error) {
	keys := []string{s.keys.meta(ref), s.keys.deadLetters(ref), s.keys.moving(ref)}
	args := append([]any{ref.UID, start, n, group, target}, groups...)
	reply, err := s.write(ctx, lookSend, keys, append(append(args, ""), ids...)...)
	if err != nil {
		return movePage{}, fmt.Errorf("replay dead letters of partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	r := readReply(reply)
	page := movePage{last: r.id(), more: r.number() == 1}
	for r.more() {
		v := reader{fields: r.list()}
		m := move{id: v.id()}
		if m.to, err = partitionArg(v.text()); err != nil && v.err == nil {
			v.err = err
		}
		m.group, m.message, m.key, m.due, m.data = v.text(), v.text(), v.text(), v.text(), v.text()
		if v.err != nil {
			r.err = v.err
			break
		}
		page.moves = append(page.moves, m)
	}
	if r.err != nil {
		return movePage{}, fmt.Errorf("replay dead letters of partition %d of %s: %w", ref.Partition, ref.Topic, r.err)
	}
	return page, nil
}

// clocks gives the times, in ms, of the servers that have partitions of ref's topic.
func (s *Store) clocks(ctx context.Context, ref queue.Ref, partitions []int) (map[int]int64, error) {
	calls := make([]redisscript.Call, len(partitions))
	for i, p := range partitions {
		target := queue.Ref{Topic: ref.Topic, UID: ref.UID, Partition: p}
		calls[i] = redisscript.Call{Keys: []string{s.keys.meta(target)}, Args: []any{ref.UID}}
	}
	times := make(map[int]int64, len(partitions))
	if len(calls) == 0 {
		return times, nil
	}
	for i, result := range lookClock.Run(ctx, s.client, calls) {
		ms, err := result.Int64()
		if err != nil {
			return nil, fmt.Errorf("the time of partition %d of %s: %w", partitions[i], ref.Topic, readError(err)) //nolint:gosec // a result for each
		}
		times[partitions[i]] = ms //nolint:gosec // a result for each
	}
	return times, nil
}

// errMoveLate says that a dead letter was read too long ago.
var errMoveLate = errors.New("the replay took too long: repeat it")

// carry is steps 2 and 3 for dead letters of ref. It tells how many it finished, and of how many the group is gone.
func (s *Store) carry(ctx context.Context, ref queue.Ref, moves []move, began map[int]int64) (did int64, gone int, err error) {
	if len(moves) == 0 {
		return 0, 0, nil
	}
	var arrived []move
	var failed error
	for i, result := range lookArrive.Run(ctx, s.client, s.arrivals(ref, moves, began)) {
		late, err := result.Int()
		if err != nil {
			err = writeError(err)
		}
		switch {
		case errors.Is(err, queue.ErrNoGroup):
			gone++
		case err != nil:
			failed = errors.Join(failed, err)
		case late != 0:
			failed = errors.Join(failed, writeError(errMoveLate))
		default:
			arrived = append(arrived, moves[i])
		}
	}
	did, err = s.conclude(ctx, ref, arrived)
	if err = errors.Join(failed, err); err != nil {
		return did, gone, fmt.Errorf("replay dead letters of partition %d of %s to another: %w", ref.Partition, ref.Topic, err)
	}
	return did, gone, nil
}

func (s *Store) arrivals(ref queue.Ref, moves []move, began map[int]int64) []redisscript.Call {
	calls := make([]redisscript.Call, len(moves))
	for i := range moves {
		m := &moves[i]
		target := queue.Ref{Topic: ref.Topic, UID: ref.UID, Partition: m.to}
		calls[i] = redisscript.Call{
			Keys: []string{s.keys.meta(target), s.keys.arrived(target, ref.Partition, m.id), s.keys.retry(target, m.group)},
			Args: []any{
				ref.UID, began[m.to], moveLife.Milliseconds(), markerLife.Milliseconds(), m.message, m.key, m.due, m.data,
			},
		}
	}
	return calls
}

// conclude is step 3, and lets the markers go. Whether that is known does not matter: they go by themselves.
func (s *Store) conclude(ctx context.Context, ref queue.Ref, moves []move) (did int64, err error) {
	if len(moves) == 0 {
		return 0, nil
	}
	calls := make([]redisscript.Call, len(moves))
	for i := range moves {
		calls[i] = redisscript.Call{
			Keys: []string{s.keys.deadLetters(ref), s.keys.moving(ref), s.keys.stats(ref, moves[i].group)}, Args: []any{moves[i].id.String()},
		}
	}
	pipe := s.client.Pipeline()
	for i, result := range lookSent.Run(ctx, s.client, calls) {
		n, failed := result.Int64()
		if failed != nil {
			err = errors.Join(err, writeError(failed))
			continue
		}
		did += n
		target := queue.Ref{Topic: ref.Topic, UID: ref.UID, Partition: moves[i].to}
		pipe.PExpire(ctx, s.keys.arrived(target, ref.Partition, moves[i].id), markerRest)
	}
	_, _ = pipe.Exec(ctx)
	return did, err
}
