package redispresence

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/parleyhq/parley/server/internal/presence"
)

// drawLogin returns the login of a new connection or of an earlier one of the slot, with the
// generation and the order of a past login, or by the clock of a node.
func (m *model) drawLogin(t *rapid.T, key slotKey) presence.Winner {
	m.connections++
	now := m.now.UnixMicro() + rapid.SampledFrom([]int64{0, 5, -time.Minute.Microseconds()}).Draw(t, "off by")
	fresh := presence.Winner{Connection: fmt.Sprint("c", m.connections), Generation: now, Order: now}
	past := rapid.SampledFrom(append([]presence.Winner{fresh}, m.past[key]...)).Draw(t, "past")
	w := presence.Winner{
		Slot: key.slot, Connection: fresh.Connection, Node: rapid.SampledFrom(modelNodes).Draw(t, "node"),
		Platform: presence.Platform(rapid.IntRange(1, 9).Draw(t, "platform")),
		Device:   rapid.SampledFrom([]string{"", "d-1"}).Draw(t, "device"),
	}
	has := m.logins[key]
	switch kind := rapid.SampledFrom([]string{"new", "reconnect", "again", "higher", "any"}).Draw(t, "kind"); kind {
	case "new":
		w.Generation, w.Order = now, now
	case "reconnect":
		w.Generation, w.Order = past.Generation, now
	case "again": // after a flush, or with another presence id
		w.Connection, w.Generation, w.Order = past.Connection, past.Generation, past.Order
	case "higher": // after a decision without a response
		w.Connection, w.Generation, w.Order = past.Connection, now, now
	case "any":
		w.Connection = past.Connection
		w.Generation = rapid.SampledFrom([]int64{1, max(has.Generation, 1), has.Generation + 1}).Draw(t, "generation")
		w.Order = rapid.SampledFrom([]int64{1, max(has.Order, 1), has.Order + 1}).Draw(t, "order")
	}
	return w
}

// loginSome makes some calls for one slot.
func (m *model) loginSome(t *rapid.T) {
	key := slotKey{rapid.SampledFrom(modelUsers[:2]).Draw(t, "user"), rapid.SampledFrom(modelSlots).Draw(t, "slot")}
	for range rapid.IntRange(1, 5).Draw(t, "calls") {
		m.loginOnce(t, key)
	}
}

func (m *model) loginOnce(t *rapid.T, key slotKey) {
	c := presence.LoginCall{
		Shard: shard, UserID: key.user, Epoch: m.drawEpoch(t), NotAfter: drawNotAfter(t, m.now), Winner: m.drawLogin(t, key),
	}
	for range rapid.IntRange(1, 2).Draw(t, "times") { // a lost reply
		got := m.login(c)
		if want := m.applyLogin(c); !same(got, want) {
			t.Fatalf("%+v\nis %+v\nwant %+v", c, got, want)
		}
		m.past[key] = append(m.past[key], c.Winner)
		if got.Won {
			m.past[key] = append(m.past[key], got.Winner)
		}
		m.past[key] = m.past[key][max(0, len(m.past[key])-6):]
	}
}

// older reports whether a login is older than the one that has the slot.
func older(generation, order int64, has presence.Winner) bool {
	return generation < has.Generation || generation == has.Generation && order < has.Order
}

// applyLogin is presence_login.
func (m *model) applyLogin(c presence.LoginCall) presence.LoginResult {
	want := presence.LoginResult{Outcome: m.admit(c.Node, c.Epoch, c.NotAfter, false), Now: m.now}
	if want.Outcome != presence.Done {
		return want
	}
	key := slotKey{c.UserID, c.Slot}
	has, taken := m.logins[key]
	mine := taken && has.Connection == c.Connection
	login := c.Winner
	switch lower := taken && older(login.Generation, login.Order, has); {
	case lower && !mine:
		want.Winner = has
		return want
	case lower:
		login.Generation, login.Order = has.Generation, has.Order
	case taken && !mine:
		want.Seq = m.append(presence.Entry{UserID: c.UserID, Login: &login})
	}
	m.logins[key] = login
	want.Won, want.Winner = true, login
	return want
}
