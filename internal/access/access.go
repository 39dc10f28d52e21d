// Package access finds the address of a server, the token and the certificates to trust, for programs that a user runs in a
// terminal: from flags, the environment, and the files of a local `parleyd dev`.
package access

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// SecretFile is the name of the file in the data directory of `parleyd dev` that holds the secret which signs tokens.
const SecretFile = "dev-secret"

// The other files that `parleyd dev` writes into its data directory.
const (
	devAddrFile  = "dev-addr"
	devTokenFile = "dev-token"
	devCertFile  = "dev-cert.pem"
	defaultAddr  = "http://127.0.0.1:8080"
)

// Options are the flags of a program and its environment. An empty string means that the flag was not given.
type Options struct {
	// Addr is the server's address, or those of a fleet's nodes with commas between them. Token is a bearer token.
	Addr, Token string
	// CAFile is a PEM file with the certificates to trust.
	CAFile string
	// DataDir is the data directory of a local `parleyd dev`. It need not exist.
	DataDir string
	// Getenv returns the value of a variable of the environment, as os.Getenv does. It must not be nil.
	Getenv func(string) string
}

// Access is what a client needs to call a server. Roots are the certificates to trust; nil trusts those of the system.
type Access struct {
	Addr, Token string
	Roots       *x509.CertPool
}

// Find returns the address and the token, each from its flag, else from PARLEY_ADDR or PARLEY_TOKEN, else from the files of a
// local server; the address defaults to http://127.0.0.1:8080. A token from a file is returned only for the address that the
// file beside it names and for addresses of this machine, and so is the certificate that a local server made for itself.
// Find reads files and makes no connection. It returns an error, which is a mistake of the user's, if there is no token or
// if the certificates that the user named cannot be read.
func Find(o Options) (Access, error) {
	local := o.devFile(devAddrFile)
	a := Access{
		Addr:  cmp.Or(o.Addr, o.Getenv("PARLEY_ADDR"), local, defaultAddr),
		Token: cmp.Or(o.Token, o.Getenv("PARLEY_TOKEN")),
	}
	near := a.Addr == local || isLoopback(a.Addr)
	if a.Token == "" && near {
		a.Token = o.devFile(devTokenFile)
	}
	if a.Token == "" {
		return Access{}, fmt.Errorf("no token for %s: give --token or PARLEY_TOKEN, or the --data-dir of a local 'parleyd dev'", a.Addr)
	}
	var err error
	a.Roots, err = o.roots(near)
	return a, err
}

// roots returns the certificates of the file that the flag or the environment names, else, besides the system's, the
// certificate of a local server if near is set.
func (o *Options) roots(near bool) (*x509.CertPool, error) {
	path := cmp.Or(o.CAFile, o.Getenv("PARLEY_CA_FILE"))
	if path == "" {
		local := o.devFile(devCertFile)
		if !near || local == "" {
			return nil, nil //nolint:nilnil // nil trusts the system's certificates
		}
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool() // a system without certificates
		}
		roots.AppendCertsFromPEM([]byte(local))
		return roots, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("--ca-file: %s holds no certificate", path)
	}
	return roots, nil
}

// devFile returns the content of a file of a local server without white space around it, or "" if it cannot be read.
func (o *Options) devFile(name string) string {
	data, err := os.ReadFile(filepath.Join(o.DataDir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// isLoopback reports whether all addresses are of this machine.
func isLoopback(addrs string) bool {
	for addr := range strings.SplitSeq(addrs, ",") {
		if !isLoopbackOne(strings.TrimSpace(addr)) {
			return false
		}
	}
	return true
}

func isLoopbackOne(addr string) bool {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
}
