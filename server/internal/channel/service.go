package channel

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/pagetoken"
)

// Log is the part of channels' logs that Service uses. *message.Reader implements it. Its errors
// are faults if clients may see them.
type Log interface {
	// State returns the state of a log. It includes every entry that was acknowledged before the call.
	State(ctx context.Context, channelID string) (message.State, error)
	// CountAt returns the number of messages in the log up to and including the entry at seq, which
	// must exist.
	CountAt(ctx context.Context, channelID string, seq int64) (int64, error)
	// MessagesAt returns the messages at the given places in their current state, at most 500. Places
	// without a message are absent.
	MessagesAt(ctx context.Context, places []message.Place) (map[message.Place]message.Message, error)
}

// TypingPublisher announces to a channel's live subscribers on every node that a user is typing.
// Delivery is at most once.
type TypingPublisher interface {
	PublishTyping(channelID, userID string) error
}

// ServiceConfig configures a Service. Store, Access, Log, Appender, TypingPublisher and Secret are
// required.
type ServiceConfig struct {
	Store  Store
	Access *Access
	Log    Log
	// Appender appends the entries that mark a change of the access revision.
	Appender        message.Appender
	TypingPublisher TypingPublisher
	// Notify announces a change to every node, best effort. It must return promptly. Nil means no
	// announcements; watchers then notice changes only by polling.
	Notify func(Change)
	// Joined announces to every node that a members-only channel may have more members, best effort.
	// It must return promptly. Nil means no announcements.
	Joined func(channelID string)
	// Secret signs page tokens. It is message.Identity.Secret, the same on every node.
	Secret []byte
	// MaxPageBytes limits the last messages of a page of UserChannels: the page ends before the
	// channel whose last message would exceed it. A page has at least one channel. The default is 1
	// MiB.
	MaxPageBytes int
	// Now is the clock. The default is time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// Service implements the use cases of channels, members and cursors. It is safe for concurrent use.
//
// The caller's ident.Principal is in the context; a call without one is refused. The transport has
// validated the fields, and has checked that the token has the required capability for the channel,
// unless a method documents alternatives. Service checks the rest, such as memberships.
//
// After a fault with OUTCOME_UNKNOWN, or a deadline, a change may have been made. All calls may be
// repeated, but a repeat of Create without an idempotency key can fail with CHANNEL_EXISTS.
type Service struct {
	cfg    ServiceConfig
	tokens pagetoken.Sealer
	typing throttle
}

// NewService returns a service. It starts no goroutines.
func NewService(cfg ServiceConfig) *Service {
	if cfg.Notify == nil {
		cfg.Notify = func(Change) {}
	}
	if cfg.Joined == nil {
		cfg.Joined = func(string) {}
	}
	if cfg.MaxPageBytes == 0 {
		cfg.MaxPageBytes = 1 << 20
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Service{cfg: cfg, tokens: pagetoken.New(cfg.Secret), typing: throttle{every: time.Second}}
}

// CreateRequest describes a channel to create.
type CreateRequest struct {
	ChannelID   string
	MembersOnly bool
	// UserIDs are the members besides the caller, at most 500. Duplicates are ignored.
	UserIDs []string
	// Retention is the channel's own policy; nil means the server's default.
	Retention *Retention
	// IdempotencyKey, together with the caller, makes the call idempotent. If it is empty, the call
	// is not.
	IdempotencyKey string
}

// Create creates a channel with its members, including the caller as its owner, and returns its
// row. Requires `create`.
//
// If the channel exists, Create changes nothing. A repeat of the call that created it, by the same
// caller with the same key, returns the channel in its current state and duplicate; if the settings
// differ, it fails with IDEMPOTENCY_KEY_REUSED. Any other call fails with CHANNEL_EXISTS. A repeat
// adds no members: users who were removed meanwhile stay removed.
//
// A deleted channel is created anew, and its log continues after the entries of the deleted one.
// Create fails with CHANNEL_DELETING while the channel is being deleted, and with CHANNEL_NOT_FOUND
// if it is a repeat of the call that created the deleted channel.
func (s *Service) Create(ctx context.Context, r CreateRequest) (row Row, duplicate bool, err error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return Row{}, false, err
	}
	members := unique(append([]string{p.Subject}, r.UserIDs...))
	wanted := Row{
		ChannelID: r.ChannelID, MembersOnly: r.MembersOnly, CreatedBy: p.Subject, CreatedAt: now(s.cfg.Now), Retention: r.Retention,
	}
	if r.MembersOnly {
		// Subscribers of an id without a channel count as checked at revision 0. So they are checked
		// again before the first entry.
		wanted.Rev = 1
	}
	if r.IdempotencyKey != "" {
		wanted.CreateKey, wanted.CreateDigest = r.IdempotencyKey, createDigest(&r, members)
	}
	row, err = s.cfg.Store.Create(ctx, wanted, members)
	switch {
	case errors.Is(err, ErrExists) && row.State == Deleting:
		return Row{}, false, beingDeleted()
	case errors.Is(err, ErrExists) && row.State == Deleted:
		return Row{}, false, notFound()
	case errors.Is(err, ErrExists):
		if err := checkRepeat(&wanted, &row); err != nil {
			return Row{}, false, err
		}
		s.announceCreation(&row) // the first attempt may have ended before it announced the channel
		return row, true, nil
	case err != nil:
		return Row{}, false, outcomeUnknown(err)
	}
	s.announceCreation(&row)
	return row, false, nil
}

// announceCreation caches the row of a new channel. It announces one that is members-only, or was
// created anew, to all nodes.
func (s *Service) announceCreation(row *Row) {
	if row.MembersOnly || row.SettingsRev > 0 {
		// Users who are not members may have opened streams before the channel existed, because an id
		// without a channel counts as an open channel.
		s.announceChange(Change{ChannelID: row.ChannelID})
	}
	s.cfg.Access.cacheRow(*row, s.cfg.Access.modesForgotten())
}

// checkRepeat returns nil if wanted is from a repeat of the Create call that created existing.
// Otherwise it returns CHANNEL_EXISTS or IDEMPOTENCY_KEY_REUSED.
func checkRepeat(wanted, existing *Row) error {
	if wanted.CreateKey == "" || existing.CreateKey != wanted.CreateKey || existing.CreatedBy != wanted.CreatedBy {
		e := fault.New(fault.AlreadyExists, fault.ChannelExists, "channel_id: a channel with this id already exists")
		e.Field = "channel_id"
		return e
	}
	if existing.CreateDigest != wanted.CreateDigest {
		e := fault.New(fault.AlreadyExists, fault.IdempotencyKeyReused, "idempotency_key: already used with different settings")
		e.Field = "idempotency_key"
		return e
	}
	return nil
}

// createDigest returns a hash of a Create call's settings: whether the channel is members-only, its
// members, which must be sorted and without duplicates, and its retention.
func createDigest(r *CreateRequest, members []string) string {
	text := strconv.FormatBool(r.MembersOnly) + " " + strings.Join(members, " ") // ids contain no spaces
	if r.Retention != nil {
		text += fmt.Sprintf("\n%d %d %d", r.Retention.MaxAge, r.Retention.MaxMessages, r.Retention.MaxBytes)
	}
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// announceChange applies a change to this node's cache and announces it to all nodes.
func (s *Service) announceChange(c Change) {
	s.cfg.Access.Forget(c)
	s.cfg.Notify(c)
}

// AddMembers adds users to a channel. Followers become members; members keep their role. Requires
// `manage`, and by membership the role Moderator. Holders of `subscribe` may add themselves, and
// nobody else, to an open channel, but not by membership.
func (s *Service) AddMembers(ctx context.Context, channelID string, userIDs []string) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	userIDs = unique(userIDs)
	switch {
	case p.Can(ident.Manage, channelID):
	case p.Can(ident.Subscribe, channelID) && isOnly(p.Subject, userIDs):
		// Write only if the channel exists and is open.
		row, err := s.existing(ctx, channelID)
		if err != nil {
			return err
		}
		if row.MembersOnly {
			_, err := s.cfg.Access.ForRead(ctx, p, ident.Subscribe, channelID, row.Rev)
			return err // nil for a member
		}
	case p.CanAsMember(ident.Manage, channelID):
		if err := s.cfg.Access.checkRole(ctx, p, Moderator, channelID); err != nil {
			return err
		}
	default:
		return missingManage()
	}
	switch err := s.cfg.Store.AddMembers(ctx, channelID, userIDs, now(s.cfg.Now)); {
	case errors.Is(err, ErrNotFound):
		return notFound()
	case err != nil:
		return outcomeUnknown(err)
	}
	if !s.cfg.Access.KnownOpen(channelID) {
		s.cfg.Joined(channelID)
	}
	return nil
}

// UpdateMember sets the role of a user, which is not Follower. A user who is not a member becomes
// one. Requires `manage`, and by membership the role Owner.
func (s *Service) UpdateMember(ctx context.Context, channelID, userID string, role Role) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	if !p.Can(ident.Manage, channelID) {
		if err := s.cfg.Access.checkRole(ctx, p, Owner, channelID); err != nil {
			return err
		}
	}
	switch err := s.cfg.Store.SetRole(ctx, channelID, userID, role, now(s.cfg.Now)); {
	case errors.Is(err, ErrNotFound):
		return notFound()
	case err != nil:
		return outcomeUnknown(err)
	}
	s.announceChange(Change{ChannelID: channelID, UserIDs: []string{userID}}) // so that no node keeps the old role
	if !s.cfg.Access.KnownOpen(channelID) {
		s.cfg.Joined(channelID)
	}
	return nil
}

// RemoveMembers removes members and followers from a channel; other users are ignored. Requires
// `manage`, and by membership the role Owner, or Moderator if none of the users has a role above
// RoleMember when the call begins. Users may remove themselves; without `manage` they get no error
// if the channel does not exist. A Watcher ends the live streams that required the membership.
func (s *Service) RemoveMembers(ctx context.Context, channelID string, userIDs []string) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	userIDs = unique(userIDs)
	manages := p.Can(ident.Manage, channelID)
	switch {
	case manages, isOnly(p.Subject, userIDs):
	case p.CanAsMember(ident.Manage, channelID):
		if err := s.checkRemove(ctx, p, channelID, userIDs); err != nil {
			return err
		}
	default:
		return missingManage()
	}
	// Messages up to the log's current end that the change feed has not processed yet must not make
	// the users members again.
	state, err := s.cfg.Log.State(ctx, channelID)
	if err != nil {
		return err
	}
	switch err := s.cfg.Store.RemoveMembers(ctx, channelID, userIDs, state.Head); {
	case errors.Is(err, ErrNotFound):
		if manages {
			return notFound()
		}
		return nil
	case err != nil:
		return outcomeUnknown(err)
	}
	s.announceChange(Change{ChannelID: channelID, UserIDs: userIDs})
	return nil
}

// checkRemove returns nil if p may remove the users by the role of a member.
func (s *Service) checkRemove(ctx context.Context, p *ident.Principal, channelID string, userIDs []string) error {
	if err := s.cfg.Access.checkRole(ctx, p, Moderator, channelID); err != nil {
		return err
	}
	role, err := s.cfg.Access.roleOf(ctx, p.Subject, channelID, 0)
	if err != nil || role >= Owner {
		return err
	}
	members, err := s.cfg.Store.MembersIn(ctx, channelID, userIDs)
	if err != nil {
		return message.Unavailable(err)
	}
	for _, m := range members {
		if m.Role > RoleMember {
			return lowRole()
		}
	}
	return nil
}

// MarkRead moves the caller's cursor forward to seq; a seq behind the cursor changes nothing. It
// returns the resulting cursor and the number of messages after it. In an open channel a caller who
// is not a member becomes a follower. Requires `history`. A seq above the head of the log fails
// with POSITION_OUT_OF_RANGE.
func (s *Service) MarkRead(ctx context.Context, channelID string, seq int64) (c Cursor, unread int64, err error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return Cursor{}, 0, err
	}
	if _, err := s.cfg.Access.ForRead(ctx, p, ident.History, channelID, 0); err != nil {
		return Cursor{}, 0, err
	}
	state, err := s.cfg.Log.State(ctx, channelID)
	if err != nil {
		return Cursor{}, 0, err
	}
	if seq > state.Head {
		e := fault.New(fault.OutOfRange, fault.PositionOutOfRange, "seq: beyond the end of the log at seq %d", state.Head)
		e.Field, e.Limit = "seq", state.Head
		return Cursor{}, 0, e
	}
	// The entries before the oldest one have expired, so a cursor among them is as far as the last of
	// them.
	to := Cursor{Seq: max(seq, state.Oldest-1), Count: state.Count}
	switch {
	case to.Seq < state.Oldest:
		to.Count = state.Expired
	case to.Seq < state.Head:
		if to.Count, err = s.cfg.Log.CountAt(ctx, channelID, to.Seq); err != nil {
			return Cursor{}, 0, err
		}
	}
	c, ok, err := s.cfg.Store.MarkRead(ctx, channelID, p.Subject, to, rightOf(p, ident.History, channelID) != byMembership, now(s.cfg.Now))
	if err != nil {
		return Cursor{}, 0, outcomeUnknown(err)
	}
	if !ok { // the channel is members-only; the caller only manages it, or was removed meanwhile
		return Cursor{}, 0, fault.NotMemberOf(channelID)
	}
	return c, max(0, state.Count-max(c.Count, state.Expired)), nil
}

// Typing announces to a channel's live subscribers that the caller is typing. The announcement is
// not stored and may be lost. This node announces at most one per second for a user and a channel;
// others are ignored without an error. Requires `send`.
func (s *Service) Typing(ctx context.Context, channelID string) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	if _, err := s.cfg.Access.ForRead(ctx, p, ident.Send, channelID, 0); err != nil {
		return err
	}
	if !s.typing.take(membership{channelID, p.Subject}, s.cfg.Now()) {
		return nil
	}
	if err := s.cfg.TypingPublisher.PublishTyping(channelID, p.Subject); err != nil {
		s.cfg.Logger.DebugContext(ctx, "publishing typing failed", "channel_id", channelID, "error", err)
	}
	return nil
}

// unique returns the user ids sorted and without duplicates.
func unique(userIDs []string) []string {
	ids := slices.Clone(userIDs)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// isOnly reports whether userID is the only element of userIDs.
func isOnly(userID string, userIDs []string) bool {
	return len(userIDs) == 1 && userIDs[0] == userID
}
