package server_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/golang-jwt/jwt/v5"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/servertest"
)

// signed returns a token that key signs. An empty kid or iss is left out.
func signed(t *testing.T, method jwt.SigningMethod, key any, kid, iss string) string {
	t.Helper()
	header, changes := map[string]any{}, jwt.MapClaims{"iss": nil}
	if kid != "" {
		header["kid"] = kid
	}
	if iss != "" {
		changes["iss"] = iss
	}
	token := jwt.NewWithClaims(method, claims(changes))
	maps.Copy(token.Header, header)
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// tried calls a node with a token and returns "ok", or the code and the reason of the refusal.
func tried(t *testing.T, s *servertest.Server, token string) string {
	t.Helper()
	_, err := s.Client(token).ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: "room"})
	if err == nil {
		return "ok"
	}
	reason, _ := reasonOf(err)
	return fmt.Sprintf("%v %v", connect.CodeOf(err), reason)
}

const tokenInvalid = "unauthenticated ERROR_REASON_TOKEN_INVALID"

// TestSecretsRotate rotates an HS256 secret as docs/tokens.md says, with one node restarted at a
// time. Before the last step no node refuses a token of the old secret. Once all nodes have the new
// secret, none refuses its tokens. In the end all refuse those of the old one.
func TestSecretsRotate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	value := func(id string) []byte { return []byte(strings.Repeat(id[len(id)-1:], 32)) }
	item := func(id string) config.HS256Secret {
		file := filepath.Join(dir, id)
		if err := os.WriteFile(file, append(value(id), '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		return config.HS256Secret{ID: id, File: file}
	}
	old, next := item("2026-11"), item("2026-12")
	oldToken := signed(t, jwt.SigningMethodHS256, value(old.ID), old.ID, "")
	oldWithout := signed(t, jwt.SigningMethodHS256, value(old.ID), "", "")
	nextToken := signed(t, jwt.SigningMethodHS256, value(next.ID), next.ID, "")
	nextWithout := signed(t, jwt.SigningMethodHS256, value(next.ID), "", "")
	for name, start := range map[string]func(t *testing.T, o servertest.Option) []*servertest.Server{
		"dev": func(t *testing.T, o servertest.Option) []*servertest.Server {
			return []*servertest.Server{servertest.Dev(t, o)}
		},
		"real": func(t *testing.T, o servertest.Option) []*servertest.Server { return fleetOf(t, 2, o) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := start(t, servertest.With(func(c *config.Config) { c.Auth.HS256Secrets = []config.HS256Secret{old} }))
			expect := func(step string, want map[string]string) {
				t.Helper()
				for i, s := range nodes {
					for token, answer := range want {
						if got := tried(t, s, token); got != answer {
							t.Errorf("%s, node %d: a token with the header %s: %s, want %s", step, i, headOf(t, token), got, answer)
						}
					}
				}
			}
			restart := func(step string, secrets []config.HS256Secret, during map[string]string) {
				t.Helper()
				for _, s := range nodes {
					s.Stop()
					s.Reconfigure(func(c *config.Config) { c.Auth.HS256Secrets = secrets })
					s.Start()
					expect(step+", half-way", during)
				}
			}
			stranger := signed(t, jwt.SigningMethodHS256, value("x"), old.ID, "")
			expect("before", map[string]string{oldToken: "ok", oldWithout: "ok", nextToken: tokenInvalid, nextWithout: tokenInvalid, stranger: tokenInvalid})
			restart("both", []config.HS256Secret{old, next}, map[string]string{oldToken: "ok", oldWithout: "ok"})
			expect("both", map[string]string{oldToken: "ok", oldWithout: "ok", nextToken: "ok", nextWithout: "ok", stranger: tokenInvalid})
			restart("only the new one", []config.HS256Secret{next}, map[string]string{nextToken: "ok", nextWithout: "ok"})
			expect("after", map[string]string{oldToken: tokenInvalid, oldWithout: tokenInvalid, nextToken: "ok", nextWithout: "ok", stranger: tokenInvalid})
		})
	}
}

// headOf returns a token's header.
func headOf(t *testing.T, token string) string {
	t.Helper()
	head, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(head)
}

// provider is an identity provider with one Ed25519 key, whose key set can be away.
type provider struct {
	key  ed25519.PrivateKey
	url  string
	away atomic.Bool
}

func newProvider(t *testing.T, kid string) *provider {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if p.away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		x := base64.RawURLEncoding.EncodeToString(key[32:])
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x}}})
	}))
	t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

// TestKeySetsOfTwoProviders checks a server with two providers whose keys have the same kid: each
// verifies the tokens of its issuer only, and one that is away changes nothing for the other.
func TestKeySetsOfTwoProviders(t *testing.T) {
	t.Parallel()
	east, west := newProvider(t, "1"), newProvider(t, "1")
	west.away.Store(true)
	s := servertest.Dev(t, servertest.With(func(c *config.Config) {
		c.Auth.JWKS = []config.JWKS{{ID: "east", URL: east.url, Issuer: "east"}, {ID: "west", URL: west.url, Issuer: "west"}}
	}))
	of := func(p *provider, kid, iss string) string { return signed(t, jwt.SigningMethodEdDSA, p.key, kid, iss) }
	check := func(step, token, want string) {
		t.Helper()
		if got := tried(t, s, token); got != want {
			t.Errorf("%s: %s, want %s", step, got, want)
		}
	}
	check("while west was never fetched", of(east, "1", "east"), "ok")
	check("without a kid, while west was never fetched", of(east, "", "east"), "ok")
	west.away.Store(false)
	check("once west is there", of(west, "1", "west"), "ok")
	check("signed by east as west", of(east, "1", "west"), tokenInvalid)
	check("signed by west as east", of(west, "1", "east"), tokenInvalid)
	check("of neither issuer", of(west, "1", "north"), tokenInvalid)
	check("without an issuer", of(west, "1", ""), tokenInvalid)
	check("of an unknown kid", of(west, "2", "west"), tokenInvalid)
	east.away.Store(true) // the keys that were fetched stay
	west.away.Store(true)
	check("of west, which is away again", of(west, "", "west"), "ok")
	check("of east, which is away", of(east, "", "east"), "ok")
	check("of the dev secret, with an unknown kid", s.Token, "ok")
}

// TestPublicKeyIsNoSecret checks that no public key of a server can sign a token as a secret, with
// the kid of a key set, of a secret, or none.
func TestPublicKeyIsNoSecret(t *testing.T) {
	t.Parallel()
	p := newProvider(t, "1")
	file := filepath.Join(t.TempDir(), "2026-12")
	if err := os.WriteFile(file, []byte(strings.Repeat("s", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Dev(t, servertest.With(func(c *config.Config) {
		c.Auth.JWKS = []config.JWKS{{ID: "east", URL: p.url}}
		c.Auth.HS256Secrets = []config.HS256Secret{{ID: "1", File: file}}
	}))
	der, err := x509.MarshalPKIXPublicKey(p.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	x := []byte(p.key[32:])
	for name, key := range map[string][]byte{
		"raw": x, "base64": []byte(base64.RawURLEncoding.EncodeToString(x)), "DER": der,
		"PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
	} {
		for _, kid := range []string{"", "1", "2"} {
			if got := tried(t, s, signed(t, jwt.SigningMethodHS256, key, kid, "")); got != tokenInvalid {
				t.Errorf("the public key as %s, kid %q: %s", name, kid, got)
			}
		}
	}
	for name, token := range map[string]string{
		"the secret": signed(t, jwt.SigningMethodHS256, []byte(strings.Repeat("s", 32)), "1", ""), "the key": signed(t, jwt.SigningMethodEdDSA, p.key, "1", ""),
	} {
		if got := tried(t, s, token); got != "ok" {
			t.Errorf("%s itself: %s", name, got)
		}
	}
}
