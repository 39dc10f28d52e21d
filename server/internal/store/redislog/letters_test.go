package redislog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// messageBody encodes a message as producers do.
func messageBody(key string, payload string) []byte {
	var b []byte
	if key != "" {
		b = protowire.AppendString(protowire.AppendTag(b, keyField, protowire.BytesType), key)
	}
	return protowire.AppendString(protowire.AppendTag(b, payloadField, protowire.BytesType), payload)
}

// kill makes dead letters of a group of all entries that the group was not sent.
func (r *inputRig) kill(group, code string) {
	r.tb.Helper()
	ctx, ref := r.tb.Context(), r.group(group)
	_, epoch, err := r.s.Lease(ctx, ref)
	r.check(err)
	state, err := r.s.Acquire(ctx, ref, "n1", epoch)
	r.check(err)
	for {
		entries, err := r.s.Read(ctx, r.ref, state.Sent.ID, 3)
		r.check(err)
		if len(entries) == 0 {
			return
		}
		c := after(state)
		for i := range entries {
			e := &entries[i]
			c.Sent, c.Cursor = e.Pos, e.Pos
			if e.Only != "" && e.Only != group {
				c.Add.Elsewhere++
				continue
			}
			c.Add.Dead++
			c.Dead = append(c.Dead, qlog.DeadLetter{
				Pos: e.Pos, MessageID: e.MessageID, Attempts: 2, Reason: "it failed", Code: code, Key: e.Key, PayloadBytes: e.PayloadBytes,
			})
		}
		_, err = r.s.Commit(ctx, ref, c)
		r.check(err)
		state.Ver, state.Sent, state.Cursor = c.Ver, c.Sent, c.Cursor
	}
}

// letters reads all dead letters in pages.
func (r *inputRig) letters(q qlog.LetterQuery) (all []qlog.Letter) {
	r.tb.Helper()
	for {
		page, err := r.s.Letters(r.tb.Context(), r.ref, q)
		r.check(err)
		all = append(all, page.Letters...)
		if !page.More {
			return all
		}
		q.Before = page.Next
	}
}

func (r *inputRig) look() qlog.Counts {
	r.tb.Helper()
	counts, err := r.s.Look(r.tb.Context(), r.ref)
	r.check(err)
	r.conserved(counts)
	return counts
}

// conserved fails the test if a group's messages are not all accounted for.
func (r *inputRig) conserved(counts qlog.Counts) {
	r.tb.Helper()
	for _, g := range counts.Groups {
		c := g.Counters
		if sum := c.Acked + c.Dead + c.Cancelled + c.Expired + c.Trimmed + c.Elsewhere + g.Open + g.Unsent; sum != g.Appended {
			r.tb.Fatalf("%d entries, accounted for are %d: %+v", g.Appended, sum, g)
		}
	}
}

// twoGroups is a topic with the groups work and other.
func twoGroups(topic *qlog.Topic) { topic.Groups = []qlog.Group{{Name: "other"}, {Name: "work"}} }

func TestLetters(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, twoGroups)
	for i := range 5 {
		d := draft("")
		d.Body, d.MaxAttempts = messageBody(fmt.Sprint("k", i), strings.Repeat("x", i)), 7
		r.put(d)
	}
	r.kill("work", "bad")
	r.kill("other", "worse")
	all := r.letters(qlog.LetterQuery{N: 3})
	if len(all) != 10 || !slices.IsSortedFunc(all, func(a, b qlog.Letter) int { return b.ID.Compare(a.ID) }) {
		t.Fatalf("%d letters: %+v", len(all), all)
	}
	first := r.entries()[4].pos
	want := qlog.Letter{
		ID: all[0].ID, MessageID: qlog.MessageID(0, first.ID, false), Entry: first, Group: "other", Attempts: 2, Reason: "it failed",
		Code: "worse", Key: "k4", PayloadBytes: 4, ProducedAt: first.ID.Time(),
	}
	if got := all[0]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	full := r.letters(qlog.LetterQuery{N: 100, Full: true})[0]
	if string(full.Body) != string(messageBody("k4", "xxxx")) || full.MaxAttempts != 7 || full.Unreadable != nil {
		t.Errorf("full: %+v", full)
	}
	for _, q := range []qlog.LetterQuery{{Group: "work", N: 2}, {Code: "bad", N: 2}, {Group: "work", Code: "bad", N: 100}} {
		got := r.letters(q)
		if len(got) != 5 || got[0].Group != "work" || got[4].Group != "work" {
			t.Errorf("%+v: %+v", q, got)
		}
	}
	if got := r.letters(qlog.LetterQuery{Group: "work", Code: "worse", N: 1}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if n := r.look().DeadLetters; n != 10 {
		t.Errorf("%d dead letters", n)
	}
}

// A dead letter goes back to its group only, once, with its message ID, and the others skip it.
func TestReplay(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *inputRig) {
		t.Helper()
		r.check(r.s.MakeGroup(t.Context(), r.group("other"), qlog.Start{}))
		put := r.put(draft("a"), draft("b"), draft("c"))
		r.kill("work", "")
		old := r.letters(qlog.LetterQuery{N: 10})
		step, err := r.s.Replay(t.Context(), r.ref, r.bounds, qlog.LetterSelection{IDs: []qlog.LetterID{old[2].ID, {Milli: 5}, old[0].ID}}, 10)
		if err != nil || step.Done != 2 || step.More {
			t.Fatal(step, err)
		}
		entries, err := r.s.Read(t.Context(), r.ref, 0, 100)
		r.check(err)
		if len(entries) != 5 || step.Last != entries[4].Pos {
			t.Fatalf("%d entries, the last is %s, said was %s", len(entries), entries[len(entries)-1].Pos, step.Last)
		}
		for i, of := range map[int]int{3: 0, 4: 2} {
			e := &entries[i]
			if e.MessageID != put[of].MessageID || e.Only != "work" || string(e.Body) != string(entries[of].Body) ||
				!e.ProducedAt.Equal(entries[of].ID.Time().Truncate(time.Millisecond)) {
				t.Errorf("%+v is a replay of %+v", e, entries[of])
			}
		}
		counts := r.look()
		if g := counts.Groups[0]; g.Group != "other" || g.Elsewhere != 2 || g.Unsent != 3 || g.Replayed != 0 {
			t.Errorf("%+v", g)
		}
		if g := counts.Groups[1]; g.Group != "work" || g.Elsewhere != 0 || g.Unsent != 2 || g.Dead != 3 || g.Replayed != 2 {
			t.Errorf("%+v", g)
		}
		if counts.Produced != 3 || counts.Length != 5 || counts.DeadLetters != 1 || counts.Last != put[2].MessageID {
			t.Errorf("%+v", counts)
		}
		r.kill("other", "")
		if g := r.look().Groups[0]; g.Elsewhere != 2 || g.Dead != 3 || g.Unsent != 0 {
			t.Errorf("%+v", g)
		}
		// It dies again, and can be replayed again.
		r.kill("work", "again")
		got := r.letters(qlog.LetterQuery{N: 10, Code: "again"})
		if len(got) != 2 || got[0].MessageID != put[2].MessageID || !got[0].ProducedAt.Equal(entries[4].ProducedAt) {
			t.Errorf("%+v", got)
		}
		step, err = r.s.Replay(t.Context(), r.ref, r.bounds, qlog.LetterSelection{Group: "work"}, 2)
		if err != nil || step.Done != 2 || !step.More {
			t.Fatal(step, err)
		}
		step, err = r.s.Replay(t.Context(), r.ref, r.bounds, step.Rest, 2)
		if err != nil || step.Done != 1 || step.More {
			t.Fatal(step, err)
		}
		if got := r.letters(qlog.LetterQuery{N: 10}); len(got) != 3 || got[0].Group != "other" {
			t.Errorf("%+v", got)
		}
		r.look()
	})
}

// Many replay the same dead letters at once.
func TestEachLetterIsReplayedOnce(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, twoGroups)
	for range 40 {
		r.put(drafts("a", "b", "c", "d", "e")...)
	}
	r.kill("work", "")
	all := r.letters(qlog.LetterQuery{N: 1000})
	var ids []qlog.LetterID
	for _, l := range all {
		ids = append(ids, l.ID)
	}
	var done sync.WaitGroup
	counts := make([]int, 6)
	for i := range counts {
		done.Go(func() {
			for sel := (qlog.LetterSelection{IDs: ids}); ; {
				if i%2 == 0 {
					sel.IDs = nil
				}
				step, err := r.s.Replay(t.Context(), r.ref, r.bounds, sel, 7)
				if err != nil {
					t.Error(err)
					return
				}
				counts[i] += step.Done
				if sel = step.Rest; !step.More {
					return
				}
			}
		})
	}
	done.Wait()
	total, seen := 0, map[string]int{}
	for _, n := range counts {
		total += n
	}
	for _, e := range r.entries() {
		if e.fields["g"] == "work" {
			seen[fmt.Sprint(e.fields["i"])]++
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was replayed %d times", id, n)
		}
	}
	if total != 200 || len(seen) != 200 || r.look().DeadLetters != 0 {
		t.Errorf("%d replayed, %d messages", total, len(seen))
	}
	if n := r.c.HLen(t.Context(), r.s.keys.deadData(r.ref)).Val(); n != 0 {
		t.Errorf("%d fields are left", n)
	}
}

// What a call moves or returns is bounded by its bytes.
func TestLettersAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	for i := range 10 {
		d := draft("")
		d.Body = messageBody("", strings.Repeat(fmt.Sprint(i), 256<<10))
		r.put(d)
	}
	r.kill("work", "")
	// Headers do not have the payloads.
	if page, err := r.s.Letters(t.Context(), r.ref, qlog.LetterQuery{N: 100}); err != nil || len(page.Letters) != 10 || page.More {
		t.Fatalf("%d letters, more: %t, %v", len(page.Letters), page.More, err)
	}
	full, pages := []qlog.Letter(nil), 0
	for q := (qlog.LetterQuery{N: 100, Full: true}); ; pages++ {
		page, err := r.s.Letters(t.Context(), r.ref, q)
		r.check(err)
		size := 0
		for i := range page.Letters {
			size += len(page.Letters[i].Body)
		}
		if size > qlog.MaxCallBytes {
			t.Errorf("%d bytes", size)
		}
		full = append(full, page.Letters...)
		if q.Before = page.Next; !page.More {
			break
		}
	}
	if len(full) != 10 || pages != 3 || full[0].PayloadBytes != 256<<10 {
		t.Errorf("%d letters in %d pages", len(full), pages+1)
	}
	steps := []int{}
	for sel := (qlog.LetterSelection{}); ; {
		letters, step, err := r.s.TakeLetters(t.Context(), r.ref, sel, 100)
		if r.check(err); len(letters) != step.Done || letters[0].ID != full[9-3*len(steps)].ID || len(letters[0].Body) != len(full[0].Body) {
			t.Fatalf("%+v", step)
		}
		steps = append(steps, step.Done)
		if sel = step.Rest; !step.More {
			break
		}
	}
	if fmt.Sprint(steps) != "[3 3 3 1]" {
		t.Errorf("read %v", steps)
	}
	letters, step, err := r.s.TakeLetters(t.Context(), r.ref, qlog.LetterSelection{IDs: []qlog.LetterID{full[3].ID, full[1].ID}}, 1)
	if r.check(err); len(letters) != 1 || letters[0].ID != full[3].ID || !step.More || step.Rest.IDs[0] != full[1].ID {
		t.Errorf("%+v", step)
	}
	steps = nil
	for sel := (qlog.LetterSelection{}); ; {
		step, err := r.s.Replay(t.Context(), r.ref, r.bounds, sel, 100)
		r.check(err)
		steps = append(steps, step.Done)
		if sel = step.Rest; !step.More {
			break
		}
	}
	if fmt.Sprint(steps) != "[3 3 3 1]" {
		t.Errorf("replayed %v", steps)
	}
	if largest := r.c.HGet(t.Context(), r.s.keys.sizes(r.ref), "n0").Val(); largest != fmt.Sprint(len(full[0].Body)) {
		t.Errorf("the largest record has %s bytes", largest)
	}
}

// Replay refuses like Put if the partition is full. It takes what there is room for.
func TestReplayToAFullPartition(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, func(topic *qlog.Topic) { topic.MaxMessages, topic.RetainAge = 4, time.Hour })
	r.put(drafts("a", "b", "c", "d")...)
	r.kill("work", "")
	r.put(draft("e"), later("s", time.Hour))
	step, err := r.s.Replay(t.Context(), r.ref, r.bounds, qlog.LetterSelection{}, 100)
	if err != nil || step.Done != 2 || !step.More {
		t.Fatal(step, err)
	}
	if _, err := r.s.Replay(t.Context(), r.ref, r.bounds, step.Rest, 100); !errors.Is(err, qlog.ErrFull) {
		t.Fatal(err)
	}
	if n := r.look().DeadLetters; n != 2 {
		t.Errorf("%d dead letters", n)
	}
	r.bounds.DropOldest = true
	step, err = r.s.Replay(t.Context(), r.ref, r.bounds, qlog.LetterSelection{}, 100)
	if err != nil || step.Done != 2 || r.length() != 3 {
		t.Fatal(step, err, r.length())
	}
}

// What cannot be replayed stays: letters of groups that are gone, and without a record.
func TestReplayLeavesWhatItCannot(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, twoGroups)
	r.put(drafts("a", "b")...)
	r.kill("work", "")
	r.kill("other", "")
	r.check(r.s.RemoveGroup(t.Context(), r.group("other")))
	r.check(r.c.HDel(t.Context(), r.s.keys.deadData(r.ref), r.letters(qlog.LetterQuery{N: 9, Group: "work"})[0].ID.String()).Err())
	step, err := r.s.Replay(t.Context(), r.ref, r.bounds, qlog.LetterSelection{}, 100)
	if err != nil || step.Done != 1 || step.More {
		t.Fatal(step, err)
	}
	if got := r.letters(qlog.LetterQuery{N: 9, Full: true}); len(got) != 3 || got[2].Unreadable == nil {
		t.Errorf("%+v", got)
	}
}

func TestPurgeAndAge(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, twoGroups)
	for range 4 {
		r.put(drafts("a", "b", "c")...)
	}
	r.kill("work", "")
	r.kill("other", "")
	all := r.letters(qlog.LetterQuery{N: 100})
	purge := func(sel qlog.LetterSelection, n, want int, more bool) qlog.LetterSelection {
		t.Helper()
		step, err := r.s.Purge(t.Context(), r.ref, sel, n)
		if err != nil || step.Done != want || step.More != more {
			t.Fatal(step, err)
		}
		return step.Rest
	}
	purge(qlog.LetterSelection{IDs: []qlog.LetterID{all[3].ID, all[7].ID, all[20].ID, {Milli: 1}}, Group: "other"}, 10, 2, false)
	rest := purge(qlog.LetterSelection{IDs: []qlog.LetterID{all[3].ID, all[0].ID, all[1].ID}}, 1, 1, true)
	purge(rest, 5, 1, false)
	rest = purge(qlog.LetterSelection{Group: "other"}, 5, 5, true)
	purge(rest, 5, 3, false)
	if got := r.letters(qlog.LetterQuery{N: 100}); len(got) != 12 || got[0].Group != "work" {
		t.Fatalf("%d letters", len(got))
	}
	age := func(age time.Duration, count int64, n, want int) {
		t.Helper()
		if got, err := r.s.Age(t.Context(), r.ref, age, count, n); err != nil || got != want {
			t.Fatal(got, err)
		}
	}
	age(time.Hour, 0, 100, 0)
	age(0, 0, 100, 0)
	age(time.Hour, 8, 3, 3)
	age(time.Hour, 8, 3, 1)
	r.eventually(func() bool { return time.Since(all[0].ID.Time()) > 3*time.Millisecond })
	age(time.Millisecond, 0, 5, 5)
	age(time.Millisecond, 0, 5, 3)
	purge(qlog.LetterSelection{}, 5, 0, false)
	if n := r.c.HLen(t.Context(), r.s.keys.deadData(r.ref)).Val(); n != 0 {
		t.Errorf("%d fields are left", n)
	}
}

// At maxmemory dead letters can be listed, purged and removed by age, but not replayed.
func TestLettersAtMaxmemory(t *testing.T) {
	t.Parallel()
	c := testkit.Redis(t).Client(t)
	r := inputRigOn(t, c, nil)
	r.put(drafts("a", "b", "c", "d")...)
	r.kill("work", "")
	r.put(drafts("e", "f")...)
	r.check(c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	replay := func() error {
		_, err := r.s.Replay(t.Context(), r.ref, r.bounds, qlog.LetterSelection{}, 10)
		return err
	}
	r.eventually(func() bool { return errors.Is(replay(), qlog.ErrNoMemory) })
	r.s.input.memory = memoryGuard{servers: map[string]*memoryReading{"": {at: time.Now().Add(time.Hour)}}}
	if err := replay(); !errors.Is(err, qlog.ErrNoMemory) || r.length() != 6 {
		t.Fatal(err, r.length())
	}
	all := r.letters(qlog.LetterQuery{N: 2, Full: true})
	if len(all) != 4 || r.look().DeadLetters != 4 {
		t.Fatalf("%d letters", len(all))
	}
	if step, err := r.s.Purge(t.Context(), r.ref, qlog.LetterSelection{IDs: []qlog.LetterID{all[0].ID}}, 10); err != nil || step.Done != 1 {
		t.Fatal(step, err)
	}
	if n, err := r.s.Age(t.Context(), r.ref, 0, 1, 10); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	if removed, lost, _, err := r.s.ForceTrim(t.Context(), r.ref, qlog.Cut{Keep: 1, Age: -1}, 1000); err != nil || removed != 5 || lost != 1 {
		t.Fatal(removed, lost, err)
	}
}
