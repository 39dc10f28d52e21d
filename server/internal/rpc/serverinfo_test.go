package rpc

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// ruleOf returns the schema's maximum for a field: bytes of a string or bytes field, items of a
// list.
func ruleOf(t *testing.T, m proto.Message, field protoreflect.Name) int32 {
	t.Helper()
	fd := m.ProtoReflect().Descriptor().Fields().ByName(field)
	rules, err := protovalidate.ResolveFieldRules(fd)
	if err != nil {
		t.Fatal(err)
	}
	most := max(rules.GetString().GetMaxBytes(), rules.GetBytes().GetMaxLen(), rules.GetRepeated().GetMaxItems())
	if most == 0 {
		t.Fatalf("the schema has no limit for %s", fd.FullName())
	}
	return int32(most)
}

func (b *bundle) serverClient(protocol int, token string) parleyv1connect.ServerServiceClient {
	hc, url, opts := b.over(protocol, token)
	return parleyv1connect.NewServerServiceClient(hc, url, opts...)
}

// Any valid token can call GetServerInfo. The limits are those of the schema and of the
// configuration.
func TestGetServerInfo(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) {
		s.cfg.ChannelsPerStream, s.cfg.HeartbeatInterval = 77, 7*time.Second
	})
	want := &parleyv1.GetServerInfoResponse{
		Version: "1.2.3",
		Limits: &parleyv1.ServerLimits{
			MaxContentBytes:        ruleOf(t, &parleyv1.SendMessageRequest{}, "content"),
			MaxSessionContentBytes: 128 << 10,
			MaxBatchMessages:       ruleOf(t, &parleyv1.SendMessagesRequest{}, "messages"),
			MaxPayloadBytes:        ruleOf(t, &parleyv1.QueueMessage{}, "payload"),
			MaxProduceMessages:     ruleOf(t, &parleyv1.ProduceRequest{}, "messages"),
			MaxChannelsPerStream:   77,
			MaxStreamsPerSubject:   11,
			MaxConsumersPerSubject: 12,
			HeartbeatInterval:      durationpb.New(7 * time.Second),
		},
		Features: []parleyv1.ServerFeature{parleyv1.ServerFeature_SERVER_FEATURE_QUEUES, parleyv1.ServerFeature_SERVER_FEATURE_REFLECTION},
	}
	token := b.mintAs(&ident.Principal{Subject: "eve"}) // without capabilities
	for i, p := range protocols {
		got, err := b.serverClient(i, token).GetServerInfo(t.Context(), &parleyv1.GetServerInfoRequest{})
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", p.name, diff)
		}
		if _, err := b.serverClient(i, "").GetServerInfo(t.Context(), &parleyv1.GetServerInfoRequest{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s: without a token: %v", p.name, err)
		}
	}
}

// A server without reflection does not list it among its features.
func TestGetServerInfoWithoutReflection(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.cfg.Reflection = false })
	for i, p := range protocols {
		got, err := b.serverClient(i, b.mintAs(operator("ada"))).GetServerInfo(t.Context(), &parleyv1.GetServerInfoRequest{})
		if err != nil || !slices.Equal(got.GetFeatures(), []parleyv1.ServerFeature{parleyv1.ServerFeature_SERVER_FEATURE_QUEUES}) {
			t.Errorf("%s: %v, %v", p.name, got, err)
		}
	}
}

// A method of AdminService requires the action read of the capability `admin` if it has no side
// effects, and write otherwise. The refusal names the missing action.
func TestAdminActions(t *testing.T) {
	t.Parallel()
	admit := func(method protoreflect.MethodDescriptor, actions ...ident.Action) error {
		return api.forProcedure("/"+string(method.Parent().FullName())+"/"+string(method.Name())).authorize(&ident.Principal{Subject: "a", Admin: actions}, nil)
	}
	reads := []string{"GetTopic", "ListTopics", "GetTopicStats", "GetGroup", "ListGroups", "ListPartitions", "GetJob", "ListJobs", "ListConsumers", "ListDeadLetters", "GetErasure", "ListErasures", "ListRevocations", "ListApiKeys"}
	methods := parleyv1.File_parley_v1_admin_proto.Services().ByName("AdminService").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		name := string(m.Name())
		right, wrong := ident.Write, ident.Read
		if slices.Contains(reads, name) {
			right, wrong = wrong, right
		}
		if err := admit(m, right); err != nil {
			t.Errorf("%s with %s: %v", name, right, err)
		}
		if err := admit(m, ident.AdminActions...); err != nil {
			t.Errorf("%s with both: %v", name, err)
		}
		for _, actions := range [][]ident.Action{{wrong}, nil, {"reed", "*", "all", "admin"}} {
			err := admit(m, actions...)
			want := `the token has no capability "admin" with the action "` + string(right) + `"`
			if !fault.Is(err, fault.CapabilityMissing) || err.Error() != want {
				t.Errorf("%s with %v: %v, want %s", name, actions, err, want)
			}
		}
	}
}

// Over the wire, an operator with only the action read can make the calls without side effects, and
// no others.
func TestReadOnlyOperator(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.topics.get = func(name string) (*qlog.Topic, error) { return &qlog.Topic{Name: name}, nil }
	b.topics.remove = func(string) error { return nil }
	read := b.mintAs(&ident.Principal{Subject: "ada", Admin: []ident.Action{ident.Read}})
	write := b.mintAs(&ident.Principal{Subject: "ada", Admin: []ident.Action{ident.Write}})
	for i, p := range protocols {
		get := func(token string) error {
			return second(b.adminClient(i, token).GetTopic(t.Context(), &parleyv1.GetTopicRequest{Topic: "t"}))
		}
		remove := func(token string) error {
			return second(b.adminClient(i, token).DeleteTopic(t.Context(), &parleyv1.DeleteTopicRequest{Topic: "t", Confirm: "t"}))
		}
		if err := errors.Join(get(read), remove(write)); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		for err, action := range map[error]string{get(write): `"read"`, remove(read): `"write"`} {
			if refusedAs(t, err) != `permission_denied CAPABILITY_MISSING "" 0` || !strings.Contains(err.Error(), action) {
				t.Errorf("%s: %v, want one that names %s", p.name, err, action)
			}
		}
	}
}
