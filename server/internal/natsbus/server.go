package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// Embedded is the real NATS server in this process, reachable from this process only. It is what `parleyd dev` uses. Start it
// before it is given to Connect as Config.Server, and stop it after Bus.Close.
//
// JetStream writes its files to disk every second instead of at each publish: it holds nothing that the store lacks, and
// what a power cut takes from it is a hole that subscribers fill from the store and the cache's builder from the next
// message.
type Embedded struct {
	dir    string
	log    *slog.Logger
	life   lifecycle.Base
	server *server.Server // nil until Start
}

// NewEmbedded makes a server with JetStream's files under dir. logger is slog.Default if nil.
func NewEmbedded(dir string, logger *slog.Logger) *Embedded {
	return &Embedded{dir: dir, log: cmp.Or(logger, slog.Default())}
}

// Start starts the server and waits until it takes connections. See lifecycle.Service.
func (e *Embedded) Start(ctx context.Context) error {
	return e.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		s, err := server.NewServer(&server.Options{
			ServerName: "parleyd", DontListen: true, JetStream: true, StoreDir: e.dir, SyncInterval: time.Second,
			MaxPayload: 8 << 20, NoSigs: true,
		})
		if err != nil {
			return fmt.Errorf("start the NATS server: %w", err)
		}
		s.SetLogger(&serverLog{e.log.With("component", "nats-server")}, false, false)
		run.OnEnd(func(context.Context) error {
			s.Shutdown()
			s.WaitForShutdown()
			return nil
		})
		s.Start()
		if !s.ReadyForConnections(15 * time.Second) {
			return errors.New("start the NATS server: it takes no connections")
		}
		e.server = s
		return nil
	})
}

// Stop ends the server and waits until its files are closed.
func (e *Embedded) Stop(ctx context.Context) error { return e.life.Stop(ctx) }

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
