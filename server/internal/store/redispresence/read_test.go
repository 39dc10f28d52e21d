package redispresence

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/presence"
)

func TestGet(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		users := userNames(MaxGet)
		b.set("n1", part(users[3], "8f"), part(users[9], "1b2b"))
		b.set("n2", part(users[9], "1f3f"))
		r := b.Get(t.Context(), []presence.GetCall{{Shard: shard, Users: users}, {Shard: shard}})
		for i, s := range r[0].States {
			if want := map[int]string{3: "8f", 9: "1f2b3f"}[i]; formatState(s) != want {
				t.Errorf("user %d is %q, want %q", i, formatState(s), want)
			}
		}
		if h := b.head(); r[0].Err != nil || r[1].Err != nil || r[0].Head != h || r[1].Head != h || !r[0].Now.Equal(b.now) || len(r[0].States) != MaxGet || len(r[1].States) != 0 {
			t.Errorf("%+v", r[1])
		}
		if r := b.Get(t.Context(), []presence.GetCall{{Shard: shard, Users: append(users, "u")}})[0]; r.Err == nil {
			t.Error("too many users are read")
		}
	})
}

// TestPageExactlyOnce tests that users who are online throughout the paging are listed once, in
// order, while others come and go.
func TestPageExactlyOnce(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.length = "1000"
		users := userNames(90)
		for i, u := range users {
			if i%3 < 2 {
				b.put("n", u, "8f")
			}
		}
		var listed []string
		for i, after := 0, ""; ; i++ {
			p, err := b.Page(t.Context(), shard, after, 7)
			if err != nil {
				t.Fatal(err)
			}
			if h := b.head(); p.Head != h || !p.Now.Equal(b.now) || len(p.Users) > 7 {
				t.Errorf("%+v", p)
			}
			if len(p.Users) == 0 {
				break
			}
			listed = append(listed, p.Users...)
			after = p.Users[len(p.Users)-1]
			// Before, at and behind the cursor: one goes, one comes, one changes.
			for _, j := range []int{3 * i, 89 - 3*i} {
				b.put("n", users[j-j%3+1], "")
				b.put("n", users[j-j%3+2], "8f")
				b.put("n", users[j-j%3], "8b")
			}
			b.put("n", after, b.state(after)[:1]+"b")
		}
		if !slices.IsSorted(listed) || len(slices.Compact(slices.Clone(listed))) != len(listed) {
			t.Errorf("listed %q", listed)
		}
		for i := 0; i < len(users); i += 3 {
			if !slices.Contains(listed, users[i]) {
				t.Errorf("%s is not listed", users[i])
			}
		}
	})
}

// hostile are user ids that look like parts of keys, patterns and lines.
var hostile = []string{
	"{", "}", "{}", "}{", "{p8}", "}:{nodes}:alive", "user:{p1}", "*", "?", "[a-z]", ":", "::meta", "-", "+", "(a", "[a", "inf", "0", "-1", "1e9", "%00",
	"L", "8f", `\`, `"`, "'", "--", "\\n", "~", "!", strings.Repeat("x", 128), strings.Repeat("{", 128), strings.Repeat("9", 128),
}

// TestHostileUserIDs tests that a user id is never more than an id, and stays in the shard's slot.
func TestHostileUserIDs(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, b *bundle) {
		b.length = "1000"
		for shard := range presence.Shards {
			for _, u := range append([]string{"u"}, hostile...) {
				for _, key := range []string{b.keys.user(shard, u), b.keys.logins(shard, u)} {
					tag, _, _ := strings.Cut(key[strings.Index(key, "{")+1:], "}")
					if tag != fmt.Sprint("p", shard) {
						t.Fatalf("the tag of %q is %q", key, tag)
					}
				}
			}
		}
		if c, ok := b.client.(*redis.ClusterClient); ok {
			want := c.ClusterKeySlot(t.Context(), b.keys.meta(shard)).Val()
			for _, u := range hostile {
				if got := c.ClusterKeySlot(t.Context(), b.keys.user(shard, u)).Val(); got != want {
					t.Errorf("%q is in slot %d, want %d", u, got, want)
				}
			}
		}
		var parts, none []presence.Part
		for _, u := range hostile {
			parts, none = append(parts, part(u, "8f")), append(none, part(u, ""))
		}
		b.set("n", parts...)
		want := slices.Sorted(slices.Values(hostile))
		if got := b.online(); !slices.Equal(got, want) {
			t.Errorf("online: %q", got)
		}
		if got := b.members("n"); !slices.Equal(got, want) {
			t.Errorf("members: %q", got)
		}
		for i, u := range hostile {
			if got := b.state(u); got != "8f" {
				t.Errorf("%q is %q", u, got)
			}
			for c := range 2 {
				call := as(fmt.Sprint("c", c), int64(10+c), 10)
				call.UserID = u
				if r := b.login(call); !r.Won || r.Seq != int64(c*(len(hostile)+i+1)) {
					t.Errorf("login of %q: %+v", u, r)
				}
			}
		}
		b.set("n", none...)
		r := b.since(b.head().Epoch, 0, 1000)
		if len(r.Entries) != 3*len(hostile) {
			t.Fatalf("%d entries", len(r.Entries))
		}
		for i, e := range r.Entries {
			if e.UserID != hostile[i%len(hostile)] {
				t.Errorf("entry %d is of %q", i, e.UserID)
			}
		}
		if len(b.online()) > 0 || len(b.members("n")) > 0 {
			t.Errorf("left: %q, %q", b.online(), b.members("n"))
		}
	})
}

// TestLimits tests that what is out of bounds is refused by name before it is sent.
func TestLimits(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	b := New(client, Config{})
	ctx := t.Context()
	set := func(change func(*presence.SetCall)) error {
		call := presence.SetCall{Node: "n", Epoch: "e", Users: []presence.Part{part("u", "8f")}}
		change(&call)
		return b.Set(ctx, []presence.SetCall{call})[0].Err
	}
	login := func(change func(*presence.LoginCall)) error {
		call := as("c", 10, 10)
		call.UserID, call.Slot, call.Node, call.Epoch, call.Platform = "u", "*", "n", "e", presence.Web
		change(&call)
		return b.Login(ctx, []presence.LoginCall{call})[0].Err
	}
	page := func(shard int, after string, limit int) error {
		_, err := b.Page(ctx, shard, after, limit)
		return err
	}
	beat := func(beat presence.Beat) error {
		_, err := b.Beat(ctx, beat)
		return err
	}
	open := func(old, epoch string) error {
		_, err := b.Open(ctx, 0, old, epoch)
		return err
	}
	since := func(c presence.SinceCall) error { return b.Since(ctx, []presence.SinceCall{c})[0].Err }
	long := strings.Repeat("x", 129)
	for want, err := range map[string]error{
		"shard 256":            set(func(c *presence.SetCall) { c.Shard = 256 }),
		"node \"\"":            set(func(c *presence.SetCall) { c.Node = "" }),
		"users 0":              set(func(c *presence.SetCall) { c.Users = nil }),
		"users 101":            set(func(c *presence.SetCall) { c.Users = make([]presence.Part, 101) }),
		"user id \"\"":         set(func(c *presence.SetCall) { c.Users[0].UserID = "" }),
		"user id \"xxx":        set(func(c *presence.SetCall) { c.Users[0].UserID = long }),
		"user id \"a b\"":      set(func(c *presence.SetCall) { c.Users[0].UserID = "a b" }),
		"user id \"é\"":        set(func(c *presence.SetCall) { c.Users[0].UserID = "é" }),
		"mode 3":               set(func(c *presence.SetCall) { c.Users[0].Mode = 3 }),
		"cause 0":              set(func(c *presence.SetCall) { c.Users[0].Cause = 0 }),
		"sweep":                set(func(c *presence.SetCall) { c.Sweep = true }),
		"repeated":             set(func(c *presence.SetCall) { c.Users = append(c.Users, c.Users[0]) }),
		"epoch \"a b\"":        set(func(c *presence.SetCall) { c.Epoch = "a b" }),
		"epoch \"c d\"":        login(func(c *presence.LoginCall) { c.Epoch = "c d" }),
		"order -1":             login(func(c *presence.LoginCall) { c.Order = -1 }),
		"order 900719925":      login(func(c *presence.LoginCall) { c.Order = 1 << 53 }),
		"slot":                 login(func(c *presence.LoginCall) { c.Slot = "" }),
		"connection":           login(func(c *presence.LoginCall) { c.Connection = "a\n" }),
		"device":               login(func(c *presence.LoginCall) { c.Device = long }),
		"platform 0":           login(func(c *presence.LoginCall) { c.Platform = 0 }),
		"generation -1":        login(func(c *presence.LoginCall) { c.Generation = -1 }),
		"generation 900719925": login(func(c *presence.LoginCall) { c.Generation = 1 << 53 }),
		"limit 0":              page(0, "", 0),
		"limit 1001":           page(0, "", 1001),
		"shard -1":             page(-1, "", 1),
		"id \"a  b\"":          page(0, "a  b", 1),
		"lease TTL":            beat(presence.Beat{Node: "n"}),
		"peers 1001":           beat(presence.Beat{Node: "n", TTL: lease, Heard: make([]presence.Heard, 1001)}),
		"node \"p q\"":         beat(presence.Beat{Node: "n", TTL: lease, Heard: []presence.Heard{{Node: "p q"}}}),
		"epoch \"\"":           open("", ""),
		"must not be the old":  open("e", "e"),
		"position -1":          since(presence.SinceCall{Epoch: "e", Seq: -1, Limit: 1}),
		"limit 0 must be at":   since(presence.SinceCall{Epoch: "e"}),
		"node \"f f\"":         b.Fence(ctx, 0, "f f"),
		"node \"r r\"":         b.Restored(ctx, 0, "e", "r r"),
		"epoch \"s s\"":        b.Settle(ctx, 0, "s s"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "dial") || len(err.Error()) > 300 {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
