package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/parleyhq/parley/server/config"
)

// secretFile writes a file with a secret of 32 bytes of one letter, and returns its path.
func secretFile(t *testing.T, letter string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), letter)
	if err := os.WriteFile(path, []byte(strings.Repeat(letter, 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSeveralKeys(t *testing.T) {
	t.Parallel()
	file, inline := secretFile(t, "f"), strings.Repeat("i", 32)
	const (
		secrets = `[{id: "2026-11", file: %s}, {id: "2026-12", secret: %s}]`
		sets    = `[{id: eu, url: "https://eu.example/jwks", issuer: "https://eu.example", audience: parley}, {id: us, url: "http://us/jwks"}]`
	)
	want := config.Default()
	want.Auth.HS256Secrets = []config.HS256Secret{{ID: "2026-11", File: file}, {ID: "2026-12", Secret: config.Secret(inline)}}
	want.Auth.JWKS = []config.JWKS{
		{ID: "eu", URL: "https://eu.example/jwks", Issuer: "https://eu.example", Audience: "parley"}, {ID: "us", URL: "http://us/jwks"},
	}
	text := fmt.Sprintf(secrets, file, inline)
	inFile, err := config.LoadServe(write(t, "auth: {hs256_secrets: "+text+", jwks: "+sets+"}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	inEnvironment, err := config.LoadServe("", []string{"PARLEY_AUTH_HS256_SECRETS=" + text, "PARLEY_AUTH_JWKS=" + sets})
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]config.Config{"the file": inFile, "the environment": inEnvironment} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("from %s:\n%s", name, diff)
		}
	}
	for i, letter := range []string{"f", "i"} {
		if got, err := inFile.Auth.HS256Secrets[i].Reveal(); err != nil || got != strings.Repeat(letter, 32) {
			t.Errorf("secret %d: %v, %v", i, len(got), err)
		}
	}
	printed, err := yaml.Marshal(inFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(printed), fmt.Sprintf("%v %+v %#v", inFile, inFile, inFile)} {
		if strings.Contains(text, inline) {
			t.Errorf("a secret of the list is printed: %s", text)
		}
	}
	over, err := config.Override(inFile, []string{"PARLEY_AUTH_JWKS=[]"})
	if err != nil || len(over.Auth.JWKS) != 0 || len(over.Auth.HS256Secrets) != 2 {
		t.Errorf("overridden: %+v, %v", over.Auth, err)
	}
}

// TestKeyRefusals checks that every mistake in the lists of keys is reported with its field, and
// that no error prints a secret.
func TestKeyRefusals(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-hunter2-hunter2-hunter2-"
	dir := t.TempDir()
	public := filepath.Join(dir, "public.pem")
	if err := os.WriteFile(public, []byte("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	same := secretFile(t, "s")
	nine := func(item string) string { return "[" + strings.Repeat(item+", ", 9) + "]" }
	const form = "must be a list of items with the keys id, secret, file, whose values are strings"
	for _, tt := range []struct {
		name, key, value string
		want             []string
	}{
		{"ids", "hs256_secrets", "[{id: a b, secret: " + secret + "}, {secret: " + secret + "}, {id: x, file: " + same + "}, {id: x, file: " + same + "}]", []string{
			`auth.hs256_secrets[0].id: is "a b", must be 1 to 64 characters of A-Z a-z 0-9 _ . : = + -`, `auth.hs256_secrets[1].id: is "", must`,
			"auth.hs256_secrets[1]: has the same secret as auth.hs256_secrets[0]: each must have its own",
			`auth.hs256_secrets[3].id: is "x", which is the id of auth.hs256_secrets[2] too: ids must be unique`,
		}},
		{"a long id", "hs256_secrets", "[{id: " + strings.Repeat("a", 65) + ", secret: " + secret + "}]", []string{"auth.hs256_secrets[0].id: is"}},
		{"values", "hs256_secrets", "[{id: a}, {id: b, secret: " + secret + ", file: f}, {id: c, secret: short}, {id: d, file: /none}, {id: e, file: " + public + "}]", []string{
			"auth.hs256_secrets[0]: one of secret and file must be set, and not both", "auth.hs256_secrets[1]: one of secret and file",
			"auth.hs256_secrets[2].secret: must be at least 32 bytes", "auth.hs256_secrets[3].file: open /none: no such file",
			"auth.hs256_secrets[4].file: is a public key or a certificate, which is no secret: public keys belong in auth.public_keys",
		}},
		{"too many secrets", "hs256_secrets", nine("{}"), []string{"auth.hs256_secrets: has 9 secrets, at most 8 are allowed"}},
		{"too many sets", "jwks", nine("{}"), []string{"auth.jwks: has 9 key sets, at most 8 are allowed"}},
		{"sets", "jwks", "[{id: a, url: 'ftp://x'}, {id: a, url: 'https://x'}, {url: 'https://x'}]", []string{
			"auth.jwks[0].url: must be an http or https URL", `auth.jwks[1].id: is "a", which is the id of auth.jwks[0] too`, `auth.jwks[2].id: is ""`,
		}},
		{"no list", "hs256_secrets", "{a: b}", []string{"auth.hs256_secrets"}},
		{"no list of items", "hs256_secrets", "[" + secret + "]", []string{"auth.hs256_secrets[0]: must be an item of a list of items"}},
		{"text", "hs256_secrets", secret, []string{"auth.hs256_secrets: " + form}},
		{"keys", "jwks", "[{id: 5, isuer: x}, {" + secret + ": x}]", []string{
			"auth.jwks[0].id: must be a string: quote a number", "auth.jwks[0].isuer: unknown key", "auth.jwks[1]: unknown key",
		}},
		{"a public key", "hs256_secret", `"-----BEGIN CERTIFICATE-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS"`, []string{"auth.hs256_secret: is a public key"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Load(write(t, "auth: {"+tt.key+": "+tt.value+"}\n"), nil)
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error prints a secret: %v", err)
			}
		})
	}
	_, err := config.Load("", []string{"PARLEY_AUTH_HS256_SECRETS=[{id: a, secret: " + secret, "PARLEY_AUTH_JWKS=eu=https://x"})
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "PARLEY_AUTH_HS256_SECRETS: "+form) ||
		!strings.Contains(err.Error(), "PARLEY_AUTH_JWKS: must be a list of items with the keys id, url, issuer, audience") {
		t.Errorf("from the environment: %v", err)
	}
	_, err = config.Load("", []string{"PARLEY_AUTH_HS256_SECRET=" + strings.Repeat("s", 32), "PARLEY_AUTH_HS256_SECRETS=[{id: a, file: " + same + "}]"})
	if err == nil || !strings.Contains(err.Error(), "auth.hs256_secrets[0]: has the same secret as auth.hs256_secret:") {
		t.Errorf("the secret without an id again: %v", err)
	}
}
