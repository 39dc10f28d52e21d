package config

import (
	"log/slog"
	"net/url"
	"strings"
)

const redacted = "[redacted]"

// Secret is a value that is never printed, logged or marshalled. Only Reveal returns it.
type Secret string

// Reveal returns the value.
func (s Secret) Reveal() string { return string(s) }

// String returns "[redacted]", or "" if the secret is empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString returns String(), so that %#v does not print the secret.
func (s Secret) GoString() string { return s.String() }

// LogValue returns String() for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns String().
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML returns String().
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// SecretURL is a URL, or several separated by commas. Its user names, passwords and secret query
// values are never printed, logged or marshalled.
type SecretURL string

// Reveal returns the URL unchanged.
func (s SecretURL) Reveal() string { return string(s) }

// String returns the URL with its user information and secret query values replaced by
// "[redacted]".
func (s SecretURL) String() string {
	parts := strings.Split(string(s), ",")
	for i, part := range parts {
		scheme, rest, found := strings.Cut(part, "://")
		if !found {
			scheme, rest = "", part
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			rest = redacted + rest[at:]
		}
		if base, query, ok := strings.Cut(rest, "?"); ok {
			rest = base + "?" + redactQuery(query)
		}
		if found {
			rest = scheme + "://" + rest
		}
		parts[i] = rest
	}
	return strings.Join(parts, ",")
}

// GoString returns String().
func (s SecretURL) GoString() string { return s.String() }

// LogValue returns String() for slog.
func (s SecretURL) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns String().
func (s SecretURL) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML returns String().
func (s SecretURL) MarshalYAML() (any, error) { return s.String(), nil }

// redactQuery replaces the values of parameters whose names suggest a secret, such as MongoDB's
// tlsCertificateKeyFilePassword.
func redactQuery(query string) string {
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		plain = strings.ToLower(plain)
		if err != nil || strings.Contains(plain, "pass") || strings.Contains(plain, "token") ||
			strings.Contains(plain, "authmechanismproperties") {
			pairs[i] = name + "=" + redacted
		}
	}
	return strings.Join(pairs, "&")
}
