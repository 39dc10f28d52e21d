package queue

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Handle returns a Handler that decodes the payload before it calls h. If T is a pointer to a
// generated protobuf message, the payload is its binary encoding; otherwise it is JSON. A message
// that cannot be decoded becomes a dead letter with CodeDecode: another attempt would fail too.
func Handle[T any](h func(ctx context.Context, d *Delivery, job T) error) Handler {
	return func(ctx context.Context, d *Delivery) error {
		job, err := decode[T](d.Payload)
		if err != nil {
			return DeadLetter(Code(fmt.Errorf("decode the payload: %w", err), CodeDecode))
		}
		return h(ctx, d, job)
	}
}

func decode[T any](payload []byte) (T, error) {
	var job T
	if m, ok := any(job).(proto.Message); ok {
		m = m.ProtoReflect().New().Interface()
		err := proto.Unmarshal(payload, m)
		job, _ = m.(T)
		return job, err
	}
	err := json.Unmarshal(payload, &job)
	return job, err
}
