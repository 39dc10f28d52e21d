package remote

import (
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/consume"
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

func heldBytes(d consume.HeldDelivery) int { return tokenBytes(&d.Token) + 8 }

func settlementBytes(s consume.Settlement) int {
	return max(tokenBytes(&s.Token)+len(s.Reason)+len(s.Code)+numberBytes, faultBytes)
}

func profileBytes(p *consume.SessionProfile) int { return len(p.ID) + len(p.Consumer) + numberBytes }

func slotBytes(s consume.Slot) int { return profileBytes(&s.SessionProfile) + numberBytes }

func leaseBytes(l consume.Lease) int { return len(l.Topic) + 32 }

func deliveryBytes(d consume.RemoteDelivery) int {
	return tokenBytes(&d.Token) + len(d.MessageID) + len(d.Body) + len(d.Session) + numberBytes
}

func endedBytes(d consume.EndedDelivery) int { return tokenBytes(&d.Token) + len(d.Session) + 16 }

func cancellationBytes(c consume.Cancellation) int {
	return max(len(c.Key)+len(c.UniqueKey)+numberBytes, faultBytes)
}

func sessionInfoBytes(s consume.SessionInfo) int {
	return len(s.Consumer) + len(s.Digest) + len(s.Node) + len(s.Subject) + len(s.OldestID) + 2*numberBytes
}

// fitting returns how many of the items fit into one request: at least one, if there is any.
func fitting[T any](items []T, size func(T) int) (n int) {
	for bytes := 0; n < len(items); n++ {
		if bytes += size(items[n]); n > 0 && bytes > consumePieceBytes {
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

// reportPart is a part of a report. Its sessions are those of the report from number first on. The
// first of them may be the last one of the part before, with other deliveries and settlements.
type reportPart struct {
	consume.Report

	first int
}

// splitReport splits a report into parts that fit into one request each, at least one. Complete is
// in the last part, after all sessions; if it is too large, in parts behind it.
func splitReport(r *consume.Report) []reportPart {
	s := &reportSplitter{report: r}
	s.next(0)
	for i := range r.Sessions {
		s.add(i)
	}
	for rest := r.Complete; len(rest) > 0; {
		n := fit(s, rest, leaseBytes)
		s.part().Complete = rest[:n]
		if rest = rest[n:]; len(rest) > 0 {
			s.next(len(r.Sessions))
		}
	}
	return s.parts
}

// reportSplitter adds to the last of its parts.
type reportSplitter struct {
	report *consume.Report
	parts  []reportPart
	// bytes and items are those of the last part.
	bytes, items int
}

func (s *reportSplitter) part() *reportPart { return &s.parts[len(s.parts)-1] }

// next begins another part with session number first.
func (s *reportSplitter) next(first int) {
	s.parts = append(s.parts, reportPart{consume.Report{Node: s.report.Node, Group: s.report.Group}, first})
	s.bytes, s.items = 0, 0
}

// add adds a session, or pieces of it to several parts.
func (s *reportSplitter) add(i int) {
	rest := s.report.Sessions[i]
	size := profileBytes(&rest.SessionProfile) + numberBytes
	if len(s.part().Sessions) > 0 && s.bytes+size > consumePieceBytes {
		s.next(i)
	}
	for {
		s.bytes += size
		piece := rest
		// A settlement is of a delivery that the session has, so it must not arrive before.
		n := fit(s, rest.Deliveries, heldBytes)
		piece.Deliveries, rest.Deliveries = rest.Deliveries[:n], rest.Deliveries[n:]
		m := 0
		if len(rest.Deliveries) == 0 {
			m = fit(s, rest.Unanswered, settlementBytes)
		}
		piece.Unanswered, rest.Unanswered = rest.Unanswered[:m], rest.Unanswered[m:]
		ended := len(rest.Deliveries) == 0 && len(rest.Unanswered) == 0
		if !ended && piece.State == consume.Gone {
			// Otherwise the session would lose what the later parts have.
			piece.State = consume.Leaving
		}
		s.part().Sessions = append(s.part().Sessions, piece)
		if ended {
			return
		}
		s.next(i)
	}
}

// fit returns how many of the items fit into the last part, at least one if it has none.
func fit[T any](s *reportSplitter, items []T, size func(T) int) (n int) {
	for n < len(items) {
		bytes := size(items[n])
		if s.items > 0 && s.bytes+bytes > consumePieceBytes {
			break
		}
		s.bytes += bytes
		s.items++
		n++
	}
	return n
}

// reportJoiner joins the answers to the parts of a report.
type reportJoiner struct {
	answers []consume.SessionReportAnswer
	// unread are the partitions of tokens that the holder did not know, or could not settle at
	// present.
	unread map[partitionName]struct{}
}

type partitionName struct {
	topic     string
	partition int
}

func newReportJoiner(sessions int) *reportJoiner {
	return &reportJoiner{answers: make([]consume.SessionReportAnswer, sessions), unread: map[partitionName]struct{}{}}
}

func (j *reportJoiner) add(part *reportPart, answers []consume.SessionReportAnswer) {
	for i, a := range answers {
		joined := &j.answers[part.first+i]
		joined.Superseded = joined.Superseded || a.Superseded
		joined.Lost, joined.Unknown = append(joined.Lost, a.Lost...), append(joined.Unknown, a.Unknown...)
		joined.Unanswered = append(joined.Unanswered, a.Unanswered...)
		for _, t := range a.Unknown {
			j.unread[partitionName{t.Topic, t.Partition}] = struct{}{}
		}
		for k, err := range a.Unanswered {
			if f, ok := fault.As(err); ok && f.Retryable() {
				t := part.Sessions[i].Unanswered[k].Token
				j.unread[partitionName{t.Topic, t.Partition}] = struct{}{}
			}
		}
	}
}

// complete returns the leases for which the holder has the whole report. It has not if tokens of an
// earlier part were unknown because it did not hold the partition yet.
func (j *reportJoiner) complete(leases []consume.Lease) []consume.Lease {
	var complete []consume.Lease
	for _, l := range leases {
		if _, unread := j.unread[partitionName{l.Topic, l.Partition}]; !unread {
			complete = append(complete, l)
		}
	}
	return complete
}
