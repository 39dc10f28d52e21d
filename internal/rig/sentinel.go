package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

// SentinelConfig configures StartSentinel.
type SentinelConfig struct {
	// Dir is the Sentinel's directory for its configuration and log. It is created if it is missing.
	Dir string
	// Addr is the Sentinel's own host:port.
	Addr string
	// Master is the name of the monitored server, and MasterAddr its host:port. The Sentinel alone
	// decides whether that server is down.
	Master, MasterAddr string
	// Username and Password are those of the Sentinel's only user. Clients must authenticate with
	// them.
	Username, Password string
}

// Sentinel is a redis-server process in Sentinel mode.
type Sentinel struct{ proc process }

// StartSentinel starts a Sentinel and waits until it answers. After an error nothing is left
// running.
func StartSentinel(ctx context.Context, c SentinelConfig) (*Sentinel, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return nil, err
	}
	masterHost, masterPort, err := net.SplitHostPort(c.MasterAddr)
	if err != nil {
		return nil, err
	}
	conf := fmt.Sprintf("bind %s\nport %s\ndir %s\nprotected-mode no\nuser default off\nuser %s on >%s ~* &* +@all\nsentinel monitor %s %s %s 1\n",
		host, port, c.Dir, c.Username, c.Password, c.Master, masterHost, masterPort)
	path := filepath.Join(c.Dir, "sentinel.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	s := &Sentinel{process{
		name: "sentinel", path: "redis-server", args: []string{path, "--sentinel"}, log: filepath.Join(c.Dir, "log"),
	}}
	if err := s.proc.start(); err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: c.Addr, Username: c.Username, Password: c.Password, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	err = s.proc.ready(ctx, func(ctx context.Context) error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", c.Addr) // the client logs each failure
		if err != nil {
			return err
		}
		_ = conn.Close()
		return client.Ping(ctx).Err()
	})
	if err != nil {
		s.proc.kill()
		return nil, err
	}
	return s, nil
}

// Kill ends the Sentinel with SIGKILL and waits until it has exited. It does nothing if the
// Sentinel does not run.
func (s *Sentinel) Kill() { s.proc.kill() }
