package cli

import (
	"cmp"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// The files that `parleyd dev` writes into its data directory.
const (
	devAddrFile   = "dev-addr"
	devTokenFile  = "dev-token"
	devSecretFile = "dev-secret"
	devCertFile   = "dev-cert.pem"
	defaultAddr   = "http://127.0.0.1:8080"
)

// access is where the server is, or the nodes of a fleet with commas between them, how to get in, and which certificates
// to trust; nil trusts those that the system does.
type access struct {
	addr, token string
	roots       *x509.CertPool
}

// access takes each of the two from its flag, else from the environment, else from the files of a local server. That
// server's token is shown to no other: only to the address which the file beside it names, and to this machine. The same
// holds for trust in the certificate that it made for itself.
func (s *session) access() (access, error) {
	local := s.devFile(devAddrFile)
	a := access{addr: s.flags.Addr, token: s.flags.Token}
	if a.addr == "" {
		a.addr = s.getenv("PARLEY_ADDR")
	}
	if a.addr == "" {
		a.addr = local
	}
	if a.addr == "" {
		a.addr = defaultAddr
	}
	if a.token == "" {
		a.token = s.getenv("PARLEY_TOKEN")
	}
	near := a.addr == local || isLoopback(a.addr)
	if a.token == "" && near {
		a.token = s.devFile(devTokenFile)
	}
	if a.token == "" {
		return access{}, usagef("no token for %s: give --token or PARLEY_TOKEN, or the --data-dir of a local 'parleyd dev'", a.addr)
	}
	var err error
	a.roots, err = s.roots(near)
	return a, err
}

// roots gives the certificates of the file that the flag or the environment names, else, besides the system's, that of a
// server which is near.
func (s *session) roots(near bool) (*x509.CertPool, error) {
	path := cmp.Or(s.flags.CAFile, s.getenv("PARLEY_CA_FILE"))
	if path == "" {
		local := s.devFile(devCertFile)
		if !near || local == "" {
			return nil, nil //nolint:nilnil // what the system trusts
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
		return nil, usagef("--ca-file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, usagef("--ca-file: %s holds no certificate", path)
	}
	return roots, nil
}

// devFile gives a file's content without white space around it; empty if there is none.
func (s *session) devFile(name string) string {
	data, err := os.ReadFile(filepath.Join(s.flags.DataDir, name))
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
