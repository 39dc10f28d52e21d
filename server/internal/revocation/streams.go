package revocation

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/ident"
)

const (
	// streamPatience is how long streams live on while neither the store nor Second can tell whether
	// their tokens were revoked. They end within streamSpread after it, not all at once.
	streamPatience, streamSpread = 5 * time.Second, time.Second
	// askAfter is the silence of the store after which Second is asked about streams, and askEvery how
	// often it then is. Both leave time for the answer: a stream ends within a second after its token
	// was revoked, also if the store answers slowly and the announcement was lost. findAtOnce is how
	// many keys one call of Second.Find has.
	askAfter, askEvery, findAtOnce = 600 * time.Millisecond, 350 * time.Millisecond, 1000
	// lookEvery is how often the silence is looked at.
	lookEvery = 100 * time.Millisecond
)

// Stream is a live stream, which a revocation of its token or a Kick ends. Its methods are safe for
// concurrent use.
type Stream struct {
	list *List
	end  func(error)
	// p is the principal of its token; nil once it is closed. over is set once end is to be called.
	// All are guarded by list.streams.mu.
	p    *ident.Principal
	over bool
	// login is that of SetLogin.
	login Login
}

// streams holds the live streams of this node. The zero value is ready to use.
type streams struct {
	mu sync.Mutex
	// byToken and byUser hold the streams by the keys and the subjects of their tokens.
	byToken, byUser map[string][]*Stream
}

// Watch adds a live stream with p's token. It calls end once, with a fault, when the token is
// revoked. end must not block. The caller calls Check after Watch, so that no revocation is missed
// in between, and Close when the stream has ended.
func (l *List) Watch(p *ident.Principal, end func(error)) *Stream {
	s := &Stream{list: l, end: end, p: p}
	l.streams.mu.Lock()
	defer l.streams.mu.Unlock()
	l.streams.add(s)
	return s
}

// Renew replaces the stream's token by p's. If that was revoked already, the stream ends.
func (s *Stream) Renew(p *ident.Principal) {
	if s.replace(p) && s.list.knows(p) {
		s.list.streams.endAll([]*Stream{s}, Revoked())
	}
}

// replace reports whether the stream is not closed.
func (s *Stream) replace(p *ident.Principal) bool {
	all := &s.list.streams
	all.mu.Lock()
	defer all.mu.Unlock()
	if s.p == nil {
		return false
	}
	all.remove(s)
	s.p = p
	all.add(s)
	return true
}

// Close ends the watch. It may be called again.
func (s *Stream) Close() {
	all := &s.list.streams
	all.mu.Lock()
	defer all.mu.Unlock()
	if s.p != nil {
		all.remove(s)
		s.p = nil
	}
}

// add adds a stream to the maps, by its p. The caller holds mu.
func (a *streams) add(s *Stream) {
	if a.byToken == nil {
		a.byToken, a.byUser = make(map[string][]*Stream), make(map[string][]*Stream)
	}
	a.byToken[s.p.Key] = append(a.byToken[s.p.Key], s)
	a.byUser[s.p.Subject] = append(a.byUser[s.p.Subject], s)
}

// remove removes a stream from the maps. The caller holds mu.
func (a *streams) remove(s *Stream) {
	drop := func(from map[string][]*Stream, key string) {
		rest := slices.DeleteFunc(from[key], func(other *Stream) bool { return other == s })
		if len(rest) == 0 {
			delete(from, key)
			return
		}
		from[key] = rest
	}
	drop(a.byToken, s.p.Key)
	drop(a.byUser, s.p.Subject)
}

// end ends the streams whose tokens an entry revokes.
func (a *streams) end(e Entry) {
	a.mu.Lock()
	candidates := a.byToken[e.Key]
	if user, ok := userOf(e.Key); ok {
		candidates = a.byUser[user]
	}
	var ended []*Stream
	for _, s := range candidates {
		if e.revokes(s.p) {
			ended = append(ended, s)
		}
	}
	a.mu.Unlock()
	a.endAll(ended, Revoked())
}

// endAll ends those of the streams that have not been ended, and returns their number.
func (a *streams) endAll(all []*Stream, why error) (ended int) {
	for _, s := range all {
		a.mu.Lock()
		first := !s.over
		s.over = true
		a.mu.Unlock()
		if first {
			s.end(why)
			ended++
		}
	}
	return ended
}

// keys returns the keys whose revocation would end a stream.
func (a *streams) keys() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	keys := make([]string, 0, len(a.byToken)+len(a.byUser))
	for key := range a.byToken {
		keys = append(keys, key)
	}
	for user := range a.byUser {
		keys = append(keys, UserKey(user))
	}
	return keys
}

// watchStreams ends streams while the store is not heard: those whose revocation is in Second, and,
// without Config.FailOpen, all of them if Second cannot tell either.
func (l *List) watchStreams(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	told := time.Now() // when the store or Second last told all that was revoked
	var asked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if l.silence() <= askAfter {
			told = time.Now()
			continue
		}
		if time.Since(asked) < askEvery {
			continue
		}
		asked = time.Now()
		err := l.findAll(ctx)
		switch {
		case err == nil || l.current():
			told = asked
		case !l.cfg.FailOpen && ctx.Err() == nil && time.Since(told) >= streamPatience:
			l.endUnknown(err)
		}
	}
}

// findAll takes over from Second what revokes the tokens of streams.
func (l *List) findAll(ctx context.Context) error {
	for part := range slices.Chunk(l.streams.keys(), findAtOnce) {
		if err := l.findRevoked(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// findRevoked takes over from Second the entries with these keys.
func (l *List) findRevoked(ctx context.Context, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	found, whole, err := l.cfg.Second.Find(ctx, keys...)
	if err != nil {
		return err
	}
	for _, e := range found {
		l.apply([]Entry{e}, false)
	}
	if !whole {
		return errNotWhole
	}
	return nil
}

// endUnknown ends all streams with a REVOCATION_UNKNOWN fault, within streamSpread.
func (l *List) endUnknown(cause error) {
	l.streams.mu.Lock()
	defer l.streams.mu.Unlock()
	for _, streams := range l.streams.byToken {
		for _, s := range streams {
			time.AfterFunc(rand.N(streamSpread), func() {
				if !l.current() { // the store may answer again
					l.streams.endAll([]*Stream{s}, unknown(cause))
				}
			})
		}
	}
}
