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

// stampSize is how many bytes of a content say when it was sent: Unix nanoseconds in hexadecimal digits.
const stampSize = 16

// content gives a message's content of the given size that says when it was sent.
func content(at time.Time, size int) string {
	return fmt.Sprintf("%0*x", stampSize, at.UnixNano()) + strings.Repeat("x", size-stampSize)
}

// stampOf gives when a content was sent, in Unix nanoseconds; 0 if it does not say.
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

// The fields of the messages that are looked at without decoding the rest, by the schema.
var (
	fieldEvents  = fieldNumber(&parleyv1.SubscribeResponse{}, "events")
	fieldChannel = fieldNumber(&parleyv1.ChannelEvent{}, "channel_id")
	fieldSeq     = fieldNumber(&parleyv1.ChannelEvent{}, "seq")
	fieldSent    = fieldNumber(&parleyv1.ChannelEvent{}, "sent")
	fieldState   = fieldNumber(&parleyv1.ChannelEvent{}, "state")
	fieldGap     = fieldNumber(&parleyv1.ChannelEvent{}, "gap")
	fieldContent = fieldNumber(&parleyv1.Message{}, "content")
)

// event is one element of a frame, as far as the load must know it.
type event struct {
	channel []byte
	seq     int64
	// kind is the number of the field that is set, and body what is in it.
	kind protowire.Number
	body []byte
}

var errDamaged = errors.New("a frame can't be decoded")

// eachEvent calls f with each event of a SubscribeResponse. What it is given is valid while it runs.
func eachEvent(frame []byte, f func(e *event) error) error {
	var e event
	for len(frame) > 0 {
		num, typ, n := protowire.ConsumeTag(frame)
		if n < 0 {
			return errDamaged
		}
		frame = frame[n:]
		if num != fieldEvents || typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, frame); n < 0 {
				return errDamaged
			}
			frame = frame[n:]
			continue
		}
		data, n := protowire.ConsumeBytes(frame)
		if n < 0 {
			return errDamaged
		}
		frame = frame[n:]
		if err := e.parse(data); err != nil {
			return err
		}
		if err := f(&e); err != nil {
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

// contentOf finds the content of an encoded Message; nil if it has none.
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

// fieldNumber gives a field's number by its name.
func fieldNumber(m protoreflect.ProtoMessage, name protoreflect.Name) protowire.Number {
	return m.ProtoReflect().Descriptor().Fields().ByName(name).Number()
}
