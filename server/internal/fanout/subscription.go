package fanout

import (
	"context"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// replayEvents is the maximum number of entries in one read of a replay.
const replayEvents = 512

// subscription is one channel of one stream. A turn is one read of the log for it.
type subscription struct {
	stream *Stream
	topic  *topic
	want   Position
	// fails counts failed turns in a row. Only the turn uses it; there is one turn at a time.
	fails int

	// Guarded by topic.mu.
	//
	// detached is set when the subscription has ended. index is its index in topic.subs. slot is
	// its index in topic.live plus one, 0 if it is not live.
	detached bool
	index    int
	slot     int
	// admitted is the access revision at which the subject was last allowed to read the channel; noRev
	// if it was not checked. The subscription receives nothing while it is below topic.rev.
	admitted int64
	// stateQueued is set once its State is queued. positioned is set while it knows the seq and the
	// epoch from which to continue.
	stateQueued, positioned bool
	// after is the seq of the last entry queued, and epoch its epoch. The subscription must reach goal
	// before it goes live. It is the last entry of the log when its State was read, or the last change
	// that a replayed message shows: the live events before that may have older copies of the message.
	after, goal int64
	epoch       string
	// pace is that of the replay. behind is set while the subscriber must be told that it does not
	// catch up.
	pace   pace
	behind bool

	// Guarded by stream.mu.
	//
	// removed is set when the subscription was removed from the stream. started is set once a
	// piece of it was returned by Next; sent and sentEpoch are its position then.
	removed, started bool
	sent             int64
	sentEpoch        string
}

// advance runs one turn: one read of the log and its consequences.
func (u *subscription) advance() {
	err := u.turn()
	if err == nil {
		return
	}
	// Other channels of the stream continue; this one retries after a delay.
	u.fails++
	h := u.stream.hub
	h.reportError(u.want.ChannelID, err)
	wait := h.cfg.backoff(u.fails)
	u.stream.replayed(u, nil, false)
	time.AfterFunc(wait, func() { u.stream.catchUp(u) })
}

// turn reads the log once, and passes the result to stream.replayed, which ends the turn. If turn
// fails, the caller must end it.
func (u *subscription) turn() error {
	t := u.topic
	ctx, cancel := context.WithTimeout(t.hub.ctx, t.hub.cfg.LogTimeout)
	defer cancel()
	if err := t.connect(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	switch {
	case !u.positioned:
		t.mu.Unlock()
		return u.begin()
	case u.admitted < t.rev:
		t.mu.Unlock()
		return u.readmit()
	}
	if u.behind {
		t.mu.Unlock()
		return t.readState(u.tellBehind)
	}
	after, goal, epoch := u.after, max(u.goal, t.tail), u.epoch
	if u.detached || epoch != t.epoch || u.caughtUp() {
		u.finishTurn(nil)
		t.mu.Unlock()
		return nil
	}
	if shared := t.recent.since(after, goal, epoch, time.Now()); shared != nil {
		t.hub.stats.shared.Add(1)
		u.take(shared, t.hub.join(shared, epoch))
		t.mu.Unlock()
		return nil
	}
	t.mu.Unlock()

	began := time.Now()
	events, err := t.hub.replay(t.channelID, after, goal, replayEvents, t.hub.cfg.ReplayFrameBytes, true)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	encoded := t.hub.encode(events, epoch)
	pieces := t.hub.join(encoded, epoch)
	t.mu.Lock()
	defer t.mu.Unlock()
	if epoch == t.epoch {
		for i := range encoded { // a message may show a change from after the entries that were known
			t.requireRev(events[i].Rev)
			t.noteOpen(&events[i])
		}
		if u.admitted < t.rev {
			u.finishTurn(nil) // the next turn checks the subject
			return nil
		}
	}
	if n := len(encoded); n > 0 && encoded[n-1].seq >= max(goal, t.tail) && epoch == t.epoch && !t.closed {
		t.putRecent(epoch, after, encoded, began)
	}
	if len(encoded) == 0 {
		// The history is gone, or the epoch changed. The log's state shows which.
		u.positioned = false
		return fmt.Errorf("replay after %d: %w", after, errEmptyReplay)
	}
	u.take(encoded, pieces)
	return nil
}

// begin reads the log's state, checks whether the subject may receive the channel's entries, and
// positions the subscription. If the subject may not, the stream loses the channel. There is no
// check before the first entry: until then anybody may create the channel, also for members only.
func (u *subscription) begin() error {
	unchecked := false
	err := u.topic.readState(func(read message.State) {
		if unchecked = u.admitted < u.topic.rev; !unchecked {
			u.placeTurn(read)
		}
	})
	if err != nil || !unchecked {
		return err
	}
	return u.readmit()
}

// readmit checks the subscribers of the topic again, and ends the turn.
func (u *subscription) readmit() error {
	if err := u.topic.admit(); err != nil {
		return err
	}
	u.topic.mu.Lock()
	defer u.topic.mu.Unlock()
	u.finishTurn(nil)
	return nil
}

// placeTurn ends a turn that has read the log's state. The caller holds topic.mu.
func (u *subscription) placeTurn(st message.State) {
	if u.positioned {
		u.finishTurn(nil)
		return
	}
	u.finishTurn(u.place(st))
}

// take ends a turn and queues the pieces of the replayed events, of which there is at least one. If
// the replay does not catch up, it arranges for the subscriber to be told, and later ends the
// stream.
func (u *subscription) take(events []encodedEvent, pieces []*piece) {
	u.after = events[len(events)-1].seq
	distance := max(u.goal, u.topic.tail) - u.after
	for _, e := range events {
		u.goal = max(u.goal, e.changed)
	}
	switch u.pace.turned(distance, time.Now(), u.stream.hub.cfg.ReplayPatience) {
	case goOn:
	case tell:
		u.behind = true
	case giveUp:
		u.stream.replayed(u, nil, false)
		u.stream.cut("the channel " + u.want.ChannelID + " grows faster than its entries are read")
		return
	}
	u.finishTurn(pieces)
}

// tellBehind ends a turn that has read the log's state, to tell the subscriber where the log ends.
// The caller holds topic.mu.
func (u *subscription) tellBehind(st message.State) {
	u.behind = false
	if st.Epoch != u.epoch || u.admitted < u.topic.rev {
		u.placeTurn(st)
		return
	}
	data := u.topic.hub.enc.State(u.want.ChannelID, u.after, st, true)
	u.finishTurn([]*piece{{seq: u.after, epoch: u.epoch, data: data, replayed: true}})
}

// encode encodes the events before the first one that has another epoch.
func (h *Hub) encode(events []message.Event, epoch string) []encodedEvent {
	encoded := make([]encodedEvent, 0, len(events))
	for i := range events {
		if events[i].Epoch != epoch {
			break
		}
		encoded = append(encoded, encodedEvent{events[i].Seq, events[i].Message.ChangedSeq, h.enc.Event(&events[i])})
	}
	return encoded
}

// join joins encoded events into pieces of up to ReplayFrameBytes. An event that is larger gets a
// piece of its own.
func (h *Hub) join(events []encodedEvent, epoch string) []*piece {
	var pieces []*piece
	var p *piece
	for _, e := range events {
		if p == nil || len(p.data)+len(e.data) > h.cfg.ReplayFrameBytes {
			p = &piece{epoch: epoch, replayed: true}
			pieces = append(pieces, p)
		}
		p.data = append(p.data, e.data...)
		p.seq = e.seq
		p.entries++
	}
	return pieces
}

// place sets the position from which to start, or to continue after trouble, according to the log's
// state. It returns the State or Gap to send to the subscriber. The caller holds topic.mu, and the
// topic has the state's epoch.
func (u *subscription) place(st message.State) []*piece {
	id := u.want.ChannelID
	from, epoch, resume := u.after, u.epoch, true
	if !u.stateQueued {
		epoch, resume = u.want.Epoch, u.want.After != nil
		if resume {
			from = *u.want.After
		}
	}
	to, reason := st.Head, GapReason(0)
	switch {
	case !resume:
	case epoch != "" && epoch != st.Epoch:
		reason = GapEpochChanged
	case from > max(st.Head, u.topic.tail) && !u.stateQueued:
		reason = GapAheadOfLog
	case from < st.Oldest-1:
		to, reason = st.Oldest-1, GapHistoryGone
	default:
		to = from
	}
	p := &piece{seq: to, epoch: st.Epoch, replayed: true}
	if !u.stateQueued {
		p.data = append(p.data, u.topic.hub.enc.State(id, to, st, resume && reason == 0)...)
	}
	if reason != 0 {
		p.data = append(p.data, u.topic.hub.enc.Gap(id, from, to, st.Epoch, reason)...)
	}
	u.stateQueued, u.positioned = true, true
	u.after, u.goal, u.epoch = to, max(to, st.Head), st.Epoch
	if len(p.data) == 0 {
		return nil
	}
	return []*piece{p}
}

// caughtUp reports whether the subscription has reached both its State's head and the tail of the
// topic, which has the same epoch.
func (u *subscription) caughtUp() bool { return u.after >= max(u.topic.tail, u.goal) }

// finishTurn ends a turn, under topic.mu. A subscription that has reached the tail goes live in the
// same critical section in which its last page is queued, so that no event is missed in between.
func (u *subscription) finishTurn(pieces []*piece) {
	u.fails = 0
	if u.epoch != u.topic.epoch {
		u.positioned = false
	}
	level := u.positioned && u.caughtUp() && u.admitted >= u.topic.rev
	if level && !u.detached {
		u.topic.goLive(u)
		u.pace, u.behind = pace{}, false
	}
	u.stream.replayed(u, pieces, !level)
	if level && !u.detached {
		u.topic.showTexts(u) // after the page with their messages
	}
}
