package conformance_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// flagsEnd are the flags of the last envelope of a stream: that of the end in Connect, that of the
// trailers in gRPC-Web.
const flagsEnd = 0x02 | 0x80

// editedStream is the response body of a stream with a fault applied. All three protocols
// have the same envelopes: a byte of flags, four of length, and the message.
type editedStream struct {
	*io.PipeReader

	body io.ReadCloser
}

func newEditedStream(body io.ReadCloser, contentType string, f *fault, end []byte) *editedStream {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(editStream(w, body, contentType, f, end)) }()
	return &editedStream{PipeReader: r, body: body}
}

// Close closes the pipe and the server's body.
func (e *editedStream) Close() error {
	_ = e.PipeReader.Close()
	return e.body.Close()
}

// editStream copies the envelopes of in to out and applies the fault to them. If the fault ends the
// stream, it writes end last and returns io.EOF.
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
		frames, over := [][]byte{payload}, false
		if head[0]&flagsEnd == 0 {
			var err error
			if frames, over, err = f.edit(contentType, payload); err != nil {
				return err
			}
		}
		for _, frame := range frames {
			if _, err := out.Write(envelope(head[0], frame)); err != nil {
				return err
			}
		}
		if over {
			if _, err := out.Write(end); err != nil {
				return err
			}
			return io.EOF
		}
	}
}

// edit applies the fault to an encoded frame. It returns the frames to send instead, and whether
// the stream ends after them.
func (f *fault) edit(contentType string, payload []byte) (frames [][]byte, over bool, err error) {
	if f.Do == "presence" {
		frames, err = f.addPresence(contentType, payload)
		return frames, false, err
	}
	frame := new(parleyv1.SubscribeResponse)
	if err := unmarshal(contentType, payload, frame); err != nil {
		return nil, false, err
	}
	changed, over := f.change(frame)
	for _, frame := range changed {
		data, err := encodeFrame(contentType, frame)
		if err != nil {
			return nil, false, err
		}
		frames = append(frames, data)
	}
	return frames, over, nil
}

// addPresence adds a frame with f.Update after the frame that has the PresenceInfo.
func (f *fault) addPresence(contentType string, payload []byte) ([][]byte, error) {
	update := new(parleyv1.PresenceUpdate)
	if err := protojson.Unmarshal(f.Update, update); err != nil {
		return nil, err
	}
	var begins bool
	var frame, added proto.Message
	if f.Of == "Connect" {
		in := new(parleyv1.ConnectResponse)
		if err := unmarshal(contentType, payload, in); err != nil {
			return nil, err
		}
		begins, frame = in.GetInfo() != nil, in
		added = &parleyv1.ConnectResponse{Frame: &parleyv1.ConnectResponse_Presence{Presence: update}}
	} else {
		in := new(parleyv1.SubscribeResponse)
		if err := unmarshal(contentType, payload, in); err != nil {
			return nil, err
		}
		begins, frame = in.GetPresenceInfo() != nil, in
		added = &parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Presence{Presence: update}}
	}
	data, err := marshal(contentType, frame)
	if err != nil || !begins {
		return [][]byte{data}, err
	}
	f.hits.Add(1)
	more, err := marshal(contentType, added)
	return [][]byte{data, more}, err
}

func envelope(flags byte, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(payload))), payload...)
}

// endOfStream returns the last envelope of a stream that succeeds, in Connect or gRPC-Web. gRPC
// itself uses trailers, which are not part of a body.
func endOfStream(contentType string) []byte {
	if strings.Contains(contentType, "grpc-web") {
		return envelope(0x80, []byte("grpc-status: 0\r\n"))
	}
	return envelope(0x02, []byte("{}"))
}

// change applies the fault to a frame. It returns the frames to send instead, and whether the
// stream ends after them.
func (f *fault) change(frame *parleyv1.SubscribeResponse) (frames []*parleyv1.SubscribeResponse, over bool) {
	if f.Do == "strangeFrames" && frame.GetHeartbeat() != nil {
		f.hits.Add(1)
		frame = new(parleyv1.SubscribeResponse)
		makeStrange(frame)
	}
	if f.Do == "withoutPresence" && (frame.GetPresenceInfo() != nil || frame.GetPresence() != nil) {
		f.hits.Add(1)
		return nil, false
	}
	frames = append(frames, frame)
	batch := frame.GetEvents()
	if batch == nil {
		return frames, false
	}
	events := make([]*parleyv1.ChannelEvent, 0, len(batch.GetEvents())+1)
	for _, e := range batch.GetEvents() {
		var kept []*parleyv1.ChannelEvent
		kept, over = f.changeEvent(e)
		events = append(events, kept...)
		if over {
			break
		}
	}
	batch.Events = events
	if over && f.Do == "advise" {
		within := durationpb.New(time.Duration(f.Ms * float64(time.Millisecond)))
		frames = append(frames, &parleyv1.SubscribeResponse{
			Frame: &parleyv1.SubscribeResponse_Reconnect{Reconnect: &parleyv1.Reconnect{Within: within}},
		})
	}
	return frames, over
}

// changeEvent applies the fault to an event. It returns the events to send instead, and whether the
// stream ends after them.
func (f *fault) changeEvent(e *parleyv1.ChannelEvent) (events []*parleyv1.ChannelEvent, over bool) {
	entry := e.GetChannelId() == f.ChannelID && e.GetState() == nil && e.GetGap() == nil
	if entry && f.omits(e.GetSeq()) {
		return nil, false
	}
	if !entry || e.GetSeq() != f.Seq {
		return []*parleyv1.ChannelEvent{e}, false
	}
	f.hits.Add(1)
	if f.FromSeq != nil {
		e.FromSeq = *f.FromSeq
	}
	switch f.Do {
	case "skip":
		return nil, false
	case "twice":
		return []*parleyv1.ChannelEvent{e, proto.CloneOf(e)}, false
	case "strange":
		e.Event = nil
		makeStrange(e)
	}
	return []*parleyv1.ChannelEvent{e}, f.Do == "end" || f.Do == "advise"
}

// omits reports whether the fault omits the entry's event because the event of the entry f.Seq
// covers it.
func (f *fault) omits(seq int64) bool {
	return f.OmitFrom > 0 && f.OmitFrom <= seq && seq < f.Seq
}

// strangeField is the number of a field that no version of the API has. strangeName is its name in
// JSON.
const (
	strangeField = 1000
	strangeName  = "strange"
)

// makeStrange adds an unknown string field to a message, as a newer version of the API could.
func makeStrange(m proto.Message) {
	m.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, strangeField, protowire.BytesType), strangeName))
}

func isStrange(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

// encodeFrame encodes a frame including the fields that makeStrange added, which protojson drops.
func encodeFrame(contentType string, frame *parleyv1.SubscribeResponse) ([]byte, error) {
	data, err := marshal(contentType, frame)
	if err != nil || !isJSON(contentType) {
		return data, err
	}
	var asJSON struct {
		All    map[string]json.RawMessage
		Events struct {
			Events []map[string]json.RawMessage `json:"events"`
		} `json:"events"`
	}
	if err := errors.Join(json.Unmarshal(data, &asJSON.All), json.Unmarshal(data, &asJSON)); err != nil {
		return nil, err
	}
	member := json.RawMessage(`"` + strangeName + `"`)
	if isStrange(frame) {
		asJSON.All[strangeName] = member
	}
	for i, e := range frame.GetEvents().GetEvents() {
		if isStrange(e) {
			asJSON.Events.Events[i][strangeName] = member
		}
	}
	if frame.GetEvents() != nil {
		if asJSON.All["events"], err = json.Marshal(asJSON.Events); err != nil {
			return nil, err
		}
	}
	return json.Marshal(asJSON.All)
}
