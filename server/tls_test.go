package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// devTLS starts a `parleyd dev --tls` and returns the certificates that its clients trust.
func devTLS(t *testing.T) (*servertest.Server, *x509.CertPool) {
	t.Helper()
	cert, key, err := server.DevCertificate(t.TempDir(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := servertest.Dev(t, servertest.With(func(c *config.Config) { c.TLS.Cert, c.TLS.Key = cert, key }))
	roots := x509.NewCertPool()
	data, err := os.ReadFile(cert)
	if err != nil || !roots.AppendCertsFromPEM(data) {
		t.Fatalf("the certificate can't be trusted: %v", err)
	}
	return s, roots
}

// TestTLSStreamsShareOneConnection checks that with TLS eight streams and calls beside them work on
// one connection, as the tabs of a browser use it.
func TestTLSStreamsShareOneConnection(t *testing.T) {
	t.Parallel()
	s, roots := devTLS(t)
	if !strings.HasPrefix(s.URL, "https://127.0.0.1:") {
		t.Fatalf("the URL is %s", s.URL)
	}
	var dialed atomic.Int64
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	transport := &http.Transport{
		Protocols:       protocols,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	client := parleyv1connect.NewMessageServiceClient(&http.Client{Transport: servertest.WithToken(transport, s.Token)}, s.URL)
	send := func(content string) {
		if _, err := client.SendMessage(t.Context(), &parleyv1.SendMessageRequest{ChannelId: "room", Content: content}); err != nil {
			t.Fatal(err)
		}
	}
	send("first")
	streams := make([]*connect.ServerStreamForClient[parleyv1.SubscribeResponse], 8)
	for i := range streams {
		stream, err := client.Subscribe(t.Context(), &parleyv1.SubscribeRequest{
			Channels: []*parleyv1.ChannelPosition{{ChannelId: "room", AfterSeq: new(int64)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		streams[i] = stream
	}
	send("second")
	var all errgroup.Group
	for _, stream := range streams {
		all.Go(func() error { return awaitMessage(stream, "second") })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := dialed.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// awaitMessage reads the stream until the message arrives.
func awaitMessage(stream *connect.ServerStreamForClient[parleyv1.SubscribeResponse], content string) error {
	for stream.Receive() {
		for _, e := range stream.Msg().GetEvents().GetEvents() {
			if e.GetSent().GetContent() == content {
				return nil
			}
		}
	}
	return fmt.Errorf("the stream ended: %w", stream.Err())
}

// TestTLSCertificateIsReplaced checks that a replaced certificate is used for new connections and a
// broken one is not. It replaces the certificate, and then breaks it, while a stream is open.
func TestTLSCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	authority := testkit.NewAuthority(t)
	cert, key := authority.Files("first")
	var log logLines
	s := servertest.Dev(t, servertest.With(func(c *config.Config) { c.TLS.Cert, c.TLS.Key, c.Log.Format = cert, key, "json" }),
		servertest.WithServerOption(server.WithLogOutput(&log)))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	client := parleyv1connect.NewMessageServiceClient(&http.Client{Transport: servertest.WithToken(transport, s.Token)}, s.URL)
	send(t, client, "room", "before")
	stream, err := client.Subscribe(t.Context(), &parleyv1.SubscribeRequest{
		Channels: []*parleyv1.ChannelPosition{{ChannelId: "room", AfterSeq: new(int64)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	handshake := func(want string) error {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), transport.TLSClientConfig.Clone())
		if err != nil {
			return err
		}
		defer conn.Close()
		if got := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; got != want {
			return fmt.Errorf("the certificate is %q, want %q", got, want)
		}
		return nil
	}
	if err := handshake("first"); err != nil {
		t.Fatal(err)
	}
	newCert, newKey := authority.Files("second")
	for from, to := range map[string]string{newCert: cert, newKey: key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, 10*time.Second, func() error { return handshake("second") })
	if err := os.WriteFile(key, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if err := handshake("second"); err != nil {
			t.Fatal(err)
		}
		if !log.has("certificate files are invalid: the previous certificates stay in use") {
			return errors.New("the log does not say that the key is broken")
		}
		return nil
	})
	send(t, client, "room", "after")
	if err := awaitMessage(stream, "after"); err != nil {
		t.Error(err)
	}
}

// TestDevCertificate checks that the certificate is created once, covers the host names that a
// browser may use, and can't sign others.
func TestDevCertificate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	read := func(listen string) (*x509.Certificate, string) {
		certPath, keyPath, err := server.DevCertificate(dir, listen)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(keyPath); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key: %v %v", info.Mode(), err)
		}
		data, err := os.ReadFile(certPath)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return cert, string(data)
	}
	cert, first := read("127.0.0.1:8080")
	for _, host := range []string{"localhost", "t-x1.localhost", "127.0.0.1", "[::1]"} {
		if err := cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Error("the certificate can sign others")
	}
	if _, again := read("0.0.0.0:8080"); again != first {
		t.Error("the certificate was created twice")
	}
	other, second := read("192.0.2.7:8080")
	if err := other.VerifyHostname("192.0.2.7"); err != nil || second == first {
		t.Errorf("for another host: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dev-key.pem"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, third := read("192.0.2.7:8080"); third == second {
		t.Error("a certificate without its key was kept")
	}
}
