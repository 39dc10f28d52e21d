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
)

const (
	// sizeSlack is how many bytes beyond its size limit a request is read: enough to detect that the
	// limit is exceeded, and for the framing.
	sizeSlack = 4 << 10
	// compressMinBytes is the size in bytes of the smallest response that is compressed. gzip does not
	// shrink smaller ones.
	compressMinBytes = 1 << 10
)

func sizeOptions(cfg *Config, m *method) []connect.HandlerOption {
	limit := m.readBytes(cfg)
	compressMin := compressMinBytes
	if m.streams() || m.uncompressed {
		// Frames must be sent fast, and one of Subscribe goes to many clients: gzip would cost time
		// for each.
		compressMin = math.MaxInt
	}
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(limit),
		connect.WithCompressMinBytes(compressMin),
		connect.WithCompression("gzip",
			func() connect.Decompressor { return &boundedGunzip{limit: int64(limit) + sizeSlack} },
			func() connect.Compressor { return gzip.NewWriter(io.Discard) }),
	}
}

// boundedGunzip decompresses a request up to a limit in bytes, and fails beyond it. connect reads
// on beyond its own limit, to report how large the message would have been: 4 GiB, for a request of
// 4 MiB.
type boundedGunzip struct {
	gzip.Reader

	limit, left int64
}

var errDecompressedSize = errors.New("the decompressed request exceeds the size limit")

// Read implements io.Reader.
func (g *boundedGunzip) Read(p []byte) (int, error) {
	if g.left <= 0 {
		return 0, errDecompressedSize
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

// NewHTTPServer creates the API's server, which the caller starts. It serves HTTP/1.1 and HTTP/2,
// the latter also without TLS. It has no overall read and write timeouts, which would end streams;
// the handler sets deadlines instead. Pings detect dead HTTP/2 peers. Connections that break the
// protocol are logged.
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
