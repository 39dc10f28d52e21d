package redislog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var (
	lookScript = newScript("look", -1, "lib_replayed")
	cutScript  = newScript("cut", -1, "lib_replayed", "lib_trim")
)

// lookHead is how many parts look.lua answers before those of groups.
const lookHead = 11

// Look implements qlog.LookStore.
func (s *Store) Look(ctx context.Context, ref qlog.Ref) (qlog.Counts, error) {
	counts, err := s.look(ctx, ref)
	if err != nil {
		return qlog.Counts{}, fmt.Errorf("look at partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	return counts, nil
}

func (s *Store) look(ctx context.Context, ref qlog.Ref) (qlog.Counts, error) {
	var names []string
	reply, err := s.withGroups(ctx, ref, func(version string, groups []string) (any, error) {
		slices.Sort(groups)
		names = groups
		keys := []string{s.keys.main(ref), s.keys.meta(ref), s.keys.delayed(ref), s.keys.deadLetters(ref), s.keys.replayed(ref)}
		args := []any{ref.UID, version}
		for _, g := range groups {
			keys, args = append(keys, s.keys.state(ref, g), s.keys.due(ref, g)), append(args, g)
		}
		return s.write(ctx, lookScript, keys, args...)
	})
	if err != nil {
		return qlog.Counts{}, err
	}
	list, ok := reply.([]any)
	if !ok || len(list) != lookHead+len(names) {
		return qlog.Counts{}, fmt.Errorf("look.lua answered %T", reply)
	}
	n, err := numbersOf(list[:7])
	if err != nil {
		return qlog.Counts{}, err
	}
	counts := qlog.Counts{
		Now: time.UnixMicro(n[0]), Length: n[2], Scheduled: n[3], DeadLetters: n[4], Cancelled: n[5], Produced: n[1] + n[3] + n[5] - n[6],
		First: messageOf(ref.Partition, list[7], list[8]), Last: messageOf(ref.Partition, list[9], list[10]),
	}
	for i, name := range names {
		g, err := decodeGroupCounts(name, n[1], list[lookHead+i])
		if err != nil {
			return qlog.Counts{}, fmt.Errorf("group %s: %w", name, err)
		}
		counts.Groups = append(counts.Groups, g)
	}
	return counts, nil
}

// withGroups calls a script that takes keys of all groups of a partition, again if a group came or
// went in between.
func (s *Store) withGroups(
	ctx context.Context, ref qlog.Ref, call func(version string, groups []string) (any, error),
) (any, error) {
	for attempt := 0; ; attempt++ {
		version, groups, err := s.groups(ctx, ref)
		if err != nil {
			return nil, err
		}
		reply, err := call(version, groups)
		if !errors.Is(err, qlog.ErrStale) || attempt >= 3 {
			return reply, err
		}
	}
}

// messageOf returns the message ID of an entry, by its ID in the stream and its field i.
func messageOf(partition int, id, name any) string {
	if text, _ := name.(string); text != "" {
		return text
	}
	text, _ := id.(string)
	pos, err := qlog.ParsePos(text)
	if err != nil {
		return ""
	}
	return qlog.MessageID(partition, pos.ID, false)
}

// decodeGroupCounts decodes what look.lua answers for a group. ord is the last ordinal of the log.
func decodeGroupCounts(name string, ord int64, reply any) (qlog.GroupCounts, error) {
	g := qlog.GroupCounts{Group: name}
	list, ok := reply.([]any)
	if !ok || len(list) != 0 && len(list) != 5 {
		return g, fmt.Errorf("look.lua answered %v", reply)
	}
	if len(list) == 0 {
		g.Lost = true
		return g, nil
	}
	n, err := numbersOf(list[:4])
	if err != nil {
		return g, err
	}
	fields := textFields(list[4])
	number := func(field string) int64 {
		n, err2 := strconv.ParseInt(fields[field], 10, 64)
		if err2 != nil && fields[field] != "" {
			err = fmt.Errorf("field %s is %q", field, fields[field])
		}
		return n
	}
	for _, c := range countersOf(&g.Counters) {
		*c.value = number(c.name)
	}
	var err1, err2 error
	g.Cursor, err1 = qlog.ParsePos(fields["cursor"])
	g.Sent, err2 = qlog.ParsePos(fields["sent"])
	gone, elsewhere := n[1], n[2]
	g.Holder, g.Epoch, g.Ver = fields["holder"], number("epoch"), number("ver")
	g.Replayed, g.Open, g.Retrying = number("replayed"), number("open"), n[0]
	g.Appended, g.Unsent = ord-number("base"), ord-g.Sent.Ord-gone-elsewhere
	g.Trimmed += gone
	g.Elsewhere += elsewhere
	if n[3] > 0 {
		g.Oldest = time.UnixMicro(n[3])
	}
	return g, errors.Join(err, err1, err2)
}

// textFields returns the fields of a hash as a script answers it.
func textFields(reply any) map[string]string {
	list, _ := reply.([]any)
	fields := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].(string)
		value, _ := list[i+1].(string)
		fields[name] = value
	}
	return fields
}

// ForceTrim implements qlog.LookStore.
func (s *Store) ForceTrim(ctx context.Context, ref qlog.Ref, cut qlog.Cut, n int) (removed, lost int, more bool, err error) {
	n = max(n, trimAtLeast)
	keep, age := int64(-1), cut.Age.Milliseconds()
	if cut.Age < 0 {
		keep, age = cut.Keep, 0
	}
	reply, err := s.withGroups(ctx, ref, func(version string, groups []string) (any, error) {
		keys := []string{s.keys.main(ref), s.keys.meta(ref), s.keys.sizes(ref), s.keys.moved(ref), s.keys.replayed(ref)}
		args := []any{ref.UID, version, n, keep, age}
		for _, g := range groups {
			keys, args = append(keys, s.keys.state(ref, g), s.keys.open(ref, g)), append(args, g)
		}
		return s.write(ctx, cutScript, keys, args...)
	})
	if err != nil {
		return 0, 0, false, fmt.Errorf("trim partition %d of %s by force: %w", ref.Partition, ref.Topic, err)
	}
	counts, err := counted(reply, 3)
	if err != nil {
		return 0, 0, false, fmt.Errorf("trim partition %d of %s by force: %w", ref.Partition, ref.Topic, err)
	}
	return counts[0], counts[1], counts[2] == 1, nil
}

// counted decodes n numbers that a script answered as such.
func counted(reply any, n int) ([]int, error) {
	list, ok := reply.([]any)
	if !ok || len(list) < n {
		return nil, fmt.Errorf("a script answered %v", reply)
	}
	counts := make([]int, n)
	for i := range counts {
		number, ok := list[i].(int64)
		if !ok {
			return nil, fmt.Errorf("a script answered %v for a number", list[i])
		}
		counts[i] = int(number)
	}
	return counts, nil
}
