package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// recognition is how the server recognises a repeat of a produced message.
type recognition int

const (
	// bySequence recognises repeats of requests, as a Producer does by default.
	bySequence recognition = iota
	// byKey sends an idempotency key with each message too.
	byKey
	// byNothing recognises none. The Go SDK does not offer it, so the generated client is used.
	byNothing
)

// sender stores a batch of messages in a topic by one call. It returns an error unless every
// message was stored.
type sender func(ctx context.Context) error

// producers are running producers. They send until closed.
type producers struct {
	client *parley.Client
	http   *http.Transport
	stop   context.CancelFunc
	done   sync.WaitGroup
	failed atomic.Pointer[error]
}

// produce starts the load's producers, and returns. Without a rate they pause while they are more
// than queueBacklog messages ahead of acked.
func (s *queueServer) produce(ctx context.Context, topics []string, load queueLoad, acked func() int64) (*producers, error) {
	client, err := parley.New(s.Addrs[0], parley.WithToken(s.Token))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &producers{client: client, http: &http.Transport{Protocols: new(http.Protocols)}, stop: stop}
	p.http.Protocols.SetUnencryptedHTTP2(true)
	shared := make([]*queue.Producer, len(topics))
	for i, topic := range topics {
		shared[i] = queue.NewProducer(client, topic)
	}
	var calls, produced atomic.Int64
	began := time.Now()
	for range queueProducers {
		into := make([]sender, len(topics))
		for i := range topics {
			into[i] = batchSender(shared[i], load)
			if load.by == byNothing {
				into[i] = s.unnumbered(p.http, topics[i], load)
			}
		}
		p.done.Go(func() {
			for ctx.Err() == nil {
				if load.rate == 0 && produced.Load()-acked() > queueBacklog {
					pause(ctx, time.Millisecond)
					continue
				}
				call := calls.Add(1) - 1
				if load.rate > 0 {
					pause(ctx, time.Until(began.Add(time.Duration(call)*queueBatch*time.Second/time.Duration(load.rate))))
				}
				if err := into[int(call)%len(into)](ctx); err != nil {
					if ctx.Err() == nil {
						p.failed.CompareAndSwap(nil, &err)
					}
					return
				}
				produced.Add(queueBatch)
			}
		})
	}
	return p, nil
}

// batchSender returns a sender that uses a Producer. Its calls must not be concurrent.
func batchSender(p *queue.Producer, load queueLoad) sender {
	batch := slices.Repeat([]queue.Message{{Payload: make([]byte, load.payload)}}, queueBatch)
	prefix, n := rand.Text()+"-", 0
	return func(ctx context.Context) error {
		if load.by == byKey {
			for i := range batch {
				batch[i].IdempotencyKey = prefix + strconv.Itoa(n)
				n++
			}
		}
		return produceAll(ctx, p, batch)
	}
}

// unnumbered returns a sender whose requests have no producer id, so that no repeat is recognised.
// Its calls must not be concurrent.
func (s *queueServer) unnumbered(transport http.RoundTripper, topic string, load queueLoad) sender {
	client := parleyv1connect.NewQueueServiceClient(&http.Client{Transport: bearer{transport, s.Token}}, s.Addrs[0])
	req := &parleyv1.ProduceRequest{Topic: topic}
	for range queueBatch {
		req.Messages = append(req.Messages, &parleyv1.QueueMessage{Payload: make([]byte, load.payload)})
	}
	return func(ctx context.Context) error {
		res, err := client.Produce(ctx, req)
		if err != nil {
			return err
		}
		for _, r := range res.GetResults() {
			if r.GetProduced() == nil {
				return fmt.Errorf("not stored: %s", r.GetError().GetMessage())
			}
		}
		return nil
	}
}

// produceAll makes one call and returns an error unless every message was stored.
func produceAll(ctx context.Context, p *queue.Producer, batch []queue.Message) error {
	results, err := p.Produce(ctx, batch...)
	if err != nil {
		return err
	}
	return queue.Errors(results)
}

func (p *producers) err() error {
	if err := p.failed.Load(); err != nil {
		return fmt.Errorf("produce: %w", *err)
	}
	return nil
}

func (p *producers) close() error {
	p.stop()
	p.done.Wait()
	p.client.Close()
	p.http.CloseIdleConnections()
	return p.err()
}
