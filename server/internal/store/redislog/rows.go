package redislog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// openPage and rowsPage are how many fields a page reads at least, of up to about 8 KB and 2 KB.
const (
	openPage = 100
	rowsPage = 500
)

// rowStates are the words of the states.
var rowStates = map[qlog.RowState]string{
	qlog.RowWaiting: "waiting", qlog.RowSent: "sent", qlog.RowBegun: "begun", qlog.RowLoose: "loose", qlog.RowRetrying: "retrying",
	qlog.RowSuspect: "suspect",
}

// encodeRow returns a row as an operator can read it. Session and code are escaped, so that only
// the reason, which is last, contains spaces.
func encodeRow(r *qlog.Row) string {
	return strings.Join([]string{
		rowStates[r.State], strconv.Itoa(r.Gen), strconv.Itoa(r.Attempts), encodeWord(r.Session), encodeTime(r.Since),
		encodeTime(r.Due), encodeWord(r.Code), r.Reason,
	}, " ")
}

// decodeRow reads what encodeRow returned.
func decodeRow(text string) (qlog.Row, error) {
	parts := strings.SplitN(text, " ", 8)
	if len(parts) != 8 {
		return qlog.Row{}, errors.New("a row has too few parts")
	}
	var r qlog.Row
	for state, word := range rowStates {
		if word == parts[0] {
			r.State = state
		}
	}
	if r.State == 0 {
		return qlog.Row{}, fmt.Errorf("a row has the state %q", parts[0])
	}
	var errs [6]error
	r.Gen, errs[0] = strconv.Atoi(parts[1])
	r.Attempts, errs[1] = strconv.Atoi(parts[2])
	r.Session, errs[2] = decodeWord(parts[3])
	r.Since, errs[3] = decodeTime(parts[4])
	r.Due, errs[4] = decodeTime(parts[5])
	r.Code, errs[5] = decodeWord(parts[6])
	r.Reason = parts[7]
	if err := errors.Join(errs[:]...); err != nil {
		return qlog.Row{}, fmt.Errorf("decode a row: %w", err)
	}
	return r, nil
}

// encodeWord returns a text without spaces, "-" for an empty one.
func encodeWord(s string) string {
	switch s {
	case "":
		return "-"
	case "-":
		return "%2D"
	default:
		return url.QueryEscape(s)
	}
}

func decodeWord(s string) (string, error) {
	if s == "-" {
		return "", nil
	}
	return url.QueryUnescape(s)
}

// encodeTime returns milliseconds since 1970, rounded up so that nothing is due early; "-" for the
// zero time.
func encodeTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return strconv.FormatInt(ceilMilli(t), 10)
}

func decodeTime(s string) (time.Time, error) {
	if s == "-" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(ms), nil
}

// chunkField returns the field of S:g:<g>:open for a chunk.
func chunkField(chunk int64) string { return "n" + strconv.FormatInt(chunk, 10) }

// Open implements qlog.Store.
func (s *Store) Open(ctx context.Context, ref qlog.GroupRef, cursor uint64) (chunks map[int64]string, next uint64, err error) {
	flat, next, err := s.client.HScan(ctx, s.keys.open(ref.Ref, ref.Group), cursor, "", openPage).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("read the open entries of group %s in partition %d of %s: %w",
			ref.Group, ref.Partition, ref.Topic, readError(err))
	}
	chunks = make(map[int64]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		chunk, err := strconv.ParseInt(strings.TrimPrefix(flat[i], "n"), 10, 64)
		if err != nil || chunkField(chunk) != flat[i] {
			continue // another priority
		}
		chunks[chunk] = flat[i+1]
	}
	return chunks, next, nil
}

// Rows implements qlog.Store. A row that cannot be decoded is logged and left out: its entry is
// open still, and is treated as in its first delivery.
func (s *Store) Rows(ctx context.Context, ref qlog.GroupRef, cursor uint64) (rows map[qlog.ID]qlog.Row, next uint64, err error) {
	flat, next, err := s.client.HScan(ctx, s.keys.rows(ref.Ref, ref.Group), cursor, "", rowsPage).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("read the rows of group %s in partition %d of %s: %w",
			ref.Group, ref.Partition, ref.Topic, readError(err))
	}
	rows = make(map[qlog.ID]qlog.Row, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		id, err := strconv.ParseInt(flat[i], 10, 64)
		var row qlog.Row
		if err == nil {
			row, err = decodeRow(flat[i+1])
		}
		if err != nil {
			s.log.WarnContext(ctx, "a row of a consumer group is damaged", slog.String("topic", ref.Topic),
				slog.Int("partition", ref.Partition), slog.String("group", ref.Group), slog.String("entry", flat[i]), slog.Any("error", err))
			continue
		}
		rows[qlog.ID(id)] = row
	}
	return rows, next, nil
}
