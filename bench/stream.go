package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawStream is a gRPC server stream on a TCP connection of its own. It reads without extra
// goroutines, copies and decoding, because the load shares the machine with the measured server. It
// is not safe for concurrent use, except for close.
type rawStream struct {
	conn   net.Conn
	framer *http2.Framer
	// part is the beginning of an incomplete message. data is the rest of the last frame.
	part, data []byte
	// credit is the number of bytes read but not yet returned to the flow-control windows.
	credit uint32
}

const (
	streamWindow = 4 << 20
	connWindow   = 1 << 30
	// windowUpdate is the number of bytes read before the windows are topped up.
	windowUpdate = 1 << 20
	// maxMessage is the maximum size of a message, well above that of a frame of the server.
	maxMessage = 16 << 20
)

// openStream connects and calls the method with an encoded request. readBuffer is the size of the
// connection's read buffer.
func openStream(ctx context.Context, base, method, token string, request []byte, readBuffer int) (*rawStream, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Avoid TIME_WAIT, which would use up the ports of a client that reconnects ten thousand
		// streams.
		_ = tcp.SetLinger(0)
	}
	s := &rawStream{conn: conn}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // fails on a closed connection, which the first write reports
	}
	if err := s.call(u.Host, method, token, request, readBuffer); err != nil {
		s.close()
		return nil, fmt.Errorf("open stream: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	return s, nil
}

// call sends the connection preface and the whole request in one write.
func (s *rawStream) call(host, method, token string, request []byte, readBuffer int) error {
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", host},
		{"content-type", "application/grpc+proto"},
		{"te", "trailers"},
		{"authorization", "Bearer " + token},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return err
		}
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))) //nolint:gosec // a request of ours
	body = append(body, request...)

	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, nil)
	err := errors.Join(
		framer.WriteSettings(
			http2.Setting{ID: http2.SettingEnablePush, Val: 0},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		),
		framer.WriteWindowUpdate(0, connWindow),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true}),
		framer.WriteData(1, true, body),
	)
	if err != nil {
		return err
	}
	if _, err := s.conn.Write(out.Bytes()); err != nil {
		return err
	}
	s.framer = http2.NewFramer(s.conn, bufio.NewReaderSize(s.conn, readBuffer))
	s.framer.SetReuseFrames()
	s.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return nil
}

// next blocks until the next gRPC message and returns it, still encoded. The message is valid until
// the next call. It returns io.EOF if the server has ended the stream without an error.
func (s *rawStream) next() ([]byte, error) {
	for {
		if message, ok, err := s.message(); ok || err != nil {
			return message, err
		}
		if err := s.frame(); err != nil {
			return nil, err
		}
	}
}

// message returns the next complete message from the received data, or stores an incomplete one in
// part.
func (s *rawStream) message() (message []byte, ok bool, err error) {
	data := s.data
	if len(s.part) > 0 {
		need := prefixed(s.part) - len(s.part)
		if need < 0 { // the prefix is incomplete
			need = 5 - len(s.part)
		}
		n := min(need, len(data))
		s.part = append(s.part, data[:n]...)
		s.data = data[n:]
		switch size := prefixed(s.part); {
		case size > maxMessage:
			return nil, false, errors.New("a message is too long")
		case size < 0 || len(s.part) < size:
			if len(s.data) > 0 {
				return s.message()
			}
			return nil, false, nil
		}
		message = s.part[5:]
		s.part = s.part[:0]
		return message, true, nil
	}
	if len(data) == 0 {
		return nil, false, nil
	}
	size := prefixed(data)
	if size < 0 || len(data) < size {
		s.part = append(s.part[:0], data...)
		s.data = nil
		return nil, false, nil
	}
	s.data = data[size:]
	return data[5:size], true, nil
}

// prefixed returns the length of the first message in data with its prefix, or -1 if the prefix is
// incomplete.
func prefixed(data []byte) int {
	if len(data) < 5 {
		return -1
	}
	return 5 + int(binary.BigEndian.Uint32(data[1:5]))
}

// frame reads and processes one HTTP/2 frame. It sets data if the frame has any.
func (s *rawStream) frame() error {
	f, err := s.framer.ReadFrame()
	if err != nil {
		return err
	}
	switch f := f.(type) {
	case *http2.DataFrame:
		s.data = f.Data()
		return s.consumed(f.Length)
	case *http2.MetaHeadersFrame:
		return headersEnd(f)
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return s.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return s.framer.WritePing(true, f.Data)
		}
	case *http2.RSTStreamFrame:
		return fmt.Errorf("the server reset the stream: %s", f.ErrCode)
	case *http2.GoAwayFrame:
		if f.LastStreamID < 1 {
			return fmt.Errorf("the server closes the connection: %s", f.ErrCode)
		}
	}
	return nil
}

// consumed returns read bytes to the flow-control windows.
func (s *rawStream) consumed(n uint32) error {
	if s.credit += n; s.credit < windowUpdate {
		return nil
	}
	credit := s.credit
	s.credit = 0
	return errors.Join(s.framer.WriteWindowUpdate(0, credit), s.framer.WriteWindowUpdate(1, credit))
}

// headersEnd returns the end of the stream if the headers are its trailers or an error response.
func headersEnd(f *http2.MetaHeadersFrame) error {
	var httpStatus, status, message string
	for _, h := range f.Fields {
		switch strings.ToLower(h.Name) {
		case ":status":
			httpStatus = h.Value
		case "grpc-status":
			status = h.Value
		case "grpc-message":
			message = h.Value
		}
	}
	switch {
	case httpStatus != "" && httpStatus != "200":
		return fmt.Errorf("the server answered HTTP %s", httpStatus)
	case status != "" && status != "0":
		return fmt.Errorf("the stream ended: gRPC status %s: %s", status, message)
	case f.StreamEnded():
		return io.EOF
	default:
		return nil
	}
}

// close closes the connection. A pending next fails.
func (s *rawStream) close() { _ = s.conn.Close() }
