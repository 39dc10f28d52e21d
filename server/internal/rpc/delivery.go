package rpc

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/queue/consume"
)

// The numbers of the fields that lead to a delivery in StreamingConsumeResponse, ConsumeResponse
// and DeliveryBatch, and those of Delivery except key, payload and headers.
const (
	streamedField   protowire.Number = 1
	deliveriesField protowire.Number = 2
	deliveryField   protowire.Number = 1

	tokenField     protowire.Number = 1
	messageIDField protowire.Number = 2
	partitionField protowire.Number = 3
	attemptField   protowire.Number = 7
	producedField  protowire.Number = 8
	topicField     protowire.Number = 9
	countField     protowire.Number = 10
	timeoutField   protowire.Number = 11
)

// headBytes is the usual size of a delivery without its body, to allocate the memory for it.
const headBytes = 160

// deliveryFrame is a ConsumeResponse with deliveries, or a StreamingConsumeResponse that wraps one.
// The codecs here accept it in place of the message. The bodies of deliveries are encoded already:
// the store has them as fields of Delivery, and no frame decodes them.
type deliveryFrame struct {
	deliveries []consume.Delivery
	// heads has the other fields of all deliveries, one after the other; ends are where each ends.
	heads []byte
	ends  []int
	// batch is the size of the DeliveryBatch in bytes.
	batch    int
	streamed bool
}

// newDeliveryFrame encodes all of the frame that is not encoded yet.
func newDeliveryFrame(deliveries []consume.Delivery, streamed bool) *deliveryFrame {
	f := &deliveryFrame{
		deliveries: deliveries, heads: make([]byte, 0, headBytes*len(deliveries)), ends: make([]int, len(deliveries)), streamed: streamed,
	}
	for i := range deliveries {
		begin := len(f.heads)
		f.heads = appendHead(f.heads, &deliveries[i])
		f.ends[i] = len(f.heads)
		f.batch += protowire.SizeTag(deliveryField) + protowire.SizeBytes(len(f.heads)-begin+len(deliveries[i].Body))
	}
	return f
}

// size returns the size of the encoded response in bytes.
func (f *deliveryFrame) size() int {
	size := protowire.SizeTag(deliveriesField) + protowire.SizeBytes(f.batch)
	if f.streamed {
		size = protowire.SizeTag(streamedField) + protowire.SizeBytes(size)
	}
	return size
}

// appendTo appends the encoded response to dst.
func (f *deliveryFrame) appendTo(dst []byte) []byte {
	dst = slices.Grow(dst, f.size())
	if f.streamed {
		dst = appendPrefix(dst, streamedField, protowire.SizeTag(deliveriesField)+protowire.SizeBytes(f.batch))
	}
	dst = appendPrefix(dst, deliveriesField, f.batch)
	begin := 0
	for i, end := range f.ends {
		body := f.deliveries[i].Body
		dst = appendPrefix(dst, deliveryField, end-begin+len(body))
		dst = append(append(dst, f.heads[begin:end]...), body...)
		begin = end
	}
	return dst
}

// message decodes the frame, for codecs that are not binary.
func (f *deliveryFrame) message() (proto.Message, error) {
	var m proto.Message = &parleyv1.ConsumeResponse{}
	if f.streamed {
		m = &parleyv1.StreamingConsumeResponse{}
	}
	if err := proto.Unmarshal(f.appendTo(nil), m); err != nil {
		return nil, fmt.Errorf("decode deliveries: %w", err)
	}
	return m, nil
}

// deliveryOf returns one delivery as a message.
func deliveryOf(d *consume.Delivery) (*parleyv1.Delivery, error) {
	var m parleyv1.Delivery
	if err := proto.Unmarshal(append(appendHead(nil, d), d.Body...), &m); err != nil {
		return nil, fmt.Errorf("decode a delivery: %w", err)
	}
	return &m, nil
}

// appendHead appends the fields of a delivery that its body does not have.
func appendHead(dst []byte, d *consume.Delivery) []byte {
	dst = appendText(dst, tokenField, d.Token.String())
	dst = appendText(dst, messageIDField, d.MessageID)
	dst = appendNumber(dst, partitionField, int64(d.Partition))
	dst = appendNumber(dst, attemptField, int64(d.Attempt))
	dst = appendTime(dst, producedField, d.ProducedAt.Unix(), d.ProducedAt.Nanosecond())
	dst = appendText(dst, topicField, d.Topic)
	dst = appendNumber(dst, countField, int64(d.Gen))
	if d.Timeout > 0 {
		dst = appendTime(dst, timeoutField, int64(d.Timeout/time.Second), int(d.Timeout%time.Second))
	}
	return dst
}

// appendPrefix appends the tag and the length of a field of so many bytes.
func appendPrefix(dst []byte, field protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.BytesType), uint64(size)) //nolint:gosec // no less than 0
}

func appendText(dst []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	return append(appendPrefix(dst, field, len(s)), s...)
}

func appendNumber(dst []byte, field protowire.Number, n int64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), uint64(n)) //nolint:gosec // as the schema encodes it
}

// appendTime appends a Timestamp or a Duration, which have the same fields.
func appendTime(dst []byte, field protowire.Number, seconds int64, nanos int) []byte {
	const secondsField, nanosField protowire.Number = 1, 2
	var value [24]byte
	v := appendNumber(appendNumber(value[:0], secondsField, seconds), nanosField, int64(nanos))
	return append(appendPrefix(dst, field, len(v)), v...)
}
