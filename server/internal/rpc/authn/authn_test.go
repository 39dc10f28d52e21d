package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

type keys struct {
	rsa *rsa.PrivateKey
	ec  *ecdsa.PrivateKey
	ed  ed25519.PrivateKey
}

func newKeys(t *testing.T) keys {
	t.Helper()
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, d, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return keys{r, e, d}
}

func (k *keys) public() []crypto.PublicKey {
	return []crypto.PublicKey{&k.rsa.PublicKey, &k.ec.PublicKey, k.ed.Public()}
}

func verifier(t *testing.T, cfg Config) *Verifier {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	lifecycletest.Start(t, v)
	return v
}

// claimsThatHold returns the claims of a valid token.
func claimsThatHold() jwt.MapClaims {
	return jwt.MapClaims{
		"sub": "auth0|42", "exp": time.Now().Add(time.Hour).Unix(), "iss": "idp", "aud": []string{"parley", "other"},
		"cap": map[string]any{
			"channel:room-*": []string{"send", "history", "fly"}, "channel:*": []string{"subscribe"},
			"queue:orders": []string{"produce"}, "presence": true,
		},
	}
}

func sign(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	for k, v := range header {
		if v == nil {
			delete(token.Header, k)
		} else {
			token.Header[k] = v
		}
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func request(authorization ...string) *http.Request {
	r, _ := http.NewRequest(http.MethodPost, "http://x/", http.NoBody)
	r.Header["Authorization"] = authorization
	return r
}

func with(name string, value any) jwt.MapClaims {
	c := claimsThatHold()
	if value == nil {
		delete(c, name)
	} else {
		c[name] = value
	}
	return c
}

func TestVerifyAcceptsValidTokens(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	v := verifier(t, Config{Secrets: []Secret{{Value: secret}}, PublicKeys: k.public(), Issuer: "idp", Audience: "parley"})
	hs := func(c jwt.MapClaims, h map[string]any) string { return sign(t, jwt.SigningMethodHS256, secret, c, h) }
	for name, token := range map[string]string{
		"HS256":          hs(claimsThatHold(), nil),
		"RS256":          sign(t, jwt.SigningMethodRS256, k.rsa, claimsThatHold(), map[string]any{"kid": "1"}),
		"ES256":          sign(t, jwt.SigningMethodES256, k.ec, claimsThatHold(), nil),
		"EdDSA":          sign(t, jwt.SigningMethodEdDSA, k.ed, claimsThatHold(), nil),
		"no typ":         hs(claimsThatHold(), map[string]any{"typ": nil}),
		"at+jwt":         hs(claimsThatHold(), map[string]any{"typ": "application/AT+jwt"}),
		"within leeway":  hs(with("nbf", time.Now().Add(10*time.Second).Unix()), nil),
		"with a session": hs(with("ssid", "s-1"), nil),
	} {
		p, err := v.Authenticate(request("bearer " + token))
		if err != nil {
			t.Errorf("%s: %v (%v)", name, err, err.(*fault.Error).Cause)
			continue
		}
		if p.Subject != "auth0|42" || time.Until(p.Expires) < 50*time.Minute {
			t.Errorf("%s: %+v", name, p)
		}
		if !p.Can(ident.Send, "room-1") || p.Can(ident.Send, "hall") || !p.Can(ident.Subscribe, "hall") || p.Can(ident.Moderate, "room-1") {
			t.Errorf("%s: capabilities %+v", name, p.Channels)
		}
		if !p.CanQueue(ident.Produce, "orders") || p.CanQueue(ident.Consume, "orders") || p.CanQueue(ident.Produce, "orders2") ||
			p.CanQueue(ident.Send, "room-1") || p.Can(ident.Produce, "orders") || len(p.Admin) > 0 || len(p.Presence) != 3 {
			t.Errorf("%s: capabilities on queues %+v, admin %v", name, p.Queues, p.Admin)
		}
	}
}

func TestVerifyRefusesInvalidTokens(t *testing.T) {
	t.Parallel()
	k, other := newKeys(t), newKeys(t)
	v := verifier(t, Config{Secrets: []Secret{{Value: secret}}, PublicKeys: k.public(), Issuer: "idp", Audience: "parley"})
	hs := func(c jwt.MapClaims) string { return sign(t, jwt.SigningMethodHS256, secret, c, nil) }
	head := func(name string, value any) string {
		return sign(t, jwt.SigningMethodHS256, secret, claimsThatHold(), map[string]any{name: value})
	}
	none := func(alg string) string {
		body := strings.Split(hs(claimsThatHold()), ".")[1]
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"`+alg+`","typ":"JWT"}`)) + "." + body + "."
	}
	rsaPEM := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&k.rsa.PublicKey)})
	ok := hs(claimsThatHold())
	for name, authorization := range map[string][]string{
		"none at all":                  nil,
		"empty header":                 {""},
		"empty bearer":                 {"Bearer "},
		"only the word":                {"Bearer"},
		"basic":                        {"Basic " + ok},
		"two headers":                  {"Bearer " + ok, "Bearer " + ok},
		"two in one":                   {"Bearer " + ok + ", Bearer " + ok},
		"64 KiB":                       {"Bearer " + strings.Repeat("a", 64<<10)},
		"a million dots":               {"Bearer " + strings.Repeat(".", 1_000_000)},
		"garbage":                      {"Bearer a.b.c"},
		"alg none":                     {"Bearer " + none("none")},
		"alg nOnE":                     {"Bearer " + none("nOnE")},
		"signed none":                  {"Bearer " + sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claimsThatHold(), nil)},
		"other alg, same key":          {"Bearer " + sign(t, jwt.SigningMethodHS512, secret, claimsThatHold(), nil)},
		"RS512":                        {"Bearer " + sign(t, jwt.SigningMethodRS512, k.rsa, claimsThatHold(), nil)},
		"public key as HS256's":        {"Bearer " + sign(t, jwt.SigningMethodHS256, rsaPEM, claimsThatHold(), nil)},
		"another's RS256":              {"Bearer " + sign(t, jwt.SigningMethodRS256, other.rsa, claimsThatHold(), nil)},
		"another's ES256":              {"Bearer " + sign(t, jwt.SigningMethodES256, other.ec, claimsThatHold(), nil)},
		"another's EdDSA":              {"Bearer " + sign(t, jwt.SigningMethodEdDSA, other.ed, claimsThatHold(), nil)},
		"nbf ahead":                    {"Bearer " + hs(with("nbf", time.Now().Add(time.Minute).Unix()))},
		"no exp":                       {"Bearer " + hs(with("exp", nil))},
		"exp of words":                 {"Bearer " + hs(with("exp", "tomorrow"))},
		"exp as a string":              {"Bearer " + hs(with("exp", "9999999999"))},
		"nbf as a string":              {"Bearer " + hs(with("nbf", "1"))},
		"iat as a string":              {"Bearer " + hs(with("iat", "1"))},
		"wrong aud":                    {"Bearer " + hs(with("aud", "other"))},
		"no aud":                       {"Bearer " + hs(with("aud", nil))},
		"wrong iss":                    {"Bearer " + hs(with("iss", "evil"))},
		"no sub":                       {"Bearer " + hs(with("sub", nil))},
		"sub with a space":             {"Bearer " + hs(with("sub", "a b"))},
		"sub with a newline":           {"Bearer " + hs(with("sub", "a\n"))},
		"sub not ASCII":                {"Bearer " + hs(with("sub", "ü"))},
		"long sub":                     {"Bearer " + hs(with("sub", strings.Repeat("a", 129)))},
		"ssid with a dot":              {"Bearer " + hs(with("ssid", "a.b"))},
		"cap a list":                   {"Bearer " + hs(with("cap", []string{"channel:*"}))},
		"cap's actions a string":       {"Bearer " + hs(with("cap", map[string]any{"channel:*": "send"}))},
		"cap's queue true":             {"Bearer " + hs(with("cap", map[string]any{"queue:*": true}))},
		"cap's presence false":         {"Bearer " + hs(with("cap", map[string]any{"presence": false}))},
		"cap's presence an empty list": {"Bearer " + hs(with("cap", map[string]any{"presence": []string{}}))},
		"cap's presence an object":     {"Bearer " + hs(with("cap", map[string]any{"presence": map[string]any{"watch": true}}))},
		"cap's admin false":            {"Bearer " + hs(with("cap", map[string]any{"admin": false}))},
		"cap's admin null":             {"Bearer " + hs(with("cap", map[string]any{"admin": nil}))},
		"cap's admin an empty list":    {"Bearer " + hs(with("cap", map[string]any{"admin": []string{}}))},
		"cap's admin a word":           {"Bearer " + hs(with("cap", map[string]any{"admin": "all"}))},
		"cap's admin a number":         {"Bearer " + hs(with("cap", map[string]any{"admin": []int{1}}))},
		"kid a path":                   {"Bearer " + head("kid", "../../etc/passwd")},
		"kid a number":                 {"Bearer " + head("kid", 5)},
		"a refresh token":              {"Bearer " + head("typ", "refresh+jwt")},
		"an id token":                  {"Bearer " + head("typ", 1)},
		"unknown critical header":      {"Bearer " + head("crit", []string{"x"})},
		"signature of another body":    {"Bearer " + swapBody(ok, hs(with("sub", "root")))},
	} {
		p, err := v.Authenticate(request(authorization...))
		f, isFault := fault.As(err)
		if p != nil || !isFault || f.Kind != fault.Unauthenticated || f.Reason != fault.TokenInvalid {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// A token that is valid except for its expiry is TOKEN_EXPIRED: a client can continue with a new
// one. With any other fault it is TOKEN_INVALID.
func TestVerifyExpiredTokens(t *testing.T) {
	t.Parallel()
	k, other := newKeys(t), newKeys(t)
	v := verifier(t, Config{Secrets: []Secret{{Value: secret}}, PublicKeys: k.public(), Issuer: "idp", Audience: "parley"})
	old := func(name string, value any) jwt.MapClaims {
		c := with(name, value)
		c["exp"] = time.Now().Add(-time.Minute).Unix()
		return c
	}
	hs := func(c jwt.MapClaims) string { return sign(t, jwt.SigningMethodHS256, secret, c, nil) }
	for name, tt := range map[string]struct {
		token string
		want  fault.Reason
	}{
		"only expired":            {hs(old("ssid", "s")), fault.TokenExpired},
		"only expired, by RS256":  {sign(t, jwt.SigningMethodRS256, k.rsa, old("ssid", "s"), nil), fault.TokenExpired},
		"exp 0":                   {hs(with("exp", 0)), fault.TokenExpired},
		"another's signature":     {sign(t, jwt.SigningMethodRS256, other.rsa, old("ssid", "s"), nil), fault.TokenInvalid},
		"signature of other text": {swapBody(hs(claimsThatHold()), hs(old("ssid", "s"))), fault.TokenInvalid},
		"wrong aud":               {hs(old("aud", "other")), fault.TokenInvalid},
		"no aud":                  {hs(old("aud", nil)), fault.TokenInvalid},
		"wrong iss":               {hs(old("iss", "evil")), fault.TokenInvalid},
		"nbf ahead":               {hs(old("nbf", time.Now().Add(time.Minute).Unix())), fault.TokenInvalid},
		"no sub":                  {hs(old("sub", nil)), fault.TokenInvalid},
		"bad ssid":                {hs(old("ssid", "a.b")), fault.TokenInvalid},
		"bad cap":                 {hs(old("cap", map[string]any{"admin": false})), fault.TokenInvalid},
	} {
		p, err := v.Verify(t.Context(), tt.token)
		f, ok := fault.As(err)
		if p != nil || !ok || f.Kind != fault.Unauthenticated || f.Reason != tt.want || f.Retryable() != (tt.want == fault.TokenExpired) {
			t.Errorf("%s: %+v, %v, want %s", name, p, err, tt.want)
		}
	}
}

func swapBody(token, other string) string {
	a, b := strings.Split(token, "."), strings.Split(other, ".")
	return a[0] + "." + b[1] + "." + a[2]
}

// A token with any single bit flipped is refused, also a bit of a last character that base64 does
// not use.
func TestVerifyRefusesOneFlippedBit(t *testing.T) {
	t.Parallel()
	v := verifier(t, Config{Secrets: []Secret{{Value: secret}}})
	ok := sign(t, jwt.SigningMethodHS256, secret, claimsThatHold(), nil)
	if _, err := v.Verify(t.Context(), ok); err != nil {
		t.Fatal(err)
	}
	for i := range ok {
		for bit := range 8 {
			flipped := []byte(ok)
			flipped[i] ^= 1 << bit
			if p, err := v.Verify(t.Context(), string(flipped)); err == nil {
				t.Fatalf("bit %d of byte %d flipped: accepted as %+v", bit, i, p)
			}
		}
	}
}

func TestMint(t *testing.T) {
	t.Parallel()
	v := verifier(t, Config{Secrets: []Secret{{Value: secret}}})
	want := &ident.Principal{
		Subject: "ada@example.org", SSID: "s-1", Admin: []ident.Action{ident.Write}, Presence: []ident.Action{ident.Watch, ident.List},
		Channels: []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Send, ident.SendAs}}, {Pattern: "a", Actions: []ident.Action{ident.History}}},
		Members:  []ident.Capability{{Pattern: "m*", Actions: []ident.Action{ident.Subscribe}}},
		Sessions: []ident.Capability{{Pattern: "s*", Actions: ident.SessionActions}},
		Queues:   []ident.Capability{{Pattern: "jobs-*", Actions: []ident.Action{ident.Produce, ident.Consume}}},
	}
	token, err := Mint(secret, want, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	if now := time.Now(); p.IssuedAt.After(now) || now.Sub(p.IssuedAt) > 10*time.Second {
		t.Errorf("issued at %v", p.IssuedAt)
	}
	want.Expires, want.IssuedAt, want.Key = p.Expires, p.IssuedAt, ident.SSIDKey("s-1")
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	bare := func(subject string) *ident.Principal { return &ident.Principal{Subject: subject} }
	for name, mint := range map[string]func() (string, error){
		"short secret": func() (string, error) { return Mint(secret[:31], bare("a"), time.Minute) },
		"no subject":   func() (string, error) { return Mint(secret, bare(""), time.Minute) },
		"reserved":     func() (string, error) { return Mint(secret, bare("~erased"), time.Minute) },
		"no life":      func() (string, error) { return Mint(secret, bare("a"), 0) },
	} {
		if _, err := mint(); err == nil {
			t.Errorf("%s: minted", name)
		}
	}
	of := func(actions ...ident.Action) []ident.Capability {
		return []ident.Capability{{Pattern: "x", Actions: actions}}
	}
	for want, p := range map[string]*ident.Principal{
		`capability "channel:x": unknown action "sned", must be one of send, history, subscribe, moderate, send_as, create, manage`: {
			Channels: of(ident.Send, "sned"),
		},
		`capability "channel:x": unknown action "produce", must be one of send, history, subscribe, moderate, send_as, create, manage`: {
			Channels: of(ident.Produce),
		},
		`capability "session:x": unknown action "send", must be one of append, history, subscribe, send_as, manage`: {Sessions: of(ident.Send)},
		`capability "queue:x": unknown action "send", must be one of produce, consume`:                              {Queues: of(ident.Consume, ident.Send)},
		`capability "presence": unknown action "read", must be one of connect, watch, list`:                         {Presence: []ident.Action{ident.Read}},
		`capability "admin": unknown action "reed", must be one of read, write`:                                     {Admin: []ident.Action{ident.Write, "reed"}},
	} {
		p.Subject = "a"
		if token, err := Mint(secret, p, time.Minute); err == nil || err.Error() != want || token != "" {
			t.Errorf("minted with %v, want %s", err, want)
		}
	}
}

// An action that this server does not know allows nothing, and does not affect the token's other
// actions.
func TestUnknownActionsAllowNothing(t *testing.T) {
	t.Parallel()
	v := verifier(t, Config{Secrets: []Secret{{Value: secret}}})
	for text, want := range map[string][2]bool{
		`true`: {true, true}, `["read"]`: {true, false}, `["write"]`: {false, true}, `["read","write"]`: {true, true},
		`["reed"]`: {}, `["all"]`: {}, `["*"]`: {}, `["Read"]`: {}, `[""]`: {}, `["true"]`: {}, `["reed","write"]`: {false, true},
	} {
		p, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{
			"sub": "a", "exp": time.Now().Add(time.Hour).Unix(),
			"cap": map[string]any{"admin": json.RawMessage(text), "presence": []string{"reed", "admin"}, "channel:*": []string{"sned", "admin", "read"}},
		}, nil))
		if err != nil || [2]bool{p.CanAdmin(ident.Read), p.CanAdmin(ident.Write)} != want {
			t.Errorf("%s: %+v, %v, want %v", text, p, err, want)
			continue
		}
		for _, action := range ident.PresenceActions {
			if p.CanPresence(action) {
				t.Errorf("%s: may %s", text, action)
			}
		}
		for _, action := range ident.ChannelActions {
			if p.Can(action, "a") {
				t.Errorf("%s: may %s", text, action)
			}
		}
	}
}

func TestReadPublicKeys(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	var data []byte
	for _, key := range k.public() {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got, err := ReadPublicKeys([]string{file("keys.pem", data)})
	if err != nil || len(got) != 3 {
		t.Fatalf("%d keys, %v", len(got), err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k.ed)
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"missing": filepath.Join(dir, "none"), "no PEM": file("a", []byte("hello")),
		"weak":    file("b", pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&weak.PublicKey)})),
		"private": file("c", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	} {
		if _, err := ReadPublicKeys([]string{path}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestNewRequiresAKey(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{"none": {}, "short": {Secrets: []Secret{{Value: secret[:16]}}}, "odd": {PublicKeys: []crypto.PublicKey{5}}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestTokenKey checks that a token of ES256 cannot be given another key by the second form of its
// signature, which verifies too, and that other claims have another key.
func TestTokenKey(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	v := verifier(t, Config{PublicKeys: []crypto.PublicKey{&key.PublicKey}})
	token := sign(t, jwt.SigningMethodES256, key, claimsThatHold(), nil)
	signed, signature, _ := cutLast(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil {
		t.Fatal(err)
	}
	s := new(big.Int).SetBytes(raw[32:])
	s.Sub(elliptic.P256().Params().N, s).FillBytes(raw[32:])
	other := signed + "." + base64.RawURLEncoding.EncodeToString(raw)
	var keys []string
	for _, token := range []string{token, other} {
		p, err := v.Verify(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, p.Key)
	}
	if other == token || keys[0] != keys[1] || !strings.HasPrefix(keys[0], "t:") {
		t.Errorf("keys %q", keys)
	}
	claims := claimsThatHold()
	claims["sub"] = "another"
	p, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodES256, key, claims, nil))
	if err != nil || p.Key == keys[0] {
		t.Errorf("of another token: %v, %v", p, err)
	}
}

// TestIssuedInTheFuture checks that a token that says it was issued later is treated like one that
// does not say when: a revocation of its user must not miss it.
func TestIssuedInTheFuture(t *testing.T) {
	t.Parallel()
	v := verifier(t, Config{Secrets: []Secret{{Value: secret}}})
	for ahead, known := range map[time.Duration]bool{-time.Hour: true, 20 * time.Second: true, time.Hour: false, 1e6 * time.Hour: false} {
		claims := claimsThatHold()
		claims["iat"] = time.Now().Add(ahead).Unix()
		p, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodHS256, secret, claims, nil))
		if err != nil || p.IssuedAt.IsZero() == known {
			t.Errorf("%v ahead: %v, %v", ahead, p, err)
		}
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
