package parley

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// parseAddrs parses one or several addresses, separated by commas, and returns their URLs and their
// scheme. Duplicates count once.
func parseAddrs(list string) (addrs []string, scheme string, err error) {
	for part := range strings.SplitSeq(list, ",") {
		u, err := parseAddr(strings.TrimSpace(part))
		if err != nil {
			return nil, "", err
		}
		if scheme != "" && scheme != u.Scheme {
			// The token would be sent unencrypted to some of the nodes: most likely a mistake.
			return nil, "", errors.New("addresses: must all have the same scheme, http or https")
		}
		scheme = u.Scheme
		if addr := u.String(); !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs, scheme, nil
}

// parseAddr parses `host:port` or an http or https URL.
func parseAddr(addr string) (*url.URL, error) {
	if addr == "" {
		return nil, errors.New("address is empty")
	}
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("address %q: must be host:port or an http or https URL", addr)
	case u.Hostname() == "":
		return nil, fmt.Errorf("address %q: must have a host", addr)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, fmt.Errorf("address %q: must not have a query, a fragment or user information", u.Redacted())
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// newHTTPClient creates the client's own HTTP client. security is the TLS configuration for https;
// nil means the default. The client has no overall timeout, because that would end streams.
func newHTTPClient(scheme string, security *tls.Config) *http.Client {
	protocols := new(http.Protocols)
	if scheme == "http" {
		// Without HTTP/1 in the set, plain http means HTTP/2: many streams on one connection.
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	}
	return &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     security,
		TLSHandshakeTimeout: 5 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		Protocols:           protocols,
		// Pings detect a connection whose peer has stopped or disappeared. Its streams end, and
		// later calls use a new connection.
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  5 * time.Second,
			PingTimeout:      3 * time.Second,
			WriteByteTimeout: 10 * time.Second,
			// Batches of queue deliveries and pages of history are much larger than HTTP/2's default frame
			// size of 16 KiB. Each HTTP/2 frame costs the server two goroutine switches and a write.
			MaxReadFrameSize: 256 << 10,
		},
	}}
}
