package servicetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// everyMethod calls each unary method with an empty request. Each must be implemented, or fail as
// unsupported if the target lists it.
func everyMethod(e *env) {
	listed := slices.Clone(e.target.Unsupported)
	files := []protoreflect.FileDescriptor{
		parleyv1.File_parley_v1_message_proto, parleyv1.File_parley_v1_queue_proto, parleyv1.File_parley_v1_admin_proto,
		parleyv1.File_parley_v1_server_proto,
	}
	if e.target.Presence {
		files = append(files, parleyv1.File_parley_v1_presence_proto)
	}
	for _, file := range files {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				if m.IsStreamingServer() {
					continue
				}
				short := fmt.Sprintf("%s/%s", service.Name(), m.Name())
				err := call(e, fmt.Sprintf("%s/%s", service.FullName(), m.Name()))
				at := slices.Index(listed, short)
				switch missing := connect.CodeOf(err) == connect.CodeUnimplemented; {
				case err != nil && missing && at < 0:
					e.Errorf("%s is missing: %v", short, err)
				case at >= 0 && (err == nil || !missing || !strings.Contains(err.Error(), short+" is not supported")):
					e.Errorf("%s is listed as unsupported: %v", short, err)
				}
				if at >= 0 {
					listed = slices.Delete(listed, at, at+1)
				}
			}
		}
	}
	if len(listed) > 0 {
		e.Errorf("unsupported, and no methods: %v", listed)
	}
}

// call calls a unary method with an empty request.
func call(e *env, procedure string) error {
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](e.ann.http, e.target.URL+"/"+procedure)
	_, err := client.CallUnary(e.ctx, connect.NewRequest(&emptypb.Empty{}))
	return err
}

func serverInfo(e *env) {
	r, err := e.as("nobody", "history").server.GetServerInfo(e.ctx, &parleyv1.GetServerInfoRequest{})
	e.no(err)
	l := r.GetLimits()
	if r.GetVersion() == "" || !slices.Contains(r.GetFeatures(), parleyv1.ServerFeature_SERVER_FEATURE_QUEUES) ||
		l.GetMaxContentBytes() != 65_536 || l.GetMaxSessionContentBytes() != 131_072 || l.GetMaxBatchMessages() != 500 || l.GetMaxChannelsPerStream() == 0 ||
		l.GetMaxPayloadBytes() != 262_144 || l.GetMaxProduceMessages() != 1000 || l.GetHeartbeatInterval().AsDuration() <= 0 {
		e.Errorf("server info %v", r)
	}
	response, err := e.ann.http.Post(e.target.URL+"/parley.v1.MessageService/Nothing", "application/json", http.NoBody)
	e.no(err)
	e.no(response.Body.Close())
	if response.StatusCode == http.StatusOK {
		e.Error("a method that is not there was called")
	}
}

// bury nacks the next n messages of a group so that they become dead letters. It returns all dead
// letters of the group, newest first.
func (e *env) bury(topic, group string, n int) []*parleyv1.DeadLetter {
	e.Helper()
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{topic}, Group: group, Concurrency: 100})
	for range n {
		e.done(s.nack(bury(s.next())))
	}
	s.close()
	return e.letters(topic, group)
}

func (e *env) letters(topic, group string) []*parleyv1.DeadLetter {
	e.Helper()
	r, err := e.ann.admin.ListDeadLetters(e.ctx, &parleyv1.ListDeadLettersRequest{Topic: topic, Group: group, Full: true})
	e.no(err)
	return r.GetDeadLetters()
}

func deadLetters(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g", "h")
	e.produce(name, &parleyv1.QueueMessage{Key: "k", Payload: []byte("1"), Headers: map[string]string{"h": "v"}})
	e.put(name, "2", "3")
	letters := e.bury(name, "g", 3)
	e.bury(name, "h", 3)
	if len(letters) != 3 {
		e.Fatalf("letters %v", letters)
	}
	oldest := letters[2]
	if oldest.GetGroup() != "g" || oldest.GetKey() != "k" || string(oldest.GetPayload()) != "1" || oldest.GetHeaders()["h"] != "v" ||
		oldest.GetAttempts() != 1 || oldest.GetReason() != "no use" || oldest.GetCode() != "bad" || oldest.GetProduceTime() == nil ||
		oldest.GetDeadLetterTime() == nil || oldest.GetMessageId() == "" || oldest.GetPartition() != 0 {
		e.Errorf("letter %v", oldest)
	}
	equal(e, "the letters of all groups", len(e.letters(name, "")), 6)
	_, err := e.ann.admin.ListDeadLetters(e.ctx, &parleyv1.ListDeadLettersRequest{Topic: name, Group: "none"})
	e.refused("the letters of no group", err, noGroup)
	e.replayAndPurge(name, oldest)
}

func (e *env) replayAndPurge(name string, oldest *parleyv1.DeadLetter) {
	e.Helper()
	byIDs := func(ids ...string) *parleyv1.DeadLetterSelection {
		return &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_Ids{Ids: &parleyv1.DeadLetterIds{DeadLetterIds: ids}}}
	}
	ofGroup := func(group string) *parleyv1.DeadLetterSelection {
		return &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_Group{Group: group}}
	}
	replay := func(request *parleyv1.ReplayDeadLettersRequest) (string, error) {
		request.Topic = name
		r, err := e.ann.admin.ReplayDeadLetters(e.ctx, request)
		return fmt.Sprintf("%d %t", r.GetReplayed(), r.GetMore()), err
	}
	for what, one := range map[string]struct {
		selection *parleyv1.DeadLetterSelection
		want      refusal
	}{
		"nothing":    {nil, invalid("selection", 0)},
		"no choice":  {&parleyv1.DeadLetterSelection{}, invalid("selection.selection", 0)},
		"no ids":     {byIDs(), invalid("selection.ids.dead_letter_ids", 1)},
		"a false id": {byIDs("x"), invalid("selection.ids.dead_letter_ids", 0)},
		"no group":   {ofGroup("none"), refusal{noGroup.code, noGroup.reason, "selection.group", 0}},
	} {
		_, err := replay(&parleyv1.ReplayDeadLettersRequest{Selection: one.selection})
		e.refused("replay "+what, err, one.want)
		_, err = e.ann.admin.PurgeDeadLetters(e.ctx, &parleyv1.PurgeDeadLettersRequest{Topic: name, Selection: one.selection, Confirm: name})
		e.refused("purge "+what, err, one.want)
	}
	_, err := replay(&parleyv1.ReplayDeadLettersRequest{Selection: ofGroup("g"), Limit: 10_001})
	e.refused("replay too many", err, invalid("limit", 10_000))
	_, err = replay(&parleyv1.ReplayDeadLettersRequest{Selection: ofGroup("g"), ToTopic: name})
	e.refused("replay to the same topic", err, invalid("to_topic", 0))
	_, err = replay(&parleyv1.ReplayDeadLettersRequest{Selection: ofGroup("g"), ToTopic: e.name("none")})
	e.refused("replay to no topic", err, refusal{noTopic.code, noTopic.reason, "to_topic", 0})
	got, err := replay(&parleyv1.ReplayDeadLettersRequest{Selection: byIDs(oldest.GetDeadLetterId())})
	e.no(err)
	equal(e, "replay by id", got, "1 false")
	got, err = replay(&parleyv1.ReplayDeadLettersRequest{Selection: ofGroup("g"), Limit: 1})
	e.no(err)
	equal(e, "replay one of two", got, "1 true")
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 100})
	first := s.want("1", 1)
	equal(e, "the id after a replay", first.GetMessageId(), oldest.GetMessageId())
	s.want("2", 1)
	purge := func(selection *parleyv1.DeadLetterSelection, confirm string) (int64, error) {
		r, err := e.ann.admin.PurgeDeadLetters(e.ctx, &parleyv1.PurgeDeadLettersRequest{Topic: name, Selection: selection, Confirm: confirm})
		return r.GetPurged(), err
	}
	_, err = purge(ofGroup("g"), "other")
	e.refused("purge unconfirmed", err, noConfirm)
	n, err := purge(ofGroup("g"), name)
	e.no(err)
	equal(e, "purged of the group", n, 1)
	n, err = purge(&parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_All{All: &parleyv1.AllDeadLetters{}}}, name)
	e.no(err)
	equal(e, "purged of all groups", n, 3)
}

func trim(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	e.put(name, "1", "2", "3", "4")
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 2, MaxInFlight: 2, ReportsBegun: true})
	e.done(s.ack(s.want("1", 1), s.want("2", 1)))
	e.no(errOf(e.ann.queues.Leave(e.ctx, &parleyv1.LeaveRequest{SessionId: s.id})))
	trimmed := func(request *parleyv1.TrimTopicRequest) string {
		e.Helper()
		request.Topic = name
		r, err := e.ann.admin.TrimTopic(e.ctx, request)
		e.no(err)
		return fmt.Sprintf("removed %d lost %d", r.GetRemoved(), r.GetLost())
	}
	_, err := e.ann.admin.TrimTopic(e.ctx, &parleyv1.TrimTopicRequest{Topic: name, Force: true})
	e.refused("nothing named", err, invalid("keep", 0))
	newest := func(n int64) *parleyv1.TrimTopicRequest_MaxMessages {
		return &parleyv1.TrimTopicRequest_MaxMessages{MaxMessages: n}
	}
	equal(e, "what is settled", trimmed(&parleyv1.TrimTopicRequest{Keep: newest(0)}), "removed 2 lost 0")
	equal(e, "by force", trimmed(&parleyv1.TrimTopicRequest{Keep: newest(1), Force: true}), "removed 1 lost 1")
	e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 10}).want("4", 1)
}

// jobs looks at single messages and at the sessions of a group.
func jobs(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g", "h")
	id := e.produce(name, &parleyv1.QueueMessage{Key: "k", Payload: []byte("1"), Headers: map[string]string{"h": "v"}})[0].GetMessageId()
	later := e.produce(name, &parleyv1.QueueMessage{Payload: []byte("22"), Due: &parleyv1.QueueMessage_Delay{Delay: durationpb.New(time.Hour)}})[0]
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Consumer: "c", Concurrency: 3})
	d := s.want("1", 1)
	e.eventually(func() string {
		r, err := e.ann.admin.GetJob(e.ctx, &parleyv1.GetJobRequest{Topic: name, MessageId: id})
		e.no(err)
		j := r.GetJob()
		if j.GetMessageId() != id || j.GetKey() != "k" || string(j.GetPayload()) != "1" || j.GetHeaders()["h"] != "v" || j.GetProduceTime() == nil ||
			j.GetPayloadBytes() != 1 || j.GetDueTime() != nil {
			e.Fatalf("job %v", j)
		}
		var got []string
		for _, g := range j.GetGroups() {
			got = append(got, fmt.Sprintf("%s %s %q %d", g.GetGroup(), g.GetState(), g.GetConsumer(), g.GetDeliveries()))
		}
		if want := `g JOB_STATE_RUNNING "c" 1, h JOB_STATE_WAITING "" 0`; strings.Join(got, ", ") != want {
			return fmt.Sprintf("job in groups: got %s, want %s", got, want)
		}
		return ""
	})
	_, err := e.ann.admin.GetJob(e.ctx, &parleyv1.GetJobRequest{Topic: name, MessageId: "x"})
	e.refused("no job", err, refusal{connect.CodeNotFound, "MESSAGE_NOT_FOUND", "message_id", 0})
	list := func(group string, state parleyv1.JobState) string {
		r, err := e.ann.admin.ListJobs(e.ctx, &parleyv1.ListJobsRequest{Topic: name, Group: group, State: state})
		e.no(err)
		var got []string
		for _, j := range r.GetJobs() {
			got = append(got, fmt.Sprintf("%s %d %d", map[string]string{id: "first", later.GetMessageId(): "later"}[j.GetMessageId()], j.GetPayloadBytes(), len(j.GetGroups())))
		}
		return strings.Join(got, ", ")
	}
	equal(e, "scheduled ones", list("", parleyv1.JobState_JOB_STATE_SCHEDULED), "later 2 0")
	equal(e, "those of a group", list("h", parleyv1.JobState_JOB_STATE_UNSPECIFIED), "first 1 1, later 2 1")
	equal(e, "waiting ones", list("h", parleyv1.JobState_JOB_STATE_WAITING), "first 1 1")
	e.eventually(func() string {
		r, err := e.ann.admin.ListConsumers(e.ctx, &parleyv1.ListConsumersRequest{Topic: name, Group: "g"})
		e.no(err)
		if len(r.GetConsumers()) != 1 {
			return fmt.Sprint(r)
		}
		c := r.GetConsumers()[0]
		if c.GetConsumer() != "c" || c.GetSubject() != e.ann.user || c.GetState() != parleyv1.SessionState_SESSION_STATE_ATTACHED ||
			c.GetConcurrency() != 3 || c.GetRunning() != 1 || c.GetInFlight() != 1 || c.GetOldestMessageId() != id || c.GetSession() == s.id {
			return fmt.Sprint(c)
		}
		return ""
	})
	e.done(s.ack(d))
	_, err = e.ann.admin.ListConsumers(e.ctx, &parleyv1.ListConsumersRequest{Topic: name, Group: "none"})
	e.refused("the consumers of no group", err, noGroup)
}
