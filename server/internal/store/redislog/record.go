package redislog

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// keyField is the number of the field key of parley.v1.Delivery, which a body contains.
	keyField protowire.Number = 4
	// payloadField is that of its field payload.
	payloadField protowire.Number = 5
	// optionsField is the number of the field of a record that contains its options. It is the last
	// field, and parley.v1.Delivery has none of the number.
	optionsField protowire.Number = 100
)

// encodeRecord returns the record of a message: its body and, where the producer set any, its
// options.
func encodeRecord(d *qlog.Draft) ([]byte, error) {
	if d.Options == (qlog.Options{}) { // most messages
		return d.Body, nil
	}
	options := &clusterv1.QueueRecordOptions{
		MaxAttempts: int32(d.MaxAttempts), //nolint:gosec // at most 1,000
		TimeoutMs:   d.Timeout.Milliseconds(), TtlMs: d.TTL.Milliseconds(), UniqueKey: d.UniqueKey, UniqueRunning: d.UniqueRunning,
	}
	size := proto.Size(options)
	if size == 0 {
		return d.Body, nil
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("encode the options of a message: %w", err)
	}
	record := append(make([]byte, 0, len(d.Body)+size+6), d.Body...)
	return protowire.AppendBytes(protowire.AppendTag(record, optionsField, protowire.BytesType), encoded), nil
}

// decodeRecord reads a record into the Key, Body and Options of an entry.
func decodeRecord(record []byte, e *qlog.Entry) error {
	for at := 0; at < len(record); {
		number, kind, n := protowire.ConsumeTag(record[at:])
		if n < 0 {
			return fmt.Errorf("decode a record: %w", protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, kind, record[at+n:])
		if size < 0 {
			return fmt.Errorf("decode a record: %w", protowire.ParseError(size))
		}
		value := record[at+n : at+n+size]
		switch {
		case number == keyField && kind == protowire.BytesType:
			key, _ := protowire.ConsumeBytes(value)
			e.Key = string(key)
		case number == payloadField && kind == protowire.BytesType:
			payload, _ := protowire.ConsumeBytes(value)
			e.PayloadBytes = len(payload)
		case number == optionsField && kind == protowire.BytesType:
			if at+n+size != len(record) {
				return errors.New("decode a record: its options are not its last field")
			}
			options, _ := protowire.ConsumeBytes(value)
			e.Body = record[:at:at]
			return decodeOptions(options, &e.Options)
		default:
		}
		at += n + size
	}
	e.Body = record
	return nil
}

func decodeOptions(encoded []byte, o *qlog.Options) error {
	options := &clusterv1.QueueRecordOptions{}
	if err := proto.Unmarshal(encoded, options); err != nil {
		return fmt.Errorf("decode the options of a message: %w", err)
	}
	*o = qlog.Options{
		MaxAttempts: int(options.GetMaxAttempts()), Timeout: time.Duration(options.GetTimeoutMs()) * time.Millisecond,
		TTL: time.Duration(options.GetTtlMs()) * time.Millisecond, UniqueKey: options.GetUniqueKey(),
		UniqueRunning: options.GetUniqueRunning(),
	}
	return nil
}

// decodeEntries reads what XRANGE returned. An entry whose fields are no message is no error but
// Unreadable, because it would otherwise block all that follow.
func decodeEntries(partition int, reply any) ([]qlog.Entry, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("entries are a %T", reply)
	}
	entries := make([]qlog.Entry, len(list))
	for i := range list {
		pair, ok := list[i].([]any)
		if !ok || len(pair) != 2 {
			return nil, fmt.Errorf("an entry is a %T", list[i])
		}
		id, _ := pair[0].(string)
		pos, err := qlog.ParsePos(id)
		if err != nil {
			return nil, fmt.Errorf("decode an entry: %w", err)
		}
		fields, ok := pair[1].([]any)
		if !ok {
			return nil, fmt.Errorf("the fields of entry %s are a %T", id, pair[1])
		}
		e := &entries[i]
		e.Pos, e.MessageID, e.ProducedAt = pos, qlog.MessageID(partition, pos.ID, false), pos.ID.Time()
		e.Unreadable = decodeFields(fields, e)
	}
	return entries, nil
}

var errNoRecord = errors.New("there is no field d")

// decodeFields reads all fields, also if the record cannot be decoded: which group the entry is for
// does not depend on it.
func decodeFields(fields []any, e *qlog.Entry) error {
	unreadable := errNoRecord
	var damaged error
	for i := 0; i+1 < len(fields); i += 2 {
		value, _ := fields[i+1].(string)
		switch fields[i] {
		case "d":
			unreadable = decodeRecord([]byte(value), e)
		case "i":
			if _, _, _, ok := qlog.ParseMessageID(value); !ok {
				damaged = fmt.Errorf("field i is %q", value)
				continue
			}
			e.MessageID = value
		case "t":
			ms, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				damaged = fmt.Errorf("field t is %q", value)
				continue
			}
			e.ProducedAt = time.UnixMilli(ms)
		case "g":
			e.Only = value
		default:
		}
	}
	return cmp.Or(unreadable, damaged)
}

// sizeOf returns the bytes of an entry that count towards MaxCallBytes.
func sizeOf(e *qlog.Entry) int { return len(e.Body) + len(e.UniqueKey) }
