package natsbus

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// readyWait bounds the wait for an Embedded that starts. During the wait the context is checked
	// every readyPoll.
	readyWait = 15 * time.Second
	readyPoll = 100 * time.Millisecond
)

// Embedded is a NATS server in this process, reachable only from this process. `parleyd dev` uses
// it. Start it before passing it to Connect as Config.Server, and stop it after Bus.Close.
//
// JetStream syncs its files every second instead of at each publish, because it holds nothing that
// the store lacks. Events lost in a power cut leave a gap. Subscribers fill it from the store, and
// the cache builder does so at the next message.
type Embedded struct {
	dir    string
	log    *slog.Logger
	life   lifecycle.Base
	server *server.Server // nil until Start
}

// NewEmbedded creates a server that keeps JetStream's files under dir. A nil logger means
// slog.Default.
func NewEmbedded(dir string, logger *slog.Logger) *Embedded {
	return &Embedded{dir: dir, log: cmp.Or(logger, slog.Default())}
}

// Start starts the server and blocks until it accepts connections. See lifecycle.Service.
func (e *Embedded) Start(ctx context.Context) error {
	return e.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
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
		if err := awaitReady(ctx, s.ReadyForConnections); err != nil {
			return fmt.Errorf("start the NATS server: it is not ready for connections: %w", err)
		}
		e.server = s
		return nil
	})
}

// awaitReady blocks until ready returns true. ready blocks for up to the given time. awaitReady
// returns ctx's error if ctx ends, or DeadlineExceeded after readyWait.
func awaitReady(ctx context.Context, ready func(within time.Duration) bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for !ready(readyPoll) {
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops the server and blocks until its files are closed, even if ctx ends.
func (e *Embedded) Stop(ctx context.Context) error { return e.life.Stop(ctx) }

// serverLog forwards the server's log. It logs the server's notices at debug level, because they
// don't matter to a user of parleyd.
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
