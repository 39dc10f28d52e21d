package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// TestTokenOfASecret checks that a token is signed with the secret of a file, in place of all other
// secrets, and carries the secret's id and the login's.
func TestTokenOfASecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "2026-12")
	secret := strings.Repeat("s", 32)
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"PARLEY_AUTH_HS256_SECRET": strings.Repeat("other", 8)}
	got := runWith(t, env, "", "token", "--sub", "ann", "--kid", "2026-12", "--secret-file", file, "--ssid", "login-1").wantOK(t)
	claims := jwt.MapClaims{}
	token, err := jwt.ParseWithClaims(strings.TrimSpace(got.stdout), claims, func(*jwt.Token) (any, error) { return []byte(secret), nil })
	if err != nil {
		t.Fatal(err)
	}
	if token.Header["kid"] != "2026-12" || claims["ssid"] != "login-1" || claims["sub"] != "ann" {
		t.Errorf("header %v, claims %v", token.Header, claims)
	}
	plain := runWith(t, nil, "", "token", "--sub", "ann", "--secret-file", file).wantOK(t)
	token, _, err = jwt.NewParser().ParseUnverified(strings.TrimSpace(plain.stdout), claims)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := token.Header["kid"]; ok {
		t.Errorf("without --kid the header is %v", token.Header)
	}
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--secret-file", file + "-none"}, 1, "no such file"},
		{[]string{"--secret-file", short}, 1, "has 7 bytes: at least 32 are required"},
		{[]string{"--kid", "a b"}, 2, "--kid: must be 1 to 64 characters"},
		{[]string{"--ssid", "a.b"}, 2, "--ssid: must be 1 to 64 characters"},
	} {
		got := runWith(t, env, "", append([]string{"token", "--sub", "ann"}, tt.args...)...)
		if got.code != tt.code || !strings.Contains(got.stderr, tt.want) || strings.Contains(got.stderr, "hunter2") {
			t.Errorf("%v: exit code %d, %s", tt.args, got.code, got.stderr)
		}
	}
}
