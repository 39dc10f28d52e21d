package fanout

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/stream"
)

// Position requests a channel from a position in its log.
type Position struct {
	ChannelID string
	// After is the seq of the last event that the client has: later ones are sent. Nil requests live
	// events only, 0 all events.
	After *int64
	// Epoch is the epoch of After; empty means that it is not compared with the log's.
	Epoch string
	// Exempt means that the subscriber may have the channel without being a member, until it is
	// deleted.
	Exempt bool
	// Member means that the subscriber must be a member even if the channel is open. It is not set
	// together with Exempt.
	Member bool
}

// NewPosition returns the position from which p, who may subscribe to the channel, begins.
func NewPosition(p *ident.Principal, channelID string, after *int64, epoch string) Position {
	member := !p.Can(ident.Subscribe, channelID)
	return Position{ChannelID: channelID, After: after, Epoch: epoch, Member: member, Exempt: !member && p.Can(ident.Manage, channelID)}
}

// allowed reports whether a token allows the channel, and requires a membership only where the
// position does. To require one later would need a check against the store.
func (p *Position) allowed(token *ident.Principal) bool {
	fresh := NewPosition(token, p.ChannelID, nil, "")
	return token.Covers(ident.Subscribe, p.ChannelID) && (p.Member || !fresh.Member) && (!p.Exempt || fresh.Exempt)
}

// requires reports whether the subscriber must be a member of a channel of this mode. A deleted one
// has no members.
func (p *Position) requires(mode message.Mode) bool {
	switch mode {
	case message.ModeOpen:
		return p.Member
	case message.ModeMembersOnly:
		return !p.Exempt
	case message.ModeDeleted:
	}
	return true
}

// Stream is one client's stream of frames with the events of its channels. Only one goroutine may
// call Next; the other methods may be called concurrently.
type Stream struct {
	hub *Hub

	// edit is held while the set of channels changes: by Update, Close and Expel.
	edit sync.Mutex
	// keepsToken is the fault of KeepToken; nil if there is none.
	keepsToken *fault.Error
	// onRenew is the function of OnRenew; nil if there is none.
	onRenew func(*ident.Principal)

	// pieces is the content of the frame that Next returned last. roomy counts the frames in a row
	// that needed far less than the capacity of pieces and queue. Only Next uses the two.
	pieces [][]byte
	roomy  int

	// mu guards the fields below.
	mu sync.Mutex
	// core's cause has no positions: Next adds them.
	core stream.Core
	// reconnectWithin is the time in the advice to reconnect that a draining stream sends.
	// reconnectSent is set once Next has returned the advice.
	reconnectWithin time.Duration
	reconnectSent   bool
	// subs holds the subscriptions, sorted by channel id.
	subs []*subscription
	// queue holds the pieces that wait for the reader. liveEvents and liveBytes count the live ones;
	// pieces of replays are not counted.
	queue                 []queued
	liveEvents, liveBytes int
	// writing is the size of the frame that Next returned last. taken is what was taken for it and
	// for liveBytes from Config.Unread.
	writing, taken int
	// notes holds the pending notes.
	notes []note
	// texts holds the texts of open messages that the stream sends.
	texts []textCursor
	// behind holds the subscriptions that wait for a turn to read the log. reading counts those whose
	// turn has not ended.
	behind  []*subscription
	reading int
}

// piece is encoded data, which several queues may share. It is not modified once it is queued.
type piece struct {
	data []byte
	// seq and epoch are the subscriber's position after the piece. entries is the number of log
	// entries in it.
	seq     int64
	epoch   string
	entries int
	// replayed is set for pieces of a replay, which do not count against the limits of the queue.
	replayed bool
}

type queued struct {
	sub *subscription
	*piece
}

func (h *Hub) newStream(id stream.Identity) *Stream {
	s := &Stream{hub: h}
	s.core = stream.NewCore(id, h.cfg.HeartbeatInterval, &s.mu, nil)
	return s
}

// ID returns the stream's id; see stream.Identity.
func (s *Stream) ID() string { return s.core.ID }

// Identity returns what identifies the stream. A stream that rides on this one has the same.
func (s *Stream) Identity() stream.Identity { return s.core.Identity }

// End ends the stream with cause, unless it has ended already. Next then returns cause with the
// client's positions. Close must be called all the same.
func (s *Stream) End(cause *fault.Error) { s.end(cause) }

// Drain ends the stream as Hub.Drain does: Next returns the queued frames, then the advice to
// reconnect within the given time, then SHUTTING_DOWN. It does nothing for a stream that drains or
// has ended.
func (s *Stream) Drain(within time.Duration) { s.drain(max(within, time.Millisecond)) }

// Add subscribes the stream to channels; see Update.
func (s *Stream) Add(positions []Position) error { return s.Update(Change{Add: positions}) }

// KeepToken makes Update fail with why if it is to replace the token. KeepToken must be called
// before another goroutine knows the stream's id.
func (s *Stream) KeepToken(why *fault.Error) { s.keepsToken = why }

// OnRenew makes Update call fn with each token that replaces the stream's. fn must not block.
// OnRenew must be called before another goroutine knows the stream's id.
func (s *Stream) OnRenew(fn func(token *ident.Principal)) { s.onRenew = fn }

// Change is what Update changes of a stream.
type Change struct {
	// Add are the channels to subscribe to, each from its position. A channel that the stream already
	// has restarts from there. If a channel is named twice, the last one counts.
	Add []Position
	// Remove are the channels whose subscriptions end, unless they are in Add too. One that the stream
	// does not have is ignored.
	Remove []string
	// Token replaces the stream's token; nil keeps it. The stream loses each other channel that it
	// does not allow, or for which it requires a membership and the position does not.
	Token *ident.Principal
}

// Update changes the channels and the token of the stream. It does everything or nothing. Frames
// that Next returns afterwards contain nothing of a removed subscription, and one Lost of each
// channel that was lost.
//
// Update fails with LIMIT_EXCEEDED above the channel limit, with STREAM_NOT_FOUND if the stream has
// ended, with SHUTTING_DOWN if it is draining, with TOKEN_EXPIRED if the token has expired, and
// with the fault of KeepToken. It does no I/O: the state of each channel is delivered by Next.
func (s *Stream) Update(c Change) error {
	s.edit.Lock()
	defer s.edit.Unlock()
	added := make([]*subscription, 0, len(c.Add))
	seen := make(map[string]struct{}, len(c.Add))
	for _, p := range slices.Backward(c.Add) {
		if _, ok := seen[p.ChannelID]; !ok {
			seen[p.ChannelID] = struct{}{}
			added = append(added, &subscription{stream: s, want: p})
		}
	}
	slices.Reverse(added)
	for _, id := range c.Remove {
		seen[id] = struct{}{}
	}
	lost, err := s.renewal(c.Token, seen)
	if err != nil {
		return err
	}
	if err := s.admit(added, seen, lost); err != nil {
		return err
	}
	if c.Token != nil {
		s.mu.Lock()
		s.core.Renew(c.Token.Expires)
		s.mu.Unlock()
		if s.onRenew != nil {
			s.onRenew(c.Token)
		}
		s.lose(lost)
	}
	s.drop(func(id string) bool { _, ok := seen[id]; return ok })
	for _, u := range added {
		s.hub.attach(u)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range added {
		at, _ := slices.BinarySearchFunc(s.subs, u.want.ChannelID, compareChannel)
		s.subs = slices.Insert(s.subs, at, u)
	}
	s.behind = append(s.behind, added...)
	s.core.Wake()
	return nil
}

// renewal returns an encoded Lost of each channel that the stream loses with a new token, except
// for those in leaving; none if token is nil. It fails if the stream cannot take the token. The
// caller holds edit, so that mu need not be held for the time of 500 channels and hundreds of
// capabilities.
func (s *Stream) renewal(token *ident.Principal, leaving map[string]struct{}) (map[string][]byte, error) {
	lost := make(map[string][]byte)
	switch {
	case token == nil:
		return lost, nil
	case s.keepsToken != nil:
		return nil, s.keepsToken
	case !token.Expires.IsZero() && !time.Now().Before(token.Expires):
		return nil, stream.TokenExpired()
	}
	s.mu.Lock()
	subs := slices.Clone(s.subs)
	s.mu.Unlock()
	for _, u := range subs {
		id := u.want.ChannelID
		if _, ok := leaving[id]; !ok && !u.want.allowed(token) {
			lost[id] = s.hub.enc.Lost(id, LostCapability)
		}
	}
	return lost, nil
}

// admit checks whether the stream may have these channels once those in leaving and in lost are
// removed.
func (s *Stream) admit(added []*subscription, leaving map[string]struct{}, lost map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.core.State() {
	case stream.Live:
	case stream.Draining:
		return stream.ShuttingDown()
	case stream.Ended:
		return stream.NotFound()
	}
	n := len(added)
	for _, u := range s.subs {
		_, leaves := leaving[u.want.ChannelID]
		if _, loses := lost[u.want.ChannelID]; !leaves && !loses {
			n++
		}
	}
	if limit := s.hub.cfg.MaxChannelsPerStream; n > limit {
		return fault.OverLimit(int64(limit), "a stream may have at most %d channels")
	}
	return nil
}

// Close ends the stream and frees its resources. A blocked Next returns at once. Close may be
// called twice.
func (s *Stream) Close() {
	s.edit.Lock()
	defer s.edit.Unlock()
	s.end(stream.NotFound())
	s.drop(func(string) bool { return true })
	s.mu.Lock()
	s.written()
	s.mu.Unlock()
	if s.hub.streams.Remove(s.core.ID) {
		s.hub.stats.streams.Add(-1)
	}
}

// drop removes the chosen channels from the stream. The caller holds edit.
func (s *Stream) drop(chosen func(channelID string) bool) {
	s.mu.Lock()
	var dropped []*subscription
	s.subs = slices.DeleteFunc(s.subs, func(u *subscription) bool {
		if !chosen(u.want.ChannelID) {
			return false
		}
		dropped = append(dropped, u)
		return true
	})
	s.dropNotes(chosen)
	s.mu.Unlock()
	if len(dropped) == 0 {
		return
	}
	for _, u := range dropped {
		u.topic.detach(u)
	}
	// From here on nothing can be queued for the dropped subscriptions.
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range dropped {
		u.removed = true
	}
	s.behind = slices.DeleteFunc(s.behind, func(u *subscription) bool { return u.removed })
	s.queue = slices.DeleteFunc(s.queue, func(q queued) bool {
		if q.sub.removed {
			s.uncount(q.piece)
		}
		return q.sub.removed
	})
	s.dropNotes(chosen)
}

// push queues a live event or gap. It returns false if the stream accepts no more, because it has
// ended, or was just cut as a slow consumer.
func (s *Stream) push(u *subscription, p *piece) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.State() != stream.Live {
		return false
	}
	cfg := &s.hub.cfg
	if s.liveEvents > 0 &&
		(s.liveEvents >= cfg.QueueEvents || s.liveBytes+len(p.data) > cfg.QueueBytes || !s.takeUnread(len(p.data))) {
		s.failSlow("the subscriber read too slowly")
		return false
	}
	s.queue = append(s.queue, queued{u, p})
	s.liveEvents++
	s.liveBytes += len(p.data)
	s.core.Wake()
	return true
}

// cut ends the stream of a subscriber that reads too slowly.
func (s *Stream) cut(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.State() == stream.Live {
		s.failSlow(why)
	}
}

func (s *Stream) failSlow(why string) {
	s.fail(fault.New(fault.ResourceExhausted, fault.SlowConsumer, "%s", why))
	s.hub.stats.cuts.Add(1)
}

func (s *Stream) uncount(p *piece) {
	if !p.replayed {
		s.liveEvents--
		s.liveBytes -= len(p.data)
	}
}

// freeUnread is what may wait for each stream without being taken from Config.Unread: so the
// streams of readers that keep up do not share a lock. What is taken is a multiple of it.
const freeUnread = 64 << 10

// takeUnread takes from Config.Unread what the stream needs in order to have n bytes more waiting.
// It reports false if there is nothing left.
func (s *Stream) takeUnread(n int) bool {
	budget := s.hub.cfg.Unread
	more := s.liveBytes + s.writing + n - freeUnread - s.taken
	if budget == nil || more <= 0 {
		return true
	}
	more = (more + freeUnread - 1) / freeUnread * freeUnread
	if !budget.Take(s.core.Subject, int64(more)) {
		return false
	}
	s.taken += more
	return true
}

// returnUnread returns what was taken from Config.Unread, once little waits.
func (s *Stream) returnUnread() {
	if s.taken > 0 && s.liveBytes+s.writing <= freeUnread {
		s.hub.cfg.Unread.Return(s.core.Subject, int64(s.taken))
		s.taken = 0
	}
}

// catchUp queues a subscription for a turn to read the log.
func (s *Stream) catchUp(u *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Ended() || u.removed {
		return
	}
	s.behind = append(s.behind, u)
	s.core.Wake()
}

// replayed ends a subscription's turn to read the log. It queues the pieces that were read. If
// again is set, the subscription waits for another turn.
func (s *Stream) replayed(u *subscription, pieces []*piece, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading--
	s.core.Wake()
	if s.core.State() != stream.Live || u.removed {
		return
	}
	for _, p := range pieces {
		s.queue = append(s.queue, queued{u, p})
	}
	if again {
		s.behind = append(s.behind, u)
	}
}

// written records that the reader is done with the frame that Next returned last.
func (s *Stream) written() {
	s.writing = 0
	s.returnUnread()
}

// end ends the stream, unless it has ended already.
func (s *Stream) end(cause *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(cause)
}

func (s *Stream) fail(cause *fault.Error) {
	s.core.End(cause)
	s.queue, s.behind, s.notes, s.texts = nil, nil, nil, nil
	s.liveEvents, s.liveBytes = 0, 0
	s.returnUnread()
}

// drain lets Next return the queued frames and the reconnect advice, and then ends the stream.
func (s *Stream) drain(within time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.State() != stream.Live {
		return
	}
	s.core.Drain(stream.ShuttingDown())
	s.reconnectWithin = within
	s.behind, s.texts = nil, nil // a text may grow without end
	s.core.Wake()
}

// endError returns the cause of the stream's end, with the positions of its subscriptions.
func (s *Stream) endError() error {
	e := *s.core.Cause()
	for _, u := range s.subs {
		switch {
		case u.started:
			e.Positions = append(e.Positions, fault.Position{ChannelID: u.want.ChannelID, Seq: u.sent, Epoch: u.sentEpoch})
		case u.want.After != nil:
			e.Positions = append(e.Positions,
				fault.Position{ChannelID: u.want.ChannelID, Seq: *u.want.After, Epoch: u.want.Epoch})
		}
	}
	return &e
}

func compareChannel(u *subscription, channelID string) int {
	return strings.Compare(u.want.ChannelID, channelID)
}
