package redislog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var (
	lettersScript = newScript("letters", 3, "lib_letters")
	replayScript  = newScript("replay", -1, "lib_letters", "lib_replayed", "lib_input")
	purgeScript   = newScript("purge", 3, "lib_letters")
	ageScript     = newScript("age", 3, "lib_letters")
	takeScript    = newScript("take", 3, "lib_letters")
)

// Letters implements qlog.LookStore.
func (s *Store) Letters(ctx context.Context, ref qlog.Ref, q qlog.LetterQuery) (qlog.LetterPage, error) {
	page, err := s.letters(ctx, ref, q)
	if err != nil {
		return qlog.LetterPage{}, fmt.Errorf("dead letters of partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	return page, nil
}

func (s *Store) letters(ctx context.Context, ref qlog.Ref, q qlog.LetterQuery) (qlog.LetterPage, error) {
	before := "+"
	if !q.Before.IsZero() {
		before = "(" + q.Before.String()
	}
	reply, err := s.write(ctx, lettersScript, s.letterKeys(ref),
		ref.UID, before, q.Group, q.Code, letterCount(q.N), flag(q.Full), qlog.MaxCallBytes)
	if err != nil {
		return qlog.LetterPage{}, err
	}
	list, ok := reply.([]any)
	if !ok || len(list) < 2 {
		return qlog.LetterPage{}, fmt.Errorf("letters.lua answered %T", reply)
	}
	page := qlog.LetterPage{More: list[1] == int64(1)}
	if text, _ := list[0].(string); text != "" {
		if page.Next, err = qlog.ParseLetterID(text); err != nil {
			return qlog.LetterPage{}, err
		}
	}
	page.Letters, err = decodeLetters(list[2:], q.Full)
	return page, err
}

// decodeLetters decodes a list of IDs, headers and, if full, records.
func decodeLetters(list []any, full bool) (letters []qlog.Letter, err error) {
	for _, item := range list {
		parts, ok := item.([]any)
		if !ok || len(parts) != 3 {
			return nil, fmt.Errorf("a script answered %T for a dead letter", item)
		}
		letter, err := decodeLetter(parts[0], parts[1])
		if err != nil {
			return nil, err
		}
		if full {
			letter.decodeRecord(parts[2])
		}
		letters = append(letters, letter.Letter)
	}
	return letters, nil
}

// TakeLetters implements qlog.LookStore.
func (s *Store) TakeLetters(ctx context.Context, ref qlog.Ref, sel qlog.LetterSelection, n int) ([]qlog.Letter, qlog.LetterStep, error) {
	if len(sel.IDs) > qlog.MaxLetters {
		return nil, qlog.LetterStep{}, fmt.Errorf("read %d dead letters: at most %d", len(sel.IDs), qlog.MaxLetters)
	}
	args := append([]any{ref.UID, sel.After.String(), sel.Group, letterCount(n), qlog.MaxCallBytes}, letterArgs(sel)...)
	reply, err := s.write(ctx, takeScript, s.letterKeys(ref), args...)
	var step qlog.LetterStep
	var letters []qlog.Letter
	if err == nil {
		list, _ := reply.([]any)
		if step, err = decodeStep(list, sel); err == nil {
			letters, err = decodeLetters(list[4:], true)
		}
	}
	if err != nil {
		return nil, qlog.LetterStep{}, fmt.Errorf("read dead letters of partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	return letters, step, nil
}

func (s *Store) letterKeys(ref qlog.Ref) []string {
	return []string{s.keys.meta(ref), s.keys.deadLetters(ref), s.keys.deadData(ref)}
}

// letterCount bounds how many items one call handles.
func letterCount(n int) int { return min(max(n, 1), qlog.MaxLetters) }

// letter is a dead letter that is being decoded.
type letter struct{ qlog.Letter }

// decodeLetter reads a header. What is damaged in it is left out, so that the dead letter can still
// be listed and purged.
func decodeLetter(id, header any) (letter, error) {
	var l letter
	text, _ := id.(string)
	var err error
	if l.ID, err = qlog.ParseLetterID(text); err != nil {
		return l, err
	}
	fields := textFields(header)
	valid := func(name string) string { return strings.ToValidUTF8(fields[name], "\uFFFD") }
	l.MessageID, l.Group, l.Reason, l.Code, l.Key = valid("i"), valid("g"), valid("r"), valid("c"), valid("k")
	l.Attempts, _ = strconv.Atoi(fields["a"])
	l.PayloadBytes, _ = strconv.Atoi(fields["s"])
	if l.Entry, err = qlog.ParsePos(fields["e"]); err == nil {
		l.ProducedAt = l.Entry.ID.Time()
	}
	if ms, err := strconv.ParseInt(fields["t"], 10, 64); err == nil {
		l.ProducedAt = time.UnixMilli(ms)
	}
	return l, nil
}

// decodeRecord reads the record of a dead letter.
func (l *letter) decodeRecord(record any) {
	text, ok := record.(string)
	if !ok {
		l.Unreadable = errors.New("there is no record")
		return
	}
	var e qlog.Entry
	if l.Unreadable = decodeRecord([]byte(text), &e); l.Unreadable == nil {
		l.Body, l.Options, l.Key, l.PayloadBytes = e.Body, e.Options, e.Key, e.PayloadBytes
	}
}

// Replay implements qlog.LookStore.
func (s *Store) Replay(
	ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, sel qlog.LetterSelection, n int,
) (qlog.LetterStep, error) {
	step, err := s.replay(ctx, ref, bounds, sel, n)
	if err != nil {
		return qlog.LetterStep{}, fmt.Errorf("replay dead letters of partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	return step, nil
}

func (s *Store) replay(
	ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, sel qlog.LetterSelection, n int,
) (qlog.LetterStep, error) {
	if len(sel.IDs) > qlog.MaxLetters {
		return qlog.LetterStep{}, fmt.Errorf("%d dead letters, at most %d", len(sel.IDs), qlog.MaxLetters)
	}
	if s.input.memory.full(ctx, s.client, s.keys.main(ref)) {
		return qlog.LetterStep{}, qlog.ErrNoMemory
	}
	reply, err := s.withGroups(ctx, ref, func(version string, groups []string) (any, error) {
		keys := []string{
			s.keys.main(ref), s.keys.meta(ref), s.keys.sizes(ref), s.keys.delayed(ref), s.keys.deadLetters(ref), s.keys.deadData(ref),
			s.keys.replayed(ref),
		}
		for _, g := range groups {
			keys = append(keys, s.keys.state(ref, g))
		}
		args := []any{
			ref.UID, version, strings.Join(groups, " "), bounds.MaxMessages, flag(bounds.DropOldest), qlog.MaxCallBytes,
			sel.After.String(), sel.Group, letterCount(n),
		}
		return s.write(ctx, replayScript, keys, append(args, letterArgs(sel)...)...)
	})
	if err != nil {
		return qlog.LetterStep{}, err
	}
	list, _ := reply.([]any)
	if len(list) != 7 {
		return qlog.LetterStep{}, fmt.Errorf("replay.lua answered %v", reply)
	}
	step, err := decodeStep(list, sel)
	if err != nil {
		return qlog.LetterStep{}, err
	}
	if step.Done == 0 && list[4] == int64(1) {
		return qlog.LetterStep{}, qlog.ErrFull
	}
	last, err := numbersOf(list[5:])
	if err != nil {
		return qlog.LetterStep{}, err
	}
	if step.Done > 0 {
		step.Last = qlog.Pos{ID: qlog.ID(last[0]), Ord: last[1]}
	}
	return step, nil
}

func letterArgs(sel qlog.LetterSelection) []any {
	args := make([]any, len(sel.IDs))
	for i, id := range sel.IDs {
		args[i] = id.String()
	}
	return args
}

// decodeStep decodes what each_letter returned.
func decodeStep(list []any, sel qlog.LetterSelection) (qlog.LetterStep, error) {
	if len(list) < 4 {
		return qlog.LetterStep{}, fmt.Errorf("a script answered %v", list)
	}
	done, ok1 := list[0].(int64)
	seen, ok2 := list[1].(int64)
	last, ok3 := list[2].(string)
	after, err := qlog.ParseLetterID(last)
	if !ok1 || !ok2 || !ok3 || err != nil || seen < 0 || seen > int64(len(sel.IDs)) {
		return qlog.LetterStep{}, fmt.Errorf("a script answered %v", list)
	}
	step := qlog.LetterStep{Done: int(done), More: list[3] == int64(1)}
	if step.More {
		step.Rest = qlog.LetterSelection{IDs: sel.IDs[seen:], After: after, Group: sel.Group}
	}
	return step, nil
}

// Purge implements qlog.LookStore.
func (s *Store) Purge(ctx context.Context, ref qlog.Ref, sel qlog.LetterSelection, n int) (qlog.LetterStep, error) {
	if len(sel.IDs) > qlog.MaxLetters {
		return qlog.LetterStep{}, fmt.Errorf("purge %d dead letters: at most %d", len(sel.IDs), qlog.MaxLetters)
	}
	args := append([]any{ref.UID, sel.After.String(), sel.Group, letterCount(n)}, letterArgs(sel)...)
	reply, err := s.write(ctx, purgeScript, s.letterKeys(ref), args...)
	var step qlog.LetterStep
	if err == nil {
		list, _ := reply.([]any)
		step, err = decodeStep(list, sel)
	}
	if err != nil {
		return qlog.LetterStep{}, fmt.Errorf("purge dead letters of partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	return step, nil
}

// Age implements qlog.LookStore.
func (s *Store) Age(ctx context.Context, ref qlog.Ref, age time.Duration, count int64, n int) (int, error) {
	if age <= 0 && count <= 0 {
		return 0, nil
	}
	reply, err := s.write(ctx, ageScript, s.letterKeys(ref), ref.UID, max(age, 0).Milliseconds(), max(count, 0), letterCount(n))
	if err != nil {
		return 0, fmt.Errorf("remove old dead letters of partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	removed, _ := reply.(int64)
	return int(removed), nil
}
