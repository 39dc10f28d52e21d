package conformance_test

import (
	"encoding/binary"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Flags of an envelope: the end of a stream in Connect, and the trailers in gRPC-Web.
const flagsEnd = 0x02 | 0x80

// editedStream is the body of a Subscribe stream with a fault in it. All three protocols have the same envelopes: a byte
// of flags, four of length, and the message.
type editedStream struct {
	*io.PipeReader

	body io.ReadCloser
}

func newEditedStream(body io.ReadCloser, contentType string, f *fault, end []byte) *editedStream {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(editStream(w, body, contentType, f, end)) }()
	return &editedStream{PipeReader: r, body: body}
}

// Close ends both ends.
func (e *editedStream) Close() error {
	_ = e.PipeReader.Close()
	return e.body.Close()
}

// editStream copies envelopes and changes what the fault wants changed.
func editStream(out io.Writer, in io.Reader, contentType string, f *fault, end []byte) error {
	for {
		var head [5]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(in, payload); err != nil {
			return err
		}
		over := false
		if head[0]&flagsEnd == 0 {
			frame := new(parleyv1.SubscribeResponse)
			if err := unmarshal(contentType, payload, frame); err != nil {
				return err
			}
			over = f.change(frame)
			var err error
			if payload, err = marshal(contentType, frame); err != nil {
				return err
			}
		}
		if _, err := out.Write(envelope(head[0], payload)); err != nil {
			return err
		}
		if over {
			if _, err := out.Write(end); err != nil {
				return err
			}
			return io.EOF
		}
	}
}

func envelope(flags byte, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(payload))), payload...)
}

// endOfStream is how a body ends with success. gRPC proper does that with trailers, which a body has not.
func endOfStream(contentType string) []byte {
	if strings.Contains(contentType, "grpc-web") {
		return envelope(0x80, []byte("grpc-status: 0\r\n"))
	}
	return envelope(0x02, []byte("{}"))
}

// change makes the fault happen to a frame. It reports whether the stream is to end after it.
func (f *fault) change(frame *parleyv1.SubscribeResponse) bool {
	over := false
	events := make([]*parleyv1.ChannelEvent, 0, len(frame.GetEvents())+1)
	for _, e := range frame.GetEvents() {
		hit := e.GetChannelId() == f.ChannelID && e.GetSeq() == f.Seq && e.GetState() == nil && e.GetGap() == nil
		if !hit {
			events = append(events, e)
			continue
		}
		f.hits.Add(1)
		switch f.Do {
		case "skip":
			continue
		case "twice":
			events = append(events, e, proto.CloneOf(e))
		case "strange":
			// What an older program sees of a kind that was made after it: no kind at all.
			events = append(events, &parleyv1.ChannelEvent{ChannelId: e.GetChannelId(), Seq: e.GetSeq()})
		default:
			events = append(events, e)
		}
		if f.Do == "end" || f.Do == "advise" {
			over = true
			break
		}
	}
	frame.Events = events
	if over && f.Do == "advise" {
		frame.Reconnect = &parleyv1.Reconnect{Within: durationpb.New(time.Duration(f.Ms * float64(time.Millisecond)))}
	}
	return over
}
