package redislog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// TestTheInProcessRedisParsesNoFlags says why StoreConfig.InProcess exists.
func TestTheInProcessRedisParsesNoFlags(t *testing.T) {
	t.Parallel()
	r := inProcessRig(t)
	if _, err := NewStore(r.c, StoreConfig{}).Acquire(t.Context(), r.group("work"), "n", 0); err == nil {
		t.Error("it parses them, so StoreConfig.InProcess is of no use any more")
	}
}

// body encodes a message as the caller of a Store does.
func body(t *testing.T, key, payload string) []byte {
	t.Helper()
	b, err := proto.Marshal(&parleyv1.Delivery{Key: key, Payload: []byte(payload), Headers: map[string]string{"h": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRecords encodes messages with and without options and reads them back.
func TestRecords(t *testing.T) {
	t.Parallel()
	fields := (&parleyv1.Delivery{}).ProtoReflect().Descriptor().Fields()
	if fields.ByNumber(optionsField) != nil || fields.ByName("key").Number() != keyField {
		t.Fatal("the fields of parley.v1.Delivery are others")
	}
	for _, d := range []qlog.Draft{
		{Key: "k", Body: body(t, "k", "p")},
		{Key: "k", Body: body(t, "k", "p"), Options: qlog.Options{MaxAttempts: 3, Timeout: time.Second, TTL: time.Hour, UniqueKey: "u", UniqueRunning: true}},
		{Options: qlog.Options{MaxAttempts: 1}},
	} {
		record, err := encodeRecord(&d)
		if err != nil {
			t.Fatal(err)
		}
		var e qlog.Entry
		if err := decodeRecord(record, &e); err != nil {
			t.Fatal(err)
		}
		if e.Key != d.Key || string(e.Body) != string(d.Body) || e.Options != d.Options {
			t.Errorf("%+v became %+v", d, e)
		}
	}
	options := protowire.AppendBytes(protowire.AppendTag(nil, optionsField, protowire.BytesType), nil)
	for _, bad := range [][]byte{{0xff}, {0x22, 5, 'a'}, append(options, options...)} {
		if err := decodeRecord(bad, &qlog.Entry{}); err == nil {
			t.Errorf("%x was decoded", bad)
		}
	}
}

// TestRead reads entries of every kind: plain ones, of a scheduled message, for one group, and what
// is no message.
func TestRead(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *inputRig) {
		plain, scheduled := draft(""), draft("")
		plain.Body, scheduled.Body = body(t, "k", "p"), body(t, "", "q")
		plain.UniqueKey = "u"
		ids := r.put(plain)
		scheduled.Delay = time.Millisecond
		ids = append(ids, r.put(scheduled)...)
		r.eventually(func() bool {
			_, _, err := r.s.Due(t.Context(), r.ref)
			r.check(err)
			return r.length() == 2
		})
		at := r.read()
		for i, fields := range [][]string{{"d", "\xff"}, {"x", "y"}, {"d", "", "g", "work"}, {"d", "", "i", "x"}} {
			id := qlog.Pos{ID: at[1].ID + qlog.ID(i) + 1, Ord: int64(i) + 3}
			args := []any{"xadd", r.s.keys.main(r.ref), id.String()}
			for _, f := range fields {
				args = append(args, f)
			}
			r.check(r.c.Do(t.Context(), args...).Err())
			at = append(at, id)
		}
		all, err := r.s.Read(t.Context(), r.ref, 0, 10)
		r.check(err)
		var bad []int64
		for i := range all {
			if all[i].Unreadable != nil {
				bad = append(bad, all[i].Ord)
			}
		}
		if len(all) != 6 || !slices.Equal(bad, []int64{3, 4, 6}) || all[4].Only != "work" {
			t.Fatalf("read %+v", all)
		}
		want := qlog.Entry{
			Pos: at[0], MessageID: ids[0].MessageID, Key: "k", Body: plain.Body, PayloadBytes: 1, Options: plain.Options, ProducedAt: at[0].ID.Time(),
		}
		if diff := cmp.Diff(want, all[0]); diff != "" {
			t.Error(diff)
		}
		if !strings.HasSuffix(all[1].MessageID, "d") || all[1].MessageID != ids[1].MessageID || !all[1].ProducedAt.Equal(ids[1].Due) {
			t.Errorf("the scheduled message is %+v, put %+v", all[1], ids[1])
		}
		if some, err := r.s.Read(t.Context(), r.ref, at[1].ID, 2); err != nil || len(some) != 2 || some[0].Pos != at[2] {
			t.Errorf("after the second: %+v, %v", some, err)
		}
		some, err := r.s.ReadEntries(t.Context(), r.ref, []qlog.Pos{at[5], at[0], at[1], {ID: 1, Ord: 1}})
		if err != nil || len(some) != 3 || some[0].Pos != at[0] || some[1].Pos != at[1] || some[2].Pos != at[5] {
			t.Errorf("entries %+v, %v", some, err)
		}
	})
}

// TestReadsAreBounded reads large records.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	large := draft("")
	large.Body = body(t, "", strings.Repeat("x", qlog.MaxRecordBytes-100))
	for range 5 {
		r.put(large)
	}
	at := r.read()
	if all, err := r.s.Read(t.Context(), r.ref, 0, 5); err != nil || len(all) != 3 {
		t.Errorf("one read returned %d, %v", len(all), err)
	}
	if all, err := r.s.ReadEntries(t.Context(), r.ref, at); err != nil || len(all) != 5 {
		t.Errorf("read %d of 5, %v", len(all), err)
	}
}

// TestRows writes rows as text and reads them back.
func TestRows(t *testing.T) {
	t.Parallel()
	due := time.UnixMilli(1_800_000_000_000)
	for _, row := range []qlog.Row{
		{State: qlog.RowWaiting},
		{State: qlog.RowSent, Gen: 3, Attempts: 2, Session: "-", Since: due},
		{State: qlog.RowSuspect, Gen: 1, Due: due, Code: "a b%", Reason: " two  words\n"},
		{State: qlog.RowLoose, Gen: 1, Session: "n o", Due: due, Code: "-"},
	} {
		got, err := decodeRow(encodeRow(&row))
		if err != nil || !cmp.Equal(row, got) {
			t.Errorf("%+v became %+v, %v", row, got, err)
		}
	}
	want := "begun 2 1 KX7 1800000000000 - timeout took too long"
	if got := encodeRow(&qlog.Row{State: qlog.RowBegun, Gen: 2, Attempts: 1, Session: "KX7", Since: due, Code: "timeout", Reason: "took too long"}); got != want {
		t.Errorf("a row is %q", got)
	}
	for _, bad := range []string{"", "begun 1 1 - - - -", "gone 1 1 - - - - ", "begun x 1 - - - - ", "begun 1 1 % - - - "} {
		if row, err := decodeRow(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, row)
		}
	}
}

// TestADamagedRowIsLeftOut checks that it does not hide the others.
func TestADamagedRowIsLeftOut(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	c := after(r.acquire("n1"))
	c.Rows = map[qlog.ID]qlog.Row{7: {State: qlog.RowWaiting, Gen: 1}}
	r.commit(c)
	r.check(r.c.HSet(t.Context(), r.s.keys.rows(r.ref, "work"), "8", "nonsense", "x", encodeRow(&qlog.Row{State: qlog.RowWaiting})).Err())
	if rows, _ := r.allRows(); len(rows) != 1 || rows[7].Gen != 1 {
		t.Errorf("rows %v", rows)
	}
}

// TestManyChunksAndRows reads several pages.
func TestManyChunksAndRows(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	state := r.acquire("n1")
	c := after(state)
	for page := range 4 {
		c.Open, c.Rows = map[int64]string{}, map[qlog.ID]qlog.Row{}
		for i := range 450 {
			n := int64(page*450 + i)
			c.Open[n] = fmt.Sprint(n * qlog.ChunkOrdinals)
			c.Rows[qlog.ID(n)] = qlog.Row{State: qlog.RowBegun, Gen: 1, Session: strings.Repeat("s", 70)}
		}
		r.commit(c)
		c.Acked, c.Ver = c.Ver, c.Ver+1
	}
	if rows, chunks := r.allRows(); len(rows) != 1800 || len(chunks) != 1800 || r.field("open") != "1800" {
		t.Errorf("%d rows, %d chunks, %s open", len(rows), len(chunks), r.field("open"))
	}
}

// TestErrorsOfADeadRedis checks what is said of calls that were not answered.
func TestErrorsOfADeadRedis(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	c := after(r.acquire("n1"))
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if _, err := r.s.Commit(ctx, r.group("work"), c); !errors.Is(err, qlog.ErrUnknownOutcome) {
		t.Errorf("commit: %v", err)
	}
	if _, err := r.s.Read(ctx, r.ref, 0, 1); err == nil || errors.Is(err, qlog.ErrUnknownOutcome) {
		t.Errorf("read: %v", err)
	}
}
