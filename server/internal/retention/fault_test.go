package retention_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/retention"
	"github.com/parleyhq/parley/server/internal/store/embedded"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// brokenLog fails for one channel.
type brokenLog struct {
	retention.Log

	id string
}

func (l brokenLog) Entries(ctx context.Context, channelID string, r message.Range) ([]message.Entry, error) {
	if channelID == l.id {
		return nil, errors.New("broken")
	}
	return l.Log.Entries(ctx, channelID, r)
}

// inShard returns the id of a channel in a shard.
func inShard(prefix string, shard int) string {
	for message.Shard(prefix, shards) != shard {
		prefix += "x"
	}
	return prefix
}

// A channel that cannot be trimmed holds up no other one: in a pass, if it is due, or if it has new
// entries.
func TestBrokenChannel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	broken, passed, due, touched := inShard("a", 0), inShard("b", 3), inShard("c", 3), inShard("d", 3)
	r.cfg.Log = brokenLog{r.store, broken}
	r.cfg.Default = channel.Retention{MaxAge: time.Hour}
	r.now = r.now.Add(-2 * time.Hour)
	for _, id := range []string{broken, passed} {
		r.append(id, 5, 0)
		r.advance(id)
	}
	trimmed := func(row *channel.Row) bool { return row.Oldest == 6 && row.Trim.Stripped == 5 }
	trimmer := r.start()
	r.eventually(passed, trimmed)
	for _, id := range []string{due, touched} {
		r.append(id, 5, 0)
	}
	moves := r.advance(touched)
	r.advance(due)
	for _, id := range []string{broken, due} {
		if _, err := r.channels.SetSettings(t.Context(), id, 0, channel.Settings{Retention: &channel.Retention{MaxAge: time.Minute}}, r.now); err != nil {
			t.Fatal(err)
		}
	}
	trimmer.Advanced(slices.Concat(r.advance(broken), moves))
	r.eventually(due, trimmed)
	r.eventually(touched, trimmed)
}

// flakyRows fails each second SetTrim.
type flakyRows struct {
	*embedded.Channels

	calls *int
}

func (f flakyRows) SetTrim(ctx context.Context, read *channel.Row, trim channel.Trim) error {
	if *f.calls++; *f.calls%2 == 1 {
		return errors.New("unavailable")
	}
	return f.Channels.SetTrim(ctx, read, trim)
}

// looks returns a Trimmer that is not started, and a function that looks at a channel.
func (r *rig) looks() func(row channel.Row) error {
	r.t.Helper()
	trimmer, err := retention.New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return func(row channel.Row) error { return trimmer.Look(r.t.Context(), row, time.Now()) }
}

// A process that dies between two steps leaves a log that the next one trims to the end.
func TestInterruptedTrim(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Default = channel.Retention{MaxMessages: 10}
	r.cfg.Grace = time.Nanosecond
	calls := 0
	r.cfg.Rows = flakyRows{r.channels, &calls}
	r.now = r.now.Add(-3 * time.Hour)
	r.append(room, 200, 0)
	r.advance(room)
	testkit.Eventually(t, patience, func() error {
		look := r.looks() // of another process
		if err := errors.Join(look(r.row(room)), look(r.row(room))); err != nil {
			return err
		}
		if trim := r.row(room).Trim; trim.Deleted != 190 || trim.Stripped != 190 {
			return errors.New("not trimmed yet")
		}
		return nil
	})
	if log := r.log(room); len(log) != 10 || log[0].Seq != 191 {
		t.Errorf("%d entries from %d on", len(log), log[0].Seq)
	}
}

// A Trimmer that stops while it deletes many entries has saved how far it came.
func TestStopDuringDelete(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Default = channel.Retention{MaxMessages: 10}
	r.now = r.now.Add(-3 * time.Hour)
	for range 8 {
		r.append(room, 1000, 0)
	}
	r.advance(room)
	first, err := retention.New(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() error {
		e, err := r.store.Entries(t.Context(), room, message.Range{Limit: 1})
		if err != nil || e[0].Seq == 1 {
			return errors.New("nothing is deleted yet")
		}
		return nil
	})
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.eventually(room, func(row *channel.Row) bool { return row.Trim.Deleted == 7990 })
	if log := r.log(room); len(log) != 10 {
		t.Errorf("%d entries are left", len(log))
	}
}

// A look with a row that was read earlier neither fails nor takes away what a later look found: the
// second message of a log whose others have expired stays due.
func TestLateLook(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Default = channel.Retention{MaxAge: time.Minute}
	r.cfg.Grace = time.Nanosecond
	look := r.looks()
	r.now = r.now.Add(-3 * time.Hour)
	r.append(room, 20, 0)
	r.advance(room)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(look(r.row(room)))
	second := r.row(room)
	r.now = r.now.Add(3 * time.Hour)
	r.append(room, 1, 0)
	r.advance(room)
	for range 4 {
		must(look(r.row(room)))
	}
	due := r.row(room).Trim.Due
	for _, row := range []channel.Row{second, second} {
		must(look(row))
	}
	got := r.row(room)
	if due.IsZero() || got.Trim.Due.IsZero() || got.Trim.Due.After(due) || got.Oldest != 21 {
		t.Errorf("row %+v, was due at %v", got, due)
	}
}

// A long log is stripped in one go, although a look has a limit of steps.
func TestBacklog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Default = channel.Retention{MaxMessages: 10}
	r.cfg.Grace = time.Second
	for range 25 {
		r.append(room, 1000, 0)
	}
	r.advance(room)
	r.start()
	r.eventually(room, func(row *channel.Row) bool { return row.Trim.Stripped > 0 })
	began := time.Now()
	r.eventually(room, func(row *channel.Row) bool { return row.Trim.Stripped == 24990 })
	t.Logf("the rest took %v", time.Since(began))
}

// Edits count for the limit of bytes.
func TestBytesOfEdits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Default = channel.Retention{MaxBytes: 10_000}
	r.append(room, 5, 0)
	trimmer := r.start()
	trimmer.Advanced(r.advance(room))
	r.append("other", 100, 0)
	trimmer.Advanced(r.advance("other"))
	r.eventually("other", func(row *channel.Row) bool { return row.Oldest > 0 })
	r.append(room, 100, 5)
	trimmer.Advanced(r.advance(room))
	r.eventually(room, func(row *channel.Row) bool { return row.Oldest == 106 && row.Expired == 5 })
}
