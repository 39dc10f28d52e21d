package channel

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// maxKnown bounds the channels, and separately the memberships, that an Access caches. When it is
	// reached, a quarter is dropped. A dropped one costs a read of the store.
	maxKnown = 65_536
	// maxKeys is the maximum number of channels in one call of a Store.
	maxKeys = 500
	// ensureTimeout bounds the creation of a row, which concurrent callers share. The creation must
	// not end with the context of the first of them.
	ensureTimeout = 5 * time.Second
)

// AccessConfig configures an Access. Zero values mean the defaults, except that Store is required.
type AccessConfig struct {
	Store Store
	// MaxAge is how long a membership is cached. The absence of a membership is never cached. The
	// default is 500 ms.
	MaxAge time.Duration
	// Now is the clock. The default is time.Now.
	Now func() time.Time
	// RequireChannel makes every use of a channel without a row fail with CHANNEL_NOT_FOUND; no send
	// creates one. A members-only channel then fails in the same way for users who are not members, so
	// that they do not learn that it exists.
	RequireChannel bool
}

// Access checks what the capabilities of a token leave open. Nobody may use a deleted channel. By
// ident.Principal.Channels a members-only channel may be used only by its members and by holders of
// the action Manage, and an open one by everyone. By ident.Principal.Members a channel may be used
// only by its members, open or not, and for some actions only in some roles. A follower is not a
// member. Access implements message.Access. It is safe for concurrent use.
//
// The channel of a session is always treated as AccessConfig.RequireChannel says.
//
// Access caches whether a channel is members-only, with the access revision of its row, until
// Forget or until a caller requires a later revision. A membership that was read at an earlier
// revision is read again. Access does not cache that a channel does not exist or was deleted,
// because any node may create it.
type Access struct {
	cfg    AccessConfig
	flight singleflight.Group

	// mu guards the fields below. It is not held during calls of the store.
	mu sync.Mutex
	// modes holds the modes of channels whose rows were read.
	modes map[string]mode
	// members holds the memberships that were read last, without those of followers.
	members map[membership]knownMember
	// forgets counts calls of Forget. The result of a read is not cached if Forget was called
	// after the read began. modeForgets counts those that concern all users of a channel.
	forgets, modeForgets uint64
}

// mode is the mode of a channel at an access revision.
type mode struct {
	kind message.Mode
	rev  int64
}

func modeOf(row *Row) mode { return mode{row.Mode(), row.Rev} }

type membership struct {
	channelID, userID string
}

// knownMember is a member's role, the start time of the read that returned it, and the access
// revision of the channel that was known then.
type knownMember struct {
	role Role
	read time.Time
	rev  int64
}

var _ message.Access = (*Access)(nil)

// NewAccess returns an Access with an empty cache.
func NewAccess(cfg AccessConfig) *Access {
	if cfg.MaxAge == 0 {
		cfg.MaxAge = 500 * time.Millisecond
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Access{cfg: cfg, modes: make(map[string]mode), members: make(map[membership]knownMember)}
}

// right is how a token allows an action on a channel.
type right uint8

const (
	byChannel    right = iota // the channel must be open, or the subject a member
	byMembership              // the subject must be a member
	exempt                    // no membership is required
)

// rightOf returns how p may do the action, which the transport has found to be allowed.
func rightOf(p *ident.Principal, action ident.Action, channelID string) right {
	switch {
	case !p.Can(action, channelID) && p.CanAsMember(action, channelID):
		return byMembership
	case p.Can(ident.Manage, channelID):
		return exempt
	default:
		return byChannel
	}
}

// ForSend implements message.Access. It first creates an open row for a channel without one, so
// that nobody can create a members-only channel under the id of one that has messages. If two nodes
// create a row at once, the store lets one win, and both use the winner's row. A right by
// membership creates no row.
func (a *Access) ForSend(ctx context.Context, p *ident.Principal, channelID string, atLeast int64) (int64, error) {
	how := rightOf(p, ident.Send, channelID)
	if how == byMembership || a.requires(channelID) {
		return a.check(ctx, p.Subject, how, channelID, atLeast)
	}
	m, err := a.ensure(ctx, channelID)
	if err == nil && (m.rev < atLeast || m.kind == message.ModeDeleted) {
		// Store.Ensure may not know yet that a deleted channel was created again.
		m, _, err = a.modeAt(ctx, channelID, max(atLeast, m.rev))
	}
	switch {
	case err != nil:
		return 0, err
	case m.kind == message.ModeOpen || m.kind == message.ModeMembersOnly && how == exempt:
		return m.rev, nil
	default:
		return m.rev, a.judge(ctx, p.Subject, []Need{how.need(channelID)}, map[string]mode{channelID: m})
	}
}

// requires reports whether the channel cannot be used without a row.
func (a *Access) requires(channelID string) bool {
	return a.cfg.RequireChannel || ident.IsSession(channelID)
}

// ForRead implements message.Access. It creates no row.
func (a *Access) ForRead(ctx context.Context, p *ident.Principal, action ident.Action, channelID string, atLeast int64) (int64, error) {
	return a.check(ctx, p.Subject, rightOf(p, action, channelID), channelID, atLeast)
}

// ForRecall implements message.Access.
func (a *Access) ForRecall(ctx context.Context, p *ident.Principal, channelID string, atLeast int64,
) (anySender bool, rev int64, err error) {
	action := ident.Send
	if !p.Covers(ident.Send, channelID) {
		action = ident.Moderate
	}
	if rev, err = a.ForRead(ctx, p, action, channelID, atLeast); err != nil {
		return false, 0, err
	}
	if ident.IsSession(channelID) {
		return true, rev, nil // its only member is its owner
	}
	if !p.Covers(ident.Moderate, channelID) || p.Can(ident.Moderate, channelID) {
		return p.Can(ident.Moderate, channelID), rev, nil
	}
	role, err := a.roleOf(ctx, p.Subject, channelID, rev)
	return role >= Moderator, rev, err
}

// check checks whether the user may use the channel by this right, at the access revision atLeast
// or a later one, which it returns.
func (a *Access) check(ctx context.Context, userID string, how right, channelID string, atLeast int64) (rev int64, err error) {
	m, exists, err := a.modeAt(ctx, channelID, atLeast)
	if err != nil {
		return 0, err
	}
	modes := make(map[string]mode, 1)
	if exists {
		modes[channelID] = m
	}
	return m.rev, a.judge(ctx, userID, []Need{how.need(channelID)}, modes)
}

// roleOf returns the role of a user in a channel, read at an access revision or later; Follower at
// most if the user is not a member.
func (a *Access) roleOf(ctx context.Context, userID, channelID string, rev int64) (Role, error) {
	began := a.cfg.Now()
	a.mu.Lock()
	known, ok := a.known(membership{channelID, userID}, began, rev)
	a.mu.Unlock()
	if ok {
		return known.role, nil
	}
	members, err := a.readMembersOf(ctx, userID, []string{channelID})
	return members[channelID].Role, err
}

// checkRole returns nil if the user has at least this role in the channel. A user who is not a
// member gets NOT_MEMBER, and any other CAPABILITY_MISSING.
func (a *Access) checkRole(ctx context.Context, p *ident.Principal, least Role, channelID string) error {
	role, err := a.roleOf(ctx, p.Subject, channelID, 0)
	switch {
	case err != nil:
		return err
	case role < RoleMember:
		return fault.NotMemberOf(channelID)
	case role < least:
		return lowRole()
	default:
		return nil
	}
}

// ForSubscribe returns a fault that names the channels to which p may not subscribe although the
// token allows it, each once, in the order given. The fault is NOT_MEMBER. Deleted channels that
// the token allows by ident.Principal.Channels, and with AccessConfig.RequireChannel all that it
// allows in that way, are CHANNEL_NOT_FOUND instead: only if no channel is NOT_MEMBER. If this
// cannot be determined, the error is that of message.Unavailable.
func (a *Access) ForSubscribe(ctx context.Context, p *ident.Principal, channelIDs []string) error {
	needs := make([]Need, len(channelIDs))
	for i, id := range channelIDs {
		needs[i] = rightOf(p, ident.Subscribe, id).need(id)
	}
	return a.Check(ctx, p.Subject, needs)
}

// Need is a channel that a user is about to use.
type Need struct {
	ChannelID string
	// Member means that the user must be a member even if the channel is open. Exempt means that the
	// user need not be one. At most one of them is set.
	Member, Exempt bool
}

// need returns what a channel demands of a user with this right.
func (r right) need(channelID string) Need {
	return Need{ChannelID: channelID, Member: r == byMembership, Exempt: r == exempt}
}

// Check returns the fault of ForSubscribe for the channels that the user may not use.
func (a *Access) Check(ctx context.Context, userID string, needs []Need) error {
	var ask []string
	for _, n := range needs {
		if !n.Member {
			ask = append(ask, n.ChannelID)
		}
	}
	modes, err := a.modesOf(ctx, ask)
	if err != nil {
		return err
	}
	return a.judge(ctx, userID, needs, modes)
}

// judge is Check with the modes of the channels that have a row. Those of needs with Member are not
// required.
func (a *Access) judge(ctx context.Context, userID string, needs []Need, modes map[string]mode) error {
	membersOnly := func(n Need) bool {
		return n.Member || !n.Exempt && modes[n.ChannelID].kind == message.ModeMembersOnly
	}
	var ask []string
	for _, n := range needs {
		if membersOnly(n) {
			ask = append(ask, n.ChannelID)
		}
	}
	strange, err := a.notMemberOf(ctx, userID, ask, modes)
	if err != nil {
		return err
	}
	var notMember, missing []string
	for _, n := range needs {
		m, exists := modes[n.ChannelID]
		stranger := membersOnly(n) && slices.Contains(strange, n.ChannelID)
		deleted := m.kind == message.ModeDeleted
		switch {
		case n.Member && (stranger || deleted), stranger && !a.requires(n.ChannelID):
			notMember = appendNew(notMember, n.ChannelID)
		case stranger || deleted, !n.Member && !exists && a.requires(n.ChannelID):
			missing = appendNew(missing, n.ChannelID)
		}
	}
	switch {
	case len(notMember) > 0:
		return fault.NotMemberOf(notMember...)
	case len(missing) > 0:
		return missingChannels(missing...)
	default:
		return nil
	}
}

// appendNew appends an id that ids does not contain.
func appendNew(ids []string, id string) []string {
	if slices.Contains(ids, id) {
		return ids
	}
	return append(ids, id)
}

// Forget drops the cached memberships that the change may have ended and, if it names no users, the
// cached mode of the channel. The results of reads that began before this call are not cached.
func (a *Access) Forget(change Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgets++
	if len(change.UserIDs) == 0 {
		a.modeForgets++
		delete(a.modes, change.ChannelID)
	}
	for _, u := range change.UserIDs {
		delete(a.members, membership{change.ChannelID, u})
	}
	if len(change.UserIDs) > 0 {
		return
	}
	for k := range a.members {
		if k.channelID == change.ChannelID {
			delete(a.members, k)
		}
	}
}

// Readers returns which of the users, at most 500, may read the channel without the capability
// manage, and the access revision at which it checked them, which is at least atLeast. With
// byMembership only members may; otherwise everyone may read an open channel, and one that does not
// exist. The error is CHANNEL_NOT_FOUND if the channel was deleted, or is a session that does not
// exist.
func (a *Access) Readers(ctx context.Context, channelID string, userIDs []string, byMembership bool, atLeast int64,
) (readers map[string]bool, rev int64, err error) {
	m, exists, err := a.modeAt(ctx, channelID, atLeast)
	if err == nil && (m.kind == message.ModeDeleted || !exists && ident.IsSession(channelID)) {
		err = missingChannels(channelID)
	}
	if err != nil {
		return nil, 0, err
	}
	readers = make(map[string]bool, len(userIDs))
	began := a.cfg.Now()
	var ask []string
	a.mu.Lock()
	forgotten := a.forgets
	for _, id := range userIDs {
		readers[id] = !byMembership && m.kind == message.ModeOpen
		if !readers[id] {
			if _, readers[id] = a.known(membership{channelID, id}, began, m.rev); !readers[id] {
				ask = append(ask, id)
			}
		}
	}
	a.mu.Unlock()
	if len(ask) == 0 {
		return readers, m.rev, nil
	}
	members, err := a.cfg.Store.MembersIn(ctx, channelID, ask)
	if err != nil {
		return nil, 0, message.Unavailable(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, member := range members {
		readers[id] = member.IsMember()
		if readers[id] && a.forgets == forgotten {
			putBounded(a.members, membership{channelID, id}, knownMember{member.Role, began, m.rev})
		}
	}
	return readers, m.rev, nil
}
