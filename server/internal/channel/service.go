package channel

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
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

// Log is what is asked of channels' logs; message.Reader is one. Its errors are faults where a client may be told of
// them.
type Log interface {
	// State tells where a log stands: no older than what was acknowledged when the call began.
	State(ctx context.Context, channelID string) (message.State, error)
	// CountAt gives how many messages the log holds up to and with the entry at seq, which is there.
	CountAt(ctx context.Context, channelID string, seq int64) (int64, error)
	// MessageAt gives the message at seq as it is now; ok is false if there is none.
	MessageAt(ctx context.Context, channelID string, seq int64) (m message.Message, ok bool, err error)
}

// Typer tells a channel's live subscribers, on every node, that somebody is typing; at most once.
type Typer interface {
	PublishTyping(channelID, userID string) error
}

// ServiceConfig sets up a Service. Store, Access, Log, Typer and Secret must be set.
type ServiceConfig struct {
	Store  Store
	Access *Access
	Log    Log
	Typer  Typer
	// Notify tells every node of a change, best effort; it returns promptly. May be nil.
	Notify func(Change)
	// Secret signs page tokens, on every node the same: message.Identity's.
	Secret []byte
	// MaxPageBytes ends a page of Mine with the channel whose last message takes the content past it: 1 MiB.
	MaxPageBytes int
	// Now is the clock; time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// Service is the channel use-cases: who may do what with channels, members and cursors. Safe for concurrent use. The
// caller's ident.Principal travels in the context; without one every call is refused. The transport has checked the
// fields' own rules, and that the token has the call's capability for the channel; what depends on more than that is
// judged here. After a fault with OUTCOME_UNKNOWN, or a deadline, a change may have been made. All calls may be
// repeated; a repeat of Create without an idempotency key can be CHANNEL_EXISTS.
type Service struct {
	cfg    ServiceConfig
	tokens pagetoken.Sealer
	typing throttle
}

// NewService makes a service.
func NewService(cfg ServiceConfig) *Service {
	if cfg.Notify == nil {
		cfg.Notify = func(Change) {}
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

// CreateRequest asks for a channel to be created.
type CreateRequest struct {
	ChannelID   string
	MembersOnly bool
	// UserIDs are members besides the caller, at most 500. One may be named twice.
	UserIDs []string
	// IdempotencyKey makes the call idempotent, together with the caller; empty for a call that is not.
	IdempotencyKey string
}

// Create creates a channel with its members, the caller among them, and returns its row. Requires `manage`. It changes
// nothing if the channel exists: a repeat of the call that created it, by the same caller with the same key, returns the
// channel as it is now and duplicate; with other settings it is IDEMPOTENCY_KEY_REUSED. Every other call is
// CHANNEL_EXISTS. A repeat adds no members: users that were removed meanwhile stay removed.
func (s *Service) Create(ctx context.Context, r CreateRequest) (row Row, duplicate bool, err error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return Row{}, false, err
	}
	members := unique(append([]string{p.Subject}, r.UserIDs...))
	wanted := Row{ChannelID: r.ChannelID, MembersOnly: r.MembersOnly, CreatedBy: p.Subject, CreatedAt: now(s.cfg.Now)}
	if r.IdempotencyKey != "" {
		wanted.CreateKey, wanted.CreateDigest = r.IdempotencyKey, createDigest(r.MembersOnly, members)
	}
	row, err = s.cfg.Store.Create(ctx, wanted, members)
	switch {
	case errors.Is(err, ErrExists):
		if err := repeats(&wanted, &row); err != nil {
			return Row{}, false, err
		}
		s.created(&row) // the first attempt may have ended before it told anybody
		return row, true, nil
	case err != nil:
		return Row{}, false, unknown(err)
	}
	s.created(&row)
	return row, false, nil
}

// created tells the nodes of a new channel.
func (s *Service) created(row *Row) {
	s.cfg.Access.saw(*row)
	if row.MembersOnly {
		// Streams may have been opened while there was no such channel, which is as good as an open one.
		s.changed(Change{ChannelID: row.ChannelID})
	}
}

// repeats returns nil if the call that wants a channel repeats the one that created it, and else what it is refused with.
func repeats(wanted, existing *Row) error {
	if wanted.CreateKey == "" || existing.CreateKey != wanted.CreateKey || existing.CreatedBy != wanted.CreatedBy {
		e := fault.New(fault.AlreadyExists, fault.ChannelExists, "there is a channel of this id already")
		e.Field = "channel_id"
		return e
	}
	if existing.CreateDigest != wanted.CreateDigest {
		e := fault.New(fault.AlreadyExists, fault.IdempotencyKeyReused, "the idempotency key was used with other settings")
		e.Field = "idempotency_key"
		return e
	}
	return nil
}

// createDigest identifies what a call asks for: the kind of the channel and its members, sorted and without duplicates.
func createDigest(membersOnly bool, members []string) string {
	text := strconv.FormatBool(membersOnly) + " " + strings.Join(members, " ") // no id contains a space
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// changed tells this node and then all.
func (s *Service) changed(c Change) {
	s.cfg.Access.Forget(c)
	s.cfg.Notify(c)
}

// AddMembers makes users members of a channel; who is one stays one. It wants `manage`; who holds `subscribe` may add
// himself, alone, to an open channel.
func (s *Service) AddMembers(ctx context.Context, channelID string, userIDs []string) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	userIDs = unique(userIDs)
	if !p.Can(ident.Manage, channelID) {
		if !p.Can(ident.Subscribe, channelID) || !only(p.Subject, userIDs) {
			return notManager()
		}
		// Only what is known to be open, for good, may be written to: a channel that is not there yet may be made
		// members-only, and a membership may end, between a look and the write.
		if err := s.cfg.Access.ForRead(ctx, p, channelID); err != nil {
			return err
		}
		switch membersOnly, ok := s.cfg.Access.kind(channelID); {
		case !ok:
			return notFound()
		case membersOnly:
			return nil // whom a members-only channel does not refuse is in it already
		}
	}
	switch err := s.cfg.Store.AddMembers(ctx, channelID, userIDs, now(s.cfg.Now)); {
	case errors.Is(err, ErrNotFound):
		return notFound()
	case err != nil:
		return unknown(err)
	}
	return nil
}

// RemoveMembers takes users off a channel; who is no member is passed over. It wants `manage`; anyone may remove
// himself, and is not told whether there is such a channel. Live streams lose a members-only channel by a Watcher.
func (s *Service) RemoveMembers(ctx context.Context, channelID string, userIDs []string) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	userIDs = unique(userIDs)
	manages := p.Can(ident.Manage, channelID)
	if !manages && !only(p.Subject, userIDs) {
		return notManager()
	}
	// What they sent up to here, and the feed has yet to bring, must not make them members again.
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
		return unknown(err)
	}
	s.changed(Change{ChannelID: channelID, UserIDs: userIDs})
	return nil
}

// MarkRead moves the caller's cursor forward to seq; a place behind it changes nothing. It gives the cursor as it is
// then and how many messages lie after it. Whoever marks something in an open channel becomes a member. It wants
// `history`; above the log's head it is POSITION_OUT_OF_RANGE.
func (s *Service) MarkRead(ctx context.Context, channelID string, seq int64) (c Cursor, unread int64, err error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return Cursor{}, 0, err
	}
	if err := s.cfg.Access.ForRead(ctx, p, channelID); err != nil {
		return Cursor{}, 0, err
	}
	state, err := s.cfg.Log.State(ctx, channelID)
	if err != nil {
		return Cursor{}, 0, err
	}
	if seq > state.Head {
		e := fault.New(fault.OutOfRange, fault.PositionOutOfRange, "seq is beyond the log's end, which is %d", state.Head)
		e.Field, e.Limit = "seq", state.Head
		return Cursor{}, 0, e
	}
	to := Cursor{Seq: seq, Count: state.Count}
	if seq < state.Head {
		if to.Count, err = s.cfg.Log.CountAt(ctx, channelID, seq); err != nil {
			return Cursor{}, 0, err
		}
	}
	c, ok, err := s.cfg.Store.MarkRead(ctx, channelID, p.Subject, to, true, now(s.cfg.Now))
	if err != nil {
		return Cursor{}, 0, unknown(err)
	}
	if !ok { // the channel takes members only; the caller just manages it, or was removed meanwhile
		return Cursor{}, 0, notMember(channelID)
	}
	return c, max(0, state.Count-c.Count), nil
}

// Typing tells a channel's live subscribers that the caller is typing. It is kept nowhere, and may be lost. More than
// one a second by this node is passed over. It wants `send`.
func (s *Service) Typing(ctx context.Context, channelID string) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	if err := s.cfg.Access.ForRead(ctx, p, channelID); err != nil {
		return err
	}
	if !s.typing.take(membership{channelID, p.Subject}, s.cfg.Now()) {
		return nil
	}
	if err := s.cfg.Typer.PublishTyping(channelID, p.Subject); err != nil {
		s.cfg.Logger.DebugContext(ctx, "typing was not published", "channel", channelID, "error", err)
	}
	return nil
}

// unique gives user ids once each, sorted.
func unique(userIDs []string) []string {
	ids := slices.Clone(userIDs)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// only reports whether userIDs name nobody but one.
func only(userID string, userIDs []string) bool {
	return len(userIDs) == 1 && userIDs[0] == userID
}
