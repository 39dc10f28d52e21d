package rpc

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/queue"
)

// due is a request, or an item of one, that says when a message is due: after a delay, or at a
// time.
type due interface {
	GetDelay() *durationpb.Duration
	GetDueTime() *timestamppb.Timestamp
}

// dueOf returns the due time with a zero delay, or the delay with a zero time. Both are rounded up
// to milliseconds.
func dueOf(d due) (delay time.Duration, at time.Time) {
	if d.GetDueTime() != nil {
		return 0, millisAt(d.GetDueTime())
	}
	return millis(d.GetDelay()), time.Time{}
}

// scheduledPath returns a function that converts a field of scheduled item i to its path in the
// request. Fields of the message itself are nested in `message`.
func scheduledPath(i int) func(field string) string {
	return func(field string) string {
		switch field {
		case "delay", "due_time":
		default:
			field = "message." + field
		}
		return fmt.Sprintf("messages[%d].%s", i, field)
	}
}

// deliveriesToWire converts the deliveries of a frame. It makes two allocations in total instead of
// three per delivery.
func deliveriesToWire(ds []queue.Delivery) []*parleyv1.Delivery {
	type wire struct {
		delivery parleyv1.Delivery
		produced timestamppb.Timestamp
	}
	memory := make([]wire, len(ds))
	out := make([]*parleyv1.Delivery, len(ds))
	for i := range ds {
		d, w := &ds[i], &memory[i]
		w.produced.Seconds, w.produced.Nanos = d.ProducedAt.Unix(), int32(d.ProducedAt.Nanosecond()) //nolint:gosec // below 1e9
		out[i] = &w.delivery
		out[i].Token, out[i].MessageId, out[i].Partition = d.Token, d.MessageID, int32(d.Partition) //nolint:gosec // below 256
		out[i].Key, out[i].Payload, out[i].Headers = d.Key, d.Payload, d.Headers
		out[i].Attempt, out[i].ProduceTime = int32(d.Attempt), &w.produced //nolint:gosec // a count of deliveries
	}
	return out
}

func assignmentToWire(f *queue.Frame) *parleyv1.PartitionAssignment {
	out := &parleyv1.PartitionAssignment{
		Partitions: make([]int32, len(f.Assignment)), Total: int32(f.Total), //nolint:gosec // at most 256
	}
	for i, p := range f.Assignment {
		out.Partitions[i] = int32(p) //nolint:gosec // below 256
	}
	return out
}
