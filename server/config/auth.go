package config

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

const (
	// maxSecrets bounds Auth.HS256Secrets, each of which is tried for a token without a kid, and
	// maxKeySets bounds Auth.JWKS.
	maxSecrets = 8
	maxKeySets = 8
	// minSecretBytes is the minimum size of an HS256 secret, that of the hash (RFC 7518, 3.2).
	minSecretBytes = 32
)

// keyID is the form of an id, which is the kid of tokens.
var keyID = regexp.MustCompile(`^[A-Za-z0-9_.:=+-]{1,64}$`)

// Auth configures which tokens are valid. All sources of keys are used at the same time. `parleyd
// serve` requires at least one of HS256Secret, HS256Secrets, PublicKeys, JWKSURL and JWKS.
type Auth struct {
	// HS256Secret is a key of HS256 tokens of any kid: at least 32 bytes, or empty for none.
	HS256Secret Secret `yaml:"hs256_secret"`
	// HS256Secrets are keys of HS256 tokens with ids, at most 8.
	HS256Secrets []HS256Secret `yaml:"hs256_secrets"`
	// PublicKeys are the paths of PEM files with RSA, P-256 or Ed25519 public keys. They have no ids:
	// a token of any kid is tried with each of its algorithm.
	PublicKeys []string `yaml:"public_keys"`
	// JWKSURL is the http or https URL of a JSON Web Key Set, for keys that rotate.
	JWKSURL string `yaml:"jwks_url"`
	// JWKS are further key sets, with ids, at most 8.
	JWKS []JWKS `yaml:"jwks"`
	// Issuer is the required `iss` claim. Empty accepts any.
	Issuer string `yaml:"issuer"`
	// Audience must be one of the values of the `aud` claim. Empty accepts any.
	Audience string `yaml:"audience"`
	// MaxTokenLife is the longest time for which the identity provider issues tokens. A revocation of
	// an ssid or of a user is kept that long, and that of a token at least until it expires.
	MaxTokenLife time.Duration `yaml:"max_token_life"`
}

// HS256Secret is a secret with an id. Exactly one of Secret and File must be set.
type HS256Secret struct {
	// ID is the kid of the secret's tokens: 1 to 64 characters of A-Z a-z 0-9 _ . : = + -, unique in
	// the list. A token with another kid is not tried with the secret, one without a kid is.
	ID     string `yaml:"id"`
	Secret Secret `yaml:"secret"`
	// File is the path of a file with the secret, whose final newline is dropped. It is read when the
	// configuration is checked and when the server starts.
	File string `yaml:"file"`
}

// Reveal returns the secret, which it reads from File if that is set.
func (s *HS256Secret) Reveal() (string, error) {
	if s.File == "" {
		return s.Secret.Reveal(), nil
	}
	return readSecret(s.File)
}

// JWKS is a JSON Web Key Set with an id.
type JWKS struct {
	// ID names the set in the log, in the form of HS256Secret.ID. It is unique in the list.
	ID string `yaml:"id"`
	// URL is the http or https URL of the set.
	URL string `yaml:"url"`
	// Issuer and Audience replace those of Auth for the tokens of the set's keys. Empty means those of
	// Auth.
	Issuer   string `yaml:"issuer"`
	Audience string `yaml:"audience"`
}

// hasKeys reports whether a source of keys is configured.
func (a *Auth) hasKeys() bool {
	return a.HS256Secret != "" || len(a.HS256Secrets) > 0 || len(a.PublicKeys) > 0 || a.JWKSURL != "" || len(a.JWKS) > 0
}

func (a *Auth) validate(k *checker) {
	if a.HS256Secret != "" {
		k.secret("auth.hs256_secret", a.HS256Secret.Reveal())
	}
	a.validateSecrets(k)
	if a.JWKSURL != "" {
		k.httpURL("auth.jwks_url", a.JWKSURL)
	}
	a.validateKeySets(k)
	k.lasts("auth.max_token_life", a.MaxTokenLife, time.Minute, 400*24*time.Hour)
}

func (a *Auth) validateSecrets(k *checker) {
	const list = "auth.hs256_secrets"
	k.checkf(len(a.HS256Secrets) <= maxSecrets, list, "has %d secrets, at most %d are allowed", len(a.HS256Secrets), maxSecrets)
	seen := map[string]string{a.HS256Secret.Reveal(): "auth.hs256_secret"} // secret -> key
	ids := map[string]string{}
	for i := range a.HS256Secrets {
		s, key := &a.HS256Secrets[i], fmt.Sprintf("%s[%d]", list, i)
		k.id(key, s.ID, ids)
		if (s.Secret == "") == (s.File == "") {
			k.checkf(false, key, "one of secret and file must be set, and not both")
			continue
		}
		value, err := s.Reveal()
		if err != nil {
			k.checkf(false, key+".file", "%v", err)
			continue
		}
		if s.File != "" {
			k.secret(key+".file", value)
		} else {
			k.secret(key+".secret", value)
		}
		// Otherwise the tokens of a secret that was removed would still be valid.
		k.checkf(seen[value] == "", key, "has the same secret as %s: each must have its own", seen[value])
		seen[value] = key
	}
}

func (a *Auth) validateKeySets(k *checker) {
	const list = "auth.jwks"
	k.checkf(len(a.JWKS) <= maxKeySets, list, "has %d key sets, at most %d are allowed", len(a.JWKS), maxKeySets)
	ids := map[string]string{}
	for i := range a.JWKS {
		key := fmt.Sprintf("%s[%d]", list, i)
		k.id(key, a.JWKS[i].ID, ids)
		k.httpURL(key+".url", a.JWKS[i].URL)
	}
}

// id checks the id of the item key, and adds it to seen, the items by their ids.
func (c *checker) id(key, id string, seen map[string]string) {
	if !keyID.MatchString(id) {
		c.checkf(false, key+".id", "is %q, must be 1 to 64 characters of A-Z a-z 0-9 _ . : = + -", id)
		return
	}
	c.checkf(seen[id] == "", key+".id", "is %q, which is the id of %s too: ids must be unique", id, seen[id])
	seen[id] = key
}

// secret checks an HS256 secret. A public key is none: everyone who has it could mint tokens.
func (c *checker) secret(key, value string) {
	c.checkf(len(value) >= minSecretBytes, key, "must be at least %d bytes", minSecretBytes)
	for _, public := range []string{"-----BEGIN PUBLIC KEY", "-----BEGIN RSA PUBLIC KEY", "-----BEGIN CERTIFICATE"} {
		c.checkf(!strings.HasPrefix(strings.TrimSpace(value), public), key,
			"is a public key or a certificate, which is no secret: public keys belong in auth.public_keys")
	}
}
