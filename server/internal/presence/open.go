package presence

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/stream"
)

// OpenRequest describes a stream with presence.
type OpenRequest struct {
	Subject string
	Expires time.Time
	// Invisible streams watch without making the user online. The other fields of a device have no
	// effect then.
	Invisible  bool
	Platform   Platform
	Device     string
	Background bool
	// Login is the login that the stream continues; nil for a new one.
	Login *Login
	Watch []string
	// Channels are the channels to watch. The caller may read them.
	Channels []ChannelRef
	// Rides is the stream that this one rides on; nil for a stream of its own.
	Rides *stream.Identity
}

// Open creates a stream with presence, and returns the states of what it watches as far as they are
// known within 1 s. It does not fail because the store is away. The caller must Close the stream.
//
// It fails with NODE_FULL at the limits of the node, with LIMIT_EXCEEDED above those of the stream
// or of a channel, and with the errors of Config.Members. It fails with KICKED if a newer login has
// replaced the one that it continues, and with SHUTTING_DOWN before Start and once the hub drains.
func (h *Hub) Open(ctx context.Context, req *OpenRequest) (*Stream, *Update, error) {
	create := func(id stream.Identity) *Stream { return newStream(id, h.cfg.HeartbeatInterval, req.Rides != nil) }
	var s *Stream
	var err error
	if req.Rides != nil {
		s, err = h.streams.AdmitAs(*req.Rides, create)
	} else {
		s, err = h.streams.Admit(req.Subject, req.Expires, create)
	}
	if err != nil {
		return nil, nil, err
	}
	update, err := h.begin(ctx, s, req)
	if cause := s.failure(); cause != nil {
		err = cause // for example, the login was replaced meanwhile
	}
	if err != nil {
		h.Close(s)
		return nil, nil, err
	}
	return s, update, nil
}

// begin makes the device of a new stream online and adds what it watches.
func (h *Hub) begin(ctx context.Context, s *Stream, req *OpenRequest) (*Update, error) {
	if err := h.checkLimits(req); err != nil {
		return nil, err // before the user is shown online
	}
	if !req.Invisible {
		if err := h.connect(ctx, s, req); err != nil {
			return nil, err
		}
	}
	update := &Update{}
	states := make([]*ChannelState, len(req.Channels))
	// All at once, so that the first frame waits for all states together for up to 1 s.
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() (err error) {
		if len(req.Watch) > 0 {
			update.Users, err = h.view.watch(ctx, s, req.Watch, nil)
		}
		return inField(err, "watch")
	})
	for i, ch := range req.Channels {
		all.Go(func() (err error) {
			states[i], err = h.view.watchChannel(ctx, s, ch)
			return inField(err, fmt.Sprintf("watch_channels[%d]", i))
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	for _, state := range states {
		if state != nil {
			update.Channels = append(update.Channels, *state)
		}
	}
	return update, nil
}

// checkLimits returns a LIMIT_EXCEEDED fault if the stream would watch more users or channels than
// it may.
func (h *Hub) checkLimits(req *OpenRequest) error {
	users := make(map[string]struct{}, len(req.Watch))
	for _, userID := range req.Watch {
		users[userID] = struct{}{}
	}
	if len(users) > h.cfg.MaxWatched {
		return tooManyUsers(h.cfg.MaxWatched, "watch")
	}
	if len(req.Channels) > h.cfg.MaxChannels {
		return tooManyChannels(h.cfg.MaxChannels, "watch_channels")
	}
	return nil
}

// inField returns err with another field if it is a fault about a field of the request, or about a
// limit.
func inField(err error, field string) error {
	if f, ok := fault.As(err); ok && (f.Field != "" || f.Limit != 0) {
		changed := *f
		changed.Field = field
		return &changed
	}
	return err
}

// connect makes the device of a stream online.
func (h *Hub) connect(ctx context.Context, s *Stream, req *OpenRequest) error {
	subject := s.core.Subject
	c := &conn{
		id: rand.Text(), streamID: s.ID(), user: subject, shard: ShardOf(subject), slot: h.cfg.Policy.slot(req.Platform),
		platform: req.Platform, device: req.Device, arrived: time.Now(), stream: s, background: req.Background,
	}
	if req.Login != nil {
		c.login.generation = req.Login.Generation
	} else if c.login.fresh = true; c.slot == "" {
		c.login.generation = time.Now().UnixMicro()
	}
	s.conn, s.connectionID = c, c.id
	h.conns.add(c)
	if c.slot != "" {
		if err := h.logins.enter(ctx, c); err != nil {
			return err
		}
	}
	s.login = Login{Device: c.device, Generation: h.conns.generation(c)}
	return nil
}
