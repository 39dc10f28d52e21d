package redislog

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var putScript = newScript("put", -1, "lib_input")

// The codes that put.lua answers for a message.
const (
	codeStored = iota
	codeDuplicate
	codeFull
	codeKeyReused
	codeSequenceOld
	codeUnique
	codeTooFar
)

// codeErrors are the errors of the codes.
var codeErrors = map[int64]error{
	codeFull: qlog.ErrFull, codeKeyReused: qlog.ErrKeyReused, codeSequenceOld: qlog.ErrSequenceOld,
	codeUnique: qlog.ErrUnique, codeTooFar: qlog.ErrTooFar,
}

// trimForRoom is how many settled messages a Put removes from a full partition.
const trimForRoom = 1000

// Put implements qlog.Store. If the partition is full it removes settled messages, regardless of
// the retention, and puts what was refused once more; then the bound counts only what the slowest
// group has not settled. The sequence must be below 2^53.
func (s *Store) Put(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, put qlog.Put) ([]qlog.PutResult, error) {
	if len(put.Drafts) == 0 {
		return nil, nil
	}
	results, err := s.put(ctx, ref, bounds, put)
	if err != nil {
		return nil, fmt.Errorf("put to partition %d of %s: %w", ref.Partition, ref.Topic, err)
	}
	return results, nil
}

func (s *Store) put(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, put qlog.Put) ([]qlog.PutResult, error) {
	if s.input.memory.full(ctx, s.client, s.keys.main(ref)) {
		return nil, qlog.ErrNoMemory
	}
	request, err := s.newRequest(ref, bounds, put)
	if err != nil {
		return nil, err
	}
	if request.scheduled {
		if err := s.register(ctx, ref); err != nil {
			return nil, err
		}
	}
	var groups []string
	if request.replaces {
		if _, groups, err = s.groups(ctx, ref); err != nil {
			return nil, err
		}
	}
	results, err := s.putOnce(ctx, request, groups, nil)
	full := func(r qlog.PutResult) bool { return errors.Is(r.Err, qlog.ErrFull) }
	if err != nil || bounds.MaxMessages == 0 || !slices.ContainsFunc(results, full) {
		return results, err
	}
	return s.putAgain(ctx, ref, request, results)
}

// putAgain makes room by removing settled messages, and puts those that were refused for want of
// it.
func (s *Store) putAgain(ctx context.Context, ref qlog.Ref, request *request, results []qlog.PutResult) ([]qlog.PutResult, error) {
	_, groups, err := s.groups(ctx, ref)
	if err == nil {
		_, err = s.Trim(ctx, ref, qlog.Bounds{}, trimForRoom)
	}
	if err != nil || len(groups) == 0 {
		return results, nil //nolint:nilerr // what was stored must be told; the others are refused
	}
	refused := *request
	var at []int
	if request.put.ProducerID == "" {
		refused.messages = nil
		for i := range results {
			if errors.Is(results[i].Err, qlog.ErrFull) {
				at, refused.messages = append(at, i), append(refused.messages, request.messages[i])
			}
		}
	}
	again, err := s.putOnce(ctx, &refused, groups, groups)
	if err != nil {
		if errors.Is(err, qlog.ErrUnknownOutcome) {
			return nil, err
		}
		return results, nil
	}
	if at == nil {
		return again, nil
	}
	for i, r := range again {
		results[at[i]] = r
	}
	return results, nil
}

// putOnce calls the script. rows are the groups whose rows a replacing message looks at, bounded
// those that the bound is computed from.
func (s *Store) putOnce(ctx context.Context, r *request, rows, bounded []string) ([]qlog.PutResult, error) {
	keys := slices.Clone(r.keys)
	for _, g := range bounded {
		keys = append(keys, s.keys.state(r.ref, g))
	}
	if !r.replaces {
		rows = nil
	}
	for _, g := range rows {
		keys = append(keys, s.keys.rows(r.ref, g))
	}
	args := append(make([]any, 0, len(r.head)+3+4*len(r.messages)), r.head...)
	args = append(args, len(bounded), len(rows), flag(r.plain))
	for i := range r.messages {
		m := &r.messages[i]
		keys = append(keys, m.keys...)
		if !r.plain {
			args = append(args, m.when, m.digest, m.unique)
		}
		args = append(args, m.record)
	}
	reply, err := s.write(ctx, putScript, keys, args...)
	if err != nil {
		return nil, err
	}
	return decodePut(reply, r)
}

// request is a Put as put.lua takes it.
type request struct {
	ref qlog.Ref
	put qlog.Put
	// keys and head are those of the request as a whole.
	keys     []string
	head     []any
	messages []putMessage
	// plain: no message is scheduled or has a key. scheduled, replaces: some message is scheduled, or
	// may replace another one.
	plain, scheduled, replaces bool
}

// putMessage is a Draft as put.lua takes it.
type putMessage struct {
	when, digest, unique string
	record               []byte
	keys                 []string
}

func (s *Store) newRequest(ref qlog.Ref, bounds qlog.Bounds, put qlog.Put) (*request, error) {
	r := &request{ref: ref, put: put, plain: true, messages: make([]putMessage, len(put.Drafts))}
	r.keys = []string{
		s.keys.main(ref), s.keys.meta(ref), s.keys.sizes(ref), s.keys.delayed(ref), s.keys.delayedData(ref), s.keys.moved(ref),
	}
	for i := range put.Drafts {
		d, m := &put.Drafts[i], &r.messages[i]
		var err error
		if m.record, err = encodeRecord(d); err != nil {
			return nil, err
		}
		if !d.At.IsZero() || d.Delay > 0 {
			m.when, r.scheduled = when(d.Delay, d.At), true
		}
		if d.IdempotencyKey != "" {
			m.digest = digestOf([]byte(d.Digest))
			m.keys = append(m.keys, s.keys.idempotency(ref, d.IdempotencyKey))
		}
		if d.UniqueKey != "" {
			m.unique = uniqueSpec(d)
			m.keys = append(m.keys, s.keys.unique(ref, d.UniqueKey))
			r.replaces = r.replaces || d.OnConflict == qlog.ConflictReplace
		}
		r.plain = r.plain && m.when == "" && m.keys == nil
	}
	var sequence, digest string
	if put.ProducerID != "" {
		sequence, digest = strconv.FormatInt(put.Sequence, 10), requestDigest(put.Drafts, r.messages)
		r.keys = append(r.keys, s.keys.producer(ref, put.ProducerID))
	}
	r.head = []any{
		ref.UID, ref.Partition, bounds.MaxMessages, flag(bounds.DropOldest), bounds.Window.Milliseconds(), s.keys.wakeups(),
		wakes(ref), qlog.MaxDelay.Milliseconds(), sequence, digest,
	}
	return r, nil
}

// uniqueFor is how long after its due time a message keeps its unique key at most, unless the draft
// says less.
const uniqueFor = 7 * 24 * time.Hour

// uniqueSpec returns what put.lua takes of a unique key.
func uniqueSpec(d *qlog.Draft) string {
	keep := uniqueFor
	if d.UniqueFor > 0 {
		keep = min(keep, d.UniqueFor)
	}
	mode := map[qlog.Conflict]string{qlog.ConflictReject: "r", qlog.ConflictKeep: "k", qlog.ConflictReplace: "p"}[d.OnConflict]
	return mode + strconv.FormatInt(ceilMS(keep), 10)
}

// digestOf returns a digest without spaces.
func digestOf(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write(strconv.AppendInt(nil, int64(len(p)), 10))
		_, _ = h.Write([]byte{':'})
		_, _ = h.Write(p)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// requestDigest returns what tells a producer's request from another one with the same sequence.
func requestDigest(drafts []qlog.Draft, messages []putMessage) string {
	parts := make([][]byte, 0, 2*len(drafts))
	for i := range drafts {
		content := []byte(drafts[i].Digest)
		if len(content) == 0 {
			content = messages[i].record
		}
		parts = append(parts, []byte(messages[i].when), content)
	}
	return digestOf(parts...)
}

// wakes is what is published about a partition whose first message is due earlier than before.
func wakes(ref qlog.Ref) string { return ref.Topic + ":" + strconv.Itoa(ref.Partition) }

// when returns a due time as scripts take it.
func when(delay time.Duration, at time.Time) string {
	if at.IsZero() {
		return "d" + strconv.FormatInt(ceilMS(delay), 10)
	}
	return "a" + strconv.FormatInt(max(0, ceilMilli(at)), 10)
}

// ceilMS rounds up to milliseconds; a negative duration is 0.
func ceilMS(d time.Duration) int64 {
	ms := max(d, 0).Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// ceilMilli rounds up to milliseconds since 1970.
func ceilMilli(at time.Time) int64 {
	ms := at.UnixMilli()
	if at.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

func decodePut(reply any, r *request) ([]qlog.PutResult, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("a script answered %T for %d messages", reply, len(r.messages))
	}
	if r.plain {
		return decodePlain(list, r)
	}
	if len(list) != len(r.messages) {
		return nil, fmt.Errorf("a script answered %d results for %d messages", len(list), len(r.messages))
	}
	results := make([]qlog.PutResult, len(list))
	for i, item := range list {
		parts, ok := item.([]any)
		if !ok || len(parts) != 4 {
			return nil, fmt.Errorf("a script answered %T for a message", item)
		}
		code, _ := parts[0].(int64)
		numbers, err := numbersOf(parts[1:])
		if err != nil {
			return nil, err
		}
		if results[i].Err = codeErrors[code]; results[i].Err != nil {
			continue
		}
		results[i].MessageID = qlog.MessageID(r.ref.Partition, qlog.ID(numbers[0]), numbers[1] != 0)
		results[i].Duplicate = code == codeDuplicate
		results[i].Due = due(numbers[1])
		results[i].Replaced = qlog.ID(numbers[2])
	}
	return results, nil
}

// decodePlain decodes the answer to a request of which every message had the same fate, but for
// those that found no room behind the others.
func decodePlain(list []any, r *request) ([]qlog.PutResult, error) {
	if len(list) != 3 {
		return nil, fmt.Errorf("a script answered %d parts for a request", len(list))
	}
	first, err := numbersOf(list[:1])
	code, ok1 := list[1].(int64)
	stored, ok2 := list[2].(int64)
	if err != nil || !ok1 || !ok2 {
		return nil, fmt.Errorf("a script answered %v for a request", list)
	}
	results := make([]qlog.PutResult, len(r.messages))
	for i := range results {
		switch {
		case codeErrors[code] != nil:
			results[i].Err = codeErrors[code]
		case int64(i) >= stored:
			results[i].Err = qlog.ErrFull
		default:
			results[i].MessageID = qlog.MessageID(r.ref.Partition, qlog.ID(first[0]+int64(i)), false)
			results[i].Duplicate = code == codeDuplicate
		}
	}
	return results, nil
}

// due decodes a due time in milliseconds; 0 is none.
func due(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// numbersOf decodes numbers that a script answered as text, because they are above 2^31 or so that
// nobody has to ask whether they are.
func numbersOf(list []any) ([]int64, error) {
	numbers := make([]int64, len(list))
	for i, v := range list {
		text, _ := v.(string)
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("a script answered %v for a number", v)
		}
		numbers[i] = n
	}
	return numbers, nil
}
