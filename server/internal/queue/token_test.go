package queue

import (
	"testing"
)

func TestTokenHoldsForItsSessionOnly(t *testing.T) {
	t.Parallel()
	secret := []byte("secret")
	mine := newSeal(secret, "session", "topic", "group")
	want := tokenBody{partition: 255, place: Retries, id: EntryID{1763700000123, 7}, epoch: 1763700000123456, attempt: 3, serial: 1 << 40}
	text := mine.token(want)
	if got, ok := newSeal(secret, "session", "topic", "group").open(text); !ok || got != want {
		t.Fatalf("open gave %+v, %v; want %+v", got, ok, want)
	}
	for name, other := range map[string]seal{
		"another session": newSeal(secret, "session2", "topic", "group"),
		"another topic":   newSeal(secret, "session", "topic2", "group"),
		"another group":   newSeal(secret, "session", "topic", "group2"),
		"another secret":  newSeal([]byte("secret2"), "session", "topic", "group"),
	} {
		if _, ok := other.open(text); ok {
			t.Errorf("%s takes the token", name)
		}
	}
}

func TestTokenIsNotMalleable(t *testing.T) {
	t.Parallel()
	s := newSeal([]byte("secret"), "session", "topic", "group")
	text := s.token(tokenBody{partition: 3, id: EntryID{5, 6}, epoch: 7, attempt: 1, serial: 9})
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := range text {
		for _, c := range []byte(alphabet) {
			if c == text[i] {
				continue
			}
			if _, ok := s.open(text[:i] + string(c) + text[i+1:]); ok {
				t.Fatalf("a token with letter %d changed to %c is taken", i, c)
			}
		}
	}
	for _, bad := range []string{"", "A", text + "A", text[1:], text + "=", text + "\n", string(make([]byte, 600))} {
		if _, ok := s.open(bad); ok {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzTokenOpen(f *testing.F) {
	s := newSeal([]byte("secret"), "session", "topic", "group")
	f.Add(s.token(tokenBody{partition: 3}))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if body, ok := newSeal([]byte("other"), "session", "topic", "group").open(text); ok {
			t.Fatalf("%q was opened as %+v", text, body)
		}
	})
}
