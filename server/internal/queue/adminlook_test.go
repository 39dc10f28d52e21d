package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
)

func TestLooks(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	ctx := t.Context()
	topic := r.create(queue.Topic{Name: "t", Partitions: 3}, "g", "h")
	r.produce("t", 60)
	_, err := r.store.Beat(ctx, "t", "g", []queue.Member{{StreamID: "someone", Consumer: "worker", NodeID: "node"}}, time.Minute)
	r.must(err)
	pending := r.settle("t", "g", 0, 0) + r.settle("t", "g", 1, 0)
	lease, err := r.store.Acquire(ctx, topic.Ref(2), "g", "someone", time.Minute)
	r.must(err)
	s, err := r.Stats(ctx, "t")
	r.must(err)
	g := s.Total.Groups[0]
	if s.Total.Length != 60 || s.Total.Produced != 60 || int(g.Pending) != pending || int(g.Unread) != 60-pending ||
		s.Members["g"] != 1 || s.Members["h"] != 0 || s.Total.Groups[1].Unread != 60 || s.Total.FirstID == "" || s.Total.LastID == "" {
		t.Errorf("stats %+v", s)
	}
	owners, err := r.Partitions(ctx, "t", "g")
	r.must(err)
	if o := owners[2]; len(owners) != 3 || o.Consumer != "worker" || o.NodeID != "node" || o.StreamID != "someone" || o.Epoch != lease.Epoch || o.Left <= 0 {
		t.Errorf("owners %+v", owners)
	}
	owners, err = r.Partitions(ctx, "t", "")
	r.must(err)
	if len(owners) != 3 || owners[2] != (queue.Owner{Partition: 2}) {
		t.Errorf("partitions %+v", owners)
	}
	_, err = r.Partitions(ctx, "t", "x")
	r.want(err, fault.GroupNotFound)

	seen := map[string]bool{}
	var last time.Time
	for offset := 0; ; offset += 7 {
		page, total, err := r.Pending(ctx, "t", "g", false, offset, 7)
		r.must(err)
		if total != pending {
			t.Fatalf("%d in all, want %d", total, pending)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if seen[e.MessageID] || e.Delivered.Before(last) || e.Consumer != "worker" {
				t.Fatalf("%+v after %s", e, last)
			}
			seen[e.MessageID], last = true, e.Delivered
		}
	}
	if len(seen) != pending {
		t.Errorf("%d of %d listed", len(seen), pending)
	}
	removed, lost, err := r.Trim(ctx, "t", queue.Cut{Messages: 0})
	r.must(err)
	if removed != 0 || lost != 0 {
		t.Errorf("trimmed %d that are unread, %d lost", removed, lost)
	}
	removed, _, err = r.Trim(ctx, "t", queue.Cut{Messages: 5, Force: true})
	r.must(err)
	if removed != 45 {
		t.Errorf("%d removed by force, want 45", removed)
	}
}

func TestTopicsAreListedInPages(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	var names, got []string
	for i := range 7 {
		names = append(names, fmt.Sprint("t", i))
		r.create(queue.Topic{Name: names[i], Partitions: 1})
	}
	_, err := r.store.InsertTopic(t.Context(), &queue.Topic{Name: "t3half", UID: "AAAAAAAAAAAAA", Version: 1, Partitions: 1, CreatedAt: time.Now()})
	r.must(err)
	for after, pages := "", 0; ; pages++ {
		page, more, err := r.Topics(t.Context(), after, 3)
		r.must(err)
		for _, topic := range page {
			got = append(got, topic.Name)
			after = topic.Name
		}
		if !more {
			break
		}
		if len(page) != 3 || pages > 5 {
			t.Fatalf("%d topics, and more", len(page))
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("listed %v", got)
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	ctx := t.Context()
	r.create(queue.Topic{Name: "t", Partitions: 4}, "g", "h")
	for range 6 { // so that the partitions' letters lie between each other's
		r.produce("t", 20)
		for p := range 4 {
			r.settle("t", "g", p, queue.Dead)
		}
	}
	for p := range 4 {
		r.settle("t", "h", p, queue.Dead)
	}
	list := func(group string, n int) (ids []string) {
		cursor, last := "", ""
		for {
			page, next, err := r.DeadLetters(ctx, "t", group, cursor, n)
			r.must(err)
			for _, l := range page {
				if group != "" && l.Group != group {
					t.Fatalf("%+v in the list of %s", l, group)
				}
				if at := l.DeadAt.UTC().Format("15:04:05.000"); last != "" && at > last {
					t.Fatalf("%s comes after %s", at, last)
				} else {
					last = at
				}
				ids = append(ids, l.ID)
			}
			if next == "" {
				return ids
			}
			cursor = next
		}
	}
	all := list("", 1000)
	if n := len(all); n != 240 {
		t.Fatalf("%d dead letters", n)
	}
	for _, n := range []int{1, 7, 100} {
		if got := list("", n); !slices.Equal(got, all) {
			t.Errorf("pages of %d list %d, and not the same", n, len(got))
		}
	}
	if got := list("g", 9); len(got) != 120 {
		t.Errorf("%d of g", len(got))
	}
	behind, _, err := r.DeadLetters(ctx, "t", "", all[120], 3) // a letter's id goes on behind it
	r.must(err)
	if len(behind) != 3 || behind[0].ID != all[121] || behind[2].ID != all[123] {
		t.Errorf("behind %s come %+v", all[120], behind)
	}
	_, _, err = r.DeadLetters(ctx, "t", "", "x", 5)
	r.want(err, fault.PageTokenInvalid)

	// By ids, twice: each goes once.
	some := []string{all[0], all[50], all[200], all[0]}
	n, more, err := r.Replay(ctx, "t", "", some, 0, nil)
	r.must(err)
	if n != 3 || more {
		t.Errorf("replayed %d, more %v", n, more)
	}
	n, _, err = r.Replay(ctx, "t", "", some, 0, nil)
	r.must(err)
	if n != 0 {
		t.Errorf("replayed %d again", n)
	}
	for _, bad := range []string{"4-1-1", "x", "0-0", "0-0-0", "0-1-99999999999999999999", ">"} {
		_, _, err := r.Replay(ctx, "t", "", []string{bad}, 0, nil)
		r.want(err, fault.InvalidField)
		_, err = r.Purge(ctx, "t", "", []string{bad}, "t")
		r.want(err, fault.InvalidField)
	}
	// With a limit, until there is no more, to another partition.
	var replayed int64
	to := 3
	for calls := 0; ; calls++ {
		n, more, err := r.Replay(ctx, "t", "g", nil, 25, &to)
		r.must(err)
		if n > 25 || calls > 20 {
			t.Fatalf("call %d replayed %d", calls, n)
		}
		if replayed += n; !more {
			break
		}
	}
	if left := list("g", 1000); replayed+3 < 120 || len(left) != 0 {
		t.Errorf("replayed %d, %d are left", replayed, len(left))
	}
	five := 5
	_, _, err = r.Replay(ctx, "t", "", nil, 0, &five)
	r.want(err, fault.InvalidField)

	_, err = r.Purge(ctx, "t", "", nil, "")
	r.want(err, fault.ConfirmationRequired)
	rest := list("", 1000)
	n, err = r.Purge(ctx, "t", "", rest[:2], "t")
	r.must(err)
	if n != 2 {
		t.Errorf("purged %d", n)
	}
	n, err = r.Purge(ctx, "t", "h", nil, "t")
	r.must(err)
	if int(n) != len(rest)-2 || len(list("", 10)) != 0 {
		t.Errorf("purged %d of %d", n, len(rest)-2)
	}
}

// A group whose name is mistyped has no dead letters, which must not look as if there were none; a deleted one has those that it
// left, and nowhere to take them back.
func TestDeadLettersOfAGroupThatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	ctx := t.Context()
	r.create(queue.Topic{Name: "t", Partitions: 2}, "g", "gone", "idle")
	r.produce("t", 20)
	for p := range 2 {
		r.settle("t", "g", p, queue.Dead)
		r.settle("t", "gone", p, queue.Dead)
	}
	r.must(r.DeleteGroup(ctx, "t", "gone", "gone"))
	letters, _, err := r.DeadLetters(ctx, "t", "gone", "", 100)
	r.must(err)
	if len(letters) != 20 {
		t.Fatalf("the deleted group left %d", len(letters))
	}
	ids := []string{letters[0].ID}
	for _, group := range []string{"gone", "typo"} {
		for _, some := range [][]string{nil, ids} {
			_, _, err = r.Replay(ctx, "t", group, some, 0, nil)
			r.want(err, fault.GroupNotFound)
		}
	}
	purge := func(group string, ids []string, want int64) {
		t.Helper()
		n, err := r.Purge(ctx, "t", group, ids, "t")
		r.must(err)
		if n != want {
			t.Errorf("purged %d of %s", n, group)
		}
	}
	purge("gone", ids, 1)
	purge("gone", nil, 19)
	purge("idle", nil, 0)
	purge("", ids, 0)
	for _, group := range []string{"gone", "typo"} {
		_, _, err = r.DeadLetters(ctx, "t", group, "", 100)
		r.want(err, fault.GroupNotFound)
		for _, some := range [][]string{nil, ids} {
			_, err = r.Purge(ctx, "t", group, some, "t")
			r.want(err, fault.GroupNotFound)
		}
	}
	for group, want := range map[string]int{"": 20, "g": 20, "idle": 0} {
		letters, _, err = r.DeadLetters(ctx, "t", group, "", 100)
		r.must(err)
		if len(letters) != want {
			t.Errorf("%q has %d", group, len(letters))
		}
	}
	// The end of a list that had some is no error, whatever has become of its group.
	_, _, err = r.DeadLetters(ctx, "t", "gone", ids[0], 100)
	r.must(err)
}

func TestPagesOfDeadLettersAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	r.create(queue.Topic{Name: "t", Partitions: 1}, "g")
	drafts := make([]queue.Draft, 12)
	for i := range drafts {
		drafts[i].Payload = []byte(strings.Repeat("x", 256<<10))
	}
	_, err := r.service.Produce(t.Context(), "t", drafts)
	r.must(err)
	r.settle("t", "g", 0, queue.Dead)
	total := 0
	for cursor, pages := "", 0; ; pages++ {
		page, next, err := r.DeadLetters(t.Context(), "t", "", cursor, 1000)
		r.must(err)
		if len(page) > 4 || pages > 5 {
			t.Fatalf("page %d has %d letters of 256 KiB", pages, len(page))
		}
		total += len(page)
		if cursor = next; next == "" {
			break
		}
	}
	if total != 12 {
		t.Errorf("%d listed", total)
	}
}
