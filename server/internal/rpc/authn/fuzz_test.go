package authn

import (
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parleyhq/parley/server/internal/fault"
)

// Only an Authorization header with a token that the test signed is accepted, with that token's
// principal.
func FuzzAuthorization(f *testing.F) {
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": "ada", "exp": 4_000_000_000, "cap": map[string]any{"channel:*": []string{"send"}},
	}).SignedString(secret)
	if err != nil {
		f.Fatal(err)
	}
	parts := strings.Split(token, ".")
	for _, seed := range []string{
		"", "Bearer", "Bearer ", "Bearer " + token, "bearer " + token, "Bearer  " + token, "Bearer " + token + "\n", "Bearer " + token + "=",
		"Bearer " + token + ".", "Bearer ..", "Bearer " + strings.Repeat(".", 9000), "Bearer " + parts[0] + "." + parts[1] + ".",
		"Bearer eyJhbGciOiJub25lIn0." + parts[1] + ".", "Bearer " + parts[0] + ".e30." + parts[2], "Basic YTpi",
	} {
		f.Add(seed)
	}
	v, err := New(Config{Secrets: []Secret{{Value: secret}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, header string) {
		p, err := v.Authenticate(&http.Request{Method: http.MethodPost, Header: http.Header{"Authorization": {header}}})
		if err != nil {
			if e, ok := fault.As(err); !ok || e.Kind != fault.Unauthenticated || e.Reason != fault.TokenInvalid || p != nil {
				t.Fatalf("%q: %v, %+v", header, err, p)
			}
			return
		}
		if p.Subject != "ada" || !strings.HasSuffix(strings.TrimSpace(header), " "+token) {
			t.Fatalf("%q is let in as %+v", header, p)
		}
	})
}
