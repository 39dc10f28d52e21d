package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/message"
)

// channelRecord is the stored form of a channel.
type channelRecord struct {
	MembersOnly bool  `json:"members_only,omitempty"`
	Rev         int64 `json:"rev,omitempty"`
	// State and Began are set only after a deletion.
	State       channel.State `json:"state,omitempty"`
	Began       int64         `json:"began,omitempty"`
	CreatedBy   string        `json:"created_by,omitempty"`
	CreatedMS   int64         `json:"created_ms"`
	Head        int64         `json:"head,omitempty"`
	Count       int64         `json:"count,omitempty"`
	LastMessage int64         `json:"last_message,omitempty"`
	// ActiveMS is set only for a Live session.
	ActiveMS int64 `json:"active_ms,omitempty"`
	// Title is set only for a Live session.
	Title string `json:"title,omitempty"`
	// CreateKey and CreateDigest are set only if the call that created the channel had an
	// idempotency key.
	CreateKey    string `json:"create_key,omitempty"`
	CreateDigest string `json:"create_digest,omitempty"`
	trimRecord
}

// open reports whether everyone may use the channel.
func (r *channelRecord) open() bool { return r.State == channel.Live && !r.MembersOnly }

func (r *channelRecord) row(channelID string) channel.Row {
	var active time.Time
	if r.ActiveMS != 0 {
		active = time.UnixMilli(r.ActiveMS).UTC()
	}
	return channel.Row{
		Active: active, Title: r.Title,
		ChannelID: channelID, MembersOnly: r.MembersOnly, State: r.State, Began: r.Began, Rev: r.Rev, CreatedBy: r.CreatedBy,
		CreatedAt: time.UnixMilli(r.CreatedMS).UTC(), CreateKey: r.CreateKey, CreateDigest: r.CreateDigest,
		Numbers:   channel.Numbers{Head: r.Head, Count: r.Count, LastMessage: r.LastMessage},
		Retention: r.retention(), SettingsRev: r.SettingsRev,
		Boundary: message.Boundary{Oldest: r.Oldest, Expired: r.Expired}, Trim: r.trim(),
	}
}

// memberRecord is the stored form of a current or former member or follower.
type memberRecord struct {
	// Member is true for members and followers.
	Member bool `json:"member,omitempty"`
	// Role is 0 in records from before there were roles, which are those of members.
	Role     channel.Role `json:"role,omitempty"`
	JoinedMS int64        `json:"joined_ms,omitempty"`
	Seq      int64        `json:"seq,omitempty"`
	Count    int64        `json:"count,omitempty"`
	// Left is the channel's last seq when the user was last removed, or 0 if they never were.
	Left int64 `json:"left,omitempty"`
}

func (r *memberRecord) row(channelID, userID string) channel.Member {
	return channel.Member{
		ChannelID: channelID, UserID: userID, Role: r.role(), JoinedAt: time.UnixMilli(r.JoinedMS).UTC(), Cursor: r.cursor(),
	}
}

func (r *memberRecord) cursor() channel.Cursor { return channel.Cursor{Seq: r.Seq, Count: r.Count} }

// role returns the user's role; 0 if the user is neither member nor follower.
func (r *memberRecord) role() channel.Role {
	switch {
	case !r.Member:
		return 0
	case r.Role == 0:
		return channel.RoleMember
	default:
		return r.Role
	}
}

// join sets the role of the user, unless the user has a higher one.
func (r *memberRecord) join(role channel.Role, now time.Time) {
	was := r.role()
	if was >= role {
		return
	}
	if was < channel.RoleMember {
		r.JoinedMS = now.UnixMilli()
	}
	r.Member, r.Role = true, role
}

// move moves the cursor forward. It never moves it back.
func (r *memberRecord) move(to channel.Cursor) {
	if to.Seq > r.Seq {
		r.Seq, r.Count = to.Seq, to.Count
	}
}

// rosterLocks serializes the changes of one channel and its members, from read to sync. Changes of
// different channels can share an fsync. The zero value is ready to use.
type rosterLocks struct {
	once  sync.Once
	seed  maphash.Seed
	locks [64]sync.Mutex
}

// lock locks channels until unlock is called. All callers lock in the same order, so that none
// blocks another forever.
func (l *rosterLocks) lock(channelIDs []string) (unlock func()) {
	l.once.Do(func() { l.seed = maphash.MakeSeed() })
	var at []uint64
	for _, id := range channelIDs {
		at = append(at, maphash.String(l.seed, id)%uint64(len(l.locks)))
	}
	slices.Sort(at)
	at = slices.Compact(at)
	for _, i := range at {
		l.locks[i].Lock()
	}
	return func() {
		for _, i := range at {
			l.locks[i].Unlock()
		}
	}
}

// roster holds the records of channels and members that one call of Channels.change has read: as of
// the last sync, and as modified by the call.
type roster struct {
	view     *view
	channels map[string]*loadedRecord[channelRecord]
	members  map[memberID]*loadedRecord[memberRecord]
}

type memberID struct{ channel, user string }

// loadedRecord is a record with its current and its stored value. absent is true for a new channel,
// so that it is written even if its record is zero.
type loadedRecord[T comparable] struct {
	now, stored T
	absent      bool
}

// channel returns a channel's record, which the caller may modify, or nil if there is none.
func (r *roster) channel(channelID string) (*channelRecord, error) {
	k, ok := r.channels[channelID]
	if !ok {
		k = &loadedRecord[channelRecord]{}
		found, err := r.view.record(channelKey(channelID), &k.stored)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, nil //nolint:nilnil // nil means no channel
		}
		k.now = k.stored
		r.channels[channelID] = k
	}
	return &k.now, nil
}

// make adds a channel that is not stored, and returns its record.
func (r *roster) make(channelID string, record channelRecord) *channelRecord {
	k := &loadedRecord[channelRecord]{now: record, absent: true}
	r.channels[channelID] = k
	return &k.now
}

// ensure returns a channel's record. It creates an open channel if there is none.
func (r *roster) ensure(channelID string, now time.Time) (*channelRecord, error) {
	record, err := r.channel(channelID)
	if err == nil && record == nil {
		record = r.make(channelID, channelRecord{CreatedMS: now.UnixMilli()})
	}
	return record, err
}

// member returns a user's record in a channel, which the caller may modify. If none is stored, it
// returns a new zero record.
func (r *roster) member(channelID, userID string) (*memberRecord, error) {
	id := memberID{channelID, userID}
	k, ok := r.members[id]
	if !ok {
		k = &loadedRecord[memberRecord]{}
		if _, err := r.view.record(memberKey(channelID, userID), &k.stored); err != nil {
			return nil, err
		}
		k.now = k.stored
		r.members[id] = k
	}
	return &k.now, nil
}

// write adds the modified records to a batch.
func (r *roster) write(batch *pebble.Batch) error {
	for id, k := range r.channels {
		if k.now == k.stored && !k.absent {
			continue
		}
		if err := setRecord(batch, channelKey(id), &k.now); err != nil {
			return err
		}
		if err := writeDue(batch, id, k.stored.DueMS, k.now.DueMS); err != nil {
			return err
		}
		if err := writeSession(batch, id, &k.stored, &k.now); err != nil {
			return err
		}
	}
	for id, k := range r.members {
		if k.now == k.stored {
			continue
		}
		if err := setRecord(batch, memberKey(id.channel, id.user), &k.now); err != nil {
			return err
		}
		if k.now.Member == k.stored.Member {
			continue
		}
		key := membershipKey(id.user, id.channel)
		set := func() error { return batch.Set(key, nil, nil) }
		if !k.now.Member {
			set = func() error { return batch.Delete(key, nil) }
		}
		if err := set(); err != nil {
			return fmt.Errorf("set membership: %w", err)
		}
	}
	return nil
}

func setRecord(batch *pebble.Batch, key []byte, record any) error {
	value, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if err := batch.Set(key, value, nil); err != nil {
		return fmt.Errorf("set record: %w", err)
	}
	return nil
}

// record reads the row at key and decodes it into record, a pointer. ok is false if there is none.
func (v *view) record(key []byte, record any) (ok bool, err error) {
	value, closer, err := v.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get: %w", err)
	}
	if err := errors.Join(json.Unmarshal(value, record), closer.Close()); err != nil {
		return false, fmt.Errorf("decode record: %w", err)
	}
	return true, nil
}
