package redisqueue

import (
	"context"
	"fmt"
	"strconv"

	"github.com/parleyhq/parley/server/internal/queue"
)

var groupSettle = newScript("group_settle", 10, "lib_group")

// verdicts are the names that the script knows them by.
var verdicts = map[queue.Verdict]string{queue.Ack: "ack", queue.Retry: "retry", queue.Dead: "dead", queue.Release: "release"}

// Settle implements queue.GroupStore. The keys and message ids of the entries are looked at where order is strict.
func (s *Store) Settle(ctx context.Context, t *queue.Topic, lease queue.Lease, settlements []queue.Settlement) error {
	if len(settlements) == 0 {
		return nil
	}
	ref, g := lease.Ref, lease.Group
	var mains, retries, others []any
	for i := range settlements {
		settlement := &settlements[i]
		entry := &settlement.Entry
		key := ""
		if t.StrictOrder {
			key = entry.Key
		}
		id, own := entry.ID.String(), entry.Place == queue.Retries
		switch {
		case settlement.Verdict == queue.Ack && key == "" && own:
			retries = append(retries, id)
		case settlement.Verdict == queue.Ack && key == "":
			mains = append(mains, id)
		default:
			verdict, ok := verdicts[settlement.Verdict]
			if !ok {
				return fmt.Errorf("settle %s: there is no verdict %d", entry.MessageID, settlement.Verdict)
			}
			place := "main"
			if own {
				place = "retry"
			}
			number := max(settlement.Delay.Milliseconds(), 0)
			if settlement.Verdict == queue.Dead {
				number = int64(flag(settlement.Unsent))
			}
			others = append(others, verdict, place, id, entry.MessageID, key, number, settlement.Reason, settlement.Code)
		}
	}
	keys := []string{
		s.keys.lease(ref, g), s.keys.main(ref), s.keys.retry(ref, g), s.keys.retrying(ref, g), s.keys.retryingData(ref, g),
		s.keys.deadLetters(ref), s.keys.stats(ref, g), s.keys.unsettled(ref, g), s.keys.parked(ref, g), s.keys.parkedData(ref, g),
	}
	args := append(make([]any, 0, 8+len(mains)+len(retries)+len(others)), fence(&lease), g, consumerOf(lease.Epoch), ref.Partition,
		s.keys.wakeups(), ref.Topic+":"+strconv.Itoa(ref.Partition), len(mains), len(retries))
	args = append(append(append(args, mains...), retries...), others...)
	if _, err := s.write(ctx, groupSettle, keys, args...); err != nil {
		return fmt.Errorf("settle in partition %d of %s for %s: %w", ref.Partition, ref.Topic, g, err)
	}
	return nil
}
