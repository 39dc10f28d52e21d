package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/queue/consume"
)

const (
	defaultInFlightBytes = 8 << 20
	// maxInFlight is the schema's limit for ConsumeRequest.max_in_flight.
	maxInFlight = 10_000
)

// Consume implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Consume(
	ctx context.Context, req *parleyv1.ConsumeRequest, stream *connect.ServerStream[parleyv1.ConsumeResponse],
) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	live, started, err := s.open(ctx, p, "", req)
	if err != nil {
		return err
	}
	defer s.deps.Consumers.Close(live)
	out := newFrameWriter[any](ctx, stream.Conn(), s.cfg.FrameTimeout, s.cfg.live)
	if err := out.write(ctx, started); err != nil {
		return err
	}
	return writeFrames(ctx, out, live, writeSessionFrame)
}

// open starts or resumes a session of p, and returns its stream with the first frame. The caller
// must close the stream. prefix is the path of req in the request, with a dot at its end.
func (s *queueService) open(
	ctx context.Context, p *ident.Principal, prefix string, req *parleyv1.ConsumeRequest,
) (*consume.Stream, *parleyv1.ConsumeResponse, error) {
	r, err := openRequestOf(prefix, req)
	if err != nil {
		return nil, nil, err
	}
	r.Subject, r.Expires = p.Subject, p.Expires
	r.OnRenewal = func(n consume.Renewal) {
		renewToken(ctx, &ident.Principal{Subject: p.Subject, Key: n.Key, IssuedAt: n.IssuedAt, Expires: n.Expires})
	}
	var resumed *resumption
	if req.GetResume() != nil {
		if r.Resume, resumed, err = s.resumeOf(ctx, p, prefix+"resume.", req.GetResume()); err != nil {
			return nil, nil, err
		}
	}
	live, started, err := s.deps.Consumers.Open(ctx, r)
	if err != nil {
		return nil, nil, renamed(renamed(err, "topic", prefix+"topics"), "group", prefix+"group")
	}
	first := &parleyv1.SessionStarted{
		SessionId: started.SessionID, HeartbeatInterval: durationpb.New(started.Heartbeat), ResumeGrace: durationpb.New(started.Grace),
	}
	if resumed != nil {
		resumed.answer(s.loggerOf(ctx), &started, first)
	}
	return live, &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Started{Started: first}}, nil
}

// renamed returns err with another name of its field, if it is a fault about that field.
func renamed(err error, from, to string) error {
	f, ok := fault.As(err)
	if !ok || f.Field != from {
		return err
	}
	out := *f
	out.Field = to
	return &out
}

// openRequestOf converts a request without its resume, and completes it with the schema's defaults.
func openRequestOf(prefix string, req *parleyv1.ConsumeRequest) (r consume.OpenRequest, err error) {
	if err := checkTopics(prefix+"topics", req.GetTopics()); err != nil {
		return r, err
	}
	r = consume.OpenRequest{
		Topics: req.GetTopics(), Group: req.GetGroup(), Consumer: req.GetConsumer(),
		Concurrency: max(1, int(req.GetConcurrency())), MaxInFlight: int(req.GetMaxInFlight()), MaxBytes: req.GetMaxInFlightBytes(),
		AckTimeout: millis(req.GetAckTimeout()), ReportsBegun: req.GetReportsBegun(),
	}
	switch {
	case r.MaxInFlight == 0:
		r.MaxInFlight = min(2*r.Concurrency, maxInFlight)
	case r.MaxInFlight < r.Concurrency:
		return r, fault.Invalid(prefix+"max_in_flight", int64(r.Concurrency), "%smax_in_flight: must be at least concurrency", prefix)
	}
	if r.MaxBytes == 0 {
		r.MaxBytes = defaultInFlightBytes
	}
	return r, nil
}

// resumption is what the first frame of a resumed session says beside the service's answer.
type resumption struct {
	// malformed are the texts of the request that are no tokens: the session does not hold them.
	malformed  []string
	unanswered *settlements
}

// resumeOf converts a Resume. prefix is the path of its fields in the request.
func (s *queueService) resumeOf(
	ctx context.Context, p *ident.Principal, prefix string, req *parleyv1.Resume,
) (*consume.Resume, *resumption, error) {
	r := &consume.Resume{SessionID: req.GetSessionId(), Resumes: req.GetResumes()}
	out := &resumption{}
	topics := consumable{principal: p}
	for _, h := range req.GetHeld() {
		token, ok := consume.ParseToken(h.GetToken())
		if !ok {
			out.malformed = append(out.malformed, h.GetToken())
			continue
		}
		if err := topics.check(token.Topic); err != nil {
			return nil, nil, err
		}
		r.Held = append(r.Held, consume.HeldDelivery{Token: token, Begun: h.GetBegun()})
	}
	verdicts := req.GetUnanswered()
	out.unanswered = s.newSettlements(ctx, p, len(verdicts), func(i int) func(string) string { return itemPath(prefix+"unanswered", i) })
	for i, v := range verdicts {
		var err error
		if nack := v.GetNack(); nack != nil {
			err = out.unanswered.addNack(i, nack)
		} else {
			err = out.unanswered.addAck(i, v.GetAck())
		}
		if err != nil {
			return nil, nil, err
		}
	}
	r.Unanswered = out.unanswered.items
	return r, out, nil
}

// answer completes the first frame of a resumed session.
func (r *resumption) answer(log itemLogger, started *consume.Started, first *parleyv1.SessionStarted) {
	if len(r.malformed)+len(started.Lost) > 0 {
		first.Lost = &parleyv1.LostDeliveries{Tokens: append(r.malformed, textsOf(started.Lost)...)}
	}
	r.unanswered.fill(log, started.Unanswered)
	first.Unanswered = r.unanswered.results
}

// writeSessionFrame writes a frame of a session to a Consume stream.
func writeSessionFrame(ctx context.Context, out *frameWriter[any], f consume.Frame) error {
	if len(f.Deliveries) > 0 {
		return out.write(ctx, newDeliveryFrame(f.Deliveries, false))
	}
	return out.write(ctx, sessionFrame(&f))
}

// writeStreamedFrame writes a frame of a session to a StreamingConsume stream.
func writeStreamedFrame(ctx context.Context, out *frameWriter[any], f consume.Frame) error {
	if len(f.Deliveries) > 0 {
		return out.write(ctx, newDeliveryFrame(f.Deliveries, true))
	}
	return out.write(ctx, streamed(sessionFrame(&f)))
}

// streamed wraps a response of Consume in one of StreamingConsume.
func streamed(m *parleyv1.ConsumeResponse) *parleyv1.StreamingConsumeResponse {
	return &parleyv1.StreamingConsumeResponse{Frame: &parleyv1.StreamingConsumeResponse_Consume{Consume: m}}
}

// sessionFrame converts a frame without deliveries.
func sessionFrame(f *consume.Frame) *parleyv1.ConsumeResponse {
	switch {
	case f.Lost != nil:
		return &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Lost{Lost: &parleyv1.LostDeliveries{
			Tokens: textsOf(f.Lost.Tokens), Cause: parleyv1.LostDeliveries_Cause(f.Lost.Cause),
		}}}
	case f.Assignment != nil:
		return &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Assignment{Assignment: assigned(f.Assignment)}}
	default:
		beat := &parleyv1.SessionHeartbeat{}
		if f.Heartbeat != nil {
			beat.Unconfirmed, beat.Elapsed = durationpb.New(f.Heartbeat.Unconfirmed), durationpb.New(f.Heartbeat.Elapsed)
		}
		return &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Heartbeat{Heartbeat: beat}}
	}
}

func assigned(a *consume.Assignment) *parleyv1.PartitionAssignment {
	out := &parleyv1.PartitionAssignment{
		Topic: a.Topic, Partitions: make([]int32, len(a.Partitions)), Total: int32(a.Total), //nolint:gosec // at most 256
	}
	for i, p := range a.Partitions {
		out.Partitions[i] = int32(p) //nolint:gosec // below 256
	}
	return out
}

func textsOf(tokens []consume.Token) []string {
	out := make([]string, len(tokens))
	for i := range tokens {
		out[i] = tokens[i].String()
	}
	return out
}

// receiveSlack is how much earlier than the call's deadline a Receive stops waiting, so that its
// answer is in time: messages of an answer that is late count as attempts.
const receiveSlack = time.Second

// Receive implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Receive(ctx context.Context, req *parleyv1.ReceiveRequest) (*parleyv1.ReceiveResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	r := consume.ReceiveRequest{
		Subject: p.Subject, Topic: req.GetTopic(), Group: req.GetGroup(), Consumer: req.GetConsumer(),
		Max: max(1, int(req.GetMaxMessages())), Wait: millis(req.GetWait()), AckTimeout: millis(req.GetAckTimeout()),
	}
	if r.Consumer == "" {
		r.Consumer = "receive"
	}
	if deadline, ok := ctx.Deadline(); ok {
		r.Wait = max(0, min(r.Wait, time.Until(deadline)-receiveSlack))
	}
	received, err := s.deps.Consumers.Receive(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &parleyv1.ReceiveResponse{SessionId: received.SessionID, Deliveries: make([]*parleyv1.Delivery, len(received.Deliveries))}
	for i := range received.Deliveries {
		if out.Deliveries[i], err = deliveryOf(&received.Deliveries[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
