package redispresence

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/presence"
)

// login calls Login, which must get a reply. It sets the fields that the call leaves out, except
// the generation and the order.
func (b *bundle) login(call presence.LoginCall) presence.LoginResult {
	b.tb.Helper()
	call.Shard = shard
	call.UserID = cmp.Or(call.UserID, "u")
	call.Slot = cmp.Or(call.Slot, "*")
	call.Node = cmp.Or(call.Node, "n1")
	call.Platform = cmp.Or(call.Platform, presence.Web)
	call.Epoch = cmp.Or(call.Epoch, b.epoch)
	if call.NotAfter.IsZero() {
		call.NotAfter = b.soon()
	}
	r := b.Login(b.tb.Context(), []presence.LoginCall{call})[0]
	if r.Err != nil {
		b.tb.Fatal(r.Err)
	}
	return r
}

// as returns a call of a new connection with a generation.
func as(connection string, generation int64) presence.LoginCall {
	return again(connection, generation, 0)
}

// again returns a call of a connection with a generation and an order.
func again(connection string, generation, order int64) presence.LoginCall {
	return presence.LoginCall{Winner: winner(connection, generation, order)}
}

// winner returns the login of a connection. login sets the other fields to those of holds.
func winner(connection string, generation, order int64) presence.Winner {
	return presence.Winner{Connection: connection, Generation: generation, Order: order, Device: "phone-" + connection}
}

// holds returns what Login returns of a connection that has the slot.
func holds(connection string, generation, order int64) presence.Winner {
	w := winner(connection, generation, order)
	w.Slot, w.Node, w.Platform = "*", "n1", presence.Web
	return w
}

// wantLogin makes a call, which must be done, and checks its result. seq is the position of its
// entry, or 0 if it must log none.
func (b *bundle) wantLogin(what string, call presence.LoginCall, won bool, has presence.Winner, seq int64) {
	b.tb.Helper()
	got := b.login(call)
	want := presence.LoginResult{Outcome: presence.Done, Now: b.now, Won: won, Seq: seq, Winner: has}
	if !same(got, want) {
		b.tb.Errorf("%s:\n%+v, want\n%+v", what, got, want)
	}
}

func loginEntry(seq int64, w presence.Winner) string { return fmt.Sprintf("%d u %+v", seq, w) }

func TestLoginHigherGenerationWins(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		first := b.now.UnixMicro()
		b.wantLogin("first", as("c1", 0), true, holds("c1", first, first), 0)
		// The clock stands, and later goes back: the generation rises all the same.
		second, third := holds("c2", first+1, first+1), holds("c3", first+2, first+2)
		b.wantLogin("second", as("c2", 0), true, second, 1)
		b.move(-time.Hour)
		b.wantLogin("third", as("c3", 0), true, third, 2)
		// Reconnects keep their generation, so those of older logins lose, however often they come
		// and regardless of their order.
		for i := range 3 {
			b.move(time.Hour)
			b.unchanged("a login that lost", func() {
				b.wantLogin("reconnect of the first", as(fmt.Sprint("r1-", i), first), false, third, 0)
				b.wantLogin("reconnect of the second", as(fmt.Sprint("r2-", i), first+1), false, third, 0)
				b.wantLogin("with a high order", again(fmt.Sprint("r3-", i), first+1, first+1e12), false, third, 0)
			})
		}
		reconnect := holds("r3", first+2, b.now.UnixMicro())
		b.wantLogin("reconnect of the third", as("r3", first+2), true, reconnect, 3)
		b.wantLogin("repeated", as("r3", first+2), true, reconnect, 0)
		// A higher generation wins with a lower order.
		b.wantLogin("provisional", again("c4", first+9, first+9), true, holds("c4", first+9, first+9), 4)
		b.move(time.Hour)
		fifth := holds("c5", b.now.UnixMicro(), b.now.UnixMicro())
		b.wantLogin("new", as("c5", 0), true, fifth, 5)
		b.wantLog(0, loginEntry(1, second), loginEntry(2, third), loginEntry(3, reconnect), loginEntry(4, holds("c4", first+9, first+9)),
			loginEntry(5, fifth))
		if d := b.client.PTTL(t.Context(), b.keys.logins(shard, "u")).Val(); d > loginTTL || d < loginTTL-time.Minute {
			t.Errorf("the slots expire in %v", d)
		}
	})
}

// TestLoginHigherOrderWins tests that of the connections of one login the newest has the slot, also
// after a flush, when they log in again in any order.
func TestLoginHigherOrderWins(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(_ *testing.T, b *bundle) {
		first := b.now.UnixMicro()
		b.wantLogin("the login", as("c1", 0), true, holds("c1", first, first), 0)
		// The clock stands: the order rises all the same.
		second := holds("c2", first, first+1)
		b.wantLogin("its reconnect", as("c2", first), true, second, 1)
		b.move(-time.Hour)
		third := holds("c3", first, first+2)
		b.wantLogin("when the clock went back", as("c3", first), true, third, 2)
		b.move(2 * time.Hour)
		b.unchanged("a half-open connection", func() {
			b.wantLogin("the first again", again("c1", first, first), false, third, 0)
			b.wantLogin("the second again", again("c2", first, first+1), false, third, 0)
			b.wantLogin("the third again", again("c3", first, first+2), true, third, 0)
		})
		b.wantLog(0, loginEntry(1, second), loginEntry(2, third))

		b.flush()
		b.begin()
		b.wantLogin("after a flush, the third", again("c3", first, first+2), true, third, 0)
		b.unchanged("half-open connections after a flush", func() {
			b.wantLogin("the first", again("c1", first, first), false, third, 0)
			b.wantLogin("the second", again("c2", first, first+1), false, third, 0)
		})

		b.flush()
		b.begin()
		b.wantLogin("after a flush, the first", again("c1", first, first), true, holds("c1", first, first), 0)
		b.wantLogin("the third after it", again("c3", first, first+2), true, third, 1)
		b.unchanged("a half-open connection between them", func() {
			b.wantLogin("the second", again("c2", first, first+1), false, third, 0)
		})
		b.wantLog(0, loginEntry(1, third))
	})
}

// TestLoginKeepsItsSlot tests that a connection never loses its slot to itself, and that the higher
// of its generations and orders counts: a node that got no reply enters provisional ones.
func TestLoginKeepsItsSlot(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(_ *testing.T, b *bundle) {
		first := b.now.UnixMicro()
		has := holds("c1", first, first)
		b.wantLogin("first", as("c1", 0), true, has, 0)
		b.unchanged("a provisional login that is lower", func() {
			b.wantLogin("both", again("c1", first-5, first-5), true, has, 0)
			b.wantLogin("the order", again("c1", first, first-5), true, has, 0)
			b.wantLogin("the generation", again("c1", first-5, first+5), true, has, 0)
		})
		raised := holds("c1", first+5, first+5)
		b.wantLogin("one that is higher", again("c1", first+5, first+5), true, raised, 0)
		b.unchanged("the repeat", func() { b.wantLogin("repeat", as("c1", 0), true, raised, 0) })
		b.wantLogin("a new login", as("c2", 0), true, holds("c2", first+6, first+6), 1)
	})
}

// TestLoginLostReply tests that the repeat of a call gets the answer of the first, also on another
// node, and that it never overtakes a login that won since.
func TestLoginLostReply(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(_ *testing.T, b *bundle) {
		first := b.now.UnixMicro()
		b.login(as("c1", 0))
		b.move(time.Second)
		b.unchanged("the repeat", func() {
			b.wantLogin("repeat", as("c1", 0), true, holds("c1", first, first), 0)
		})
		moved := again("c1", first, first)
		moved.Node = "n1.2"
		has := holds("c1", first, first)
		has.Node = "n1.2"
		b.wantLogin("the same connection from another node", moved, true, has, 0)
		second := b.now.UnixMicro()
		b.wantLogin("the next", as("c2", 0), true, holds("c2", second, second), 1)
		b.wantLogin("its reconnect", as("c3", second), true, holds("c3", second, second+1), 2)
		b.move(time.Second)
		b.unchanged("late repeats", func() {
			b.wantLogin("of the reconnect", as("c3", second), true, holds("c3", second, second+1), 0)
			b.wantLogin("of the first", as("c1", 0), false, holds("c3", second, second+1), 0)
			b.wantLogin("of the next", as("c2", 0), false, holds("c3", second, second+1), 0)
		})
		third := b.now.UnixMicro()
		b.wantLogin("one more reconnect", as("c4", second), true, holds("c4", second, third), 3)
		b.move(time.Second)
		b.unchanged("the late repeat of a reconnect that was replaced", func() {
			b.wantLogin("repeat", as("c3", second), false, holds("c4", second, third), 0)
		})
	})
}

func TestLoginSlotsAreApart(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		for i, slot := range []string{"8", "1", "mobile"} {
			call := as("c", 0)
			call.Slot, call.Connection, call.Device = slot, fmt.Sprint("c", i), ""
			if r := b.login(call); !r.Won || r.Seq != 0 || r.Winner.Slot != slot || r.Winner.Device != "" {
				t.Errorf("%s: %+v", slot, r)
			}
		}
		call := as("d", 0)
		call.Slot, call.Device, call.UserID = "8", "", "other"
		if r := b.login(call); !r.Won || r.Seq != 0 {
			t.Errorf("another user: %+v", r)
		}
		call.UserID = "u"
		if r := b.login(call); !r.Won || r.Seq != 1 || r.Winner.Device != "" {
			t.Errorf("the same slot: %+v", r)
		}
		want := holds("d", b.now.UnixMicro()+1, b.now.UnixMicro()+1)
		want.Slot, want.Device = "8", ""
		b.wantLog(0, loginEntry(1, want))
		// Another program's value does not lock the user out.
		b.client.HSet(t.Context(), b.keys.logins(shard, "u"), "8", "what is this")
		if r := b.login(call); !r.Won || r.Seq != 0 || r.Winner.Generation != b.now.UnixMicro() {
			t.Errorf("after an unreadable value: %+v", r)
		}
	})
}
