package authn

import (
	"context"
	"crypto"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

const (
	// keySetRefresh is the interval at which a key set is fetched, and keySetRetry the interval after
	// a failed fetch. keySetUnknown is the minimum time between the additional fetches for unknown
	// keys.
	keySetRefresh = 5 * time.Minute
	keySetRetry   = 30 * time.Second
	keySetUnknown = time.Minute
	// keySetTimeout bounds a fetch, and how long a caller with an unknown key waits for one.
	keySetTimeout  = 5 * time.Second
	maxKeySetBytes = 1 << 20
	// maxKeysTried bounds the keys of one set that are tried for one token. Sets have a few keys, and
	// a token that names none costs a verification for each.
	maxKeysTried = 16
)

// signing are the uses of a key that verifies signatures: sig, or none (RFC 7517, 4.2).
var signing = []jwkset.USE{jwkset.UseSig, ""}

// KeySet is a URL that serves public keys as a JSON Web Key Set.
type KeySet struct {
	// ID names the set in the log. It is not compared with the kid of tokens, which names a key of the
	// set.
	ID string
	// URL is an http or https URL. It is fetched every five minutes, every 30 seconds after a failed
	// fetch, and at most once a minute in addition for tokens with an unknown kid.
	URL string
	// Issuer and Audience replace those of Config for the tokens that the set's keys verify. Empty
	// means those of Config.
	Issuer, Audience string
}

// servedKey is a public key of a key set that may verify signatures.
type servedKey struct {
	kid string
	// alg is the only algorithm that the key verifies.
	alg string
	key crypto.PublicKey
}

// keySet holds the keys that a URL serves. All fetches but the first are made by run. It is safe
// for concurrent use.
type keySet struct {
	source  KeySet
	accepts claimRule
	client  *http.Client
	log     *slog.Logger
	// keys are those of the last successful fetch. Nil means that there was none.
	keys atomic.Pointer[[]servedKey]
	// unknown limits the fetches for unknown keys. wake has room for one element, which tells run to
	// fetch.
	unknown *rate.Limiter
	wake    chan struct{}

	mu      sync.Mutex    // guards the fields below
	running bool          // from open until run ends
	pending chan struct{} // closed at the end of the fetch that is in flight or asked for; nil without one
}

func newKeySet(source KeySet, accepts claimRule, log *slog.Logger) *keySet {
	return &keySet{
		source: source, accepts: accepts, log: log.With("key_set", source.ID),
		client: &http.Client{Transport: limitedTransport{&http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			DisableKeepAlives: true, // minutes pass between fetches, and nothing must be left after Stop
		}}},
		unknown: rate.NewLimiter(rate.Every(keySetUnknown), 1),
		wake:    make(chan struct{}, 1),
	}
}

// open lets refetch ask for fetches. run must be called soon after it.
func (s *keySet) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = true
}

// run fetches the set whenever it is time to, and when refetch asks for it. It blocks until ctx
// ends. The caller makes the first fetch, and passes whether it succeeded.
func (s *keySet) run(ctx context.Context, fetched bool) {
	defer func() {
		s.mu.Lock()
		s.running = false
		s.mu.Unlock()
		s.finish()
	}()
	timer := time.NewTimer(interval(fetched))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		s.begin()
		fetched = s.fetch(ctx)
		s.finish()
		timer.Reset(interval(fetched))
	}
}

// interval returns the time until the next fetch.
func interval(fetched bool) time.Duration {
	if fetched {
		return keySetRefresh
	}
	return keySetRetry
}

// begin announces a fetch, which serves all callers of refetch until finish.
func (s *keySet) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		s.pending = make(chan struct{})
	}
	select { // the fetch that begins is the one that was asked for
	case <-s.wake:
	default:
	}
}

func (s *keySet) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		close(s.pending)
		s.pending = nil
	}
}

// refetch waits for the fetch that is in flight. Without one it asks for a fetch, at most once in
// keySetUnknown. It reports whether a fetch has ended, successfully or not, before ctx, or since
// the caller has seen the keys seen: their key may have come in between.
func (s *keySet) refetch(ctx context.Context, seen *[]servedKey) bool {
	s.mu.Lock()
	pending := s.pending
	if pending == nil {
		if s.keys.Load() != seen {
			s.mu.Unlock()
			return true
		}
		if !s.running || !s.unknown.Allow() {
			s.mu.Unlock()
			return false
		}
		pending = make(chan struct{})
		s.pending = pending
		s.wake <- struct{}{} // has room: begin empties it before pending is nil again
	}
	s.mu.Unlock()
	select {
	case <-pending:
		return true
	case <-ctx.Done():
		return false
	}
}

// fetch replaces the keys by those that the URL serves. It reports whether it succeeded. Otherwise
// the keys stay, and the error is logged unless ctx has ended.
func (s *keySet) fetch(ctx context.Context) bool {
	keys, err := s.served(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.log.WarnContext(ctx, "fetch key set failed", "error", err)
		}
		return false
	}
	s.keys.Store(&keys)
	return true
}

// served fetches the set once and returns its keys that may verify signatures.
func (s *keySet) served(ctx context.Context) ([]servedKey, error) {
	storage, err := jwkset.NewStorageFromHTTP(s.source.URL, jwkset.HTTPClientStorageOptions{
		Client: s.client, Ctx: ctx, HTTPTimeout: keySetTimeout,
		// A key of another use is skipped below, and does not fail the set (RFC 7517, section 5).
		ValidateOptions: jwkset.JWKValidateOptions{SkipUse: true, SkipKeyOps: true},
	})
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", s.source.ID, err)
	}
	all, err := storage.KeyReadAll(ctx)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.source.ID, err)
	}
	var keys []servedKey
	for _, jwk := range all {
		m := jwk.Marshal()
		// Excludes symmetric and private keys, which everyone knows once they are published, and weak
		// ones.
		alg, err := algorithmOf(jwk.Key())
		if err != nil || !slices.Contains(signing, m.USE) || m.ALG != "" && m.ALG.String() != alg {
			continue
		}
		keys = append(keys, servedKey{kid: m.KID, alg: alg, key: jwk.Key()})
	}
	return keys, nil
}

// findKeys returns up to maxKeysTried of the keys for an algorithm that have the given kid, or any
// kid if it is empty. known reports that a key has the kid, of any algorithm.
func findKeys(all []servedKey, kid, alg string) (keys []jwt.VerificationKey, known bool) {
	for _, k := range all {
		if kid != "" && k.kid != kid {
			continue
		}
		known = true
		if k.alg == alg && len(keys) < maxKeysTried {
			keys = append(keys, k.key)
		}
	}
	return keys, known
}

// limitedTransport bounds the body of a response to maxKeySetBytes. Reading beyond that fails.
type limitedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxKeySetBytes)
	return resp, nil
}
