package server_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/golang-jwt/jwt/v5"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// issuer signs valid and invalid tokens by hand, for a server that has its keys.
type issuer struct {
	t      *testing.T
	secret []byte
	rsa    *rsa.PrivateKey
	// pem is the RSA public key as configured on the server.
	pem []byte
}

// attackIssuer starts a server that accepts an issuer's tokens with the audience parley only.
func attackIssuer(t *testing.T, change func(*config.Config)) (*target, *issuer) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	is := &issuer{t: t, rsa: key, pem: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, is.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	var dir string
	g := attack(t, func(c *config.Config) {
		c.Auth.PublicKeys, c.Auth.Audience, c.Auth.Issuer = []string{file}, "parley", "idp"
		dir = c.DataDir
		if change != nil {
			change(c)
		}
	})
	secret, err := os.ReadFile(filepath.Join(dir, "dev-secret"))
	if err != nil {
		t.Fatal(err)
	}
	is.secret = []byte(strings.TrimSpace(string(secret)))
	g.Token = is.hs(nil)
	return g, is
}

// claims returns the claims of a valid token with changes applied. A nil value removes a claim.
func claims(changes jwt.MapClaims) jwt.MapClaims {
	c := jwt.MapClaims{
		"sub": "tester", "iss": "idp", "aud": []string{"parley", "other"}, "exp": time.Now().Add(time.Hour).Unix(),
		"cap": map[string]any{"channel:*": []string{"send", "history", "subscribe", "moderate"}},
	}
	for k, v := range changes {
		if v == nil {
			delete(c, k)
		} else {
			c[k] = v
		}
	}
	return c
}

func (is *issuer) sign(method jwt.SigningMethod, key any, changes jwt.MapClaims, header map[string]any) string {
	is.t.Helper()
	token := jwt.NewWithClaims(method, claims(changes))
	maps.Copy(token.Header, header)
	text, err := token.SignedString(key)
	if err != nil {
		is.t.Fatal(err)
	}
	return text
}

func (is *issuer) hs(changes jwt.MapClaims) string {
	is.t.Helper()
	return is.sign(jwt.SigningMethodHS256, is.secret, changes, nil)
}

func (is *issuer) head(name string, value any) string {
	is.t.Helper()
	return is.sign(jwt.SigningMethodHS256, is.secret, nil, map[string]any{name: value})
}

// swapHead replaces a token's header and signs with the HS256 secret regardless of the header.
// Without sign the signature stays empty.
func (is *issuer) swapHead(header string, sign bool) string {
	is.t.Helper()
	parts := strings.Split(is.hs(nil), ".")
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + parts[1]
	if !sign {
		return text + "."
	}
	mac := hmac.New(sha256.New, is.secret)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// flipped changes one bit of a token's signature.
func flipped(token string, bit int) string {
	dot := strings.LastIndexByte(token, '.')
	sum, err := base64.RawURLEncoding.DecodeString(token[dot+1:])
	if err != nil {
		return token
	}
	sum[bit/8%len(sum)] ^= 1 << (bit % 8)
	return token[:dot+1] + base64.RawURLEncoding.EncodeToString(sum)
}

// lines returns requests with tokens that must be refused. The server must not read their bodies.
func (is *issuer) lines() []line {
	ok := is.hs(nil)
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		is.t.Fatal(err)
	}
	soon, hour := time.Now().Add(time.Minute).Unix(), time.Hour
	cases := map[string][]string{
		"no Authorization":                   {},
		"empty":                              {"Bearer "},
		"only the word":                      {"Bearer"},
		"nothing":                            {""},
		"Basic":                              {"Basic " + ok},
		"no scheme":                          {ok},
		"two headers":                        {"Bearer " + ok, "Bearer " + ok},
		"two headers, one of them bad":       {"Bearer " + ok, "Bearer x"},
		"two in one":                         {"Bearer " + ok + ", Bearer " + ok},
		"a token of 9 KiB":                   {"Bearer " + strings.Repeat("a", 9<<10)},
		"a thousand dots":                    {"Bearer " + strings.Repeat(".", 1000)},
		"five parts":                         {"Bearer " + ok + ".x.y"},
		"a token with a newline's escape":    {"Bearer " + ok + "%0a"},
		"a space within":                     {"Bearer " + ok[:20] + " " + ok[20:]},
		"another body":                       {"Bearer " + strings.Replace(ok, strings.Split(ok, ".")[1], strings.Split(is.hs(jwt.MapClaims{"sub": "root"}), ".")[1], 1)},
		"the first bit flipped":              {"Bearer " + flipped(ok, 0)},
		"a bit in the middle flipped":        {"Bearer " + flipped(ok, 131)},
		"the last bit flipped":               {"Bearer " + flipped(ok, 255)},
		"unused bits of the last letter set": {"Bearer " + ok[:len(ok)-1] + string(ok[len(ok)-1]+1)},
	}
	tokens := map[string]string{
		"alg none":                          is.swapHead(`{"alg":"none","typ":"JWT"}`, false),
		"alg nOnE":                          is.swapHead(`{"alg":"nOnE","typ":"JWT"}`, false),
		"alg none, signed":                  is.swapHead(`{"alg":"none"}`, true),
		"no alg":                            is.swapHead(`{"typ":"JWT"}`, true),
		"alg a list":                        is.swapHead(`{"alg":["HS256"]}`, true),
		"alg hs256":                         is.swapHead(`{"alg":"hs256"}`, true),
		"our key as HS512's":                is.sign(jwt.SigningMethodHS512, is.secret, nil, nil),
		"our key as HS384's":                is.sign(jwt.SigningMethodHS384, is.secret, nil, nil),
		"said to be RS256":                  is.swapHead(`{"alg":"RS256","typ":"JWT"}`, true),
		"public key as HS256's":             is.sign(jwt.SigningMethodHS256, is.pem, nil, nil),
		"RSA key as RS512's":                is.sign(jwt.SigningMethodRS512, is.rsa, nil, nil),
		"RSA key as PS256's":                is.sign(jwt.SigningMethodPS256, is.rsa, nil, nil),
		"a stranger's RS256":                is.sign(jwt.SigningMethodRS256, stranger, nil, nil),
		"a stranger's key in the header":    is.sign(jwt.SigningMethodRS256, stranger, nil, map[string]any{"jwk": map[string]any{"kty": "RSA", "e": "AQAB", "n": base64.RawURLEncoding.EncodeToString(stranger.N.Bytes())}}),
		"a key to fetch":                    is.sign(jwt.SigningMethodRS256, stranger, nil, map[string]any{"jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/"}),
		"nbf ahead":                         is.hs(jwt.MapClaims{"nbf": soon}),
		"nbf of words":                      is.hs(jwt.MapClaims{"nbf": "now"}),
		"no exp":                            is.hs(jwt.MapClaims{"exp": nil}),
		"expired, with a wrong aud":         is.hs(jwt.MapClaims{"exp": 0, "aud": "other"}),
		"expired, with a wrong iss":         is.hs(jwt.MapClaims{"exp": 0, "iss": "evil"}),
		"expired, with nbf ahead":           is.hs(jwt.MapClaims{"exp": 0, "nbf": soon}),
		"expired, without a sub":            is.hs(jwt.MapClaims{"exp": 0, "sub": nil}),
		"expired, by a stranger":            is.sign(jwt.SigningMethodRS256, stranger, jwt.MapClaims{"exp": 0}, nil),
		"expired, with a bit flipped":       flipped(is.hs(jwt.MapClaims{"exp": 0}), 17),
		"exp of words":                      is.hs(jwt.MapClaims{"exp": "tomorrow"}),
		"wrong aud":                         is.hs(jwt.MapClaims{"aud": "other"}),
		"no aud":                            is.hs(jwt.MapClaims{"aud": nil}),
		"aud a number":                      is.hs(jwt.MapClaims{"aud": 1}),
		"wrong iss":                         is.hs(jwt.MapClaims{"iss": "evil"}),
		"kid a path":                        is.head("kid", "../../etc/passwd"),
		"kid a query":                       is.head("kid", "' OR 1=1 --"),
		"kid a number":                      is.head("kid", 5),
		"kid of 1 KiB":                      is.head("kid", strings.Repeat("k", 1<<10)),
		"a refresh token":                   is.head("typ", "refresh+jwt"),
		"an id token":                       is.head("typ", "id+jwt"),
		"typ a number":                      is.head("typ", 1),
		"unknown critical header":           is.head("crit", []string{"b64"}),
		"no sub":                            is.hs(jwt.MapClaims{"sub": nil}),
		"sub empty":                         is.hs(jwt.MapClaims{"sub": ""}),
		"sub with a space":                  is.hs(jwt.MapClaims{"sub": "a b"}),
		"sub with a newline at the end":     is.hs(jwt.MapClaims{"sub": "tester\n"}),
		"sub with NUL":                      is.hs(jwt.MapClaims{"sub": "a\x00b"}),
		"sub with an escape for a terminal": is.hs(jwt.MapClaims{"sub": "a\x1b[31m"}),
		"sub not ASCII":                     is.hs(jwt.MapClaims{"sub": "ünal"}),
		"sub of 129 letters":                is.hs(jwt.MapClaims{"sub": strings.Repeat("a", 129)}),
		"sub a number":                      is.hs(jwt.MapClaims{"sub": 7}),
		"ssid with a dot":                   is.hs(jwt.MapClaims{"ssid": "a.b"}),
		"ssid of 65 letters":                is.hs(jwt.MapClaims{"ssid": strings.Repeat("s", 65)}),
		"cap a list":                        is.hs(jwt.MapClaims{"cap": []string{"channel:*"}}),
		"cap's actions a word":              is.hs(jwt.MapClaims{"cap": map[string]any{"channel:*": "send"}}),
	}
	// These tokens are invalid only because of their age.
	ended := map[string]string{
		"expired":           is.hs(jwt.MapClaims{"exp": time.Now().Add(-hour).Unix()}),
		"expired, by RS256": is.sign(jwt.SigningMethodRS256, is.rsa, jwt.MapClaims{"exp": time.Now().Add(-hour).Unix()}, nil),
		"exp 0":             is.hs(jwt.MapClaims{"exp": 0}),
		"exp below 0":       is.hs(jwt.MapClaims{"exp": -1}),
	}
	for name, token := range tokens {
		cases[name] = []string{"Bearer " + token}
	}
	lines := make([]line, 0, len(cases)+len(ended))
	add := func(name string, authorization []string, w want) {
		lines = append(lines, line{
			name: name, header: http.Header{"Authorization": authorization}, open: true, want: w,
			message: &parleyv1.SendMessageRequest{ChannelId: "*"},
		})
	}
	for name, authorization := range cases {
		add(name, authorization, unauthenticated)
	}
	for name, token := range ended {
		add(name, []string{"Bearer " + token}, expired)
	}
	return lines
}

func TestHostileTokens(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g, is := attackIssuer(t, nil)
	for name, token := range map[string]string{
		"HS256": is.hs(nil), "RS256": is.sign(jwt.SigningMethodRS256, is.rsa, nil, nil), "a kid that nobody knows": is.head("kid", "k-1"),
		"at+jwt": is.head("typ", "at+jwt"), "exp of the year 9999": is.hs(jwt.MapClaims{"exp": 253370764800}),
	} {
		l := line{procedure: listMessages, message: &parleyv1.ListMessagesRequest{ChannelId: "room"}}
		if a := g.call(&l, &dialects[0], token); a.code != "ok" {
			t.Errorf("%s: a valid token is refused: %s, %s", name, a.code, a.message)
		}
	}
	g.run(is.lines())
}

// TestHostileHugeTokens checks that huge tokens are refused before they are parsed, although the
// server accepts headers of 1 MiB.
func TestHostileHugeTokens(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g, _ := attackIssuer(t, func(c *config.Config) { c.Limits.HeaderBytes = 1 << 20 })
	large := func(name, token string) line {
		return line{
			name: name, header: http.Header{"Authorization": {"Bearer " + token}}, open: true, want: unauthenticated,
			message: &parleyv1.SendMessageRequest{ChannelId: "*"},
		}
	}
	g.run([]line{
		large("64 KiB", strings.Repeat("a", 64<<10)),
		large("a million dots", strings.Repeat(".", 1_000_000)),
		large("64 KiB of parts", strings.Repeat("e30.", 16<<10)),
	})
}

// TestHostileUnknownKeyIDsLimitFetches checks that ten thousand tokens with unknown key ids are
// refused, and make the server fetch its key set at most three times.
func TestHostileUnknownKeyIDsLimitFetches(t *testing.T) {
	t.Parallel()
	set, other := newKeySet(t), newKeySet(t)
	g := attack(t, func(c *config.Config) {
		c.Auth.JWKSURL, c.Auth.JWKS = set.url, []config.JWKS{{ID: "other", URL: other.url}}
	})
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	is := &issuer{t: t, secret: make([]byte, 32), rsa: stranger}
	parts := strings.Split(is.sign(jwt.SigningMethodRS256, stranger, nil, nil), ".")
	start := time.Now()
	for i := range 10_000 {
		head := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"RS256","kid":"k-%d"}`, i))
		l := line{message: &parleyv1.SendMessageRequest{ChannelId: "*"}}
		if a := g.call(&l, &dialects[1], head+"."+parts[1]+"."+parts[2]); a.code != unauthenticated.code {
			t.Fatalf("kid %d: answered %s, %s", i, a.code, a.message)
		}
	}
	allowed := 3 + int64(time.Since(start)/time.Minute)
	for _, s := range []*keySet{set, other} {
		if n := s.asked.Load(); n > allowed {
			t.Errorf("a key set was fetched %d times, %d are allowed", n, allowed)
		}
	}
	t.Logf("10,000 unknown keys took %v", time.Since(start))
}

// TestHostileFloodOfBadTokensDoesNotFillTheLog checks that calls that are refused at a high rate
// cause a bounded number of log lines, of which one says how many are missing.
func TestHostileFloodOfBadTokensDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	g := attack(t, func(c *config.Config) { c.Log.CallsPerSecond = 1 })
	c := g.Client("bad")
	began := time.Now()
	const calls = 200
	for range calls {
		if _, err := c.ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: "room"}); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Fatal(err)
		}
	}
	atMost := 10 + int(time.Since(began).Seconds()) + 1
	if n := g.log.count("call failed"); n < 10 || n > atMost {
		t.Errorf("%d calls caused %d log lines, want 10 to %d", calls, n, atMost)
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		_, _ = c.ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: "room"}) // it is refused
		if !g.log.names("dropped") {
			return errors.New("no record says how many were dropped")
		}
		return nil
	})
}
