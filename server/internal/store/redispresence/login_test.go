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

// as returns a call of a connection with a generation and an order.
func as(connection string, generation, order int64) presence.LoginCall {
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
		b.wantLogin("first", as("c1", 10, 10), true, holds("c1", 10, 10), 0)
		second, third := holds("c2", 11, 11), holds("c3", 12, 12)
		b.wantLogin("second", as("c2", 11, 11), true, second, 1)
		b.wantLogin("third", as("c3", 12, 12), true, third, 2)
		// Reconnects keep their generation, so those of older logins lose, however often they come
		// and regardless of their order.
		for i := range int64(3) {
			b.move(time.Hour)
			b.unchanged("a login that lost", func() {
				b.wantLogin("reconnect of the first", as(fmt.Sprint("r1-", i), 10, 20+i), false, third, 0)
				b.wantLogin("reconnect of the second", as(fmt.Sprint("r2-", i), 11, 20+i), false, third, 0)
				b.wantLogin("with a high order", as(fmt.Sprint("r3-", i), 11, 1e12), false, third, 0)
			})
		}
		reconnect := holds("r3", 12, 30)
		b.wantLogin("reconnect of the third", as("r3", 12, 30), true, reconnect, 3)
		b.wantLogin("repeated", as("r3", 12, 30), true, reconnect, 0)
		b.wantLogin("a higher generation with a lower order", as("c4", 13, 13), true, holds("c4", 13, 13), 4)
		b.wantLog(0, loginEntry(1, second), loginEntry(2, third), loginEntry(3, reconnect), loginEntry(4, holds("c4", 13, 13)))
		for range 2 { // a login that is entered again keeps the slots
			if d := b.client.PTTL(t.Context(), b.keys.logins(shard, "u")).Val(); d > loginTTL || d < loginTTL-time.Minute {
				t.Errorf("the slots expire in %v", d)
			}
			b.client.PExpire(t.Context(), b.keys.logins(shard, "u"), time.Hour)
			b.wantLogin("entered again", as("c4", 13, 13), true, holds("c4", 13, 13), 0)
		}
	})
}

// TestLoginHigherOrderWins tests that of the connections of one login the newest has the slot, also
// after a flush, when they log in again in any order.
func TestLoginHigherOrderWins(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(_ *testing.T, b *bundle) {
		b.wantLogin("the login", as("c1", 10, 10), true, holds("c1", 10, 10), 0)
		second, third := holds("c2", 10, 11), holds("c3", 10, 12)
		b.wantLogin("its reconnect", as("c2", 10, 11), true, second, 1)
		b.wantLogin("another one", as("c3", 10, 12), true, third, 2)
		b.unchanged("a half-open connection", func() {
			b.wantLogin("the first again", as("c1", 10, 10), false, third, 0)
			b.wantLogin("the second again", as("c2", 10, 11), false, third, 0)
			b.wantLogin("the third again", as("c3", 10, 12), true, third, 0)
		})
		b.wantLog(0, loginEntry(1, second), loginEntry(2, third))

		b.flush()
		b.begin()
		b.wantLogin("after a flush, the third", as("c3", 10, 12), true, third, 0)
		b.unchanged("half-open connections after a flush", func() {
			b.wantLogin("the first", as("c1", 10, 10), false, third, 0)
			b.wantLogin("the second", as("c2", 10, 11), false, third, 0)
		})

		b.flush()
		b.begin()
		b.wantLogin("after a flush, the first", as("c1", 10, 10), true, holds("c1", 10, 10), 0)
		b.wantLogin("the third after it", as("c3", 10, 12), true, third, 1)
		b.unchanged("a half-open connection between them", func() {
			b.wantLogin("the second", as("c2", 10, 11), false, third, 0)
		})
		b.wantLog(0, loginEntry(1, third))
	})
}

// TestLoginKeepsItsSlot tests that a connection never loses its slot to itself, and that the higher
// of its generations and orders counts: a node that got no reply enters provisional ones.
func TestLoginKeepsItsSlot(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(_ *testing.T, b *bundle) {
		has := holds("c1", 10, 10)
		b.wantLogin("first", as("c1", 10, 10), true, has, 0)
		b.unchanged("a provisional login that is lower", func() {
			b.wantLogin("both", as("c1", 5, 5), true, has, 0)
			b.wantLogin("the order", as("c1", 10, 5), true, has, 0)
			b.wantLogin("the generation", as("c1", 5, 15), true, has, 0)
		})
		b.wantLogin("one that is higher", as("c1", 15, 15), true, holds("c1", 15, 15), 0)
		b.wantLogin("a new login", as("c2", 16, 16), true, holds("c2", 16, 16), 1)
	})
}

// TestLoginLostReply tests that the repeat of a call gets the answer of the first, also on another
// node, and that it never overtakes a login that won since.
func TestLoginLostReply(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(_ *testing.T, b *bundle) {
		b.login(as("c1", 10, 10))
		b.unchanged("the repeat", func() { b.wantLogin("repeat", as("c1", 10, 10), true, holds("c1", 10, 10), 0) })
		moved := as("c1", 10, 10)
		moved.Node = "n1.2"
		has := holds("c1", 10, 10)
		has.Node = "n1.2"
		b.wantLogin("the same connection from another node", moved, true, has, 0)
		b.wantLogin("the next", as("c2", 11, 11), true, holds("c2", 11, 11), 1)
		b.wantLogin("its reconnect", as("c3", 11, 12), true, holds("c3", 11, 12), 2)
		b.unchanged("late repeats", func() {
			b.wantLogin("of the reconnect", as("c3", 11, 12), true, holds("c3", 11, 12), 0)
			b.wantLogin("of the first", as("c1", 10, 10), false, holds("c3", 11, 12), 0)
			b.wantLogin("of the next", as("c2", 11, 11), false, holds("c3", 11, 12), 0)
		})
	})
}

func TestLoginSlotsAreApart(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		for i, slot := range []string{"8", "1", "mobile"} {
			call := as(fmt.Sprint("c", i), 10, 10)
			call.Slot, call.Device = slot, ""
			if r := b.login(call); !r.Won || r.Seq != 0 || r.Winner.Slot != slot || r.Winner.Device != "" {
				t.Errorf("%s: %+v", slot, r)
			}
		}
		call := as("d", 11, 11)
		call.Slot, call.Device, call.UserID = "8", "", "other"
		if r := b.login(call); !r.Won || r.Seq != 0 {
			t.Errorf("another user: %+v", r)
		}
		call.UserID = "u"
		if r := b.login(call); !r.Won || r.Seq != 1 || r.Winner.Device != "" {
			t.Errorf("the same slot: %+v", r)
		}
		want := holds("d", 11, 11)
		want.Slot, want.Device = "8", ""
		b.wantLog(0, loginEntry(1, want))
		// Another program's value does not lock the user out.
		b.client.HSet(t.Context(), b.keys.logins(shard, "u"), "8", "what is this")
		if r := b.login(call); !r.Won || r.Seq != 0 || r.Winner.Generation != 11 {
			t.Errorf("after an unreadable value: %+v", r)
		}
	})
}
