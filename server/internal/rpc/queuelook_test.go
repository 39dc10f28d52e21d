package rpc

import (
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/queue/consume"
)

// scene is a topic of one scheduled message and six others, which a consumer was given. Of these
// it acknowledged the first, made the second a dead letter with the code "bad", returned the third
// to be retried in an hour, and works on the others.
type scene struct {
	*queueBundle

	t         *testing.T
	c         parleyv1connect.AdminServiceClient
	topic     string
	stream    *openedSession
	messages  []*parleyv1.Delivery
	scheduled string
}

// eachScene runs a subtest with a scene of its own for every protocol.
func eachScene(t *testing.T, f func(s *scene)) {
	t.Helper()
	b := queueSetup(t, nil)
	b.each(func(t *testing.T, protocol int, topic string, c parleyv1connect.QueueServiceClient) {
		hc, url, opts := b.over(protocol, b.mintAs(operator("ada")))
		s := &scene{queueBundle: b, t: t, c: parleyv1connect.NewAdminServiceClient(hc, url, opts...), topic: topic}
		b.put(t, topic, 6)
		r, err := c.Produce(t.Context(), &parleyv1.ProduceRequest{Topic: topic, Messages: []*parleyv1.QueueMessage{
			{Key: "later", Payload: []byte("p"), Due: &parleyv1.QueueMessage_Delay{Delay: durationpb.New(time.Hour)}},
		}})
		if s.scheduled = r.GetResults()[0].GetProduced().GetMessageId(); err != nil || s.scheduled == "" {
			t.Fatal(r, err)
		}
		request := consumes(topic)
		request.Concurrency = 4
		s.stream = openSession(t, c, request)
		for range 4 {
			s.messages = append(s.messages, s.stream.next())
		}
		s.settle(c)
		f(s)
	})
}

func (s *scene) settle(c parleyv1connect.QueueServiceClient) {
	s.t.Helper()
	id := s.stream.started.GetSessionId()
	acked, err := c.Ack(s.t.Context(), &parleyv1.AckRequest{SessionId: id, Tokens: []string{s.messages[0].GetToken()}})
	if err != nil || toldOf(acked.GetResults())[0] != "ok" {
		s.t.Fatal(acked, err)
	}
	nacked, err := c.Nack(s.t.Context(), &parleyv1.NackRequest{SessionId: id, Items: []*parleyv1.NackItem{
		{Token: s.messages[1].GetToken(), Reason: "it is bad", Code: "bad", Outcome: &parleyv1.NackItem_DeadLetter{DeadLetter: &parleyv1.NackDeadLetter{}}},
		{Token: s.messages[2].GetToken(), Code: "later", Outcome: &parleyv1.NackItem_Retry{Retry: &parleyv1.NackRetry{Delay: durationpb.New(time.Hour)}}},
	}})
	if got := toldOf(nacked.GetResults()); err != nil || fmt.Sprint(got) != "[ok ok]" {
		s.t.Fatal(got, err)
	}
	for range 2 {
		s.messages = append(s.messages, s.stream.next())
	}
}

// refused fails the test unless the call was refused so.
func (s *scene) refused(want string, err error) {
	s.t.Helper()
	if got := refusedAs(s.t, err); got != want {
		s.t.Errorf("refused as %s, want %s", got, want)
	}
}

func TestQueueStats(t *testing.T) {
	t.Parallel()
	eachScene(t, func(s *scene) {
		r, err := s.c.GetTopicStats(s.t.Context(), &parleyv1.GetTopicStatsRequest{Topic: s.topic, History: true})
		if err != nil {
			s.t.Fatal(err)
		}
		ignored := protocmp.IgnoreFields(&parleyv1.GroupStats{}, "oldest_age")
		group := &parleyv1.GroupStats{Group: "work", Running: 3, Retrying: 1, Acked: 1, Dead: 1, Retried: 1, Sessions: 1, DispatchedPartitions: 2}
		want := &parleyv1.TopicStats{
			Length: 6, Scheduled: 1, Produced: 7, DeadLetters: 1, FirstId: s.messages[0].GetMessageId(), LastId: s.messages[5].GetMessageId(),
			Groups: []*parleyv1.GroupStats{group},
		}
		if diff := cmp.Diff(want, r.GetTotal(), protocmp.Transform(), ignored); diff != "" {
			s.t.Error(diff)
		}
		if age := r.GetTotal().GetGroups()[0].GetOldestAge().AsDuration(); age <= 0 || age > time.Minute {
			s.t.Errorf("the oldest message is %v old", age)
		}
		one := &parleyv1.PartitionStats{
			Partition: 1, Length: 6, DeadLetters: 1, Produced: 6, FirstId: want.GetFirstId(), LastId: want.GetLastId(),
			Groups: []*parleyv1.GroupStats{{Group: "work", Running: 3, Retrying: 1, Acked: 1, Dead: 1, Retried: 1, DispatchedPartitions: 1}},
		}
		got := r.GetPartitions()
		if got[1].GetScheduled() == 1 {
			one.Scheduled, one.Produced = 1, 7
		}
		if diff := cmp.Diff(one, got[1], protocmp.Transform(), ignored); diff != "" || len(got) != 2 || got[0].GetPartition() != 0 {
			s.t.Error(diff, got)
		}
		for _, sample := range r.GetHistory() {
			if sample.GetTime() == nil || sample.GetGroups()[0].GetGroup() != "work" {
				s.t.Errorf("sample %v", sample)
			}
		}
		_, err = s.c.GetTopicStats(s.t.Context(), &parleyv1.GetTopicStatsRequest{Topic: "none"})
		s.refused(`not_found TOPIC_NOT_FOUND "topic" 0`, err)
	})
}

func TestQueuePartitions(t *testing.T) {
	t.Parallel()
	eachScene(t, func(s *scene) {
		r, err := s.c.ListPartitions(s.t.Context(), &parleyv1.ListPartitionsRequest{Topic: s.topic, Group: "work"})
		if err != nil || len(r.GetPartitions()) != 2 {
			s.t.Fatal(r, err)
		}
		p := r.GetPartitions()[1]
		if p.GetPartition() != 1 || p.GetNodeId() != "node" || p.GetEpoch() == 0 || p.GetSent() != s.messages[5].GetMessageId() || p.GetCursor() == "" {
			s.t.Errorf("%v", p)
		}
		r, err = s.c.ListPartitions(s.t.Context(), &parleyv1.ListPartitionsRequest{Topic: s.topic})
		if err != nil || len(r.GetPartitions()) != 2 || r.GetPartitions()[1].GetNodeId() != "" {
			s.t.Error(r, err)
		}
		_, err = s.c.ListPartitions(s.t.Context(), &parleyv1.ListPartitionsRequest{Topic: s.topic, Group: "none"})
		s.refused(`not_found GROUP_NOT_FOUND "group" 0`, err)
	})
}

func TestQueueJobs(t *testing.T) {
	t.Parallel()
	eachScene(t, func(s *scene) {
		states := []parleyv1.JobState{
			parleyv1.JobState_JOB_STATE_SETTLED, parleyv1.JobState_JOB_STATE_DEAD, parleyv1.JobState_JOB_STATE_RETRYING,
			parleyv1.JobState_JOB_STATE_RUNNING,
		}
		var jobs []*parleyv1.JobInfo
		for i, want := range states {
			m := s.messages[i]
			r, err := s.c.GetJob(s.t.Context(), &parleyv1.GetJobRequest{Topic: s.topic, MessageId: m.GetMessageId()})
			j := r.GetJob()
			if err != nil || len(j.GetGroups()) != 1 || j.GetGroups()[0].GetState() != want {
				s.t.Fatalf("message %d: %v, %v", i, r, err)
			}
			if j.GetMessageId() != m.GetMessageId() || j.GetPartition() != 1 || j.GetKey() != "k" || string(j.GetPayload()) != fmt.Sprint(s.topic, i) ||
				j.GetHeaders()["h"] != "v" || int(j.GetPayloadBytes()) != len(m.GetPayload()) || !j.GetProduceTime().AsTime().Equal(m.GetProduceTime().AsTime()) {
				s.t.Errorf("message %d: %v", i, j)
			}
			jobs = append(jobs, j)
		}
		if g := jobs[1].GetGroups()[0]; g.GetReason() != "it is bad" || g.GetCode() != "bad" || g.GetAttempts() != 1 {
			s.t.Errorf("a dead letter: %v", g)
		}
		if g := jobs[2].GetGroups()[0]; g.GetCode() != "later" || g.GetAttempts() != 1 || g.GetDeliveries() != 1 || time.Until(g.GetRetryTime().AsTime()) < 50*time.Minute {
			s.t.Errorf("one that is retried: %v", g)
		}
		if g := jobs[3].GetGroups()[0]; g.GetConsumer() != "c" || g.GetNodeId() != "node" || g.GetSession() != consume.Digest(s.stream.started.GetSessionId()) || g.GetSinceTime() == nil {
			s.t.Errorf("one that runs: %v", g)
		}
		r, err := s.c.GetJob(s.t.Context(), &parleyv1.GetJobRequest{Topic: s.topic, MessageId: s.scheduled})
		if j := r.GetJob(); err != nil || j.GetGroups()[0].GetState() != parleyv1.JobState_JOB_STATE_SCHEDULED || time.Until(j.GetDueTime().AsTime()) < 50*time.Minute {
			s.t.Errorf("%v, %v", r, err)
		}
		_, err = s.c.GetJob(s.t.Context(), &parleyv1.GetJobRequest{Topic: s.topic, MessageId: "1-9"})
		s.refused(`not_found MESSAGE_NOT_FOUND "message_id" 0`, err)
		s.listJobs()
	})
}

// listJobs checks the lists of jobs and their pages.
func (s *scene) listJobs() {
	s.t.Helper()
	running := &parleyv1.ListJobsRequest{Topic: s.topic, Group: "work", State: parleyv1.JobState_JOB_STATE_RUNNING, PageSize: 2, Full: true}
	r, err := s.c.ListJobs(s.t.Context(), running)
	if j := r.GetJobs(); err != nil || len(j) != 2 || j[1].GetMessageId() != s.messages[4].GetMessageId() || len(j[1].GetPayload()) == 0 || r.GetNextPageToken() == "" {
		s.t.Fatal(r, err)
	}
	running.PageToken = r.GetNextPageToken()
	if r, err = s.c.ListJobs(s.t.Context(), running); err != nil || len(r.GetJobs()) != 1 || r.GetJobs()[0].GetMessageId() != s.messages[5].GetMessageId() {
		s.t.Error(r, err)
	}
	running.Key = "other"
	_, err = s.c.ListJobs(s.t.Context(), running)
	s.refused(`invalid_argument PAGE_TOKEN_INVALID "page_token" 0`, err)
	for state, want := range map[parleyv1.JobState]string{
		parleyv1.JobState_JOB_STATE_UNSPECIFIED: fmt.Sprint(s.messages[2].GetMessageId(), s.messages[3].GetMessageId(), s.messages[4].GetMessageId(), s.messages[5].GetMessageId()),
		parleyv1.JobState_JOB_STATE_RETRYING:    fmt.Sprint(s.messages[2].GetMessageId()),
		parleyv1.JobState_JOB_STATE_SCHEDULED:   "", parleyv1.JobState_JOB_STATE_WAITING: "",
	} {
		r, err := s.c.ListJobs(s.t.Context(), &parleyv1.ListJobsRequest{Topic: s.topic, Group: "work", State: state, Key: "k"})
		var got []any
		for _, j := range r.GetJobs() {
			if got = append(got, j.GetMessageId()); len(j.GetPayload()) > 0 {
				s.t.Errorf("a summary has the payload: %v", j)
			}
		}
		if err != nil || fmt.Sprint(got...) != want {
			s.t.Errorf("%v: %v, %v", state, got, err)
		}
	}
	r, err = s.c.ListJobs(s.t.Context(), &parleyv1.ListJobsRequest{Topic: s.topic, State: parleyv1.JobState_JOB_STATE_SCHEDULED})
	if err != nil || len(r.GetJobs()) != 1 || r.GetJobs()[0].GetMessageId() != s.scheduled || r.GetNextPageToken() != "" {
		s.t.Error(r, err)
	}
	_, err = s.c.ListJobs(s.t.Context(), &parleyv1.ListJobsRequest{Topic: s.topic, Group: "work", State: parleyv1.JobState_JOB_STATE_SETTLED})
	s.refused(`invalid_argument INVALID_FIELD "state" 0`, err)
	_, err = s.c.ListJobs(s.t.Context(), &parleyv1.ListJobsRequest{Topic: s.topic})
	s.refused(`invalid_argument INVALID_FIELD "group" 0`, err)
}

func TestQueueRetryJobs(t *testing.T) {
	t.Parallel()
	eachScene(t, func(s *scene) {
		var ids []string
		for _, m := range s.messages {
			ids = append(ids, m.GetMessageId())
		}
		r, err := s.c.RetryJobs(s.t.Context(), &parleyv1.RetryJobsRequest{Topic: s.topic, Group: "work", MessageIds: append(ids, "1-9")})
		if err != nil || r.GetRetried() != 1 {
			s.t.Fatal(r, err)
		}
		if d := s.stream.next(); d.GetMessageId() != ids[2] || d.GetAttempt() != 2 {
			s.t.Errorf("delivered %v", d)
		}
		r, err = s.c.RetryJobs(s.t.Context(), &parleyv1.RetryJobsRequest{Topic: s.topic, Group: "work", MessageIds: ids[2:3]})
		if err != nil || r.GetRetried() != 0 {
			s.t.Errorf("again: %v, %v", r, err)
		}
	})
}

func TestQueueConsumers(t *testing.T) {
	t.Parallel()
	eachScene(t, func(s *scene) {
		second := openSession(s.t, s.client(0, s.mintAs(operator("bob"))), consumes(s.topic))
		found := map[string]*parleyv1.ConsumerInfo{}
		for token, pages := "", 1; ; pages++ {
			r, err := s.c.ListConsumers(s.t.Context(), &parleyv1.ListConsumersRequest{Topic: s.topic, Group: "work", PageSize: 1, PageToken: token})
			if err != nil || len(r.GetConsumers()) != 1 || len(r.GetMissingNodes()) > 0 || pages > 2 {
				s.t.Fatal(pages, r, err)
			}
			found[r.GetConsumers()[0].GetSubject()] = r.GetConsumers()[0]
			if token = r.GetNextPageToken(); token == "" {
				break
			}
		}
		want := &parleyv1.ConsumerInfo{
			Consumer: "c", Session: consume.Digest(s.stream.started.GetSessionId()), NodeId: "node", Subject: "ada",
			State: parleyv1.SessionState_SESSION_STATE_ATTACHED, Concurrency: 4, Running: 3, InFlight: 3, OldestMessageId: s.messages[3].GetMessageId(),
		}
		got := found["ada"]
		if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(want, "since_time", "oldest_time")); diff != "" {
			s.t.Error(diff)
		}
		if got.GetSinceTime() == nil || got.GetOldestTime() == nil || found["bob"].GetSession() != consume.Digest(second.started.GetSessionId()) {
			s.t.Errorf("found %v", found)
		}
		_, err := s.c.ListConsumers(s.t.Context(), &parleyv1.ListConsumersRequest{Topic: s.topic, Group: "none"})
		s.refused(`not_found GROUP_NOT_FOUND "group" 0`, err)
	})
}

func TestQueueTrim(t *testing.T) {
	t.Parallel()
	eachScene(t, func(s *scene) {
		trim := func(force bool) *parleyv1.TrimTopicResponse {
			s.t.Helper()
			r, err := s.c.TrimTopic(s.t.Context(), &parleyv1.TrimTopicRequest{Topic: s.topic, Keep: &parleyv1.TrimTopicRequest_MaxMessages{MaxMessages: 1}, Force: force})
			if err != nil {
				s.t.Fatal(err)
			}
			return r
		}
		if r := trim(false); r.GetRemoved() != 2 || r.GetLost() != 0 { // those before the one that is retried
			s.t.Errorf("%v", r)
		}
		if r := trim(true); r.GetRemoved() != 3 || r.GetLost() != 3 {
			s.t.Errorf("forced: %v", r)
		}
		_, err := s.c.TrimTopic(s.t.Context(), &parleyv1.TrimTopicRequest{Topic: "none", Keep: &parleyv1.TrimTopicRequest_MaxAge{MaxAge: durationpb.New(time.Hour)}})
		if connect.CodeOf(err) != connect.CodeNotFound {
			s.t.Error(err)
		}
	})
}
