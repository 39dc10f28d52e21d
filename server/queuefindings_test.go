package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// What an outside review of queues found, and the test of each finding. Those that are named
// TestFinding are here, in queuefindings_fair_test.go and in queuefindings_store_test.go. They run
// on a whole server with a real Redis.
//
//	01 reads are bounded by bytes                    TestFinding01, redislog.TestReadsAreBounded
//	02 a full Redis                                 TestFinding02, redislog.TestSettlingWithoutMemory
//	03 a message that crashes its worker             TestFinding03, dispatch.TestPoison
//	04 a job outlives its token and stream           TestFinding04, TestQueueDeploy
//	05 Redis away                                    TestFinding05, consume.TestStoreAway
//	06 one message in flight pins nothing            TestFinding06
//	07 a worker that leaves                          TestFinding07
//	08 a hung worker                                 TestFinding08
//	09 a slow key                                    TestFinding09
//	10 the bound counts what is not settled          TestFinding10
//	11 messages that are due together                TestFinding11, redislog.TestDueStopsAtItsBudget
//	12 settling at the rate limit                    TestProducerAtItsLimitSettles
//	13 idempotency is cheap                          TestFinding13
//	14 lost keys heal                                TestFinding14, topics.TestLostKeysHeal
//	15 replays before live messages                  TestFinding15
//	16 the cost of idle topics                       only measured: `bench queue`, docs/budgets.md
//	17 groups and the cost of producing              TestFinding17
//	18 more workers than partitions, and growth      TestFinding18, TestDefaultTopicAddsPartitions
//	19 a node that is cut off from Redis alone       consume.TestCutOff
//	20 the API: groups, pause of a group, Receive   TestPauseIsPerTopicAndGroup, rpc.TestQueueReceive
//	D2 lists of dead letters read what they answer   TestFindingD2, docs/budgets.md
//	D6 CR and LF in the value of a header            TestHostileQueueItems

// findingRig is a server with clients of queues.
type findingRig struct {
	*target

	queues parleyv1connect.QueueServiceClient
	admin  parleyv1connect.AdminServiceClient
	redis  *testkit.RedisServer
}

// newFinding starts a server on a Redis of its own.
func newFinding(t *testing.T, opts ...testkit.RedisOption) *findingRig {
	t.Helper()
	redis := testkit.Redis(t, opts...)
	s := servertest.Serve(t, servertest.With(func(c *config.Config) {
		c.Redis.Addr = redis.Addr()
		c.Limits.RequestsPerSecond, c.Limits.RequestBurst = 1e6, 1e6
	}))
	g := &target{Server: s, t: t}
	patient := connect.WithInterceptors(connect.UnaryInterceptorFunc(whileRevocationsAreUnknown)) //nolint:forbidigo // streams are not repeated
	return &findingRig{target: g, queues: s.Queues(s.Token, patient), admin: s.QueueAdmin(s.Token, patient), redis: redis}
}

// whileRevocationsAreUnknown repeats a call that was refused before anything was done, because the
// machine is too busy to check the token in time.
func whileRevocationsAreUnknown(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		for deadline := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
			res, err := next(ctx, req)
			if reason, _ := reasonOf(err); err == nil || reason != parleyv1.ErrorReason_ERROR_REASON_REVOCATION_UNKNOWN || time.Now().After(deadline) {
				return res, err
			}
		}
	}
}

func (r *findingRig) must(_ any, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// topic creates a topic with the group g. The settings of the group are those of slowGroup, unless
// change changes them.
func (r *findingRig) topic(topic *parleyv1.Topic, change func(*parleyv1.Group)) {
	r.t.Helper()
	group := slowGroup("g")
	if change != nil {
		change(group)
	}
	r.must(r.admin.CreateTopic(r.t.Context(), &parleyv1.CreateTopicRequest{Topic: topic}))
	r.must(r.admin.CreateGroup(r.t.Context(), &parleyv1.CreateGroupRequest{Topic: topic.GetName(), Group: group}))
}

// put produces messages and returns the results.
func (r *findingRig) put(topic string, messages ...*parleyv1.QueueMessage) []*parleyv1.ProduceResult {
	r.t.Helper()
	res, err := r.queues.Produce(r.t.Context(), &parleyv1.ProduceRequest{Topic: topic, Messages: messages})
	r.must(res, err)
	return res.GetResults()
}

// plain returns n messages with keys of their own and payloads of size bytes.
func plain(n, size int) []*parleyv1.QueueMessage {
	all := make([]*parleyv1.QueueMessage, n)
	for i := range all {
		all[i] = &parleyv1.QueueMessage{Key: fmt.Sprint("key-", i), Payload: make([]byte, size)}
	}
	return all
}

// works opens a session of the group g that handles n messages at a time.
func (r *findingRig) works(topic string, n int32) *consumerStream {
	r.t.Helper()
	return consumesFrom(r.t, r.queues, many(topic, "g", n))
}

// ack acknowledges deliveries of a session.
func (r *findingRig) ack(c *consumerStream, deliveries ...*parleyv1.Delivery) {
	r.t.Helper()
	req := &parleyv1.AckRequest{SessionId: c.sessionID}
	for _, d := range deliveries {
		req.Tokens = append(req.Tokens, d.GetToken())
	}
	res, err := r.queues.Ack(r.t.Context(), req)
	if r.must(res, err); failed(res.GetResults()) != nil {
		r.t.Fatal(failed(res.GetResults()))
	}
}

// begins reports that a handler began deliveries.
func (r *findingRig) begins(c *consumerStream, deliveries ...*parleyv1.Delivery) {
	r.t.Helper()
	tokens := &parleyv1.DeliveryTokens{}
	for _, d := range deliveries {
		tokens.Tokens = append(tokens.Tokens, d.GetToken())
	}
	res, err := r.queues.Extend(r.t.Context(), &parleyv1.ExtendRequest{
		SessionId: c.sessionID, Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: tokens}, Begun: true,
	})
	if r.must(res, err); failed(res.GetResults()) != nil {
		r.t.Fatal(failed(res.GetResults()))
	}
}

// handles acknowledges every delivery until n were.
func (r *findingRig) handles(c *consumerStream, n int) {
	r.t.Helper()
	for done := len(c.got); done < n; {
		c.await(done + 1)
		r.ack(c, c.got[done:]...)
		done = len(c.got)
	}
}

// TestFinding01 checks that one consumer with the largest limits handles a backlog of the largest
// payloads.
func TestFinding01(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 4}, nil)
	const n = 35 * perRequest
	for range n / perRequest {
		r.put("jobs", plain(perRequest, largestPayload)...)
	}
	c := r.works("jobs", 10_000)
	r.handles(c, n)
	if w := r.groupStats("jobs"); w.GetAcked() != n || w.GetRedelivered() != 0 {
		t.Errorf("%v", w)
	}
}

// TestFinding02 checks that, with Redis at its maxmemory, Produce is refused in a way that
// producers retry, a new consumer drains the topic, its nacks hold nothing up, and calls of admins
// work.
func TestFinding02(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	ctx := t.Context()
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 2}, nil)
	r.topic(&parleyv1.Topic{Name: "other", Partitions: 1}, nil)
	r.put("jobs", plain(100, 1000)...)
	r.put("other", plain(100, 1000)...)
	client := r.redis.Client(t)
	r.must(client.ConfigSet(ctx, "maxmemory", "1mb").Result())
	one := &parleyv1.ProduceRequest{Topic: "jobs", Messages: plain(1, 1000)}
	err := callErr(r.queues.Produce(ctx, one))
	if d := detailOf(t, err); connect.CodeOf(err) != connect.CodeUnavailable || !d.GetRetryable() {
		t.Errorf("Produce at maxmemory: %v, %v", err, d)
	}
	c := r.works("jobs", 10)
	c.await(10)
	items := []*parleyv1.NackItem{retried(c.got[0].GetToken(), time.Hour), dead(c.got[1].GetToken())}
	nacked, err := r.queues.Nack(ctx, &parleyv1.NackRequest{SessionId: c.sessionID, Items: items})
	if r.must(nacked, err); failed(nacked.GetResults()) != nil {
		t.Errorf("%v", nacked)
	}
	r.ack(c, c.got[2:10]...)
	r.handles(c, 100)
	if w := r.groupStats("jobs"); w.GetAcked() != 98 || w.GetRetrying() != 1 || w.GetDead() != 1 || w.GetWaiting()+w.GetRunning() != 0 {
		t.Errorf("drained: %v", w)
	}
	r.must(r.admin.SetTopicPaused(ctx, &parleyv1.SetTopicPausedRequest{Topic: "jobs", Paused: true}))
	r.must(r.admin.SetGroupPaused(ctx, &parleyv1.SetGroupPausedRequest{Topic: "jobs", Group: "g", Paused: true}))
	r.must(r.admin.UpdateTopic(ctx, &parleyv1.UpdateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs", DropOldest: true}, UpdateMask: maskOf("drop_oldest")}))
	trimmed, err := r.admin.TrimTopic(ctx, &parleyv1.TrimTopicRequest{Topic: "other", Keep: &parleyv1.TrimTopicRequest_MaxMessages{}, Force: true})
	if r.must(trimmed, err); trimmed.GetRemoved() != 100 {
		t.Errorf("trimmed %v", trimmed)
	}
	r.must(r.admin.PurgeDeadLetters(ctx, &parleyv1.PurgeDeadLettersRequest{Topic: "jobs", Selection: allLetters(), Confirm: "jobs"}))
	r.must(r.admin.DeleteTopic(ctx, &parleyv1.DeleteTopicRequest{Topic: "other", Confirm: "other"}))
	r.must(r.admin.SetTopicPaused(ctx, &parleyv1.SetTopicPausedRequest{Topic: "jobs"}))
	r.must(client.ConfigSet(ctx, "maxmemory", "0").Result())
	testkit.Eventually(t, 20*time.Second, func() error {
		res, err := r.queues.Produce(ctx, one)
		if e := res.GetResults(); err == nil && e[0].GetError() != nil {
			return fmt.Errorf("%v", e)
		}
		return err
	})
}

// TestFinding03 checks that a message whose worker dies each time becomes a dead letter alone: what
// the worker had not begun is not charged.
func TestFinding03(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	attempts := int32(3)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 1}, func(g *parleyv1.Group) {
		g.ResumeGrace = durationpb.New(time.Second)
		g.Retry = &parleyv1.RetryPolicy{MaxAttempts: &attempts, MinBackoff: durationpb.New(time.Millisecond), MaxBackoff: durationpb.New(time.Millisecond)}
	})
	messages := plain(20, 10)
	messages[5].Key = "poison"
	r.put("jobs", messages...)
	for range attempts {
		c := r.works("jobs", 20)
		var poison *parleyv1.Delivery
		for n := 1; poison == nil; n++ {
			if d := c.await(n)[n-1]; d.GetKey() == "poison" {
				poison = d
			}
		}
		r.begins(c, poison)
		_ = c.stream.Close() // the worker is dead
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		if w := r.groupStats("jobs"); w.GetDead() != 1 {
			return fmt.Errorf("%v", w)
		}
		return nil
	})
	c := r.works("jobs", 20)
	r.handles(c, 19)
	for _, d := range c.got {
		if d.GetAttempt() != 1 || d.GetKey() == "poison" {
			t.Errorf("%s is delivered as attempt %d", d.GetKey(), d.GetAttempt())
		}
	}
	letters, err := r.admin.ListDeadLetters(t.Context(), &parleyv1.ListDeadLettersRequest{Topic: "jobs"})
	if l := letters.GetDeadLetters(); err != nil || len(l) != 1 || l[0].GetKey() != "poison" || l[0].GetAttempts() != attempts {
		t.Errorf("%v, %v", l, err)
	}
}

// TestFinding04 checks that a job outlives the token and the connection of its worker: the session
// is resumed with another token and settles what it held.
func TestFinding04(t *testing.T) {
	t.Parallel()
	r := newFinding(t)
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 1}, nil)
	r.put("jobs", plain(2, 10)...)
	token := func(ttl time.Duration) string {
		return r.MintAs(&ident.Principal{Subject: "worker", Queues: []ident.Capability{{Pattern: "*", Actions: ident.QueueActions}}}, ttl)
	}
	c := consumesFrom(t, r.Queues(token(2*time.Second)), many("jobs", "g", 2))
	held := c.await(2)
	r.beginsWith(r.Queues(token(time.Minute)), c, held...)
	for c.read() {
	}
	if reason, _ := reasonOf(c.stream.Err()); reason != parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED {
		t.Errorf("the stream ended with %v", c.stream.Err())
	}
	again := many("jobs", "g", 2)
	again.Resume = &parleyv1.Resume{SessionId: c.sessionID, Resumes: 1}
	for _, d := range held {
		again.Resume.Held = append(again.Resume.Held, &parleyv1.HeldDelivery{Token: d.GetToken(), Begun: true})
	}
	client := r.Queues(token(time.Minute))
	resumed := consumesFrom(t, client, again)
	if lost := resumed.started.GetLost().GetTokens(); len(lost) > 0 || resumed.sessionID != c.sessionID {
		t.Errorf("resumed %v, lost %v", resumed.started, lost)
	}
	res, err := client.Ack(t.Context(), &parleyv1.AckRequest{SessionId: c.sessionID, Tokens: []string{held[0].GetToken(), held[1].GetToken()}})
	if err != nil || failed(res.GetResults()) != nil {
		t.Errorf("%v, %v", res, err)
	}
	if w := r.groupStats("jobs"); w.GetAcked() != 2 || w.GetRetried()+w.GetRedelivered() != 0 {
		t.Errorf("%v", w)
	}
}

// beginsWith is begins with a client.
func (r *findingRig) beginsWith(client parleyv1connect.QueueServiceClient, c *consumerStream, deliveries ...*parleyv1.Delivery) {
	r.t.Helper()
	with := *r
	with.queues = client
	with.begins(c, deliveries...)
}

// TestFinding05 checks that a Redis that is away for longer than a lease lasts costs no delivery
// that nobody else took.
func TestFinding05(t *testing.T) {
	t.Parallel()
	r := newFinding(t, testkit.RedisAppendOnly())
	r.topic(&parleyv1.Topic{Name: "jobs", Partitions: 2}, nil)
	r.put("jobs", plain(20, 10)...)
	c := r.works("jobs", 20)
	held := c.await(20)
	r.begins(c, held...)
	r.redis.Kill()
	<-time.After(12 * time.Second) // as long as the outage is
	r.redis.Start()
	open := held
	testkit.Eventually(t, 60*time.Second, func() error {
		req := &parleyv1.AckRequest{SessionId: c.sessionID}
		for _, d := range open {
			req.Tokens = append(req.Tokens, d.GetToken())
		}
		res, err := r.queues.Ack(t.Context(), req)
		if err != nil {
			return err
		}
		var left []*parleyv1.Delivery
		for i, result := range res.GetResults() {
			switch e := result.GetError(); {
			case e == nil:
			case !e.GetDetail().GetRetryable():
				t.Fatalf("a delivery is lost: %v", e)
			default:
				left = append(left, open[i])
			}
		}
		if open = left; len(open) > 0 {
			return fmt.Errorf("%d are not acknowledged", len(open))
		}
		return nil
	})
	if w := r.groupStats("jobs"); w.GetAcked() != 20 || w.GetRetried()+w.GetRedelivered() != 0 {
		t.Errorf("%v", w)
	}
}

// keysOf returns the keys in Redis that a pattern selects.
func (r *findingRig) keysOf(pattern string) []string {
	r.t.Helper()
	keys, err := r.redis.Client(r.t).Keys(r.t.Context(), pattern).Result()
	r.must(keys, err)
	return keys
}

// infoOf returns the lines of a section of Redis' INFO by name.
func (r *findingRig) infoOf(section string) map[string]string {
	r.t.Helper()
	text, err := r.redis.Client(r.t).Info(r.t.Context(), section).Result()
	r.must(text, err)
	all := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	return all
}
