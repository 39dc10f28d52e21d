package server_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
	"github.com/parleyhq/parley/server/servertest"
)

const localNames = "http://*.localhost:*"

// TestDevListensOnBothLoopbacks checks that dev also listens on [::1]: browsers try it first, so no
// other process may.
func TestDevListensOnBothLoopbacks(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	url := strings.Replace(s.URL, "127.0.0.1", "[::1]", 1)
	if hasIPv6(t) {
		resp, _ := fetch(t, http.MethodGet, url+"/")
		if resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Content-Security-Policy"), localNames) {
			t.Errorf("on [::1]: %s %v", resp.Status, resp.Header)
		}
	}
	if !strings.HasPrefix(s.URL, "http://127.0.0.1:") {
		t.Errorf("server URL is %s", s.URL)
	}
	s.Stop()
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://")); err == nil {
		_ = conn.Close()
		t.Error("the server still listens on [::1]")
	}
}

// TestPagePolicyOmitsLoopbackOfAnotherProcess checks that the chat page's policy does not allow
// calls to names below localhost if another process listens on [::1] on the same port.
func TestPagePolicyOmitsLoopbackOfAnotherProcess(t *testing.T) {
	t.Parallel()
	if !hasIPv6(t) {
		t.Log("this machine has no IPv6, and so no other loopback")
		return
	}
	other, addr := otherLoopback(t)
	defer other.Close()
	s := servertest.Dev(t, servertest.With(func(c *config.Config) { c.Listen = addr }))
	resp, _ := fetch(t, http.MethodGet, s.URL+"/")
	if policy := resp.Header.Get("Content-Security-Policy"); resp.StatusCode != http.StatusOK || strings.Contains(policy, localNames) {
		t.Errorf("%s, with the policy %s", resp.Status, policy)
	}
}

func hasIPv6(t *testing.T) bool {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	_ = ln.Close()
	return true
}

// otherLoopback listens on [::1], on the port of addr. addr is on 127.0.0.1 and free.
func otherLoopback(t *testing.T) (other net.Listener, addr string) {
	t.Helper()
	var lc net.ListenConfig
	for range 100 {
		ln, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr = ln.Addr().String()
		_ = ln.Close()
		if other, err = lc.Listen(t.Context(), "tcp6", strings.Replace(addr, "127.0.0.1", "[::1]", 1)); err == nil {
			return other, addr
		}
	}
	t.Fatal("no port is free on both loopbacks")
	return nil, ""
}

// TestDevUsesConfiguredSecret checks that `parleyd dev` with a configured secret signs and accepts
// tokens with that secret only.
func TestDevUsesConfiguredSecret(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef0123456789abcdef"
	s := servertest.Dev(t, servertest.With(func(c *config.Config) { c.Auth.HS256Secret = secret }))
	for key, want := range map[string]int{secret: http.StatusOK, strings.Repeat("x", 32): http.StatusUnauthorized} {
		token, err := authn.Mint([]byte(key), &ident.Principal{
			Subject: "ann", Channels: []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Send}}},
		}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/parley.v1.MessageService/SendMessage",
			strings.NewReader(`{"channel_id":"c","content":"hello"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("signed with %s: %s", key, resp.Status)
		}
	}
}
