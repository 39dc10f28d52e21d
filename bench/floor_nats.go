package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsPickups is the number of messages that an idle consumer gets one after another, as in the
// other rivals.
const natsPickups = 5

// floorNATS runs a NATS server with JetStream until ctx ends. Its argument is a directory. It
// outputs the URLs of the server and of its metrics.
func floorNATS(ctx context.Context, args []string, out *json.Encoder) (err error) {
	if len(args) != 1 {
		return errors.New("requires the argument directory")
	}
	dir, err := os.MkdirTemp(args[0], "parley-bench-nats-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := server.NewServer(&server.Options{
		ServerName: "bench", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return err
	}
	s.Start()
	defer func() {
		s.Shutdown()
		s.WaitForShutdown()
	}()
	if !s.ReadyForConnections(startTimeout) {
		return errors.New("the NATS server accepts no connections")
	}
	ops, err := metricsHandler()
	if err != nil {
		return err
	}
	opsURL, opsServer, err := listen(ctx, ops)
	if err != nil {
		return err
	}
	if err := out.Encode(floorAddrs{Addr: s.ClientURL(), Ops: opsURL}); err != nil {
		return errors.Join(err, opsServer.Close())
	}
	<-ctx.Done()
	return opsServer.Close()
}

// natsMode is how a work queue of JetStream is used.
type natsMode string

const (
	// confirmedAcks waits for the server's answer to each acknowledgement, as Parley's workers and
	// the floor do.
	confirmedAcks natsMode = "confirmed"
	// unconfirmedAcks does not wait: an acknowledgement may be lost, and the message comes again.
	unconfirmedAcks natsMode = "unconfirmed"
	// keyedMessages is confirmedAcks, and each message has an id by which the server detects
	// duplicates.
	keyedMessages natsMode = "keyed"
)

// natsQueue is a work queue of JetStream under load: a stream from which acknowledged messages are
// removed, with one durable consumer.
type natsQueue struct {
	js       jetstream.JetStream
	consumer jetstream.Consumer
	server   *Target
	payload  int
	duration time.Duration
	mode     natsMode

	produced, acked atomic.Int64
	failed          rawFailure
	// picked receives a value for each message while the queue is idle.
	picked chan struct{}
}

// floorJetStream runs the load of the area queue through a work queue of JetStream. Its arguments
// are the URLs of the server and of its metrics, "file" or "memory", a natsMode, the bytes of a
// payload, and the duration. It outputs one rivalRun.
func floorJetStream(ctx context.Context, args []string, out *json.Encoder) error {
	if len(args) != 6 {
		return errors.New("requires the arguments URL, metrics' URL, storage, mode, bytes, duration")
	}
	payload, err1 := strconv.Atoi(args[4])
	duration, err2 := time.ParseDuration(args[5])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	storage := jetstream.FileStorage
	if args[2] == "memory" {
		storage = jetstream.MemoryStorage
	}
	conn, err := nats.Connect(args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	q := &natsQueue{
		server: &Target{Ops: []string{args[1]}}, payload: payload, duration: duration, mode: natsMode(args[3]),
		picked: make(chan struct{}, 1),
	}
	if err := q.open(ctx, conn, storage); err != nil {
		return err
	}
	run, err := q.run(ctx)
	if err := errors.Join(context.Cause(ctx), q.failed.get(), err); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	return out.Encode(run)
}

// open creates the stream and its consumer.
func (q *natsQueue) open(ctx context.Context, conn *nats.Conn, storage jetstream.StorageType) (err error) {
	// Each producer waits for its batch, so no more can be pending.
	if q.js, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(queueProducers*queueBatch)); err != nil {
		return err
	}
	name := "bench-" + rand.Text()[:8]
	stream, err := q.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{"jobs.*"}, Retention: jetstream.WorkQueuePolicy, Storage: storage,
	})
	if err != nil {
		return err
	}
	q.consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: queueGroup, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: queueWindow,
	})
	return err
}

// run measures idle pick-ups and then the load.
func (q *natsQueue) run(ctx context.Context) (rivalRun, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	end, err := q.consume(running, &group)
	if err != nil {
		return rivalRun{}, err
	}
	var measured rivalRun
	if measured.PickupMS, err = q.pickups(running); err == nil {
		for i := range queueProducers {
			group.Go(func() { q.produce(running, "jobs."+strconv.Itoa(i%queuePartitions)) })
		}
		measured.queueRun, err = q.measure(running)
	}
	stop()
	end()
	group.Wait()
	return measured, err
}

// consume starts a subscription and queueWorkers goroutines that acknowledge its messages until ctx
// ends, and returns a function that ends the subscription.
func (q *natsQueue) consume(ctx context.Context, group *sync.WaitGroup) (end func(), err error) {
	messages := make(chan jetstream.Msg)
	c, err := q.consumer.Consume(func(m jetstream.Msg) {
		select {
		case messages <- m:
		case <-ctx.Done():
		}
	}, jetstream.PullMaxMessages(queueWindow))
	if err != nil {
		return nil, err
	}
	for range queueWorkers {
		group.Go(func() {
			for {
				select {
				case m := <-messages:
					q.handle(ctx, m)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() {
		c.Stop()
		<-c.Closed()
	}, nil
}

func (q *natsQueue) handle(ctx context.Context, m jetstream.Msg) {
	select {
	case q.picked <- struct{}{}:
	default:
	}
	var err error
	if q.mode == unconfirmedAcks {
		err = m.Ack()
	} else {
		err = m.DoubleAck(ctx)
	}
	if err != nil {
		q.failed.set(ctx, err)
		return
	}
	q.acked.Add(1)
}

// pickups publishes single messages to the idle queue, and returns the sorted times in milliseconds
// until a handler had them.
func (q *natsQueue) pickups(ctx context.Context) ([]float64, error) {
	var all []float64
	for range natsPickups {
		began := time.Now()
		if _, err := q.js.Publish(ctx, "jobs.0", make([]byte, q.payload)); err != nil {
			return nil, err
		}
		select {
		case <-q.picked:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		all = append(all, float64(time.Since(began))/float64(time.Millisecond))
	}
	slices.Sort(all)
	return all, nil
}

// produce publishes batches to a subject until ctx ends, and waits for the server's answers to each
// batch before the next.
func (q *natsQueue) produce(ctx context.Context, subject string) {
	payload := make([]byte, q.payload)
	answers := make([]jetstream.PubAckFuture, 0, queueBatch)
	prefix, sent := rand.Text()+"-", 0
	for ctx.Err() == nil {
		if q.produced.Load()-q.acked.Load() > queueBacklog {
			pause(ctx, time.Millisecond)
			continue
		}
		answers = answers[:0]
		for range queueBatch {
			var options []jetstream.PublishOpt
			if q.mode == keyedMessages {
				options = append(options, jetstream.WithMsgID(prefix+strconv.Itoa(sent)))
			}
			sent++
			answer, err := q.js.PublishAsync(subject, payload, options...)
			if err != nil {
				q.failed.set(ctx, err)
				return
			}
			answers = append(answers, answer)
		}
		for _, answer := range answers {
			select {
			case <-answer.Ok():
			case err := <-answer.Err():
				q.failed.set(ctx, err)
				return
			case <-ctx.Done():
				return
			}
		}
		q.produced.Add(queueBatch)
	}
}

// measure waits for the warm-up, measures the running load, and returns the result.
func (q *natsQueue) measure(ctx context.Context) (queueRun, error) {
	used := func() (queueUsed, error) {
		usage, err1 := q.server.Usage(ctx)
		load, err2 := ownCPU()
		return queueUsed{at: time.Now(), acked: q.acked.Load(), server: usage.CPU, load: load}, errors.Join(err1, err2)
	}
	pause(ctx, queueWarm)
	before, err := used()
	if err != nil {
		return queueRun{}, err
	}
	awaitRun(ctx, q.duration, before.acked, q.acked.Load)
	after, err := used()
	if err != nil {
		return queueRun{}, err
	}
	return after.since(&before)
}
