package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

type presenceCommand struct {
	Connect presenceConnectCommand `cmd:"" help:"Be online until interrupted, and follow users and channels. Requires the action connect of presence, and watch if it follows any."`
	Watch   presenceWatchCommand   `cmd:"" help:"Follow users and channels without being online. Requires the action watch of presence."`
	Get     presenceGetCommand     `cmd:"" help:"Show on which platforms users are online. Requires the action watch of presence."`
	Online  presenceOnlineCommand  `cmd:"" help:"List the users that are online. Requires the action list of presence."`
}

// followFlags are the flags of the commands that follow presence.
type followFlags struct {
	Channel []string `help:"Also follow which members of a members-only channel are online; may be repeated, up to 20." sep:"none" placeholder:"CHANNEL"`
	Count   int      `help:"Exit after this number of changes." placeholder:"N"`
}

type presenceConnectCommand struct {
	followFlags

	User       []string `help:"Also follow a user; may be repeated, up to 1,000." sep:"none" placeholder:"USER"`
	Platform   string   `help:"The platform: ios, android, ipados, android_tablet, windows, macos, linux, web or other. Default: that of this program." placeholder:"PLATFORM"`
	Device     string   `help:"Identifies the device: 1 to 64 of A-Z a-z 0-9 _ -" default:"parley-cli" placeholder:"ID"`
	Background bool     `help:"Be in the background."`
	LoginToken string   `help:"Continue the login whose token an earlier run wrote with --json. Default: a new login, which can end others." placeholder:"TOKEN"`
}

// Run is online until it is interrupted, which is not an error, or has written --count changes. The
// user is then offline at once.
func (c *presenceConnectCommand) Run(s *session) error {
	platform, err := parsePlatform(c.Platform)
	if err != nil {
		return err
	}
	if c.Device == "" {
		return usagef("--device must not be empty")
	}
	opts := []parley.PresenceOption{parley.WatchUsers(c.User...), parley.WithLoginToken(c.LoginToken)}
	if c.Background {
		opts = append(opts, parley.InBackground())
	}
	return c.follow(s, "connect", "online", parley.Device{Platform: platform, ID: c.Device}, opts)
}

type presenceWatchCommand struct {
	followFlags

	Users []string `arg:"" optional:"" help:"Users to follow, up to 1,000."`
}

// Run follows users and channels until it is interrupted, which is not an error, or has written
// --count changes.
func (c *presenceWatchCommand) Run(s *session) error {
	if len(c.Users)+len(c.Channel) == 0 {
		return usagef("name users or --channel")
	}
	opts := []parley.PresenceOption{parley.WatchUsers(c.Users...), parley.Invisible()}
	return c.follow(s, "watch", "following "+strings.Join(append(slices.Clone(c.Users), c.Channel...), ", "), parley.Device{}, opts)
}

// follow writes the changes of a presence until the user interrupts. what names the command in
// errors, live describes what it does while the stream is live.
func (c *followFlags) follow(s *session, what, live string, device parley.Device, opts []parley.PresenceOption) error {
	if c.Count < 0 {
		return usagef("--count must not be negative")
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	report := &connectionReport{w: s.stderr, live: live}
	login := &loginReport{out: s.printer(), json: s.flags.JSON, live: make(chan struct{}, 1)}
	onState := func(state parley.StateChange) {
		report.changed(state)
		login.changed(state)
	}
	opts = append(opts, parley.OnState(onState), parley.WatchChannels(c.Channel...))
	p := client.Presence(s.ctx, device, opts...)
	defer login.follow(p)()
	written := 0
	for e, err := range p.Events() {
		if err != nil {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return explainKick(what, err)
		}
		if err := login.write(p, func() error { return s.printer().presence(e) }); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if e.Kind != parley.PresenceOfUser && e.Kind != parley.PresenceOfChannel {
			continue
		}
		if written++; written == c.Count {
			return nil
		}
	}
	return nil
}

// loginReport writes the login token of a presence in JSON, as soon as it is live. Safe for
// concurrent use.
type loginReport struct {
	out  printer
	json bool
	// live has an element after each stream that became live.
	live chan struct{}

	mu    sync.Mutex // guards token and what is written
	token string
}

// changed is called with each new state of the presence.
func (l *loginReport) changed(state parley.StateChange) {
	if state.State == parley.StateLive {
		select {
		case l.live <- struct{}{}:
		default:
		}
	}
}

// follow writes the login token whenever it has changed, until the returned function is called,
// which also closes the presence.
func (l *loginReport) follow(p *parley.Presence) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-l.live:
				// A broken output fails the next event, too.
				_ = l.write(p, func() error { return nil })
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-done
		p.Close()
	}
}

// write writes the login token if it has changed, and then calls write.
func (l *loginReport) write(p *parley.Presence, write func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := p.LoginToken(); l.json && now != l.token && now != "" {
		l.token = now
		if err := l.out.print(loginJSON{Event: "login", LoginToken: now}, ""); err != nil {
			return err
		}
	}
	return write()
}

// explainKick returns the error of a command, with the winner if another login replaced this one,
// or the operator's reason.
func explainKick(what string, err error) error {
	e, ok := errors.AsType[*parley.Error](err)
	if !ok || !errors.Is(err, parley.ErrKicked) {
		return explain(what, err)
	}
	if e.Kick.GetCause() == parley.KickAdmin {
		return fmt.Errorf("%s: %w (%s)", what, err, cmp.Or(e.Kick.GetReason(), "no reason"))
	}
	return fmt.Errorf("%s: %w (replaced by device %q on %s)", what, err, e.Kick.GetDeviceId(), platformName(e.Kick.GetPlatform()))
}

type presenceGetCommand struct {
	Users []string `arg:"" help:"The users."`
}

// Run shows the presence of users, in the order of the arguments.
func (c *presenceGetCommand) Run(s *session) error {
	return s.with(func(ctx context.Context, client *parley.Client) error {
		states, err := client.PresenceOf(ctx, c.Users...)
		if err != nil {
			return explain("get", err)
		}
		for _, u := range states {
			if err := s.printer().print(userToJSON("", u), userText(u)); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
		return nil
	})
}

type presenceOnlineCommand struct{}

// Run lists the users that are online.
func (*presenceOnlineCommand) Run(s *session) error {
	users := func(ctx context.Context, client *parley.Client) iter.Seq2[*parley.UserPresence, error] {
		return client.OnlineUsers(ctx)
	}
	return list(s, "online", users, func(p printer, u *parley.UserPresence) error {
		return p.print(userToJSON("", u), userText(u))
	})
}

// parsePlatform returns the platform with a name, or that of this program for an empty name.
func parsePlatform(name string) (parley.Platform, error) {
	switch {
	case name == "" && runtime.GOOS == "darwin":
		return parley.PlatformMacOS, nil
	case name == "" && runtime.GOOS == "windows":
		return parley.PlatformWindows, nil
	case name == "" && runtime.GOOS == "linux":
		return parley.PlatformLinux, nil
	case name == "":
		return parley.PlatformOther, nil
	}
	number, ok := parleyv1.Platform_value["PLATFORM_"+strings.ToUpper(name)]
	if !ok || number == 0 || name != strings.ToLower(name) {
		return 0, usagef("--platform %q: must be ios, android, ipados, android_tablet, windows, macos, linux, web or other", name)
	}
	return parley.Platform(number), nil
}

func platformName(p parley.Platform) string { return lowerName(p.String(), "PLATFORM_") }

// loginJSON is the JSON form of the login of a connection.
type loginJSON struct {
	Event      string `json:"event"`
	LoginToken string `json:"login_token"`
}

// platformJSON is the JSON form of a platform on which a user is online.
type platformJSON struct {
	Platform   string `json:"platform"`
	Background bool   `json:"background"`
}

// userPresenceJSON is the JSON form of a user's presence.
type userPresenceJSON struct {
	Event     string         `json:"event,omitempty"`
	UserID    string         `json:"user_id"`
	Online    bool           `json:"online"`
	Platforms []platformJSON `json:"platforms"`
}

func userToJSON(event string, u *parley.UserPresence) userPresenceJSON {
	value := userPresenceJSON{
		Event: event, UserID: u.GetUserId(), Online: len(u.GetPlatforms()) > 0, Platforms: []platformJSON{}, // a list, not null
	}
	for _, p := range u.GetPlatforms() {
		value.Platforms = append(value.Platforms, platformJSON{Platform: platformName(p.GetPlatform()), Background: p.GetBackground()})
	}
	return value
}

// userText returns a line such as `ann is online on ios, web (background)`.
func userText(u *parley.UserPresence) string {
	if len(u.GetPlatforms()) == 0 {
		return oneLine(u.GetUserId()) + " is offline"
	}
	names := make([]string, len(u.GetPlatforms()))
	for i, p := range u.GetPlatforms() {
		names[i] = platformName(p.GetPlatform())
		if p.GetBackground() {
			names[i] += " (background)"
		}
	}
	return fmt.Sprintf("%s is online on %s", oneLine(u.GetUserId()), strings.Join(names, ", "))
}

// channelPresenceJSON is the JSON form of a channel's presence.
type channelPresenceJSON struct {
	Event       string             `json:"event"`
	ChannelID   string             `json:"channel_id"`
	OnlineCount int32              `json:"online_count"`
	MemberCount int32              `json:"member_count"`
	Complete    bool               `json:"complete"`
	Online      []userPresenceJSON `json:"online"`
}

// channelLostJSON is the JSON form of a channel that is no longer followed.
type channelLostJSON struct {
	Event     string `json:"event"`
	ChannelID string `json:"channel_id"`
}

// userLostJSON is the JSON form of a user who is no longer followed.
type userLostJSON struct {
	Event  string `json:"event"`
	UserID string `json:"user_id"`
}

// laggingJSON is the JSON form of whether the states may be old.
type laggingJSON struct {
	Event   string `json:"event"`
	Lagging bool   `json:"lagging"`
}

// presence writes an event of a presence.
func (p printer) presence(e parley.PresenceEvent) error {
	at := time.Now().Local().Format(time.DateTime) + " "
	switch e.Kind {
	case parley.PresenceOfUser:
		return p.print(userToJSON(e.Kind.String(), e.User), at+userText(e.User))
	case parley.PresenceOfChannel:
		value := channelPresenceJSON{
			Event: e.Kind.String(), ChannelID: e.Channel.GetChannelId(), OnlineCount: e.Channel.GetOnlineCount(),
			MemberCount: e.Channel.GetMemberCount(), Complete: e.Channel.GetComplete(), Online: []userPresenceJSON{},
		}
		names := make([]string, len(e.Channel.GetOnline()))
		for i, u := range e.Channel.GetOnline() {
			value.Online, names[i] = append(value.Online, userToJSON("", u)), oneLine(u.GetUserId())
		}
		text := fmt.Sprintf("%s%s: %d of %d online", at, value.ChannelID, value.OnlineCount, value.MemberCount)
		if len(names) > 0 {
			text += ": " + strings.Join(names, ", ")
		}
		return p.print(value, text)
	case parley.PresenceChannelLost:
		id := e.Channel.GetChannelId()
		return p.notice(channelLostJSON{Event: e.Kind.String(), ChannelID: id}, fmt.Sprintf("-- %s: lost (not member)", id))
	case parley.PresenceUserLost:
		id := e.User.GetUserId()
		return p.notice(userLostJSON{Event: e.Kind.String(), UserID: id}, fmt.Sprintf("-- %s: lost (no shared channel)", oneLine(id)))
	case parley.PresenceLagging:
		text := "-- the states are current again"
		if e.Lagging {
			text = "-- the states may be old"
		}
		return p.notice(laggingJSON{Event: e.Kind.String(), Lagging: e.Lagging}, text)
	default:
		return nil
	}
}
