package redispresence

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/presence"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// change returns a SetChange.
func change(seq int64, state string) presence.SetChange {
	return presence.SetChange{Seq: seq, State: st(state)}
}

func (b *bundle) wantLog(after int64, want ...string) {
	b.tb.Helper()
	if got := b.log(after); !slices.Equal(got, want) {
		b.tb.Errorf("the log is %q, want %q", got, want)
	}
}

// TestSetOnlyChangesAreLogged tests which steps are changes, and what a state is.
func TestSetOnlyChangesAreLogged(t *testing.T) {
	t.Parallel()
	for _, steps := range [][]struct {
		name, node, state string
		want              presence.SetChange
	}{
		{
			{"first", "n1", "8f", change(1, "8f")},
			{"renewal", "n1", "8f", change(0, "8f")},
			{"second connection of a platform, on another node", "n2", "8f", change(0, "8f")},
			{"the first closes", "n1", "", change(0, "8f")},
			{"the last closes", "n2", "", change(2, "")},
			{"repeat", "n2", "", change(0, "")},
		}, {
			{"first", "n1", "2b8f", change(1, "2b8f")},
			{"other platform on another node", "n2", "1f", change(2, "1f2b8f")},
			{"foreground on another node", "n2", "1f2f", change(3, "1f2f8f")},
			{"background on that node", "n1", "2b8b", change(4, "1f2f8b")},
			{"all in the background", "n2", "2b", change(5, "2b8b")},
			{"one of two closes a platform", "n1", "8b", change(0, "2b8b")},
			{"the last of a platform closes", "n2", "", change(6, "8b")},
		},
	} {
		t.Run(steps[len(steps)-1].name, func(t *testing.T) {
			t.Parallel()
			eachRedis(t, func(t *testing.T, b *bundle) {
				var want []string
				for _, s := range steps {
					b.move(time.Millisecond)
					if got := b.put(s.node, "u", formatState(st(s.state))); got != s.want {
						t.Errorf("%s: %+v, want %+v", s.name, got, s.want)
					}
					if got := b.state("u"); got != formatState(s.want.State) {
						t.Errorf("%s: the state is %q", s.name, got)
					}
					if got := b.online(); (len(got) == 1) != s.want.State.Online() {
						t.Errorf("%s: online are %q", s.name, got)
					}
					if s.want.Seq > 0 {
						want = append(want, fmt.Sprintf("%d u %q 1", s.want.Seq, formatState(s.want.State)))
					}
				}
				b.wantLog(0, want...)
			})
		})
	}
}

// TestSetManyUsers tests that a call has a change for each user, in order, with dense positions.
func TestSetManyUsers(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.length = "1000"
		users := userNames(MaxSet)
		var parts []presence.Part
		for i, u := range users {
			parts = append(parts, part(u, []string{"8f", "", "1b2f"}[i%3]))
		}
		seq := int64(0)
		for i, c := range b.set("n1", parts...).Changes {
			want := presence.SetChange{State: parts[i].State}
			if want.State.Online() {
				seq++
				want.Seq = seq
			}
			if c != want {
				t.Errorf("user %d: %+v, want %+v", i, c, want)
			}
		}
		if h := b.head(); h.Seq != seq || !h.Opened.Equal(b.now) || h.Settled() || h.Epoch != b.epoch {
			t.Errorf("the head is %+v, want position %d", h, seq)
		}
		b.wantLog(seq-1, fmt.Sprintf("%d %s %q 1", seq, users[99], "8f"))
		if got := b.members("n1"); len(got) != int(seq) {
			t.Errorf("%d members, want %d", len(got), seq)
		}
		if got := b.online(); !slices.Equal(got, b.members("n1")) {
			t.Errorf("online: %q", got)
		}
	})
}

// TestSetLogsExpiry tests that what a node never took back is removed, and logged, by the next step
// of anyone, and is no state in reads before.
func TestSetLogsExpiry(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.put("dead", "u", "1f")
		b.move(time.Minute)
		b.put("alive", "u", "8f")
		b.move(ttl - time.Minute - time.Millisecond)
		if got := b.state("u"); got != "1f8f" {
			t.Errorf("before the expiry: %q", got)
		}
		b.move(time.Millisecond)
		if got := b.state("u"); got != "8f" {
			t.Errorf("after the expiry: %q", got)
		}
		if got := b.put("alive", "u", "8f"); got != change(3, "8f") {
			t.Errorf("the renewal: %+v", got)
		}
		b.wantLog(2, `3 u "8f" 1`)
		b.move(ttl)
		if got := b.put("other", "u", ""); got != change(4, "") {
			t.Errorf("all expired: %+v", got)
		}
		if got := b.online(); len(got) > 0 {
			t.Errorf("online: %q", got)
		}
	})
}

// TestSetAfterTheKeyExpired tests that a user whose key expired is not online forever.
func TestSetAfterTheKeyExpired(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.put("n", "u", "8f")
		key := b.keys.user(shard, "u")
		if d := b.client.PTTL(t.Context(), key).Val(); d > ttl || d < ttl-time.Minute {
			t.Errorf("the key expires in %v", d)
		}
		b.client.Unlink(t.Context(), key)
		r := b.try(presence.SetCall{
			Shard: shard, Node: "n", NotAfter: b.soon(), Sweep: true,
			Users: []presence.Part{{UserID: "u", Cause: presence.NodeLost}},
		})
		if r.Changes[0] != change(2, "") || len(b.online()) > 0 || len(b.members("n")) > 0 {
			t.Errorf("%+v, online %q, members %q", r, b.online(), b.members("n"))
		}
		b.wantLog(1, `2 u "" 2`)
	})
}

// setMode sets one user's part in a mode and returns what changed.
func (b *bundle) setMode(m presence.Mode, user, state string) presence.SetChange {
	b.tb.Helper()
	p := part(user, state)
	p.Mode = m
	return b.set("n", p).Changes[0]
}

// settle settles the shard's epoch.
func (b *bundle) settle() {
	b.tb.Helper()
	if err := b.Settle(b.tb.Context(), shard, b.epoch); err != nil {
		b.tb.Fatal(err)
	}
}

func TestSetModes(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		for _, step := range []struct {
			mode        presence.Mode
			user, state string
			want        presence.SetChange
		}{
			{presence.Restore, "u", "8f", change(0, "8f")},
			{presence.Restore, "u", "8b", change(0, "8b")},
			{presence.Restore, "u", "", change(0, "")},
			{presence.Force, "u", "", change(1, "")},
			{presence.Force, "u", "", change(2, "")},
			{presence.Force, "u", "8f", change(3, "8f")},
			{presence.Force, "u", "8f", change(0, "8f")},
			{presence.Force, "u", "", change(4, "")},
		} {
			if got := b.setMode(step.mode, step.user, step.state); got != step.want {
				t.Errorf("%+v: %+v", step, got)
			}
			if got := len(b.online()); (got == 1) != step.want.State.Online() {
				t.Errorf("%+v: %d online", step, got)
			}
		}
	})
}

// TestRestoreAfterSettle tests that a restored part is logged once the epoch is settled: since then
// a user whom the store does not have counts as offline. The next epoch is silent again.
func TestRestoreAfterSettle(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		if got := b.setMode(presence.Restore, "early", "8f"); got != change(0, "8f") {
			t.Errorf("before: %+v", got)
		}
		b.settle()
		for _, step := range []struct {
			state string
			want  presence.SetChange
		}{{"8f", change(1, "8f")}, {"8f", change(0, "8f")}, {"8b", change(2, "8b")}, {"", change(3, "")}, {"", change(0, "")}} {
			if got := b.setMode(presence.Restore, "late", step.state); got != step.want {
				t.Errorf("after, %q: %+v, want %+v", step.state, got, step.want)
			}
		}
		if got := b.setMode(presence.Restore, "early", "8f"); got != change(0, "8f") {
			t.Errorf("the repeat of one from before: %+v", got)
		}
		b.wantLog(0, `1 late "8f" 1`, `2 late "8b" 1`, `3 late "" 1`)
		b.flush()
		b.begin()
		if got := b.setMode(presence.Restore, "late", "8f"); got != change(0, "8f") {
			t.Errorf("in the next epoch: %+v", got)
		}
	})
}

// TestRefusedStepsChangeNothing tests that a step that is late, of a fenced node, or of another
// epoch changes nothing, and which of these is reported if several are so.
func TestRefusedStepsChangeNothing(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.put("n", "u", "8f")
		b.login(as("c1", 10, 10))
		if err := b.Fence(t.Context(), shard, "dead"); err != nil {
			t.Fatal(err)
		}
		late := b.now.Add(-time.Millisecond)
		for _, c := range []struct {
			node     string
			notAfter time.Time
			epoch    string
			want     presence.Outcome
		}{
			{"n", late, b.epoch, presence.Late},
			{"dead", b.soon(), b.epoch, presence.Fenced},
			{"n", b.soon(), "other", presence.OtherEpoch},
			{"dead", late, "other", presence.Late},
			{"dead", b.soon(), "other", presence.Fenced},
		} {
			b.wantRefused(c.want, c.node, c.epoch, c.notAfter, false)
		}
		b.wantRefused(presence.OtherEpoch, "dead", "other", b.soon(), true) // a sweep
		// The last ms counts.
		r := b.try(presence.SetCall{Shard: shard, Node: "n", NotAfter: b.now, Users: []presence.Part{part("u", "")}})
		if r.Outcome != presence.Done {
			t.Errorf("%+v", r)
		}
	})
}

// wantRefused makes a set and a login, or a sweep alone, and checks their outcome and that nothing
// changes.
func (b *bundle) wantRefused(want presence.Outcome, node, epoch string, notAfter time.Time, sweep bool) {
	b.tb.Helper()
	b.unchanged(fmt.Sprintf("%s in epoch %s", node, epoch), func() {
		b.tb.Helper()
		call := presence.SetCall{Shard: shard, Node: node, Epoch: epoch, NotAfter: notAfter, Sweep: sweep}
		call.Users = []presence.Part{{UserID: "u", Mode: presence.Force, Cause: presence.NodeLost}}
		if !sweep {
			call.Users = append(call.Users, part("v", "1f"))
		}
		if r, want := b.try(call), (presence.SetResult{Outcome: want, Now: b.now}); !same(r, want) {
			b.tb.Errorf("set: %+v, want %+v", r, want)
		}
		if sweep {
			return
		}
		login := as("c2", 11, 11)
		login.Node, login.Epoch, login.NotAfter = node, epoch, notAfter
		if r, want := b.login(login), (presence.LoginResult{Outcome: want, Now: b.now}); !same(r, want) {
			b.tb.Errorf("login: %+v, want %+v", r, want)
		}
	})
}

// TestSweep removes the parts of a dead node behind its fence.
func TestSweep(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.length = "1000"
		users := userNames(450)
		for chunk := range slices.Chunk(users, MaxSet) {
			var parts []presence.Part
			for _, u := range chunk {
				parts = append(parts, part(u, "8f"))
			}
			b.set("dead", parts...)
		}
		b.put("alive", users[3], "8f")
		for range 2 {
			if err := b.Fence(t.Context(), shard, "dead"); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			for chunk := range slices.Chunk(b.members("dead"), MaxSet) {
				call := presence.SetCall{Shard: shard, Node: "dead", NotAfter: b.soon(), Sweep: true}
				for _, u := range chunk {
					call.Users = append(call.Users, presence.Part{UserID: u, Cause: presence.NodeLost})
				}
				if r := b.try(call); r.Outcome != presence.Done {
					t.Fatalf("%+v", r)
				}
			}
		}
		if left := b.members("dead"); len(left) > 0 {
			t.Errorf("members: %q", left)
		}
		if got := b.online(); !slices.Equal(got, users[3:4]) {
			t.Errorf("online: %q", got)
		}
		entries := b.log(450)
		if len(entries) != 449 || slices.ContainsFunc(entries, func(e string) bool { return !strings.HasSuffix(e, `"" 2`) }) {
			t.Errorf("%d entries", len(entries))
		}
	})
}

// TestSetUnreadableParts tests that another program's members of a user's key harm nobody.
func TestSetUnreadableParts(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		for _, member := range []string{"what", "", "n1 8x", "n1 0f", "a b c"} {
			b.client.ZAdd(t.Context(), b.keys.user(shard, "u"), redis.Z{Score: float64(b.now.Add(time.Hour).UnixMilli()), Member: member})
		}
		if got := b.state("u"); got != "" {
			t.Errorf("the state is %q", got)
		}
		if got := b.put("n", "u", "8f"); got != change(1, "8f") {
			t.Errorf("%+v", got)
		}
		if got := b.state("u"); got != "8f" {
			t.Errorf("the state is %q", got)
		}
		if got := b.put("n", "u", ""); got != change(2, "") || len(b.online()) > 0 {
			t.Errorf("%+v, online %q", got, b.online())
		}
	})
}

// TestLists tests that invalid calls of a list are not sent, and the others are, in one pipeline.
func TestLists(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.scripts = production
		for _, shard := range []int{0, 255, 3, 4, 5} {
			if _, err := b.Open(t.Context(), shard, "", "e"); err != nil {
				t.Fatal(err)
			}
		}
		call := func(shard int, users ...presence.Part) presence.SetCall {
			return presence.SetCall{Shard: shard, Node: "n", Epoch: "e", NotAfter: time.Now().Add(time.Minute), Users: users}
		}
		calls := []presence.SetCall{
			call(0, part("a", "1f")), call(256, part("b", "1f")), call(255, part("c", "1f")), call(3), call(4, part("a b", "1f")), call(5, part("d", "2f")),
		}
		results := b.Set(t.Context(), calls)
		heads := b.Heads(t.Context(), []int{0, -1, 255, 3, 4, 5})
		for i, done := range []bool{true, false, true, false, false, true} {
			if (results[i].Outcome == presence.Done) != done || (results[i].Err == nil) != done || (heads[i].Seq == 1) != done {
				t.Errorf("call %d: %+v, %+v", i, results[i], heads[i])
			}
		}
		if b.Set(t.Context(), nil) == nil {
			t.Error("no results for no calls")
		}
	})
}

// TestLostReply tests that a call without a reply has an unknown outcome and the kind unavailable.
func TestLostReply(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	b := newBundle(t, server.Client(t))
	b.put("n", "u", "8f")
	server.Kill()
	var f *fault.Error
	if r := b.Set(t.Context(), []presence.SetCall{
		{Shard: shard, Node: "n", Epoch: b.epoch, NotAfter: b.soon(), Users: []presence.Part{part("u", "8f")}},
	})[0]; r.Outcome != presence.Unknown ||
		!errors.As(r.Err, &f) || f.Kind != fault.Unavailable || !strings.Contains(f.Cause.Error(), "shard 7") {
		t.Errorf("%+v", r)
	}
	if r := b.Get(t.Context(), []presence.GetCall{{Shard: shard, Users: []string{"u"}}})[0]; !errors.As(r.Err, &f) || f.Kind != fault.Unavailable {
		t.Errorf("%+v", r)
	}
}
