package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

const (
	// queueBatch is the number of messages in a producer's call and in a floor's pipeline.
	queueBatch = 100
	// queuePartitions is the number of partitions of a topic.
	queuePartitions = 4
	// queueProducers is the number of concurrent producers.
	queueProducers = 4
	// queueBacklog bounds how far the producers of a saturated run are ahead of the
	// acknowledgements.
	queueBacklog = 20_000
	// queueGroup is the consumer group's name.
	queueGroup = "bench"
	// queueWorkers is the number of concurrent handlers of a worker, the same as for the rivals.
	queueWorkers = 64
	// queueWindow is the maximum number of messages that a worker holds.
	queueWindow = 2000
	// queueWarm is the time that a load runs before the measurement starts.
	queueWarm = time.Second
)

// queueLoad configures a run of queues.
type queueLoad struct {
	// topics is the number of topics, each with a worker of its own. Calls go to them in turn.
	topics int
	// rate is the messages produced per second over all topics. 0 produces as many as are consumed.
	rate     int
	payload  int
	duration time.Duration
	// by is how the server recognises repeats.
	by recognition
}

// queueRun is the result of a run of queues.
type queueRun struct {
	// Rate is messages acknowledged per second.
	Rate float64 `json:"rate"`
	// Server, Redis and Load are CPU time per message in microseconds: of parleyd or a rival's server,
	// of a redis-server, and of producers and consumers. A process that a queue lacks has 0.
	Server float64 `json:"server"`
	Redis  float64 `json:"redis"`
	Load   float64 `json:"load"`
	// Lost is the number of deliveries that workers lost; they were redelivered.
	Lost int64 `json:"lost,omitempty"`
}

func (r queueRun) speed() float64 { return r.Rate }
func (r queueRun) cost() float64  { return r.Server + r.Redis }
func (r queueRun) total() float64 { return r.Server + r.Redis + r.Load }

// processes are the names of a queue's processes under load. A process that it lacks has no name.
type processes struct{ server, redis, load string }

// The processes of Parley and of the floor.
var (
	parleyProcesses = processes{server: "parleyd", redis: "its redis-server", load: "producers and consumers"}
	rawProcesses    = processes{redis: "its redis-server", load: "producers and consumers"}
)

// costs formats the CPU time per message of several runs by process.
func (p processes) costs(runs []queueRun) string {
	var parts []string
	for _, one := range []struct {
		name string
		of   func(queueRun) float64
	}{
		{p.server, func(r queueRun) float64 { return r.Server }},
		{p.redis, func(r queueRun) float64 { return r.Redis }},
		{p.load, func(r queueRun) float64 { return r.Load }},
	} {
		if one.name != "" {
			parts = append(parts, one.name+" "+Summarize(each(runs, one.of)).microseconds())
		}
	}
	return strings.Join(parts, ", ")
}

// parts formats the CPU time of several runs of Parley by process.
func parts(runs []queueRun) string {
	text := parleyProcesses.costs(runs)
	if lost := slices.MaxFunc(runs, func(a, b queueRun) int { return cmp.Compare(a.Lost, b.Lost) }).Lost; lost > 0 {
		text += fmt.Sprintf("; up to %d deliveries of a round were lost with their streams, and redelivered", lost)
	}
	return text
}

// queueServer is a server of the bench whose queues are measured.
type queueServer struct {
	*Server

	redis *redis.Client
}

// startQueues starts a server with the settings of `parleyd dev` and the given persistence of its
// Redis.
func (e *Env) startQueues(ctx context.Context, keep persistence) (*queueServer, error) {
	s, err := e.StartServer(ctx)
	if err != nil {
		return nil, err
	}
	q, err := queuesOf(s)
	if err == nil && keep == nothingKept {
		err = q.redis.ConfigSet(ctx, "appendonly", "no").Err()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return q, nil
}

// queuesOf connects to a server's Redis.
func queuesOf(s *Server) (*queueServer, error) {
	if s.redis == "" {
		return nil, errors.New("parleyd runs no redis-server: none is on the PATH")
	}
	return &queueServer{Server: s, redis: redisAt(s.redis)}, nil
}

// Close closes the connection to Redis and the server.
func (s *queueServer) Close() error { return errors.Join(s.redis.Close(), s.Server.Close()) }

// topics creates n topics with queuePartitions partitions and the group. remove deletes them with
// their contents.
func (s *queueServer) topics(ctx context.Context, n int) (names []string, remove func() error, err error) {
	return s.topicsOf(ctx, n, queuePartitions)
}

// topicsOf is topics with another number of partitions.
func (s *queueServer) topicsOf(ctx context.Context, n int, partitions int32) (names []string, remove func() error, err error) {
	client, err := parley.New(s.Addrs[0], parley.WithToken(s.Token))
	if err != nil {
		return nil, nil, err
	}
	admin := queue.NewAdmin(client)
	remove = func() error {
		defer client.Close()
		var failed []error
		for _, name := range names {
			failed = append(failed, admin.DeleteTopic(ctx, name, name))
		}
		return errors.Join(failed...)
	}
	prefix := "bench-" + rand.Text()[:8] + "-"
	for i := range n {
		name := prefix + strconv.Itoa(i)
		if _, err := admin.CreateTopic(ctx, &queue.Topic{Name: name, Partitions: partitions}); err != nil {
			return nil, nil, errors.Join(err, remove())
		}
		names = append(names, name)
		if _, err := admin.CreateGroup(ctx, name, &queue.Group{Name: queueGroup, Start: queue.FromBeginning()}); err != nil {
			return nil, nil, errors.Join(err, remove())
		}
	}
	return names, remove, nil
}

// consumers are running workers, one per topic.
type consumers struct {
	client  *parley.Client
	workers []*queue.Worker
	stop    context.CancelFunc
	done    sync.WaitGroup
	failed  atomic.Pointer[error]
}

// consume starts a worker per topic and waits until each is connected.
func (s *queueServer) consume(
	ctx context.Context, topics []string, handle queue.Handler, options ...queue.WorkerOption,
) (*consumers, error) {
	client, err := parley.New(s.Addrs[0], parley.WithToken(s.Token))
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	c := &consumers{client: client, stop: stop}
	for _, topic := range topics {
		w := queue.NewWorker(client, queueGroup, options...).Handle(topic, handle)
		c.workers = append(c.workers, w)
		c.done.Go(func() {
			if err := w.Run(running); err != nil {
				c.failed.CompareAndSwap(nil, &err)
			}
		})
	}
	limit, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, w := range c.workers {
		for w.Stats().Streams == 0 && c.err() == nil && limit.Err() == nil {
			pause(limit, time.Millisecond)
		}
	}
	if err := errors.Join(c.err(), context.Cause(limit)); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// acked returns the number of acknowledged messages.
func (c *consumers) acked() (n int64) {
	for _, w := range c.workers {
		n += w.Stats().Acked
	}
	return n
}

func (c *consumers) err() error {
	if err := c.failed.Load(); err != nil {
		return fmt.Errorf("consume: %w", *err)
	}
	return nil
}

// lost returns the number of deliveries that workers lost, which are redelivered: an overloaded
// machine extends them too late.
func (c *consumers) lost() (n int64) {
	for _, w := range c.workers {
		n += w.Stats().Lost
	}
	return n
}

// close stops the workers and waits for them.
func (c *consumers) close() error {
	c.stop()
	c.done.Wait()
	c.client.Close()
	return c.err()
}

// run runs concurrent producers and consumers on new topics, and measures them for the load's
// duration.
func (s *queueServer) run(ctx context.Context, load queueLoad) (run queueRun, err error) {
	if err := settle(ctx, &s.Target); err != nil {
		return run, err
	}
	topics, remove, err := s.topics(ctx, load.topics)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	c, err := s.consume(ctx, topics, func(context.Context, *queue.Delivery) error { return nil },
		queue.WithConcurrency(queueWorkers), queue.WithMaxInFlight(queueWindow, 0))
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	p, err := s.produce(ctx, topics, load, c.acked)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, p.close()) }()

	pause(ctx, queueWarm)
	before, err := s.used(ctx, c.acked)
	if err != nil {
		return run, err
	}
	awaitRun(ctx, load.duration, before.acked, c.acked)
	after, err := s.used(ctx, c.acked)
	if err := errors.Join(context.Cause(ctx), err, c.err(), p.err()); err != nil {
		return run, err
	}
	run, err = after.since(&before)
	run.Lost = c.lost()
	return run, err
}

// queueUsed is the CPU time used and the messages acknowledged up to a moment.
type queueUsed struct {
	at                  time.Time
	acked               int64
	server, redis, load time.Duration
}

// used returns the totals of the server, its Redis and this process so far.
func (s *queueServer) used(ctx context.Context, acked func() int64) (queueUsed, error) {
	usage, err1 := s.Usage(ctx)
	redis, err2 := redisCPU(ctx, s.redis)
	load, err3 := ownCPU()
	return queueUsed{at: time.Now(), acked: acked(), server: usage.CPU, redis: redis, load: load}, errors.Join(err1, err2, err3)
}

// awaitRun waits for the duration of a measurement, and then until more than before messages are
// acknowledged: on a busy machine a short measurement may pass without one.
func awaitRun(ctx context.Context, duration time.Duration, before int64, acked func() int64) {
	pause(ctx, duration)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for acked() == before && ctx.Err() == nil {
		pause(ctx, time.Millisecond)
	}
}

// since returns the result of a run that began when before was taken and ended when u was taken. It
// returns an error if no message was acknowledged in that time.
func (u *queueUsed) since(before *queueUsed) (queueRun, error) {
	n := float64(u.acked - before.acked)
	if n == 0 {
		return queueRun{}, errors.New("no message was acknowledged")
	}
	per := func(now, then time.Duration) float64 { return float64((now - then).Nanoseconds()) / 1000 / n }
	return queueRun{
		Rate:   n / u.at.Sub(before.at).Seconds(),
		Server: per(u.server, before.server), Redis: per(u.redis, before.redis), Load: per(u.load, before.load),
	}, nil
}

// ownCPU returns the CPU time that this process has used so far.
func ownCPU() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
