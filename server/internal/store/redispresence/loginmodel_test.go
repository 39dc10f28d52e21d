package redispresence

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/parleyhq/parley/server/internal/presence"
)

// drawLogin returns the login of a new connection or of an earlier one of the slot. The generation
// and the order are 0, or those of a past login, or provisional: by the clock of a node.
func (m *model) drawLogin(t *rapid.T, key slotKey) presence.Winner {
	m.connections++
	fresh := presence.Winner{Connection: fmt.Sprint("c", m.connections)}
	past := rapid.SampledFrom(append([]presence.Winner{fresh}, m.past[key]...)).Draw(t, "past")
	w := presence.Winner{
		Slot: key.slot, Connection: fresh.Connection, Node: rapid.SampledFrom(modelNodes).Draw(t, "node"),
		Platform: presence.Platform(rapid.IntRange(1, 9).Draw(t, "platform")),
		Device:   rapid.SampledFrom([]string{"", "d-1"}).Draw(t, "device"),
	}
	has := m.logins[key]
	now := m.now.UnixMicro()
	provisional := now + rapid.SampledFrom([]int64{0, 5, -time.Minute.Microseconds()}).Draw(t, "off by")
	switch kind := rapid.SampledFrom([]string{
		"new", "reconnect", "again", "repeat", "repeat of a reconnect", "provisional", "provisional reconnect", "provisional again", "any",
	}).Draw(t, "kind"); kind {
	case "new":
	case "reconnect":
		w.Generation = past.Generation
	case "again": // after a flush, or with another presence id
		w.Connection, w.Generation, w.Order = past.Connection, past.Generation, past.Order
	case "repeat":
		w.Connection = past.Connection
	case "repeat of a reconnect":
		w.Connection, w.Generation = past.Connection, past.Generation
	case "provisional":
		w.Generation, w.Order = provisional, provisional
	case "provisional reconnect":
		w.Generation, w.Order = past.Generation, provisional
	case "provisional again":
		w.Connection, w.Generation, w.Order = past.Connection, provisional, provisional
	case "any":
		w.Connection = past.Connection
		w.Generation = rapid.SampledFrom([]int64{0, 1, has.Generation, has.Generation + 1}).Draw(t, "generation")
		w.Order = rapid.SampledFrom([]int64{0, 1, has.Order, has.Order + 1}).Draw(t, "order")
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
	if taken && has.Connection == c.Connection {
		return m.keepLogin(c, has, want)
	}
	login := modelLogin{Winner: c.Winner}
	repeat := slices.Contains(has.replaced, c.Connection)
	if login.Generation == 0 {
		login.Generation = max(has.Generation+1, m.now.UnixMicro())
	}
	if login.Order == 0 {
		login.Order = max(has.Order+1, m.now.UnixMicro())
	}
	if repeat && (c.Generation == 0 || c.Order == 0) || taken && older(login.Generation, login.Order, has.Winner) {
		want.Winner = has.Winner
		return want
	}
	want.Won, want.Winner = true, login.Winner
	if taken {
		login.replaced = append([]string{has.Connection}, has.replaced...)
		login.replaced = login.replaced[:min(2, len(login.replaced))]
		want.Seq = m.append(presence.Entry{UserID: c.UserID, Login: &login.Winner})
	}
	m.logins[key] = login
	return want
}

// keepLogin is presence_login for the connection that has the slot, which keeps it. The higher
// generation and order count.
func (m *model) keepLogin(c presence.LoginCall, has modelLogin, want presence.LoginResult) presence.LoginResult {
	login := modelLogin{Winner: c.Winner, replaced: has.replaced}
	if c.Generation == 0 {
		login.Generation = has.Generation
	}
	if c.Order == 0 {
		login.Order = has.Order
	}
	if older(login.Generation, login.Order, has.Winner) {
		login.Generation, login.Order = has.Generation, has.Order
	}
	m.logins[slotKey{c.UserID, c.Slot}] = login
	want.Won, want.Winner = true, login.Winner
	return want
}
