package rpc

import (
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

const (
	// sizeSlack is read beyond a size limit before the reading ends: enough to tell that the limit is broken, and for
	// the framing.
	sizeSlack = 4 << 10
	// compressMinBytes leaves small responses alone, which gzip makes no smaller.
	compressMinBytes = 1 << 10
)

// readLimit gives the most bytes that a procedure's request may have after decompression.
func readLimit(cfg *Config, procedure string) int {
	switch procedure {
	case parleyv1connect.MessageServiceSendMessageProcedure, parleyv1connect.MessageServiceEditMessageProcedure:
		return cfg.SendReadBytes
	case parleyv1connect.MessageServiceSendMessagesProcedure, parleyv1connect.MessageServiceSubscribeProcedure,
		parleyv1connect.MessageServiceUpdateSubscriptionProcedure, parleyv1connect.MessageServiceCreateChannelProcedure,
		parleyv1connect.MessageServiceAddMembersProcedure, parleyv1connect.MessageServiceRemoveMembersProcedure,
		parleyv1connect.QueueServiceProduceProcedure, parleyv1connect.QueueServiceScheduleProcedure,
		parleyv1connect.QueueServiceAckProcedure, parleyv1connect.QueueServiceNackProcedure,
		parleyv1connect.QueueServiceExtendProcedure, parleyv1connect.QueueServiceStreamingConsumeProcedure,
		parleyv1connect.AdminServiceReplayDeadLettersProcedure, parleyv1connect.AdminServicePurgeDeadLettersProcedure:
		return cfg.BatchReadBytes
	default:
		return cfg.OtherReadBytes
	}
}

func sizeOptions(cfg *Config, procedure string) []connect.HandlerOption {
	limit := readLimit(cfg, procedure)
	compressMin := compressMinBytes
	switch procedure {
	case parleyv1connect.MessageServiceSubscribeProcedure,
		parleyv1connect.QueueServiceConsumeProcedure, parleyv1connect.QueueServiceStreamingConsumeProcedure:
		compressMin = math.MaxInt // frames must be quick, and one of Subscribe goes to many: gzip would cost for each of them
	case parleyv1connect.QueueServiceProduceProcedure, parleyv1connect.QueueServiceScheduleProcedure,
		parleyv1connect.QueueServiceAckProcedure, parleyv1connect.QueueServiceNackProcedure:
		compressMin = math.MaxInt // some bytes for each message, of which much more came: not worth a twentieth of the call's time
	}
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(limit),
		connect.WithCompressMinBytes(compressMin),
		connect.WithCompression("gzip",
			func() connect.Decompressor { return &boundedGunzip{limit: int64(limit) + sizeSlack} },
			func() connect.Compressor { return gzip.NewWriter(io.Discard) }),
	}
}

// boundedGunzip decompresses up to a limit. Connect reads on after its own limit, to tell how large the message would
// have been: 4 GiB, for a request of 4 MiB.
type boundedGunzip struct {
	gzip.Reader

	limit, left int64
}

var errBomb = errors.New("decompresses to more than that")

// Read implements io.Reader.
func (g *boundedGunzip) Read(p []byte) (int, error) {
	if g.left <= 0 {
		return 0, errBomb
	}
	n, err := g.Reader.Read(p[:min(int64(len(p)), g.left)])
	g.left -= int64(n)
	return n, err
}

// Reset implements connect.Decompressor.
func (g *boundedGunzip) Reset(r io.Reader) error {
	g.left = g.limit
	return g.Reader.Reset(r)
}

// NewHTTPServer makes the server of the API: HTTP/1.1 and HTTP/2, the latter in the clear too. It has no overall read
// and write timeouts, which would cut streams; the handler sets deadlines itself. Dead peers are found by pings. The
// log hears of connections that break the protocol.
func NewHTTPServer(cfg *Config, h http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ReadHeaderTimeout: cfg.HeaderTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    cfg.HeaderBytes,
		ConnContext:       withConnection,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelInfo),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: cfg.ConnectionStreams,
			SendPingTimeout:      15 * time.Second,
			PingTimeout:          10 * time.Second,
			WriteByteTimeout:     10 * time.Second,
		},
	}
}
