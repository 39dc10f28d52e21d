package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
)

// Hostile input to PresenceService, and to the presence of Subscribe.

const (
	connectPresence = "Connect"
	updateWatch     = "UpdateWatch"
	watchChannel    = "WatchChannel"
	unwatchChannel  = "UnwatchChannel"
	setBackground   = "SetBackground"
	disconnect      = "Disconnect"
	getPresence     = "GetPresence"
	listOnlineUsers = "ListOnlineUsers"
)

// guessedStream is a stream id of the right form that no stream has.
var guessedStream = strings.Repeat("A", 39)

// presenceRequests build a valid request for every call of PresenceService, about a stream.
var presenceRequests = map[string]func(streamID string) proto.Message{
	connectPresence: func(string) proto.Message { return phone(nil) },
	updateWatch: func(id string) proto.Message {
		return &parleyv1.UpdateWatchRequest{StreamId: id, Add: []string{"bob"}}
	},
	watchChannel: func(id string) proto.Message {
		return &parleyv1.WatchChannelRequest{StreamId: id, ChannelId: "room"}
	},
	unwatchChannel: func(id string) proto.Message {
		return &parleyv1.UnwatchChannelRequest{StreamId: id, ChannelId: "room"}
	},
	setBackground: func(id string) proto.Message { return &parleyv1.SetBackgroundRequest{StreamId: id} },
	disconnect:    func(id string) proto.Message { return &parleyv1.DisconnectRequest{StreamId: id} },
	getPresence: func(string) proto.Message {
		return &parleyv1.GetPresenceRequest{UserIds: []string{"bob"}}
	},
	listOnlineUsers: func(string) proto.Message { return &parleyv1.ListOnlineUsersRequest{} },
}

// phone returns a valid request to connect, with changes.
func phone(change func(r *parleyv1.ConnectRequest)) *parleyv1.ConnectRequest {
	r := &parleyv1.ConnectRequest{Platform: parleyv1.Platform_PLATFORM_IOS, DeviceId: "phone-1"}
	if change != nil {
		change(r)
	}
	return r
}

func TestHostilePresenceTableCoversEveryMethod(t *testing.T) {
	t.Parallel()
	for name, m := range methods() {
		// Any token may call SignOut, which has no field.
		if m.Parent().Name() == "PresenceService" && presenceRequests[name] == nil && name != "SignOut" {
			t.Errorf("no table calls %s", name)
		}
	}
}

// deviceLines returns invalid requests to connect, each also as the presence of a Subscribe.
func deviceLines() []line {
	var lines []line
	add := func(name string, w want, change func(r *parleyv1.ConnectRequest)) {
		r := phone(change)
		rides := w
		rides.field = "presence." + w.field
		lines = append(lines,
			line{name: name, procedure: connectPresence, message: r, want: w},
			line{name: name + ", on Subscribe", procedure: subscribing, message: &parleyv1.SubscribeRequest{Presence: r}, want: rides})
	}
	many := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprint("user-", i))
		}
		return ids
	}
	beyond := func(field string, limit int64) want {
		return want{code: "resource_exhausted", reason: "LIMIT_EXCEEDED", field: field, limit: limit}
	}
	add("no platform", invalid("platform"), func(r *parleyv1.ConnectRequest) { r.Platform = 0 })
	add("platform 99", invalid("platform"), func(r *parleyv1.ConnectRequest) { r.Platform = 99 })
	add("no device", invalid("device_id"), func(r *parleyv1.ConnectRequest) { r.DeviceId = "" })
	add("device of 1 KiB", invalid("device_id"), func(r *parleyv1.ConnectRequest) { r.DeviceId = strings.Repeat("d", 1024) })
	for _, id := range []string{"a:b", "*", "[a-z]?", "{p1}:meta", "a b", "a\n", "\x1b[31m", "é"} {
		add(fmt.Sprintf("device %q", id), invalid("device_id"), func(r *parleyv1.ConnectRequest) { r.DeviceId = id })
		if strings.ContainsAny(id, " \n\x1bé") {
			add(fmt.Sprintf("user %q", id), invalid("watch[1]"), func(r *parleyv1.ConnectRequest) { r.Watch = []string{"bob", id} })
		}
		add(fmt.Sprintf("channel %q", id), invalid("watch_channels[0]"), func(r *parleyv1.ConnectRequest) { r.WatchChannels = []string{id} })
	}
	add("1,001 users", beyond("watch", 1000), func(r *parleyv1.ConnectRequest) { r.Watch = many(1001) })
	add("10,001 users", beyond("watch", 1000), func(r *parleyv1.ConnectRequest) { r.Watch = many(10_001) })
	add("21 channels", beyond("watch_channels", 20), func(r *parleyv1.ConnectRequest) { r.WatchChannels = many(21) })
	add("a login token that is none", invalid("login_token"), func(r *parleyv1.ConnectRequest) { r.LoginToken = "eyJhbGciOiJub25lIn0" })
	add("a login token of 1,025 bytes", over("login_token", 1024), func(r *parleyv1.ConnectRequest) { r.LoginToken = strings.Repeat("A", 1025) })
	elements := want{code: "resource_exhausted", reason: "TOO_LARGE", limit: 50_000}
	return append(lines,
		line{name: "100,000 users", procedure: connectPresence, message: phone(func(r *parleyv1.ConnectRequest) { r.Watch = many(100_000) }), want: elements},
		line{name: "a field that there is not", procedure: connectPresence, json: `{"platform":1,"deviceId":"d","invisble":true}`, want: unknownField("invisble")},
	)
}

// presenceCallLines returns invalid calls, and valid ones about a stream that was guessed.
func presenceCallLines() []line {
	var lines []line
	add := func(procedure, name string, w want, m proto.Message) {
		lines = append(lines, line{name: procedure + " of " + name, procedure: procedure, message: m, want: w})
	}
	many := make([]string, 10_001)
	for i := range many {
		many[i] = "u"
	}
	gone := want{code: "not_found", reason: "STREAM_NOT_FOUND"}
	for _, procedure := range []string{updateWatch, watchChannel, unwatchChannel, setBackground} {
		add(procedure, "a guessed stream", gone, presenceRequests[procedure](guessedStream))
	}
	for _, procedure := range []string{updateWatch, watchChannel, unwatchChannel, setBackground, disconnect} {
		for _, id := range []string{"", "*", "a b", "../x", strings.Repeat("A", 65)} {
			add(procedure, fmt.Sprintf("stream %.8q", id), invalid("stream_id"), presenceRequests[procedure](id))
		}
	}
	add(getPresence, "0 users", over("user_ids", 1), &parleyv1.GetPresenceRequest{})
	add(getPresence, "10,001 users", over("user_ids", 500), &parleyv1.GetPresenceRequest{UserIds: many})
	add(getPresence, "an empty user", invalid("user_ids[1]"), &parleyv1.GetPresenceRequest{UserIds: []string{"a", ""}})
	add(getPresence, "a user with BEL", invalid("user_ids[0]"), &parleyv1.GetPresenceRequest{UserIds: []string{"\x07"}})
	add(updateWatch, "501 users", over("add", 500), &parleyv1.UpdateWatchRequest{StreamId: guessedStream, Add: many[:501]})
	add(updateWatch, "1,001 users to remove", over("remove", 1000), &parleyv1.UpdateWatchRequest{StreamId: guessedStream, Remove: many[:1001]})
	add(listOnlineUsers, "a page below 0", invalid("page_size"), &parleyv1.ListOnlineUsersRequest{PageSize: -1})
	add(listOnlineUsers, "a token that is none", want{code: "invalid_argument", reason: "PAGE_TOKEN_INVALID", field: "page_token"},
		&parleyv1.ListOnlineUsersRequest{PageToken: "AAAA"})
	return lines
}

// presenceCapabilityLines returns calls without the required capability. They must be refused
// regardless of the token's other capabilities.
func presenceCapabilityLines(g *target) []line {
	missing := want{code: "permission_denied", reason: "CAPABILITY_MISSING"}
	mint := func(actions ...ident.Action) string {
		return g.MintAs(&ident.Principal{
			Subject: "mallory", Presence: actions, Admin: ident.AdminActions,
			Channels: []ident.Capability{{Pattern: "*", Actions: ident.ChannelActions}},
			Queues:   []ident.Capability{{Pattern: "*", Actions: ident.QueueActions}},
		}, time.Hour)
	}
	tokens := map[string]string{
		"": mint(), string(ident.Connect): mint(ident.Connect), string(ident.Watch): mint(ident.Watch), string(ident.List): mint(ident.List),
	}
	allowed := map[string]string{
		connectPresence: "connect", updateWatch: "watch", watchChannel: "watch", unwatchChannel: "watch", setBackground: "connect",
		disconnect: "connect watch", getPresence: "watch", listOnlineUsers: "list",
	}
	var lines []line
	for procedure, request := range presenceRequests {
		for action, token := range tokens {
			if action == "" || !strings.Contains(allowed[procedure], action) {
				lines = append(lines, line{
					name: fmt.Sprintf("%s with %q", procedure, action), procedure: procedure, message: request(guessedStream), token: token, want: missing,
				})
			}
		}
	}
	return append(lines, line{
		name: "Subscribe with presence", procedure: subscribing, token: tokens["list"], want: missing,
		message: &parleyv1.SubscribeRequest{Presence: phone(nil)},
	})
}

func TestHostilePresence(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	g.run(deviceLines())
	g.run(presenceCallLines())
	g.run(presenceCapabilityLines(g))
}
