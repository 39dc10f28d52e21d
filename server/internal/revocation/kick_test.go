package revocation_test

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/revocation"
)

// TestKick checks which streams a Kick ends, and with what.
func TestKick(t *testing.T) {
	t.Parallel()
	phone := revocation.Login{Platform: 1, Device: "phone", Connection: "C1"}
	twin := revocation.Login{Platform: 1, Device: "phone", Connection: "C2"}
	browser := revocation.Login{Platform: 8, Device: "browser", Connection: "C3"}
	for _, c := range []struct {
		what revocation.Login
		want []string
	}{
		{revocation.Login{}, []string{"phone", "twin", "browser", "plain"}},
		{revocation.Login{Platform: 1}, []string{"phone", "twin"}},
		{revocation.Login{Device: "browser"}, []string{"browser"}},
		{revocation.Login{Connection: "C2"}, []string{"twin"}},
		{twin, []string{"twin"}},
		{revocation.Login{Platform: 8, Device: "phone"}, nil},
		{revocation.Login{Device: "unknown"}, nil},
	} {
		l, err := revocation.New(revocation.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ended := map[string]error{}
		watch := func(name, subject string, login *revocation.Login) *revocation.Stream {
			s := l.Watch(user(subject, name, time.Now()), func(err error) { ended[name] = err })
			if login != nil {
				s.SetLogin(*login)
			}
			return s
		}
		watch("phone", "ann", &phone)
		watch("twin", "ann", &twin)
		watch("browser", "ann", &browser)
		watch("plain", "ann", nil)
		watch("bob's", "bob", &phone)
		watch("closed", "ann", &phone).Close()

		kick := revocation.Kick{User: "ann", Login: c.what, Reason: "moved"}
		if n := l.Kick(kick); n != len(c.want) || len(ended) != n {
			t.Errorf("%+v ended %d streams, %v; want %v", c.what, n, ended, c.want)
		}
		for _, name := range c.want {
			f, ok := fault.As(ended[name])
			if !ok || f.Reason != fault.Kicked || f.Kick == nil || f.Kick.Cause != 3 || f.Kick.Reason != "moved" {
				t.Errorf("%+v: %s ended with %v", c.what, name, ended[name])
			}
		}
		if n := l.Kick(kick); n != 0 {
			t.Errorf("%+v again ended %d streams", c.what, n)
		}
	}
}
