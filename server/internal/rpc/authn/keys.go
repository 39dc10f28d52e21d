package authn

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

const (
	// keySetRefresh is the interval at which the key set of Config.JWKSURL is fetched. keySetRetry is
	// the minimum time between the additional fetches for unknown keys.
	keySetRefresh = 5 * time.Minute
	keySetRetry   = time.Minute
	// keySetTimeout bounds a fetch, and how long a caller with an unknown key waits for one.
	keySetTimeout  = 5 * time.Second
	maxKeySetBytes = 1 << 20
)

// signing are the uses of a key that verifies signatures: sig, or none (RFC 7517, 4.2).
var signing = []jwkset.USE{jwkset.UseSig, ""}

// errNoKeys reports that the key set was not fetched yet or is empty, so that tokens can't be
// verified.
var errNoKeys = errors.New("no key set has been fetched yet")

// keySet holds the public keys that a URL serves as a JSON Web Key Set.
type keySet struct {
	url     string
	options jwkset.HTTPClientStorageOptions
	// keys is nil until open was called.
	keys keyfunc.Keyfunc
}

func newKeySet(url string, log *slog.Logger) *keySet {
	return &keySet{url: url, options: jwkset.HTTPClientStorageOptions{
		Client: &http.Client{Transport: limitedTransport{&http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			DisableKeepAlives: true, // minutes pass between fetches, and nothing must be left after Stop
		}}},
		HTTPTimeout:               keySetTimeout,
		NoErrorReturnFirstHTTPReq: true,
		RefreshErrorHandler: func(ctx context.Context, err error) {
			log.WarnContext(ctx, "fetch key set failed", "error", err)
		},
		Storage: jwkset.NewMemoryStorage(),
	}}
}

// open fetches the set for the first time. A failed fetch is logged and is not an error: refresh
// tries again.
func (s *keySet) open(ctx context.Context) error {
	storage, err := s.fetch(ctx)
	if err != nil {
		return err
	}
	client, err := jwkset.NewHTTPClient(jwkset.HTTPClientOptions{
		HTTPURLs:          map[string]jwkset.Storage{s.url: storage},
		RefreshUnknownKID: rate.NewLimiter(rate.Every(keySetRetry), 1),
		RateLimitWaitMax:  keySetTimeout,
	})
	if err != nil {
		return err
	}
	s.keys, err = keyfunc.New(keyfunc.Options{Storage: client, UseWhitelist: signing})
	return err
}

// refresh fetches the set every keySetRefresh. It blocks until ctx ends.
func (s *keySet) refresh(ctx context.Context) {
	ticker := time.NewTicker(keySetRefresh)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_, _ = s.fetch(ctx) // the URL was parsed by open, and any other failure is logged
		case <-ctx.Done():
			return
		}
	}
}

// fetch fetches the set once, into options.Storage. It replaces the library's own periodic refresh,
// whose goroutine can't be waited for.
//
//nolint:ireturn // the library's type
func (s *keySet) fetch(ctx context.Context) (jwkset.Storage, error) {
	options := s.options
	options.Ctx = ctx
	return jwkset.NewStorageFromHTTP(s.url, options)
}

// keysOf returns the keys of the set that may have signed a token: the one that the token's kid
// names, or all if it names none. It may fetch the set if the kid is unknown. It returns errNoKeys
// if the set has no keys.
func (s *keySet) keysOf(ctx context.Context, t *jwt.Token) ([]jwt.VerificationKey, error) {
	if s.keys == nil {
		return nil, errNoKeys
	}
	// A fetch serves all callers and is limited to one per keySetRetry, so a caller that leaves must
	// not end it. keySetTimeout bounds it.
	ctx = context.WithoutCancel(ctx)
	found, err := s.keys.KeyfuncCtx(ctx)(t)
	if err != nil {
		if all, readErr := s.keys.Storage().KeyReadAll(ctx); readErr != nil || len(all) == 0 {
			return nil, errors.Join(errNoKeys, err)
		}
		return nil, err
	}
	keys := []jwt.VerificationKey{found}
	if _, several := found.(jwt.VerificationKeySet); several {
		if keys, err = s.all(ctx); err != nil {
			return nil, err
		}
	}
	usable := keys[:0]
	for _, key := range keys {
		// Excludes symmetric keys, which no published set should have, and weak keys.
		if alg, err := algorithmOf(key); err == nil && alg == t.Method.Alg() {
			usable = append(usable, key)
		}
	}
	if len(usable) == 0 {
		return nil, fmt.Errorf("the key set has no key for %s", t.Method.Alg())
	}
	return usable, nil
}

// all returns the keys of the set that may verify signatures. It returns errNoKeys if the set has
// no keys.
func (s *keySet) all(ctx context.Context) ([]jwt.VerificationKey, error) {
	found, err := s.keys.Storage().KeyReadAll(ctx)
	if err != nil || len(found) == 0 {
		return nil, errors.Join(errNoKeys, err)
	}
	var keys []jwt.VerificationKey
	for _, key := range found {
		if slices.Contains(signing, key.Marshal().USE) {
			keys = append(keys, key.Key())
		}
	}
	return keys, nil
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

// ReadPublicKeys reads PEM files, each with one or more public keys or certificates. It fails for a
// key that Config.PublicKeys does not accept.
func ReadPublicKeys(files []string) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read public key: %w", err)
		}
		found, err := parsePublicKeys(data)
		if err != nil {
			return nil, fmt.Errorf("public key in %s: %w", file, err)
		}
		keys = append(keys, found...)
	}
	return keys, nil
}

func parsePublicKeys(data []byte) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		var key crypto.PublicKey
		var err error
		switch block.Type {
		case "PUBLIC KEY":
			key, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			key, err = x509.ParsePKCS1PublicKey(block.Bytes)
		case "CERTIFICATE":
			var cert *x509.Certificate
			if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
				key = cert.PublicKey
			}
		default:
			err = fmt.Errorf("PEM block %q is not a public key", block.Type)
		}
		if err != nil {
			return nil, err
		}
		if _, err := algorithmOf(key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("no PEM block found")
	}
	return keys, nil
}
