// Package authn authenticates callers by the headers of a request alone, before its body is read.
//
// A token is a JWT (HS256, RS256, ES256 or EdDSA) with `sub`, `exp`, optionally `ssid`, and `cap`.
// `cap` is an object. It maps `channel:<pattern>`, `member:<pattern>`, `session:<pattern>` and
// `queue:<pattern>` to a list of actions, and `admin` to a list of actions that is not empty, or to
// true for all of them. Other entries of `cap` are ignored. An action that this server does not
// know allows nothing.
package authn

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	connectauthn "connectrpc.com/authn"
	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// maxTokenBytes bounds a token in bytes. Larger ones are refused before they are parsed.
	maxTokenBytes = 8 << 10
	// leeway is how far the clock of the token's issuer may differ from this server's.
	leeway = 30 * time.Second
	// minSecretBytes is the minimum size of an HS256 secret.
	minSecretBytes = 32
)

var (
	validSSID = regexp.MustCompile(`^[A-Za-z0-9_-]{0,64}$`)
	// validKeyID matches a kid. It excludes characters that have a meaning in file systems and URLs,
	// although no key is looked up there.
	validKeyID = regexp.MustCompile(`^[A-Za-z0-9_.:=+-]{1,128}$`)
)

// Config sets which tokens are valid. At least one of Secrets, PublicKeys and KeySets must be set.
type Config struct {
	// Secrets verify HS256 tokens. Without any, HS256 tokens are refused.
	Secrets []Secret
	// PublicKeys verify RS256, ES256 and EdDSA tokens: *rsa.PublicKey (at least 2048 bits),
	// *ecdsa.PublicKey (P-256) or ed25519.PublicKey. All of the token's algorithm are tried, for
	// any kid.
	PublicKeys []crypto.PublicKey
	// KeySets serve public keys that rotate. If several have a key of the same kid, each is tried
	// whose Issuer and Audience accept the token.
	KeySets []KeySet
	// Issuer must equal a token's `iss`, and Audience must be in its `aud`. Empty accepts any. A key
	// set may have others.
	Issuer, Audience string
	// Keys verifies API keys, for which the rest of Config does not matter. Nil means that there are
	// none.
	Keys APIKeys
	// Logger logs the ids of the keys at the start, and failed fetches. It must not be nil.
	Logger *slog.Logger
	// Now returns the current time; nil means time.Now.
	Now func() time.Time
}

// Secret is a key of HS256 tokens.
type Secret struct {
	// ID is the kid of the tokens that the secret verifies. A secret without an ID is tried for
	// tokens of any kid. A token without a kid is tried with every secret.
	ID string
	// Value has at least 32 bytes.
	Value []byte
}

// APIKeys verifies API keys. *apikey.Keys implements it and documents the method.
type APIKeys interface {
	Verify(ctx context.Context, text string) (*ident.Principal, error)
}

// Verifier verifies tokens and API keys. It is safe for concurrent use.
type Verifier struct {
	parser     *jwt.Parser
	secrets    []Secret
	publicKeys map[string][]jwt.VerificationKey // by algorithm
	accepts    claimRule                        // of secrets and publicKeys
	sets       []*keySet
	now        func() time.Time
	keys       APIKeys // may be nil
	log        *slog.Logger
	cache      tokenCache
	life       lifecycle.Base
}

// New creates a Verifier. If cfg has KeySets, Start must be called before the first Verify.
func New(cfg Config) (*Verifier, error) {
	v := &Verifier{
		secrets: cfg.Secrets, publicKeys: make(map[string][]jwt.VerificationKey), accepts: claimRule{cfg.Issuer, cfg.Audience},
		keys: cfg.Keys, now: cfg.Now, log: cfg.Logger,
	}
	if v.now == nil {
		v.now = time.Now
	}
	methods := make(map[string]bool)
	for _, s := range cfg.Secrets {
		if len(s.Value) < minSecretBytes {
			return nil, fmt.Errorf("the HS256 secret %q is shorter than %d bytes", s.ID, minSecretBytes)
		}
		methods[jwt.SigningMethodHS256.Alg()] = true
	}
	for _, key := range cfg.PublicKeys {
		alg, err := algorithmOf(key)
		if err != nil {
			return nil, err
		}
		v.publicKeys[alg] = append(v.publicKeys[alg], key)
		methods[alg] = true
	}
	for _, set := range cfg.KeySets {
		rule := claimRule{cmp.Or(set.Issuer, cfg.Issuer), cmp.Or(set.Audience, cfg.Audience)}
		v.sets = append(v.sets, newKeySet(set, rule, cfg.Logger))
		methods["RS256"], methods["ES256"], methods["EdDSA"] = true, true, true
	}
	if len(methods) == 0 {
		return nil, errors.New("no key that verifies tokens is configured")
	}
	v.parser = jwt.NewParser(
		jwt.WithValidMethods(slices.Sorted(maps.Keys(methods))), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway),
		// Without it a signature's last character may be changed and still be accepted.
		jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(v.now),
	)
	return v, nil
}

// Start logs the ids of the keys, and fetches the key sets, and again every few minutes until Stop.
// It blocks until each was fetched once or that failed, and must return before the first Verify. A
// failed fetch is logged and is not an error. See lifecycle.Service.
func (v *Verifier) Start(ctx context.Context) error {
	return v.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		v.logKeys(ctx)
		var wg sync.WaitGroup
		fetched := make([]bool, len(v.sets))
		for i, set := range v.sets {
			wg.Go(func() { fetched[i] = set.fetch(ctx) })
		}
		wg.Wait()
		for i, set := range v.sets {
			set.open()
			run.Go(func(ctx context.Context) { set.run(ctx, fetched[i]) })
		}
		return ctx.Err()
	})
}

// logKeys logs which keys verify tokens, without their values.
func (v *Verifier) logKeys(ctx context.Context) {
	static := 0
	for _, keys := range v.publicKeys {
		static += len(keys)
	}
	secrets, sets := make([]string, len(v.secrets)), make([]string, len(v.sets))
	for i, s := range v.secrets {
		secrets[i] = cmp.Or(s.ID, "-")
	}
	for i, s := range v.sets {
		sets[i] = s.source.ID
	}
	v.log.InfoContext(ctx, "keys of tokens", "secrets", secrets, "public_keys", static, "key_sets", sets)
}

// Stop ends the periodic fetches. Verify continues to work with the keys that were fetched.
func (v *Verifier) Stop(ctx context.Context) error { return v.life.Stop(ctx) }

func algorithmOf(key crypto.PublicKey) (string, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < 2048 {
			return "", fmt.Errorf("RSA key has %d bits: at least 2048 are required", k.N.BitLen())
		}
		return jwt.SigningMethodRS256.Alg(), nil
	case *ecdsa.PublicKey:
		if k.Curve.Params().BitSize != 256 {
			return "", fmt.Errorf("elliptic curve %s is not supported: use P-256", k.Curve.Params().Name)
		}
		return jwt.SigningMethodES256.Alg(), nil
	case ed25519.PublicKey:
		return jwt.SigningMethodEdDSA.Alg(), nil
	default:
		return "", fmt.Errorf("public key of type %T is not supported: use RSA, ECDSA or Ed25519", key)
	}
}

// claims are the claims of a token that this package reads.
type claims struct {
	jwt.RegisteredClaims

	SSID         string                     `json:"ssid"`
	Capabilities map[string]json.RawMessage `json:"cap"`
}

// UnmarshalJSON implements json.Unmarshaler. It refuses times that are strings, which RFC 7519 does
// not allow and the library accepts.
func (c *claims) UnmarshalJSON(data []byte) error {
	var times struct {
		Expires   json.RawMessage `json:"exp"`
		NotBefore json.RawMessage `json:"nbf"`
		Issued    json.RawMessage `json:"iat"`
	}
	if err := json.Unmarshal(data, &times); err != nil {
		return err
	}
	for name, value := range map[string]json.RawMessage{"exp": times.Expires, "nbf": times.NotBefore, "iat": times.Issued} {
		if len(value) > 0 && value[0] == '"' {
			return fmt.Errorf("claim %s is a string", name)
		}
	}
	type plain claims
	return json.Unmarshal(data, (*plain)(c))
}

// Authenticate verifies the bearer token in a request's Authorization header, of which there must
// be exactly one, and returns its principal. Its errors are faults: TOKEN_EXPIRED for a token that
// was valid until it expired, STORE_UNAVAILABLE while no key could be fetched, and TOKEN_INVALID
// for a missing token and any other invalid one.
func (v *Verifier) Authenticate(r *http.Request) (*ident.Principal, error) {
	if len(r.Header.Values("Authorization")) > 1 {
		return nil, invalid(nil, "the request has more than one Authorization header")
	}
	token, ok := connectauthn.BearerToken(r)
	if !ok || token == "" {
		return nil, invalid(nil, "the request has no bearer token")
	}
	return v.Verify(r.Context(), token)
}

// Verify verifies a token, or an API key, and returns its principal, which must not be modified.
// Its errors are those of Authenticate. A verified token is cached for up to 10 s, but not beyond
// its expiry and the leeway. So it stays valid for up to 10 s after its key was removed.
func (v *Verifier) Verify(ctx context.Context, token string) (*ident.Principal, error) {
	if len(token) > maxTokenBytes {
		return nil, invalid(nil, "the token is larger than %d bytes", maxTokenBytes)
	}
	if v.keys != nil && apikey.Is(token) {
		return v.keys.Verify(ctx, token)
	}
	now := v.now()
	digest := sha256.Sum256([]byte(token))
	if p := v.cache.get(digest, now); p != nil {
		return p, nil
	}
	p, err := v.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	// Without the signature: that of ES256 has two forms, so a token could come back as another one.
	p.Key = ident.TokenKey(p.SSID, sha256.Sum256([]byte(token[:strings.LastIndexByte(token, '.')])))
	v.cache.put(digest, p, now)
	return p, nil
}

// verify is Verify without its cache.
func (v *Verifier) verify(ctx context.Context, token string) (*ident.Principal, error) {
	c, err := v.parseFresh(ctx, token)
	switch {
	case err == nil:
	case errors.Is(err, errNoKeys):
		return nil, fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the keys that verify tokens could not be fetched: retry later")
	case errors.Is(err, errOtherIssuer):
		return nil, invalid(err, "the token's iss or aud does not match this server")
	case errors.Is(err, errUnknownKey):
		return nil, invalid(err, "the token's kid names no key of this server for the token's algorithm")
	case !onlyExpired(err):
		return nil, invalid(err, "the token is not valid: its format, signature, header or times are wrong")
	}
	expired := err
	if !ident.ValidUser(c.Subject) {
		return nil, invalid(nil, "the token's sub must be 1 to 128 printable ASCII characters without spaces, and not %s", ident.ErasedUser)
	}
	if !validSSID.MatchString(c.SSID) {
		return nil, invalid(nil, "the token's ssid must be at most 64 characters of A-Z a-z 0-9 _ -")
	}
	p := &ident.Principal{Subject: c.Subject, SSID: c.SSID, Expires: c.ExpiresAt.Time}
	// A time in the future says nothing: the token could outlive every revocation of its user.
	if c.IssuedAt != nil && !c.IssuedAt.After(v.now().Add(leeway)) {
		p.IssuedAt = c.IssuedAt.Time
	}
	if err := p.SetCapabilities(c.Capabilities); err != nil {
		return nil, invalid(err, "the token's cap must be an object whose values are lists of actions")
	}
	if expired != nil {
		return nil, fault.Wrap(expired, fault.Unauthenticated, fault.TokenExpired, "the token has expired")
	}
	return p, nil
}

// otherClaimErrors are the parser's errors about claims, except for an expired token.
var otherClaimErrors = []error{
	jwt.ErrTokenRequiredClaimMissing, jwt.ErrTokenInvalidAudience, jwt.ErrTokenUsedBeforeIssued, jwt.ErrTokenInvalidIssuer,
	jwt.ErrTokenInvalidSubject, jwt.ErrTokenNotValidYet, jwt.ErrTokenInvalidId,
}

// onlyExpired reports whether expiry is all that is wrong with a token. Claims are checked after
// the signature, so the signature of such a token is valid.
func onlyExpired(err error) bool {
	return errors.Is(err, jwt.ErrTokenExpired) &&
		!slices.ContainsFunc(otherClaimErrors, func(other error) bool { return errors.Is(err, other) })
}

// checkHeader returns an error for the header of a token that is not an access token, such as a
// refresh token, according to its `typ`. It also refuses any `crit`, and a malformed `kid`.
func checkHeader(header map[string]any) error {
	if _, ok := header["crit"]; ok {
		return errors.New("header crit is not supported")
	}
	if typ, ok := header["typ"]; ok {
		text, _ := typ.(string)
		switch strings.TrimPrefix(strings.ToLower(text), "application/") {
		case "jwt", "at+jwt":
		default:
			return fmt.Errorf("header typ %q is not the type of an access token", text)
		}
	}
	if kid, ok := header["kid"]; ok {
		if text, _ := kid.(string); !validKeyID.MatchString(text) {
			return errors.New("header kid is malformed")
		}
	}
	return nil
}

func invalid(cause error, format string, args ...any) error {
	return fault.Wrap(cause, fault.Unauthenticated, fault.TokenInvalid, format, args...)
}
