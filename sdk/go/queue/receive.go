package queue

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// ReceiveRequest says what Receive receives. Topic and Group are required.
type ReceiveRequest struct {
	Topic, Group string
	// Consumer is the name that operators see. The default is `receive`.
	Consumer string
	// MaxMessages is 1 to 100; 0 means 1.
	MaxMessages int
	// Wait is how long to wait for the first message: 0 to 30 s.
	Wait time.Duration
	// AckTimeout is the time within which each delivery must be settled or extended: 1 s to 12 h. 0
	// means that of the group.
	AckTimeout time.Duration
}

// Received are the deliveries of one Receive. Each must be settled with Ack or Nack, or extended,
// within the ack timeout. Safe for concurrent use.
type Received struct {
	// Deliveries is empty if there was no message within the wait.
	Deliveries []*Delivery

	link    link.Link
	session string
	tokens  map[*Delivery]string
}

// Receive receives messages in one call, for programs that cannot run a Worker, such as serverless
// functions. It is not repeated after a failure: if an answer is lost, its messages are delivered
// again after the ack timeout, and that counts as an attempt.
func Receive(ctx context.Context, c *parley.Client, req ReceiveRequest) (*Received, error) {
	l := link.Of(c)
	wire := &parleyv1.ReceiveRequest{
		Topic: req.Topic, Group: req.Group, Consumer: req.Consumer, Wait: durationpb.New(req.Wait), AckTimeout: optional(req.AckTimeout),
		MaxMessages: int32(min(max(req.MaxMessages, -1), 1<<20)),
	}
	r := &Received{link: l, tokens: make(map[*Delivery]string)}
	err := l.Once(ctx, req.Wait, func(ctx context.Context, s *link.Services) error {
		res, err := s.Queue.Receive(ctx, wire)
		r.session = res.GetSessionId()
		for _, one := range res.GetDeliveries() {
			d := newDelivery(req.Group, one)
			r.Deliveries, r.tokens[d] = append(r.Deliveries, d), one.GetToken()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Ack acknowledges deliveries and returns one error per delivery, in order: nil, or
// parley.ErrDeliveryLost for one that is no longer held. The second result is the error of the call
// as a whole.
func (r *Received) Ack(ctx context.Context, deliveries ...*Delivery) ([]error, error) {
	tokens := r.tokensOf(deliveries)
	return r.settle(ctx, "Ack", len(tokens), func(ctx context.Context, s *link.Services) ([]*parleyv1.SettleResult, error) {
		res, err := s.Queue.Ack(ctx, &parleyv1.AckRequest{SessionId: r.session, Tokens: tokens})
		return res.GetResults(), err
	})
}

// Nack returns a delivery after a failure, like a Handler that returns failure, which must not be
// nil.
func (r *Received) Nack(ctx context.Context, d *Delivery, failure error) error {
	item := nackOf(r.tokens[d], failure)
	errs, err := r.settle(ctx, "Nack", 1, func(ctx context.Context, s *link.Services) ([]*parleyv1.SettleResult, error) {
		res, err := s.Queue.Nack(ctx, &parleyv1.NackRequest{SessionId: r.session, Items: []*parleyv1.NackItem{item}})
		return res.GetResults(), err
	})
	if err != nil {
		return err
	}
	return errs[0]
}

// Extend restarts the ack timeout of deliveries. The results are as those of Ack.
func (r *Received) Extend(ctx context.Context, deliveries ...*Delivery) ([]error, error) {
	req := extendRequest(r.tokensOf(deliveries), false)
	req.SessionId = r.session
	return r.settle(ctx, "Extend", len(deliveries), func(ctx context.Context, s *link.Services) ([]*parleyv1.SettleResult, error) {
		res, err := s.Queue.Extend(ctx, req)
		return res.GetResults(), err
	})
}

func (r *Received) tokensOf(deliveries []*Delivery) []string {
	tokens := make([]string, len(deliveries))
	for i, d := range deliveries {
		tokens[i] = r.tokens[d]
	}
	return tokens
}

// settle makes a call for n deliveries and returns their errors. A DELIVERY_GONE after an attempt
// without an answer means that the attempt has arrived.
func (r *Received) settle(
	ctx context.Context, name string, n int, call func(context.Context, *link.Services) ([]*parleyv1.SettleResult, error),
) ([]error, error) {
	errs := make([]error, n)
	if n == 0 {
		return errs, nil
	}
	attempts := 0
	err := r.link.Call(ctx, name, func(ctx context.Context, s *link.Services) error {
		attempts++
		results, err := call(ctx, s)
		if err != nil {
			return err
		}
		var again error
		for i := range errs {
			errs[i] = errUnanswered
			if i < len(results) {
				errs[i] = r.link.ItemError(results[i].GetError())
			}
			switch {
			case errors.Is(errs[i], parley.ErrDeliveryGone) && attempts > 1:
				errs[i] = nil
			case errs[i] != nil && r.link.WorthRetrying(errs[i]):
				again = errs[i]
			}
		}
		return again
	})
	return errs, err
}
