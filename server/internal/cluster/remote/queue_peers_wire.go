package remote

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// topicList encodes tokens. It collects their topics, which their message has once.
type topicList struct {
	topics  []string
	indexes map[string]uint32
}

func (l *topicList) token(t consume.Token) *clusterv1.ConsumeToken {
	i, ok := l.indexes[t.Topic]
	if !ok {
		if l.indexes == nil {
			l.indexes = make(map[string]uint32)
		}
		i = uint32(len(l.topics)) //nolint:gosec // at most one for each token
		l.indexes[t.Topic], l.topics = i, append(l.topics, t.Topic)
	}
	return &clusterv1.ConsumeToken{Topic: i, Partition: int64(t.Partition), Id: int64(t.ID), Gen: int64(t.Gen)}
}

func (l *topicList) settlement(s consume.Settlement) *clusterv1.ConsumeSettlement {
	return &clusterv1.ConsumeSettlement{
		Token: l.token(s.Token), Verdict: uint32(s.Verdict), DelayNs: int64(s.Delay), Reason: s.Reason, Code: s.Code,
	}
}

func (l *topicList) held(d consume.HeldDelivery) *clusterv1.ConsumeHeld {
	return &clusterv1.ConsumeHeld{Token: l.token(d.Token), Begun: d.Begun}
}

func (l *topicList) sessionReport(s consume.SessionReport) *clusterv1.ConsumeSessionReport {
	return &clusterv1.ConsumeSessionReport{
		Profile: profileToWire(&s.SessionProfile), State: uint32(s.State), ContactAgeNs: int64(s.ContactAge),
		Deliveries: each(s.Deliveries, l.held),
	}
}

func (l *topicList) delivery(d consume.RemoteDelivery) *clusterv1.ConsumeDelivery {
	return &clusterv1.ConsumeDelivery{
		Token: l.token(d.Token), MessageId: d.MessageID, Body: d.Body, Attempt: int64(d.Attempt),
		ProducedAtUs: timeToWire(d.ProducedAt), TimeoutNs: int64(d.Timeout), Suspect: d.Suspect,
		Session: d.Session, Epoch: d.Epoch,
	}
}

func (l *topicList) ended(d consume.EndedDelivery) *clusterv1.ConsumeEnded {
	return &clusterv1.ConsumeEnded{Session: d.Session, Token: l.token(d.Token), Cause: uint32(d.Cause)}
}

// consumeReader decodes the parts of a message with tokens. Its err is what was wrong first; then
// the message must not be used.
type consumeReader struct {
	topics []string
	err    error
}

func (r *consumeReader) failf(format string, args ...any) {
	r.err = cmp.Or(r.err, fmt.Errorf(format, args...))
}

func (r *consumeReader) token(w *clusterv1.ConsumeToken) consume.Token {
	if int64(w.GetTopic()) >= int64(len(r.topics)) {
		r.failf("a token has topic %d of %d", w.GetTopic(), len(r.topics))
		return consume.Token{}
	}
	t := consume.Token{
		Topic: r.topics[w.GetTopic()], Partition: r.partition(w.GetPartition()), ID: qlog.ID(w.GetId()), Gen: int(w.GetGen()),
	}
	if t.Topic == "" || t.ID <= 0 || t.Gen <= 0 {
		r.failf("%q is not a token", t)
	}
	return t
}

func (r *consumeReader) partition(w int64) int {
	if w < 0 || w > math.MaxInt32 {
		r.failf("there is no partition %d", w)
	}
	return int(w)
}

// enumFromWire decodes a value from low to high.
func enumFromWire[E ~uint8](r *consumeReader, w uint32, low, high E) E {
	if w < uint32(low) || w > uint32(high) {
		r.failf("%d is not a %T", w, low)
		return low
	}
	return E(w)
}

func (r *consumeReader) settlement(w *clusterv1.ConsumeSettlement) consume.Settlement {
	return consume.Settlement{
		Token: r.token(w.GetToken()), Verdict: enumFromWire(r, w.GetVerdict(), dispatch.Ack, dispatch.Release),
		Delay: time.Duration(w.GetDelayNs()), Reason: w.GetReason(), Code: w.GetCode(),
	}
}

func (r *consumeReader) held(w *clusterv1.ConsumeHeld) consume.HeldDelivery {
	return consume.HeldDelivery{Token: r.token(w.GetToken()), Begun: w.GetBegun()}
}

func (r *consumeReader) state(w uint32) consume.SessionState {
	return enumFromWire(r, w, consume.Attached, consume.Gone)
}

func (r *consumeReader) sessionReport(w *clusterv1.ConsumeSessionReport) consume.SessionReport {
	return consume.SessionReport{
		SessionProfile: profileFromWire(w.GetProfile()), State: r.state(w.GetState()),
		ContactAge: time.Duration(w.GetContactAgeNs()), Deliveries: each(w.GetDeliveries(), r.held),
	}
}

func (r *consumeReader) delivery(w *clusterv1.ConsumeDelivery) consume.RemoteDelivery {
	return consume.RemoteDelivery{
		Delivery: consume.Delivery{
			Token: r.token(w.GetToken()), MessageID: w.GetMessageId(), Body: w.GetBody(), Attempt: int(w.GetAttempt()),
			ProducedAt: timeFromWire(w.GetProducedAtUs()), Timeout: time.Duration(w.GetTimeoutNs()),
			Suspect: w.GetSuspect(),
		},
		Session: w.GetSession(), Epoch: w.GetEpoch(),
	}
}

func (r *consumeReader) ended(w *clusterv1.ConsumeEnded) consume.EndedDelivery {
	return consume.EndedDelivery{
		Session: w.GetSession(), Token: r.token(w.GetToken()), Cause: enumFromWire(r, w.GetCause(), 0, consume.CauseNoContact),
	}
}

func (r *consumeReader) lease(w *clusterv1.ConsumeLease) consume.Lease {
	return consume.Lease{Topic: w.GetTopic(), Partition: r.partition(w.GetPartition()), Epoch: w.GetEpoch()}
}

func (r *consumeReader) sessionInfo(w *clusterv1.ConsumeSessionInfo) qlog.SessionInfo {
	return qlog.SessionInfo{
		Session: w.GetDigest(), Consumer: w.GetConsumer(), Node: w.GetNode(), Subject: w.GetSubject(),
		State: qlog.SessionState(r.state(w.GetState())), Since: timeFromWire(w.GetSinceUs()), Concurrency: int(w.GetConcurrency()),
		Loads: each(w.GetLoads(), loadFromWire), Held: each(w.GetHeld(), heldInfoFromWire),
	}
}

func loadFromWire(w *clusterv1.ConsumeLoad) qlog.PartitionLoad {
	return qlog.PartitionLoad{
		Partition: int(w.GetPartition()), Sent: int(w.GetSent()), Running: int(w.GetRunning()), Assigned: w.GetAssigned(),
	}
}

func heldInfoFromWire(w *clusterv1.ConsumeHeldInfo) qlog.HeldInfo {
	return qlog.HeldInfo{
		Partition: int(w.GetPartition()), ID: qlog.ID(w.GetId()), MessageID: w.GetMessageId(), Gen: int(w.GetGen()),
		Begun: w.GetBegun(), Since: timeFromWire(w.GetSinceUs()),
	}
}

func (r *consumeReader) sessionRequest(w *clusterv1.ConsumeSessionRequest) consume.SessionRequest {
	u := w.GetUpdate()
	return consume.SessionRequest{
		Group: w.GetGroup(), Session: w.GetSession(),
		Call:       enumFromWire(r, w.GetCall(), consume.ExtendAll, consume.Supersede),
		AckTimeout: time.Duration(w.GetAckTimeoutNs()),
		Update: consume.Update{
			Concurrency: int(u.GetConcurrency()), MaxInFlight: int(u.GetMaxInFlight()), MaxBytes: u.GetMaxBytes(),
			Renewal: renewalFromWire(u.GetRenewal()),
		},
		Resumes: w.GetResumes(),
	}
}

func sessionRequestToWire(r *consume.SessionRequest) *clusterv1.ConsumeSessionRequest {
	u := &r.Update
	return &clusterv1.ConsumeSessionRequest{
		Group: r.Group, Session: r.Session, Call: uint32(r.Call), AckTimeoutNs: int64(r.AckTimeout),
		Update: &clusterv1.ConsumeUpdate{
			Concurrency: int64(u.Concurrency), MaxInFlight: int64(u.MaxInFlight), MaxBytes: u.MaxBytes,
			Renewal: renewalToWire(u.Renewal),
		},
		Resumes: r.Resumes,
	}
}

func renewalFromWire(w *clusterv1.ConsumeRenewal) *consume.Renewal {
	if w == nil {
		return nil
	}
	return &consume.Renewal{Key: w.GetKey(), IssuedAt: timeFromWire(w.GetIssuedUs()), Expires: timeFromWire(w.GetExpiresUs())}
}

func renewalToWire(r *consume.Renewal) *clusterv1.ConsumeRenewal {
	if r == nil {
		return nil
	}
	return &clusterv1.ConsumeRenewal{Key: r.Key, IssuedUs: timeToWire(r.IssuedAt), ExpiresUs: timeToWire(r.Expires)}
}

func sessionInfoToWire(s qlog.SessionInfo) *clusterv1.ConsumeSessionInfo {
	return &clusterv1.ConsumeSessionInfo{
		Consumer: s.Consumer, Digest: s.Session, Node: s.Node, Subject: s.Subject,
		State: uint32(s.State), SinceUs: timeToWire(s.Since), Concurrency: int64(s.Concurrency),
		Loads: each(s.Loads, loadToWire), Held: each(s.Held, heldInfoToWire),
	}
}

func loadToWire(l qlog.PartitionLoad) *clusterv1.ConsumeLoad {
	return &clusterv1.ConsumeLoad{
		Partition: int64(l.Partition), Sent: int64(l.Sent), Running: int64(l.Running), Assigned: l.Assigned,
	}
}

func heldInfoToWire(h qlog.HeldInfo) *clusterv1.ConsumeHeldInfo {
	return &clusterv1.ConsumeHeldInfo{
		Partition: int64(h.Partition), Id: int64(h.ID), MessageId: h.MessageID, Gen: int64(h.Gen), Begun: h.Begun,
		SinceUs: timeToWire(h.Since),
	}
}

func profileToWire(p *consume.SessionProfile) *clusterv1.ConsumeProfile {
	return &clusterv1.ConsumeProfile{
		Id: p.ID, Consumer: p.Consumer, Resumes: p.Resumes, ReportsBegun: p.ReportsBegun,
		AckTimeoutNs: int64(p.AckTimeout), GraceNs: int64(p.Grace), Loose: p.Loose,
	}
}

func profileFromWire(w *clusterv1.ConsumeProfile) consume.SessionProfile {
	return consume.SessionProfile{
		ID: w.GetId(), Consumer: w.GetConsumer(), Resumes: w.GetResumes(), ReportsBegun: w.GetReportsBegun(),
		AckTimeout: time.Duration(w.GetAckTimeoutNs()), Grace: time.Duration(w.GetGraceNs()), Loose: w.GetLoose(),
	}
}

func slotToWire(s consume.Slot) *clusterv1.ConsumeSlot {
	return &clusterv1.ConsumeSlot{Profile: profileToWire(&s.SessionProfile), N: int64(s.N), Bytes: s.Bytes, Suspect: s.Suspect}
}

func slotFromWire(w *clusterv1.ConsumeSlot) consume.Slot {
	return consume.Slot{
		SessionProfile: profileFromWire(w.GetProfile()), N: int(w.GetN()), Bytes: w.GetBytes(), Suspect: w.GetSuspect(),
	}
}

func leaseToWire(l consume.Lease) *clusterv1.ConsumeLease {
	return &clusterv1.ConsumeLease{Topic: l.Topic, Partition: int64(l.Partition), Epoch: l.Epoch}
}

func cancellationToWire(c consume.Cancellation) *clusterv1.ConsumeCancellation {
	return &clusterv1.ConsumeCancellation{Id: int64(c.ID), Key: c.Key, UniqueKey: c.UniqueKey}
}

func cancellationFromWire(w *clusterv1.ConsumeCancellation) consume.Cancellation {
	return consume.Cancellation{ID: qlog.ID(w.GetId()), Key: w.GetKey(), UniqueKey: w.GetUniqueKey()}
}

func resultFromWire(w *clusterv1.ConsumeResult) error { return cluster.FaultFromWire(w.GetFault()) }

// answersFromWire decodes the answer to a part of a report. It must answer each session.
func answersFromWire(part *consume.Report, w *clusterv1.ConsumeReportAnswer) ([]consume.SessionReportAnswer, error) {
	if len(w.GetSessions()) != len(part.Sessions) {
		return nil, fmt.Errorf("answers for %d of %d sessions", len(w.GetSessions()), len(part.Sessions))
	}
	r := &consumeReader{topics: w.GetTopics()}
	answers := each(w.GetSessions(), func(s *clusterv1.ConsumeSessionAnswers) consume.SessionReportAnswer {
		return consume.SessionReportAnswer{Superseded: s.GetSuperseded(), Unknown: each(s.GetUnknown(), r.token)}
	})
	return answers, r.err
}

// sessionsPage returns those of a node's sessions that one answer carries, after the digest after.
func sessionsPage(sessions []qlog.SessionInfo, after string) *clusterv1.ConsumeSessionsAnswer {
	byDigest := func(a, b qlog.SessionInfo) int { return cmp.Compare(a.Session, b.Session) }
	sessions = slices.SortedFunc(slices.Values(sessions), byDigest)
	sessions = slices.DeleteFunc(sessions, func(s qlog.SessionInfo) bool { return s.Session <= after })
	n := fitting(sessions, sessionInfoBytes)
	return &clusterv1.ConsumeSessionsAnswer{Sessions: each(sessions[:n], sessionInfoToWire), More: n < len(sessions)}
}

// errNoProgress: a node has more sessions, but returned none.
var errNoProgress = errors.New("an empty page of sessions")

// each converts the elements of a slice. Without elements it returns nil.
func each[A, B any](as []A, convert func(A) B) []B {
	if len(as) == 0 {
		return nil
	}
	bs := make([]B, len(as))
	for i, a := range as {
		bs[i] = convert(a)
	}
	return bs
}
