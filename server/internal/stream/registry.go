package stream

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// Config configures a Registry.
type Config struct {
	// Node is the suffix of every stream id, from which any node can tell which node holds the
	// stream. It has up to 38 characters of A-Z a-z 0-9 _ -. Empty means no suffix.
	Node string
	// MaxStreams is the maximum number of streams on this node. 0 means no limit.
	MaxStreams int
	// MaxPerSubject is the maximum number of streams that one subject may have on this node. 0
	// means no limit.
	MaxPerSubject int
	// Plural is the noun for streams in the error messages of Admit. The default is "streams".
	Plural string
}

// Registry holds the live streams of one kind on one node. S is the stream type of the kind,
// usually a pointer. It is safe for concurrent use.
type Registry[S any] struct {
	cfg Config
	// drained is closed once the registry refuses streams and has none.
	drained chan struct{}

	mu      sync.Mutex // guards the fields below
	streams map[string]entry[S]
	// subjects holds the stream ids of each subject, oldest first. A subject without streams has no
	// entry.
	subjects map[string][]string
	admits   admission
}

// admission is the state of a registry: whether Admit admits streams.
//
//	notOpen ---Open---> open ---Refuse, Drain---> refusing
//	notOpen ------------------- Refuse, Drain---> refusing
type admission uint8

const (
	notOpen admission = iota
	open
	refusing
)

type entry[S any] struct {
	subject string
	stream  S
}

// NewRegistry creates an empty registry, which refuses streams until Open.
func NewRegistry[S any](cfg Config) *Registry[S] {
	if cfg.Plural == "" {
		cfg.Plural = "streams"
	}
	return &Registry[S]{
		cfg: cfg, drained: make(chan struct{}), streams: map[string]entry[S]{}, subjects: map[string][]string{},
	}
}

// Open makes Admit admit streams, unless Refuse or Drain was called before. It may be called twice.
func (r *Registry[S]) Open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.admits == notOpen {
		r.admits = open
	}
}

// Admit creates a stream for subject and adds it. Other methods see the stream only after create
// has returned, so they never see an incomplete one. create must not block and must not call the
// registry.
//
// Admit fails with NODE_FULL if a limit of the node or of the subject is reached, and with
// SHUTTING_DOWN before Open and after Refuse or Drain. The caller must finally Remove the stream.
func (r *Registry[S]) Admit(subject string, expires time.Time, create func(Identity) S) (S, error) {
	return r.AdmitAs(Identity{ID: rand.Text() + r.cfg.Node, Subject: subject, Expires: expires}, create)
}

// AdmitAs is like Admit, but for a stream that already has an identity, from another registry. That
// registry must not have the same identity twice.
func (r *Registry[S]) AdmitAs(identity Identity, create func(Identity) S) (S, error) {
	subject := identity.Subject
	r.mu.Lock()
	defer r.mu.Unlock()
	var none S
	if r.admits != open {
		return none, ShuttingDown()
	}
	if limit := r.cfg.MaxStreams; limit > 0 && len(r.streams) >= limit {
		return none, fault.Full(int64(limit), "this node serves at most %d "+r.cfg.Plural)
	}
	if limit := r.cfg.MaxPerSubject; limit > 0 && len(r.subjects[subject]) >= limit {
		return none, fault.Full(int64(limit), "this node serves at most %d "+r.cfg.Plural+" per subject")
	}
	s := create(identity)
	r.streams[identity.ID] = entry[S]{subject: subject, stream: s}
	r.subjects[subject] = append(r.subjects[subject], identity.ID)
	return s, nil
}

// Remove removes a stream and reports whether the registry had it. It does not end the stream.
func (r *Registry[S]) Remove(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.streams[id]
	if !ok {
		return false
	}
	delete(r.streams, id)
	ids := slices.DeleteFunc(r.subjects[e.subject], func(other string) bool { return other == id })
	if len(ids) > 0 {
		r.subjects[e.subject] = ids
	} else {
		delete(r.subjects, e.subject)
	}
	if r.admits == refusing && len(r.streams) == 0 {
		close(r.drained) // only once: no more streams are added
	}
	return true
}

// Find returns the stream with this id if it belongs to subject. The stream may have ended without
// being removed yet.
func (r *Registry[S]) Find(id, subject string) (s S, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.streams[id]
	if !ok || e.subject != subject {
		return s, false
	}
	return e.stream, true
}

// OfSubject returns the streams of a subject, oldest first; nil if there are none.
func (r *Registry[S]) OfSubject(subject string) []S {
	r.mu.Lock()
	defer r.mu.Unlock()
	var streams []S
	for _, id := range r.subjects[subject] {
		streams = append(streams, r.streams[id].stream)
	}
	return streams
}

// All returns all streams, in no particular order.
func (r *Registry[S]) All() []S {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all()
}

func (r *Registry[S]) all() []S {
	streams := make([]S, 0, len(r.streams))
	for _, e := range r.streams {
		streams = append(streams, e.stream)
	}
	return streams
}

// Refuse makes every later Admit fail with SHUTTING_DOWN. It returns the existing streams, in no
// particular order, and ends none of them. It may be called twice.
func (r *Registry[S]) Refuse() []S {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.admits != refusing {
		r.admits = refusing
		if len(r.streams) == 0 {
			close(r.drained)
		}
	}
	return r.all()
}

// Drained returns a channel that is closed once the registry refuses streams and all its streams
// are removed.
func (r *Registry[S]) Drained() <-chan struct{} { return r.drained }

// Drain refuses new streams, calls drain for each existing stream, and blocks until Remove was
// called for all of them. It returns ctx's error if ctx ends first. It may be called twice.
func (r *Registry[S]) Drain(ctx context.Context, drain func(S)) error {
	for _, s := range r.Refuse() {
		drain(s)
	}
	select {
	case <-r.drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
