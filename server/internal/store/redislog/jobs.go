package redislog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

var (
	scheduledScript = newScript("scheduled", 3, "lib_due")
	retryingScript  = newScript("retrying", 3, "lib_due")
	rowsInScript    = newScript("rowsin", 1)
	entriesScript   = newScript("entries", 2)
	findScript      = newScript("find", 8, "lib_letters")
	placesScript    = newScript("places", 3)
	statesScript    = newScript("states", 3)
)

// rowsLook is how many rows one step of RowsIn looks at.
const rowsLook = 1000

// ListScheduled implements qlog.LookStore.
func (s *Store) ListScheduled(
	ctx context.Context, ref qlog.Ref, after qlog.DuePlace, n int,
) (messages []qlog.ScheduledMessage, more bool, err error) {
	keys := []string{s.keys.meta(ref), s.keys.delayed(ref), s.keys.delayedData(ref)}
	items, more, err := s.listAfter(ctx, scheduledScript, keys, ref.UID, after, n)
	if err != nil {
		return nil, false, fmt.Errorf("scheduled messages of partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	for _, item := range items {
		m := qlog.ScheduledMessage{Due: item.due}
		decodeMessage(&m.Entry, item.name, item.value)
		messages = append(messages, m)
	}
	return messages, more, nil
}

// decodeMessage reads a message that is not in the log.
func decodeMessage(e *qlog.Entry, id string, record any) {
	e.MessageID = id
	if _, us, _, ok := qlog.ParseMessageID(id); ok {
		e.ProducedAt = us.Time()
	}
	text, ok := record.(string)
	if !ok {
		e.Unreadable = errors.New("there is no record")
		return
	}
	e.Unreadable = decodeRecord([]byte(text), e)
}

// dueItem is an item of a list by due times.
type dueItem struct {
	name  string
	due   time.Time
	value any
}

// listAfter calls a script that lists by due times.
func (s *Store) listAfter(
	ctx context.Context, script *redisscript.Script, keys []string, uid string, after qlog.DuePlace, n int,
) (items []dueItem, more bool, err error) {
	due := int64(-1)
	if after != (qlog.DuePlace{}) {
		due = after.Due.UnixMilli()
	}
	reply, err := s.write(ctx, script, keys, uid, due, after.ID, letterCount(n), qlog.MaxCallBytes)
	if err != nil {
		return nil, false, err
	}
	list, _ := reply.([]any)
	if len(list) == 0 {
		return nil, false, fmt.Errorf("%s.lua answered %v", script.Name(), reply)
	}
	for _, part := range list[1:] {
		parts, _ := part.([]any)
		if len(parts) != 3 {
			return nil, false, fmt.Errorf("%s.lua answered %v for an item", script.Name(), part)
		}
		name, _ := parts[0].(string)
		ms, err := numbersOf(parts[1:2])
		if err != nil {
			return nil, false, err
		}
		items = append(items, dueItem{name, time.UnixMilli(ms[0]), parts[2]})
	}
	return items, list[0] == int64(1), nil
}

// ListRetrying implements qlog.LookStore. A row that is damaged is listed with its due time only.
func (s *Store) ListRetrying(ctx context.Context, ref qlog.GroupRef, after qlog.DuePlace, n int) (rows []qlog.RowOf, more bool, err error) {
	keys := []string{s.keys.state(ref.Ref, ref.Group), s.keys.due(ref.Ref, ref.Group), s.keys.rows(ref.Ref, ref.Group)}
	items, more, err := s.listAfter(ctx, retryingScript, keys, ref.UID, after, n)
	if err != nil {
		return nil, false, fmt.Errorf("retrying messages of group %s in partition %d of %s: %w", ref.Group, ref.Partition, ref.Topic, err)
	}
	for _, item := range items {
		r := qlog.RowOf{}
		id, _ := strconv.ParseInt(item.name, 10, 64)
		text, _ := item.value.(string)
		if row, err := decodeRow(text); err == nil {
			r.Row = row
		} else {
			r.State = qlog.RowRetrying
		}
		r.ID, r.Due = qlog.ID(id), item.due
		rows = append(rows, r)
	}
	return rows, more, nil
}

// RowsIn implements qlog.LookStore.
func (s *Store) RowsIn(ctx context.Context, ref qlog.GroupRef, states []qlog.RowState, after qlog.ID, n int) ([]qlog.RowOf, error) {
	found := map[qlog.ID]qlog.Row{}
	words := []any{"0", rowsLook}
	for _, state := range states {
		words = append(words, rowStates[state])
	}
	for {
		reply, err := s.write(ctx, rowsInScript, []string{s.keys.rows(ref.Ref, ref.Group)}, words...)
		if err != nil {
			return nil, fmt.Errorf("rows of group %s in partition %d of %s: %w", ref.Group, ref.Partition, ref.Topic, err)
		}
		list, _ := reply.([]any)
		if len(list)%2 != 1 {
			return nil, fmt.Errorf("rowsin.lua answered %v", reply)
		}
		for i := 1; i < len(list); i += 2 {
			us, _ := list[i].(string)
			text, _ := list[i+1].(string)
			id, err1 := strconv.ParseInt(us, 10, 64)
			row, err2 := decodeRow(text)
			if err1 == nil && err2 == nil && qlog.ID(id) > after {
				found[qlog.ID(id)] = row
			}
		}
		words[0] = list[0]
		if len(found) > 2*n+rowsLook || list[0] == "0" {
			found = lowest(found, n)
		}
		if list[0] == "0" {
			break
		}
	}
	rows := make([]qlog.RowOf, 0, len(found))
	for id, row := range found {
		rows = append(rows, qlog.RowOf{ID: id, Row: row})
	}
	slices.SortFunc(rows, func(a, b qlog.RowOf) int { return cmp.Compare(a.ID, b.ID) })
	return rows, nil
}

// lowest returns the n rows with the lowest IDs.
func lowest(rows map[qlog.ID]qlog.Row, n int) map[qlog.ID]qlog.Row {
	if len(rows) <= n {
		return rows
	}
	ids := make([]qlog.ID, 0, len(rows))
	for id := range rows {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	kept := make(map[qlog.ID]qlog.Row, n)
	for _, id := range ids[:n] {
		kept[id] = rows[id]
	}
	return kept
}

// EntriesAt implements qlog.LookStore.
func (s *Store) EntriesAt(ctx context.Context, ref qlog.Ref, ids []qlog.ID) (entries []qlog.Entry, looked int, err error) {
	if len(ids) == 0 {
		return nil, 0, nil
	}
	ids = ids[:min(len(ids), qlog.MaxReadEntries)]
	args := []any{ref.UID, qlog.MaxCallBytes}
	for _, id := range ids {
		args = append(args, int64(id))
	}
	reply, err := s.write(ctx, entriesScript, []string{s.keys.main(ref), s.keys.meta(ref)}, args...)
	if err == nil {
		list, _ := reply.([]any)
		if len(list) == 0 {
			return nil, 0, fmt.Errorf("entries.lua answered %v", reply)
		}
		n, _ := list[0].(int64)
		looked = int(n)
		entries, err = decodeEntries(ref.Partition, list[1:])
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read %d entries of partition %d of %s: %w", len(ids), ref.Partition, ref.Topic, err)
	}
	return entries, looked, nil
}

// Walk implements qlog.LookStore, in up to three round trips.
func (s *Store) Walk(ctx context.Context, ref qlog.Ref, after qlog.ID, n int) ([]qlog.Entry, error) {
	first, err := s.Read(ctx, ref, after, 1)
	if err != nil || len(first) == 0 || n <= 1 {
		return first, err
	}
	at := first[0].Pos
	sizes, err := s.sizesOf(ctx, ref, []qlog.Pos{at, {Ord: at.Ord + qlog.MaxReadEntries}})
	if err != nil {
		return nil, fmt.Errorf("read partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	fit := qlog.MaxCallBytes / max(slices.Max(sizes), 1)
	return s.Read(ctx, ref, after, max(min(n, fit), 1))
}

// Places implements qlog.LookStore.
func (s *Store) Places(ctx context.Context, ref qlog.GroupRef, messageIDs []string) ([]qlog.ID, error) {
	if len(messageIDs) > qlog.MaxBatch {
		return nil, fmt.Errorf("places of %d messages: more than %d", len(messageIDs), qlog.MaxBatch)
	}
	args := []any{ref.UID, ref.Group}
	for _, id := range messageIDs {
		us := qlog.ID(0)
		if _, its, scheduled, ok := qlog.ParseMessageID(id); ok && !scheduled {
			us = its
		}
		args = append(args, id, int64(us))
	}
	reply, err := s.write(ctx, placesScript, []string{s.keys.meta(ref.Ref), s.keys.moved(ref.Ref), s.keys.replayed(ref.Ref)}, args...)
	if err != nil {
		return nil, fmt.Errorf("places of messages in partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	list, _ := reply.([]any)
	n, err := numbersOf(list)
	if err != nil || len(n) != len(messageIDs) {
		return nil, fmt.Errorf("places.lua answered %v", reply)
	}
	ids := make([]qlog.ID, len(n))
	for i := range n {
		ids[i] = qlog.ID(n[i])
	}
	return ids, nil
}

// States implements qlog.LookStore.
func (s *Store) States(ctx context.Context, ref qlog.GroupRef, at []qlog.Pos) (qlog.EntryStates, error) {
	states, err := s.states(ctx, ref, at[:min(len(at), qlog.MaxReadEntries)])
	if err != nil {
		return qlog.EntryStates{}, fmt.Errorf("states of %d entries of group %s in partition %d of %s: %w",
			len(at), ref.Group, ref.Partition, ref.Topic, err)
	}
	return states, nil
}

func (s *Store) states(ctx context.Context, ref qlog.GroupRef, at []qlog.Pos) (qlog.EntryStates, error) {
	fields := make([]string, len(at))
	for i, pos := range at {
		fields[i] = chunkField(pos.Ord / qlog.ChunkOrdinals)
	}
	slices.Sort(fields)
	fields = slices.Compact(fields)
	args := []any{ref.UID, len(fields)}
	for _, field := range fields {
		args = append(args, field)
	}
	for _, pos := range at {
		args = append(args, int64(pos.ID))
	}
	keys := []string{s.keys.state(ref.Ref, ref.Group), s.keys.open(ref.Ref, ref.Group), s.keys.rows(ref.Ref, ref.Group)}
	reply, err := s.write(ctx, statesScript, keys, args...)
	if err != nil {
		return qlog.EntryStates{}, err
	}
	list, _ := reply.([]any)
	texts := make([]string, len(list))
	for i := range list {
		texts[i], _ = list[i].(string)
	}
	if len(texts) != len(args) {
		return qlog.EntryStates{}, fmt.Errorf("states.lua answered %v", reply)
	}
	return decodeStates(at, fields, texts)
}

// decodeStates decodes the marks, the chunks of open entries in the fields, and the rows of
// entries. A row that is damaged is left out, as Rows does.
func decodeStates(at []qlog.Pos, fields, texts []string) (qlog.EntryStates, error) {
	states := qlog.EntryStates{Open: map[qlog.ID]bool{}, Rows: map[qlog.ID]qlog.Row{}}
	var err1, err2 error
	states.Cursor, err1 = qlog.ParsePos(texts[0])
	states.Sent, err2 = qlog.ParsePos(texts[1])
	if err := errors.Join(err1, err2); err != nil {
		return states, err
	}
	open := map[int64]bool{}
	for i, field := range fields {
		chunk, err := strconv.ParseInt(field[1:], 10, 64)
		if err != nil {
			return states, err
		}
		ordinals, err := qlog.ParseRanges(chunk, texts[2+i])
		if err != nil {
			return states, err
		}
		for _, ord := range ordinals {
			open[ord] = true
		}
	}
	for i, pos := range at {
		if !open[pos.Ord] || pos.ID > states.Sent.ID {
			continue
		}
		states.Open[pos.ID] = true
		if row, err := decodeRow(texts[2+len(fields)+i]); err == nil {
			states.Rows[pos.ID] = row
		}
	}
	return states, nil
}

// FindMessage implements qlog.LookStore.
func (s *Store) FindMessage(ctx context.Context, ref qlog.Ref, messageID string, groups []string) (qlog.Found, error) {
	found, err := s.findMessage(ctx, ref, messageID, groups)
	if err != nil {
		return qlog.Found{}, fmt.Errorf("find message %s in partition %d of %s: %w", messageID, ref.Partition, ref.Topic, err)
	}
	return found, nil
}

func (s *Store) findMessage(ctx context.Context, ref qlog.Ref, messageID string, groups []string) (qlog.Found, error) {
	_, id, scheduled, ok := qlog.ParseMessageID(messageID)
	if !ok {
		return qlog.Found{}, qlog.ErrNoMessage
	}
	us := ""
	if !scheduled {
		us = strconv.FormatInt(int64(id), 10)
	}
	keys := []string{
		s.keys.main(ref), s.keys.meta(ref), s.keys.delayed(ref), s.keys.delayedData(ref), s.keys.moved(ref), s.keys.deadLetters(ref),
		s.keys.deadData(ref), s.keys.replayed(ref),
	}
	args := []any{ref.UID, messageID, us}
	for _, g := range groups {
		args = append(args, g)
	}
	reply, err := s.write(ctx, findScript, keys, args...)
	if err != nil {
		return qlog.Found{}, err
	}
	list, _ := reply.([]any)
	if len(list) < 4 {
		return qlog.Found{}, fmt.Errorf("find.lua answered %v", reply)
	}
	return decodeFound(ref.Partition, messageID, list)
}

func decodeFound(partition int, messageID string, list []any) (qlog.Found, error) {
	found := qlog.Found{Replayed: map[string]qlog.Pos{}, Letters: map[string]qlog.Letter{}}
	if text, _ := list[0].(string); text != "" {
		ms, err := numbersOf(list[:1])
		if err != nil {
			return found, err
		}
		found.Due = time.UnixMilli(ms[0])
	}
	replays, _ := list[3].([]any)
	for i := 0; i+2 < len(replays); i += 3 {
		group, _ := replays[i].(string)
		n, err := numbersOf(replays[i+1 : i+3])
		if err != nil {
			return found, err
		}
		found.Replayed[group] = qlog.Pos{ID: qlog.ID(n[0]), Ord: n[1]}
	}
	for _, item := range list[4:] {
		pair, _ := item.([]any)
		if len(pair) != 2 {
			return found, fmt.Errorf("find.lua answered %v for a dead letter", item)
		}
		l, err := decodeLetter(pair[0], pair[1])
		if err != nil {
			return found, err
		}
		found.Letters[l.Group] = l.Letter
	}
	if entry, ok := list[1].([]any); ok {
		entries, err := decodeEntries(partition, []any{entry})
		if err != nil {
			return found, err
		}
		found.Entry = entries[0]
		return found, nil
	}
	if list[2] == nil && found.Due.IsZero() && len(replays) == 0 && len(found.Letters) == 0 {
		return found, qlog.ErrNoMessage
	}
	decodeMessage(&found.Entry, messageID, list[2])
	for _, l := range found.Letters {
		found.Entry.ProducedAt = l.ProducedAt
	}
	return found, nil
}
