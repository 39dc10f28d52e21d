package bench

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// stampSize is the number of bytes of a content that hold its time of sending: Unix nanoseconds in
// hexadecimal digits.
const stampSize = 16

// content returns a message content of the given size that contains its time of sending.
func content(at time.Time, size int) string {
	return fmt.Sprintf("%0*x", stampSize, at.UnixNano()) + strings.Repeat("x", size-stampSize)
}

// stampOf returns the time of sending in a content, in Unix nanoseconds, or 0 if it has none.
func stampOf(content []byte) int64 {
	if len(content) < stampSize {
		return 0
	}
	at, err := strconv.ParseInt(string(content[:stampSize]), 16, 64)
	if err != nil {
		return 0
	}
	return at
}

// The numbers of the fields that the load reads without decoding the rest of a frame.
var (
	fieldBatch   = fieldNumber(&parleyv1.SubscribeResponse{}, "events")
	fieldEvents  = fieldNumber(&parleyv1.EventBatch{}, "events")
	fieldChannel = fieldNumber(&parleyv1.ChannelEvent{}, "channel_id")
	fieldSeq     = fieldNumber(&parleyv1.ChannelEvent{}, "seq")
	fieldFromSeq = fieldNumber(&parleyv1.ChannelEvent{}, "from_seq")
	fieldSent    = fieldNumber(&parleyv1.ChannelEvent{}, "sent")
	fieldState   = fieldNumber(&parleyv1.ChannelEvent{}, "state")
	fieldGap     = fieldNumber(&parleyv1.ChannelEvent{}, "gap")
	fieldDelta   = fieldNumber(&parleyv1.ChannelEvent{}, "delta")
	fieldContent = fieldNumber(&parleyv1.ChannelMessage{}, "content")
)

// event holds the parts of a ChannelEvent that the load reads.
type event struct {
	channel []byte
	// The event covers the entries fromSeq to seq.
	seq, fromSeq int64
	// kind is the number of the oneof field that is set, and body its encoded value.
	kind protowire.Number
	body []byte
}

// follows reports whether the event continues a stream whose last entry had the seq last, without a
// missing or repeated entry.
func (e *event) follows(last int64) bool {
	from := e.fromSeq
	if from == 0 || from > e.seq {
		from = e.seq
	}
	return e.seq > last && from <= last+1
}

var errDamaged = errors.New("a frame cannot be decoded")

// eachEvent calls f with each event of a SubscribeResponse, in order, and stops at the first error.
// The event is valid until f returns. A frame of another kind has no events.
func eachEvent(frame []byte, f func(e *event) error) error {
	var e event
	return eachBytes(frame, fieldBatch, func(batch []byte) error {
		return eachBytes(batch, fieldEvents, func(data []byte) error {
			if err := e.parse(data); err != nil {
				return err
			}
			return f(&e)
		})
	})
}

// eachBytes calls f with each value of a field of type bytes or message, in order, and stops at the
// first error.
func eachBytes(message []byte, field protowire.Number, f func(value []byte) error) error {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errDamaged
		}
		message = message[n:]
		if num != field || typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, message); n < 0 {
				return errDamaged
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return errDamaged
		}
		message = message[n:]
		if err := f(value); err != nil {
			return err
		}
	}
	return nil
}

func (e *event) parse(data []byte) error {
	*e = event{}
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errDamaged
		}
		data = data[n:]
		switch {
		case num == fieldSeq && typ == protowire.VarintType:
			v, m := protowire.ConsumeVarint(data)
			e.seq, n = int64(v), m //nolint:gosec // int64 on the wire
		case num == fieldFromSeq && typ == protowire.VarintType:
			v, m := protowire.ConsumeVarint(data)
			e.fromSeq, n = int64(v), m //nolint:gosec // int64 on the wire
		case typ == protowire.BytesType:
			var v []byte
			if v, n = protowire.ConsumeBytes(data); num == fieldChannel {
				e.channel = v
			} else {
				e.kind, e.body = num, v
			}
		default:
			n = protowire.ConsumeFieldValue(num, typ, data)
		}
		if n < 0 {
			return errDamaged
		}
		data = data[n:]
	}
	return nil
}

// contentOf returns the content of an encoded ChannelMessage, or nil if it has none.
func contentOf(message []byte) []byte {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if num == fieldContent && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(message)
			return v
		}
		if n = protowire.ConsumeFieldValue(num, typ, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return nil
}

// fieldNumber returns the number of a field.
func fieldNumber(m protoreflect.ProtoMessage, name protoreflect.Name) protowire.Number {
	return m.ProtoReflect().Descriptor().Fields().ByName(name).Number()
}
