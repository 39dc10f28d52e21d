// Package access finds a server's address, the token and the trusted certificates for programs that
// a user runs in a terminal: from flags, the environment, and the files of a local `parleyd dev`.
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

// SecretFile is the name of the file in the data directory of `parleyd dev` that holds the key for
// tokens.
const SecretFile = "dev-secret"

// The names of other files that `parleyd dev` writes to its data directory, and the default
// address.
const (
	devAddrFile  = "dev-addr"
	devTokenFile = "dev-token"
	devCertFile  = "dev-cert.pem"
	defaultAddr  = "http://127.0.0.1:8080"
)

// Options are a program's flags and environment. An empty string means that the flag is not set.
type Options struct {
	// Addr is the server's address, or the addresses of several nodes separated by commas. Token is
	// a bearer token.
	Addr, Token string
	// CAFile is the path of a PEM file with the certificates to trust instead of the system's.
	CAFile string
	// DataDir is the data directory of a local `parleyd dev`. It need not exist.
	DataDir string
	// Getenv returns the value of an environment variable, as os.Getenv does. It must not be nil.
	Getenv func(string) string
}

// Access is what a client requires to call a server. Roots are the certificates to trust; nil means
// those of the system.
type Access struct {
	Addr, Token string
	Roots       *x509.CertPool
}

// Find returns the address and the token, each from its flag, else from PARLEY_ADDR or
// PARLEY_TOKEN, else from the files of a local server. The address defaults to
// http://127.0.0.1:8080. The token file and the local server's certificate are used only for the
// address in the file beside them and for loopback addresses. Find reads files and makes no
// connection. It returns an error if there is no token, or if the certificates named by CAFile or
// PARLEY_CA_FILE can't be read. Either is a mistake of the user.
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
		return Access{}, fmt.Errorf("no token for %s: set --token, PARLEY_TOKEN or the --data-dir of a local 'parleyd dev'", a.Addr)
	}
	var err error
	a.Roots, err = o.roots(near)
	return a, err
}

// roots returns the certificates in the file named by the flag or by PARLEY_CA_FILE. Without one,
// it returns the system's certificates and the local server's if near is set and the local server
// has one, else nil.
func (o *Options) roots(near bool) (*x509.CertPool, error) {
	path := cmp.Or(o.CAFile, o.Getenv("PARLEY_CA_FILE"))
	if path == "" {
		local := o.devFile(devCertFile)
		if !near || local == "" {
			return nil, nil //nolint:nilnil // nil trusts the system's certificates
		}
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool() // the system has no certificates
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

// devFile returns the content of a local server's file without surrounding white space, or "" if it
// can't be read.
func (o *Options) devFile(name string) string {
	data, err := os.ReadFile(filepath.Join(o.DataDir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// isLoopback reports whether every address is a loopback address.
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
