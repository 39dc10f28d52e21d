package natsbus

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Embedded is the real NATS server in this process, reachable from this process only. It is what `parleyd dev` uses.
type Embedded struct {
	server *server.Server
}

// EmbeddedServer starts the server with JetStream's files under dir, and waits until it takes connections. Give it to
// Connect as Config.Server, and call Shutdown after Bus.Close. logger is slog.Default if nil.
//
// JetStream writes its files to disk every second instead of at each publish: it holds nothing that the store lacks, and
// what a power cut takes from it is a hole that subscribers fill from the store and the cache's builder from the next
// message.
func EmbeddedServer(dir string, logger *slog.Logger) (*Embedded, error) {
	if logger == nil {
		logger = slog.Default()
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "parleyd", DontListen: true, JetStream: true, StoreDir: dir, SyncInterval: time.Second,
		MaxPayload: 8 << 20, NoSigs: true,
	})
	if err != nil {
		return nil, fmt.Errorf("start the NATS server: %w", err)
	}
	s.SetLogger(&serverLog{logger.With("component", "nats-server")}, false, false)
	s.Start()
	if !s.ReadyForConnections(15 * time.Second) {
		s.Shutdown()
		return nil, errors.New("start the NATS server: it takes no connections")
	}
	return &Embedded{server: s}, nil
}

// Shutdown ends the server and waits until its files are closed. A second call does nothing.
func (e *Embedded) Shutdown() {
	e.server.Shutdown()
	e.server.WaitForShutdown()
}

// serverLog is the server's log, made ours. What the server calls notices are of no interest to a user of parleyd.
type serverLog struct{ log *slog.Logger }

// Noticef implements server.Logger.
func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }

// Warnf implements server.Logger.
func (l *serverLog) Warnf(format string, v ...any) { l.log.Warn(fmt.Sprintf(format, v...)) }

// Fatalf implements server.Logger. It does not end the process.
func (l *serverLog) Fatalf(format string, v ...any) { l.log.Error(fmt.Sprintf(format, v...)) }

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) { l.log.Error(fmt.Sprintf(format, v...)) }

// Debugf implements server.Logger.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (l *serverLog) Tracef(string, ...any) {}
