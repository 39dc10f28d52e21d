package remote

import (
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// consumePieceBytes bounds the items of one request to another node, in bytes. A call with more is
	// sent as several requests, one after another.
	consumePieceBytes = 512 << 10
	// faultBytes bounds the result of one item, so that the answer to a request fits too.
	faultBytes = 512
	// numberBytes bounds the tags, lengths and numbers of an item, without those of its token.
	numberBytes = 64
)

// The functions below bound the encoded size of an item, or of its answer if that is larger. They
// count the topic of each token, although a message has it once.

func tokenBytes(t *consume.Token) int { return len(t.Topic) + 48 }

func tokenOrFaultBytes(t consume.Token) int { return max(tokenBytes(&t), faultBytes) }

func settlementBytes(s consume.Settlement) int {
	return max(tokenBytes(&s.Token)+len(s.Reason)+len(s.Code)+numberBytes, faultBytes)
}

func profileBytes(p *consume.SessionProfile) int { return len(p.ID) + len(p.Consumer) + numberBytes }

func sessionReportBytes(s consume.SessionReport) int {
	bytes := profileBytes(&s.SessionProfile) + numberBytes
	for i := range s.Deliveries {
		bytes += tokenBytes(&s.Deliveries[i].Token) + 8
	}
	return bytes
}

func slotBytes(s consume.Slot) int { return profileBytes(&s.SessionProfile) + numberBytes }

func leaseBytes(l consume.Lease) int { return len(l.Topic) + 32 }

func deliveryBytes(d consume.RemoteDelivery) int {
	return tokenBytes(&d.Token) + len(d.MessageID) + len(d.Body) + len(d.Session) + numberBytes
}

func endedBytes(d consume.EndedDelivery) int { return tokenBytes(&d.Token) + len(d.Session) + 16 }

func cancellationBytes(c consume.Cancellation) int {
	return max(len(c.Key)+len(c.UniqueKey)+numberBytes, faultBytes)
}

func sessionInfoBytes(s qlog.SessionInfo) int {
	held := 0
	for i := range s.Held {
		held += len(s.Held[i].MessageID) + numberBytes
	}
	return len(s.Consumer) + len(s.Session) + len(s.Node) + len(s.Subject) + 2*numberBytes + len(s.Loads)*numberBytes + held
}

// fitting returns how many of the items fit into one request: at least one, if there is any.
func fitting[T any](items []T, size func(T) int) int { return fittingBehind(0, items, size) }

// fittingBehind returns how many of the items fit into a request that has used bytes already: at
// least one, if there is any and used is 0.
func fittingBehind[T any](used int, items []T, size func(T) int) (n int) {
	for bytes := used; n < len(items); n++ {
		if bytes += size(items[n]); n+used > 0 && bytes > consumePieceBytes {
			break
		}
	}
	return n
}

// eachPiece calls do with as many items at a time as fit into one request, in order, until it
// fails. It returns for how many it did not. Without items it does not call do.
func eachPiece[T any](items []T, size func(T) int, do func(piece []T) error) (done int, err error) {
	for done < len(items) {
		n := fitting(items[done:], size)
		if err := do(items[done : done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// splitReport splits a report into parts that fit into one request each, at least one. Complete is
// in the last part, after all sessions; if it is too large, in parts behind it.
//
// A session is in one part, with all its deliveries. After a resume, the holder takes the first
// part with the session for all that its consumer has of the partitions there, and releases the
// rest. A second part would come too late: of a partition that is in both, the holder would have
// released what the consumer has; of others it would not release what the consumer never got. A
// session has at most 10,000 deliveries of 16 topics. These fit into one message, alone, also if
// they have more than consumePieceBytes.
func splitReport(r *consume.Report) (parts []consume.Report) {
	rest, leases := r.Sessions, r.Complete
	for len(parts) == 0 || len(rest)+len(leases) > 0 {
		part := consume.Report{Node: r.Node, Group: r.Group}
		n := fitting(rest, sessionReportBytes)
		part.Sessions, rest = rest[:n], rest[n:]
		if len(rest) == 0 {
			used := 0
			for _, s := range part.Sessions {
				used += sessionReportBytes(s)
			}
			n = fittingBehind(used, leases, leaseBytes)
			part.Complete, leases = leases[:n], leases[n:]
		}
		parts = append(parts, part)
	}
	return parts
}

// joinedAnswer joins the answers to the parts of a report.
type joinedAnswer struct {
	sessions []consume.SessionReportAnswer
	// unknown are the partitions of deliveries that the holder did not know.
	unknown map[partitionName]struct{}
}

type partitionName struct {
	topic     string
	partition int
}

func (j *joinedAnswer) add(answers []consume.SessionReportAnswer) {
	j.sessions = append(j.sessions, answers...)
	for _, a := range answers {
		for _, t := range a.Unknown {
			j.unknown[partitionName{t.Topic, t.Partition}] = struct{}{}
		}
	}
}

// complete returns the leases for which the holder has the whole report. It has not if deliveries
// of an earlier part were unknown because it did not hold the partition yet.
func (j *joinedAnswer) complete(leases []consume.Lease) []consume.Lease {
	var complete []consume.Lease
	for _, l := range leases {
		if _, unknown := j.unknown[partitionName{l.Topic, l.Partition}]; !unknown {
			complete = append(complete, l)
		}
	}
	return complete
}
