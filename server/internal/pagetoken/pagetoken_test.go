package pagetoken

import (
	"strings"
	"testing"

	"github.com/parleyhq/parley/server/internal/fault"
)

type query struct{ ChannelID string }

func binding(subject, epoch, channel string) *Binding {
	return &Binding{Call: "list", Subject: subject, Epoch: epoch, Query: query{channel}}
}

// A token opens only for its subject, query and epoch, and only if it is unchanged.
func FuzzOpen(f *testing.F) {
	s := New([]byte("a secret of the store's own making"))
	mine := binding("ada", "e-1", "room")
	token := s.Seal(mine, "7")
	for _, seed := range []string{
		token, "", "{}", token[:len(token)-1], token + "A", token + "\n", token[:20] + "\r\n" + token[20:], token + "=", strings.ToUpper(token),
		s.Seal(binding("ada", "e-2", "room"), "7"), s.Seal(binding("bob", "e-1", "room"), "7"), s.Seal(binding("ada", "e-1", "other"), "7"),
		New([]byte("another")).Seal(mine, "7"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		last, err := s.Open(text, mine)
		if err == nil {
			if text != token || last != "7" {
				t.Fatalf("%q is taken for a token, and opens as %q", text, last)
			}
			return
		}
		e, ok := fault.As(err)
		if !ok || e.Field != "page_token" || last != "" {
			t.Fatalf("%q: %v, %q", text, err, last)
		}
		switch e.Reason {
		case fault.PageTokenInvalid, fault.PageTokenForeign, fault.Resync:
		default:
			t.Fatalf("%q: reason %s", text, e.Reason)
		}
	})
}

// A token in which any character is changed is refused.
func TestTampered(t *testing.T) {
	t.Parallel()
	s := New([]byte("a secret of the store's own making"))
	for _, subject := range []string{"a", "ad", "ada"} { // so that the last character has unused bits at least once
		b := binding(subject, "e", "room")
		token := s.Seal(b, "7")
		for i := range len(token) {
			for _, letter := range "AZaz09-_" {
				text := token[:i] + string(letter) + token[i+1:]
				if _, err := s.Open(text, b); text != token && !fault.Is(err, fault.PageTokenInvalid) {
					t.Fatalf("with letter %d changed to %c: %v", i, letter, err)
				}
			}
		}
	}
}

func TestTokenIsBoundToQueryAndSubject(t *testing.T) {
	t.Parallel()
	s := New([]byte("secret"))
	mine := binding("auth0|42", "e-1", "room")
	token := s.Seal(mine, "auth0|<&>\"")
	if last, err := s.Open(token, mine); err != nil || last != "auth0|<&>\"" {
		t.Fatalf("one's own: %q, %v", last, err)
	}
	other := *mine
	other.Call = "members"
	for name, tc := range map[string]struct {
		b    *Binding
		want fault.Reason
	}{
		"another call":    {&other, fault.PageTokenInvalid},
		"another query":   {binding("auth0|42", "e-1", "room2"), fault.PageTokenInvalid},
		"another subject": {binding("auth0|43", "e-1", "room"), fault.PageTokenForeign},
		"another epoch":   {binding("auth0|42", "e-2", "room"), fault.Resync},
	} {
		if _, err := s.Open(token, tc.b); !fault.Is(err, tc.want) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	if _, err := New([]byte("another")).Open(token, mine); !fault.Is(err, fault.PageTokenInvalid) {
		t.Errorf("another secret: %v", err)
	}
}

// The token of the longest user id, of characters with the longest encoding, is within the size
// that the API accepts.
func TestLongestSubject(t *testing.T) {
	t.Parallel()
	s := New([]byte("a secret of the store's own making"))
	for _, letter := range []string{"<", "&", `"`, `\`, "a"} {
		id := strings.Repeat(letter, 128)
		mine := binding(id, strings.Repeat("e", 32), strings.Repeat("c", 64))
		token := s.Seal(mine, id)
		if len(token) > 1024 {
			t.Errorf("for ids of %q the token has %d characters", letter, len(token))
		}
		if last, err := s.Open(token, mine); err != nil || last != id {
			t.Errorf("for ids of %q it opens as %q, %v", letter, last, err)
		}
	}
}
