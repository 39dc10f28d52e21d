package server

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
)

// Files that `parleyd dev` writes to its data directory. The parley command line reads them.
const (
	devSecretFile = "dev-secret"
	devTokenFile  = "dev-token"
	devAddrFile   = "dev-addr"
	devCertFile   = "dev-cert.pem"
	devKeyFile    = "dev-key.pem"
)

const (
	devSubject  = "dev"
	devTokenTTL = 30 * 24 * time.Hour
)

// DevConfig returns the configuration of `parleyd dev`: the defaults with the data directory
// "data", higher abuse limits, CORS for every origin, and a text log at level warn.
func DevConfig() config.Config {
	cfg := config.Default()
	cfg.DataDir = "data"
	cfg.Shards = 4
	cfg.Limits.RequestsPerSecond = 1e6
	cfg.Limits.RequestBurst = 1e6
	cfg.Limits.StreamsPerSubject = 100_000
	cfg.Limits.Streams = 100_000
	cfg.Presence.ConnectionsPerSubject = 100_000
	cfg.Queues.Consumers = 10_000
	cfg.Queues.ConsumersPerSubject = 10_000
	cfg.HTTP.CORSOrigins = []string{"*"}
	cfg.Log.Format = "text"
	cfg.Log.Level = "warn"
	return cfg
}

// devSecret returns the HS256 key stored in the data directory. It creates the key if there is
// none.
func devSecret(dir string) ([]byte, error) {
	path := filepath.Join(dir, devSecretFile)
	data, err := os.ReadFile(path)
	switch {
	case err == nil && len(strings.TrimSpace(string(data))) >= 32:
		return []byte(strings.TrimSpace(string(data))), nil
	case err == nil:
		return nil, fmt.Errorf("%s is damaged: remove it, and parleyd dev creates a new one", path)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read %s: %w", devSecretFile, err)
	}
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails
	secret := hex.EncodeToString(raw[:])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("write %s: %w", devSecretFile, err)
	}
	return []byte(secret), nil
}

// devToken returns a token with every capability, signed with secret and valid for devTokenTTL.
func devToken(secret []byte) (string, error) {
	return authn.Mint(secret, &ident.Principal{
		Subject:  devSubject,
		Channels: []ident.Capability{{Pattern: "*", Actions: ident.ChannelActions}},
		Sessions: []ident.Capability{{Pattern: "*", Actions: ident.SessionActions}},
		Queues:   []ident.Capability{{Pattern: "*", Actions: ident.QueueActions}},
		Presence: ident.PresenceActions,
		Admin:    ident.AdminActions,
	}, devTokenTTL)
}

// writeDevFiles writes the server's token and then its address to dir, for local tools. A tool that
// finds the address finds both whole.
func writeDevFiles(dir, addr, token string) error {
	for _, file := range [...]struct{ name, content string }{{devTokenFile, token}, {devAddrFile, addr}} {
		path := filepath.Join(dir, file.name)
		err := os.WriteFile(path+".new", []byte(file.content+"\n"), 0o600)
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", file.name, err)
		}
	}
	return nil
}

// Banner writes what a developer needs to send a first message: the page's URL, the token, and
// three commands to paste.
func (s *Server) Banner(w io.Writer) error {
	host := strings.TrimPrefix(strings.TrimPrefix(s.URL(), "http://"), "https://")
	dir, err := filepath.Abs(s.cfg.DataDir)
	if err != nil {
		return err
	}
	tokenFile := shellQuote(filepath.Join(dir, devTokenFile))
	parley := "parley"
	if exe, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(exe), "parley"); isFile(beside) {
			parley = shellQuote(beside)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "parleyd dev is ready on %s (health and metrics on %s)\n\n", s.URL(), s.OpsURL())
	for _, n := range s.notes {
		fmt.Fprintf(&b, "  %s\n", n)
	}
	if s.cfg.HTTP.Page {
		fmt.Fprintf(&b, "\nChat in a browser, with a token that may do everything; talk with an assistant; and look at queues:\n\n"+
			"  %s/#token=%s\n  %s/assistant#token=%s\n  %s/queues#token=%s\n",
			s.URL(), s.devToken, s.URL(), s.devToken, s.URL(), s.devToken)
	}
	fmt.Fprintf(&b, "\nThe token is also in %s. Your first message from a shell:\n\n", filepath.Join(dir, devTokenFile))
	curl, grpcurl := "", "-plaintext"
	if s.cfg.TLS.Cert != "" {
		curl, grpcurl = "--cacert "+shellQuote(s.cfg.TLS.Cert)+" ", "-cacert "+shellQuote(s.cfg.TLS.Cert)
	}
	fmt.Fprintf(&b, "  curl %s-H \"Authorization: Bearer $(cat %s)\" -H 'Content-Type: application/json' -d '{\"channel_id\":\"general\",\"content\":\"hello\"}' %s/parley.v1.MessageService/SendMessage\n\n", curl, tokenFile, s.URL())
	fmt.Fprintf(&b, "  grpcurl %s -H \"Authorization: Bearer $(cat %s)\" -d '{\"channel_id\":\"general\"}' %s parley.v1.MessageService/ListMessages\n\n", grpcurl, tokenFile, host)
	fmt.Fprintf(&b, "  %s --addr %s --data-dir %s tail general\n\n", parley, s.URL(), shellQuote(dir))
	_, err = io.WriteString(w, b.String())
	return err
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// shellQuote quotes s for a POSIX shell. It returns a plain path unchanged.
func shellQuote(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
