package interop_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// A line is a command-line tool, each run of which calls one method. It gets the protos by
// reflection. Requests and answers are in JSON.
type line struct {
	// tool is the tool's name in tools/go.mod.
	tool string
	// args returns the tool's arguments for a call of a method. data is the request in JSON; "" means
	// that requests come from standard input.
	args func(to target, method, token, data string) []string
	// services returns the arguments with which the tool lists the server's services.
	services func(to target) []string
	// failure decodes the error that the tool prints: its code and its detail. The detail is nil if
	// the error has none.
	failure func(stderr []byte) (int32, *parleyv1.ErrorDetail, error)
}

// lines returns the clients grpcurl, and buf curl with each of its three protocols.
func lines() []client {
	grpcurl := line{
		tool: "grpcurl",
		args: func(to target, method, token, data string) []string {
			if data == "" {
				data = "@"
			}
			return []string{"-plaintext", "-format-error", "-H", "authorization: Bearer " + token, "-d", data, to.addr, method}
		},
		services: func(to target) []string { return []string{"-plaintext", to.addr, "list"} },
		failure:  grpcurlFailure,
	}
	all := []client{{name: "grpcurl", both: true, checks: true, see: grpcurl.see}}
	for _, protocol := range []string{"connect", "grpc", "grpcweb"} {
		curl := []string{"curl", "--http2-prior-knowledge", "--protocol", protocol}
		l := line{
			tool: "buf",
			args: func(to target, method, token, data string) []string {
				if data == "" {
					data = "@-"
				}
				return append(slices.Clone(curl), "-H", "authorization: Bearer "+token, "-d", data, to.url+"/"+method)
			},
			services: func(to target) []string { return append(slices.Clone(curl), "--list-services", to.url) },
			failure:  bufFailure,
		}
		all = append(all, client{name: "buf curl " + protocol, both: true, checks: true, see: l.see})
	}
	return all
}

func grpcurlFailure(stderr []byte) (int32, *parleyv1.ErrorDetail, error) {
	var e struct {
		Code    int32             `json:"code"`
		Details []json.RawMessage `json:"details"`
	}
	if err := json.Unmarshal(stderr, &e); err != nil {
		return 0, nil, err
	}
	for _, d := range e.Details {
		var packed struct {
			Type string `json:"@type"`
		}
		if err := json.Unmarshal(d, &packed); err != nil {
			return 0, nil, err
		}
		if strings.HasSuffix(packed.Type, "/parley.v1.ErrorDetail") {
			var detail parleyv1.ErrorDetail
			return e.Code, &detail, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(d, &detail) // not for @type
		}
	}
	return e.Code, nil, nil
}

func bufFailure(stderr []byte) (int32, *parleyv1.ErrorDetail, error) {
	var e struct {
		Code    connect.Code `json:"code"`
		Details []struct {
			Type  string `json:"type"`
			Value string `json:"value"`
		} `json:"details"`
	}
	if err := json.Unmarshal(stderr, &e); err != nil {
		return 0, nil, err
	}
	for _, d := range e.Details {
		if d.Type == "parley.v1.ErrorDetail" {
			var detail parleyv1.ErrorDetail
			raw, err := base64.RawStdEncoding.DecodeString(d.Value)
			if err == nil {
				err = proto.Unmarshal(raw, &detail)
			}
			return int32(e.Code), &detail, err
		}
	}
	return int32(e.Code), nil, nil
}

// run makes the calls of one command-line client.
type run struct {
	*testing.T

	line
	path string
	to   target
	name string
}

const (
	// patience is how long the topic's statistics may take to count an ack.
	patience = 30 * time.Second
	// receiveWait is the longest wait for a message that Receive allows.
	receiveWait = 30 * time.Second

	messages = "parley.v1.MessageService/"
	queues   = "parley.v1.QueueService/"
	admin    = "parley.v1.AdminService/"
	servers  = "parley.v1.ServerService/"
	online   = "parley.v1.PresenceService/"
)

func (l line) see(t *testing.T, to target, name string) report {
	path, err := tools[l.tool]()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{T: t, line: l, path: path, to: to, name: name}
	var got report
	r.server(&got)
	r.messages(&got)
	got.Presence = r.presence()
	got.Job = r.consume()
	got.BidiJob = r.consumeBothWays()
	got.Received = r.receive()
	got.Acked = r.acked(3)
	return got
}

// call makes a unary call and stores the response in answer. If the call fails, it returns the
// error and does not change answer.
func (r *run) call(method, token string, request, answer proto.Message) *failure {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), r.path, r.args(r.to, method, token, r.json(request))...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if cmd.Run() == nil {
		if err := protojson.Unmarshal(stdout.Bytes(), answer); err != nil {
			r.Fatalf("%s printed %q: %v", cmd, stdout.Bytes(), err)
		}
		return nil
	}
	code, detail, err := r.failure(stderr.Bytes())
	if err != nil || detail == nil {
		r.Fatalf("%s: %v\n%s", cmd, err, stderr.Bytes())
	}
	return &failure{Code: code, Reason: int32(detail.GetReason()), Field: detail.GetField()}
}

// must makes a unary call with the token that has every capability. It fails the test if the call
// fails.
func (r *run) must(method string, request, answer proto.Message) {
	r.Helper()
	if f := r.call(method, r.to.token, request, answer); f != nil {
		r.Fatalf("%s: %+v", method, f)
	}
}

// refused makes a unary call that must fail, and returns the error.
func (r *run) refused(method, token string, request, answer proto.Message) failure {
	r.Helper()
	f := r.call(method, token, request, answer)
	if f == nil {
		r.Fatalf("%s did not fail", method)
	}
	return *f
}

func (r *run) json(m proto.Message) string {
	text, err := protojson.Marshal(m)
	if err != nil {
		r.Fatal(err)
	}
	return string(text)
}

// stream is an open stream: a running tool that writes frames and may read requests.
type stream struct {
	*run

	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer
	cmd    *exec.Cmd
}

// open opens a stream and sends its first request. More requests may follow with send if the method
// takes a stream of them.
func (r *run) open(method string, request proto.Message) *stream {
	s := &stream{run: r, cmd: exec.CommandContext(r.Context(), r.path, r.args(r.to, method, r.to.token, "")...)}
	s.cmd.Stderr = &s.stderr
	in, err := s.cmd.StdinPipe()
	if err != nil {
		r.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		r.Fatal(err)
	}
	s.in, s.out = in, json.NewDecoder(out)
	if err := s.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	s.send(request)
	// If next waited forever, it ends here, because its program is killed.
	stop := time.AfterFunc(limit, func() { _ = s.cmd.Process.Kill() })
	r.Cleanup(func() { stop.Stop() })
	return s
}

func (s *stream) send(request proto.Message) {
	if _, err := io.WriteString(s.in, s.json(request)+"\n"); err != nil {
		s.Fatal(err)
	}
}

// next waits for the next frame and stores it in frame. At the end of the stream it returns false;
// an error of the stream fails the test.
func (s *stream) next(frame proto.Message) bool {
	var raw json.RawMessage
	if err := s.out.Decode(&raw); errors.Is(err, io.EOF) {
		if err := s.cmd.Wait(); err != nil {
			s.Fatalf("%s: %v\n%s", s.cmd, err, s.stderr.Bytes())
		}
		return false
	} else if err != nil {
		s.Fatal(err)
	}
	if err := protojson.Unmarshal(raw, frame); err != nil {
		s.Fatalf("the frame %s: %v", raw, err)
	}
	return true
}

// cancel ends a stream early, by an interrupt of its program, and waits for the program.
func (s *stream) cancel() {
	_ = s.cmd.Process.Signal(os.Interrupt)
	_ = s.cmd.Wait()
}

func (r *run) server(got *report) {
	var health struct {
		Status string `json:"status"`
	}
	text := command(r.T, root(), nil, r.path, r.args(r.to, "grpc.health.v1.Health/Check", "", "{}")...)
	if err := json.Unmarshal([]byte(text), &health); err != nil {
		r.Fatal(err)
	}
	got.Health = health.Status
	got.Services = strings.Fields(command(r.T, root(), nil, r.path, r.services(r.to)...))

	var info parleyv1.GetServerInfoResponse
	if f := r.call(servers+"GetServerInfo", r.to.weak, &parleyv1.GetServerInfoRequest{}, &info); f != nil {
		r.Fatalf("GetServerInfo: %+v", f)
	}
	got.Server = server{
		Version:         info.GetVersion() != "",
		MaxContentBytes: info.GetLimits().GetMaxContentBytes(),
		Queues:          slices.Contains(info.GetFeatures(), parleyv1.ServerFeature_SERVER_FEATURE_QUEUES),
	}
	create := &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: r.name, Partitions: 1}}
	var created parleyv1.CreateTopicResponse
	got.Denied = r.refused(admin+"CreateTopic", r.to.weak, create, &created)
	r.must(admin+"CreateTopic", create, &created)
	got.Partitions = int(created.GetTopic().GetPartitions())
	group := &parleyv1.CreateGroupRequest{Topic: r.name, Group: &parleyv1.Group{Name: r.name}}
	r.must(admin+"CreateGroup", group, &parleyv1.CreateGroupResponse{})
}

func (r *run) messages(got *report) {
	send := &parleyv1.SendMessageRequest{ChannelId: r.name, Content: "hello", ClientMsgId: "m-1"}
	var first, second parleyv1.SendMessageResponse
	r.must(messages+"SendMessage", send, &first)
	r.must(messages+"SendMessage", send, &second)
	got.Sent = sendResult{Seq: first.GetSeq(), Duplicate: first.GetDuplicate()}
	got.Repeated = sendResult{Seq: second.GetSeq(), Duplicate: second.GetDuplicate()}

	var listed parleyv1.ListMessagesResponse
	r.must(messages+"ListMessages", &parleyv1.ListMessagesRequest{ChannelId: r.name}, &listed)
	for _, m := range listed.GetMessages() {
		got.Listed = append(got.Listed, m.GetContent())
	}

	r.subscribe(got)

	var answer parleyv1.EditMessageResponse
	r.must(messages+"EditMessage", &parleyv1.EditMessageRequest{ChannelId: r.name, MsgId: first.GetMsgId(), Content: "hello again"}, &answer)
	got.Edited = edited{
		Content:    answer.GetMessage().GetContent(),
		Edited:     answer.GetMessage().GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_EDITED,
		ChangedSeq: answer.GetMessage().GetChangedSeq(),
	}
	got.Refused = r.refused(messages+"SendMessage", r.to.token, &parleyv1.SendMessageRequest{ChannelId: r.name}, &first)
}

func (r *run) subscribe(got *report) {
	s := r.open(messages+"Subscribe", &parleyv1.SubscribeRequest{
		Channels: []*parleyv1.ChannelPosition{{ChannelId: r.name, AfterSeq: new(int64)}},
	})
	_ = s.in.Close()
	var frame parleyv1.SubscribeResponse
	if !s.next(&frame) || frame.GetInfo() == nil {
		r.Fatalf("the first frame is %v", &frame)
	}
	got.Info = info{
		StreamID:  frame.GetInfo().GetStreamId() != "",
		Heartbeat: frame.GetInfo().GetHeartbeatInterval().AsDuration() > 0,
	}
	for sent := false; !sent && s.next(&frame); {
		for _, e := range frame.GetEvents().GetEvents() {
			kind := e.ProtoReflect().WhichOneof(e.ProtoReflect().Descriptor().Oneofs().ByName("event")).Name()
			got.Events = append(got.Events, event{
				Kind: string(kind), Seq: e.GetSeq(), FromSeq: e.GetFromSeq(),
				HeadSeq: e.GetState().GetHeadSeq(), Content: e.GetSent().GetContent(),
			})
			sent = sent || e.GetSent() != nil
		}
	}
	s.cancel()
}

func (r *run) presence() presence {
	var answer parleyv1.GetPresenceResponse
	r.must(online+"GetPresence", &parleyv1.GetPresenceRequest{UserIds: []string{"nobody"}}, &answer)
	if len(answer.GetPresence()) != 1 {
		r.Fatalf("GetPresence: %v", &answer)
	}
	s := r.open(online+"Connect", &parleyv1.ConnectRequest{
		Platform: parleyv1.Platform_PLATFORM_LINUX, DeviceId: r.name, Watch: []string{"nobody"},
	})
	_ = s.in.Close()
	var frame parleyv1.ConnectResponse
	if !s.next(&frame) || frame.GetInfo() == nil {
		r.Fatalf("the first frame is %v", &frame)
	}
	s.cancel()
	seen := presence{
		User: answer.GetPresence()[0].GetUserId(), Platforms: len(answer.GetPresence()[0].GetPlatforms()),
		StreamID: frame.GetInfo().GetStream().GetStreamId() != "", Login: frame.GetInfo().GetPresence().GetLoginToken() != "",
	}
	for _, u := range frame.GetInfo().GetPresence().GetPresence().GetUsers() {
		seen.Watched = append(seen.Watched, u.GetUserId())
	}
	return seen
}

func (r *run) produce(payload string) {
	var answer parleyv1.ProduceResponse
	r.must(queues+"Produce", &parleyv1.ProduceRequest{
		Topic: r.name, Messages: []*parleyv1.QueueMessage{{Payload: []byte(payload)}},
	}, &answer)
	if len(answer.GetResults()) != 1 || answer.GetResults()[0].GetProduced() == nil {
		r.Fatalf("produce: %v", &answer)
	}
}

func (r *run) consumer() *parleyv1.ConsumeRequest {
	return &parleyv1.ConsumeRequest{Topics: []string{r.name}, Group: r.name, Consumer: "line", Concurrency: 10}
}

// consume produces a job, consumes it, acknowledges it with a unary call, and leaves.
func (r *run) consume() *job {
	r.produce("one")
	s := r.open(queues+"Consume", r.consumer())
	_ = s.in.Close()
	var seen *job
	var id string
	for frame := new(parleyv1.ConsumeResponse); s.next(frame); {
		if frame.GetStarted() != nil {
			id = frame.GetStarted().GetSessionId()
		}
		for _, d := range frame.GetDeliveries().GetDeliveries() {
			seen = r.acknowledge(id, d)
			r.must(queues+"Leave", &parleyv1.LeaveRequest{SessionId: id}, &parleyv1.LeaveResponse{})
		}
	}
	return seen
}

// receive produces a job, receives it without a stream, and acknowledges it.
func (r *run) receive() *job {
	r.produce("three")
	var got parleyv1.ReceiveResponse
	r.must(queues+"Receive", &parleyv1.ReceiveRequest{Topic: r.name, Group: r.name, Wait: durationpb.New(receiveWait)}, &got)
	if len(got.GetDeliveries()) != 1 {
		r.Fatalf("receive: %v", &got)
	}
	return r.acknowledge(got.GetSessionId(), got.GetDeliveries()[0])
}

// acknowledge acknowledges a delivery of a session with a unary call.
func (r *run) acknowledge(session string, d *parleyv1.Delivery) *job {
	var ack parleyv1.AckResponse
	r.must(queues+"Ack", &parleyv1.AckRequest{SessionId: session, Tokens: []string{d.GetToken()}}, &ack)
	return &job{Payload: string(d.GetPayload()), Attempt: d.GetAttempt(), Acked: done(ack.GetResults())}
}

// consumeBothWays produces a job, consumes and acknowledges it on one bidirectional stream, and
// leaves.
func (r *run) consumeBothWays() *job {
	r.produce("two")
	s := r.open(queues+"StreamingConsume", &parleyv1.StreamingConsumeRequest{
		Request: &parleyv1.StreamingConsumeRequest_Start{Start: r.consumer()},
	})
	var seen *job
	for frame := new(parleyv1.StreamingConsumeResponse); s.next(frame); {
		for _, d := range frame.GetConsume().GetDeliveries().GetDeliveries() {
			seen = &job{Payload: string(d.GetPayload()), Attempt: d.GetAttempt()}
			s.send(&parleyv1.StreamingConsumeRequest{RequestId: 7, Request: &parleyv1.StreamingConsumeRequest_Ack{
				Ack: &parleyv1.AckRequest{Tokens: []string{d.GetToken()}},
			}})
		}
		if a := frame.GetResults(); a.GetRequestId() == 7 {
			seen.Acked = a.GetError() == nil && done(a.GetResults())
			s.send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Leave{Leave: &parleyv1.LeaveRequest{}}})
			_ = s.in.Close()
		}
	}
	return seen
}

// done reports whether there is exactly one result, and it has no error.
func done(results []*parleyv1.SettleResult) bool {
	return len(results) == 1 && results[0].GetError() == nil
}

// acked waits until the group has acknowledged want messages, at most for patience. It returns how
// many it has acknowledged.
func (r *run) acked(want int64) int64 {
	for began := time.Now(); ; {
		var stats parleyv1.GetTopicStatsResponse
		r.must(admin+"GetTopicStats", &parleyv1.GetTopicStatsRequest{Topic: r.name}, &stats)
		groups := stats.GetTotal().GetGroups()
		if len(groups) != 1 {
			r.Fatalf("the topic's groups: %v", groups)
		}
		if seen := groups[0].GetAcked(); seen == want || time.Since(began) > patience {
			return seen
		}
	}
}
