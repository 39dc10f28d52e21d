package config

import (
	"log/slog"
	"net/url"
	"strings"
)

const redacted = "[redacted]"

// Secret is a value that is never printed, logged or marshalled. Reveal gives it to who needs it.
type Secret string

// Reveal gives the value itself.
func (s Secret) Reveal() string { return string(s) }

// String tells only whether there is a value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString is String, so that %#v prints no secret either.
func (s Secret) GoString() string { return s.String() }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML is String.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// SecretURL is a URL, or several with commas between them, whose user names and passwords are never printed, logged
// or marshalled.
type SecretURL string

// Reveal gives the URL itself.
func (s SecretURL) Reveal() string { return string(s) }

// String gives the URL without what stands before the host, and without its query, which may hold a password too.
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

// GoString is String.
func (s SecretURL) GoString() string { return s.String() }

// LogValue is String.
func (s SecretURL) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String.
func (s SecretURL) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML is String.
func (s SecretURL) MarshalYAML() (any, error) { return s.String(), nil }

// redactQuery hides the values whose names speak of passwords, as in Mongo's tlsCertificateKeyFilePassword.
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
