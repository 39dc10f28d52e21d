package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	devCertTTL = 365 * 24 * time.Hour
	// devCertLeft is the least remaining validity of a certificate that is reused.
	devCertLeft = 30 * 24 * time.Hour
)

// DevCertificate returns the paths of a TLS certificate and its key in the data directory dir, for
// a server that listens on listen, a host:port. It creates the pair if it is missing or damaged,
// expires in less than 30 days, or does not cover the host. The certificate is self-signed, so a
// client that trusts it trusts this server only. It covers localhost and every name directly below
// it, the loopback addresses and this machine's host name.
func DevCertificate(dir, listen string) (cert, key string, err error) {
	cert, key = filepath.Join(dir, devCertFile), filepath.Join(dir, devKeyFile)
	hosts, err := devHosts(listen)
	if err != nil {
		return "", "", err
	}
	ok, err := usable(cert, key, hosts)
	if ok || err != nil {
		return cert, key, err
	}
	certPEM, keyPEM, err := newCertificate(hosts, time.Now())
	if err != nil {
		return "", "", fmt.Errorf("make a certificate: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("make data directory: %w", err)
	}
	// The certificate is written last. If the process ends in between, the files do not match and
	// the next call replaces them.
	if err := os.WriteFile(key, keyPEM, 0o600); err != nil {
		return "", "", fmt.Errorf("write %s: %w", devKeyFile, err)
	}
	if err := os.WriteFile(cert, certPEM, 0o600); err != nil {
		return "", "", fmt.Errorf("write %s: %w", devCertFile, err)
	}
	return cert, key, nil
}

// devHosts returns the names and addresses that a certificate for listen, a host:port, must cover.
func devHosts(listen string) ([]string, error) {
	hosts := []string{"localhost", "*.localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil && !slices.Contains(hosts, name) {
		hosts = append(hosts, name)
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) && !slices.Contains(hosts, host) {
		hosts = append(hosts, host)
	}
	return hosts, nil
}

// usable reports whether both files exist, match, cover hosts, and stay valid for devCertLeft.
func usable(cert, key string, hosts []string) (bool, error) {
	for _, path := range []string{cert, key} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("read the certificate: %w", err)
		}
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return false, nil //nolint:nilerr // damaged files are replaced
	}
	if time.Until(pair.Leaf.NotAfter) < devCertLeft {
		return false, nil
	}
	return !slices.ContainsFunc(hosts, func(host string) bool { return !covers(pair.Leaf, host) }), nil
}

func covers(leaf *x509.Certificate, host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return slices.ContainsFunc(leaf.IPAddresses, ip.Equal)
	}
	return slices.Contains(leaf.DNSNames, host)
}

func newCertificate(hosts []string, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "parleyd dev"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(devCertTTL),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), nil
}
