package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"

	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/certfile"
	"github.com/parleyhq/parley/server/internal/natsbus"
	"github.com/parleyhq/parley/server/internal/store/redisstore"
)

// serverTLS returns the TLS configuration of the API's server. Each handshake uses the current
// certificate of the files.
func serverTLS(c config.TLS, log *slog.Logger) (*tls.Config, error) {
	pair, err := certfile.NewPair(c.Cert, c.Key, log)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Certificate(), nil },
	}, nil
}

// clientFiles are the certificates for connections to Redis or NATS: the client's own pair, and the
// trusted roots. A field is nil if the configuration names no file for it.
type clientFiles struct {
	pair  *certfile.Pair
	roots *certfile.Roots
}

func readClientFiles(ca, cert, key string, log *slog.Logger) (f clientFiles, err error) {
	if cert != "" {
		if f.pair, err = certfile.NewPair(cert, key, log); err != nil {
			return f, err
		}
	}
	if ca != "" {
		f.roots, err = certfile.NewRoots(ca, log)
	}
	return f, err
}

// redisTLS sets the TLS of client, if c enables it.
func redisTLS(client *redisstore.ClientConfig, c *config.RedisTLS, log *slog.Logger) error {
	if !c.Enabled {
		return nil
	}
	files, err := readClientFiles(c.CA, c.Cert, c.Key, log)
	if err != nil {
		return fmt.Errorf("redis.tls: %w", err)
	}
	client.TLS = func() *tls.Config {
		t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
		if files.pair != nil {
			t.Certificates = []tls.Certificate{*files.pair.Certificate()}
		}
		if files.roots != nil {
			t.RootCAs = files.roots.Pool()
		}
		return t
	}
	return nil
}

// natsTLS sets the TLS of bus, if c names a file.
func natsTLS(bus *natsbus.Config, c *config.NATSTLS, log *slog.Logger) error {
	files, err := readClientFiles(c.CA, c.Cert, c.Key, log)
	if err != nil {
		return fmt.Errorf("nats.tls: %w", err)
	}
	if files.pair != nil {
		bus.Certificate = func() (tls.Certificate, error) { return *files.pair.Certificate(), nil }
	}
	if files.roots != nil {
		bus.Roots = func() (*x509.CertPool, error) { return files.roots.Pool(), nil }
	}
	return nil
}
