package rpc

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/structpb" // mapped imports it

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
)

// mapped is a schema file whose message has fields that no message of the API has: a map of enums,
// and a value whose JSON may have any members.
const mapped = `name: "mapped.proto" dependency: "google/protobuf/struct.proto" syntax: "proto3"
enum_type { name: "Level" value { name: "LOW" number: 0 } }
message_type {
  name: "Mapped"
  field { name: "levels" number: 1 type: TYPE_MESSAGE type_name: "Mapped.LevelsEntry" label: LABEL_REPEATED }
  field { name: "any" number: 2 type: TYPE_MESSAGE type_name: "google.protobuf.Value" label: LABEL_OPTIONAL }
  nested_type {
    name: "LevelsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_ENUM type_name: "Level" label: LABEL_OPTIONAL }
  }
}`

func mappedMessage(t *testing.T) proto.Message {
	t.Helper()
	var file descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(mapped), &file); err != nil {
		t.Fatal(err)
	}
	fd, err := protodesc.NewFile(&file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return dynamicpb.NewMessage(fd.Messages().Get(0))
}

// In JSON an unknown name of an enum value is an error that names the field, in every request. An
// unknown field is an error in requests that change something.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 100)
	for _, row := range []struct {
		name, json string
		into       proto.Message
		// want is the expected error; empty if the request is accepted.
		want string
	}{
		{"a member", `{"topic":"jobs","state":"OLDEST"}`, &parleyv1.ListJobsRequest{}, `state: JobState has no value "OLDEST"`},
		{"inside", `{"topic":{"name":"a","partitioner":"HASH"}}`, &parleyv1.CreateTopicRequest{}, `topic.partitioner: Partitioner has no value "HASH"`},
		{"behind an unknown field", `{"a":{},"state":""}`, &parleyv1.ListJobsRequest{}, `state: JobState has no value ""`},
		{
			"in a list of messages, by the schema's name", `{"events":{"events":[{"seq":"1"},{"channel_id":"a","gap":{"reason":"NEW"}}]}}`,
			&parleyv1.SubscribeResponse{}, `events.events[1].gap.reason: GapReason has no value "NEW"`,
		},
		{
			"in a list", `{"targets":["TARGET_TYPE_FILE","TARGET_TYPE_DOG"]}`, &descriptorpb.FieldOptions{},
			`targets[1]: OptionTargetType has no value "TARGET_TYPE_DOG"`,
		},
		{"known", `{"state":"JOB_STATE_DEAD","new":[{"x":"y"}]}`, &parleyv1.ListJobsRequest{}, ""},
		{"a number", `{"state":9,"new":1}`, &parleyv1.ListJobsRequest{}, ""}, // the schema's rules check it
		{"null", `{"state":null,"partitioner":"X"}`, &parleyv1.ListJobsRequest{}, ""},
		{"of a change", `{"topic":{"partitioner":null,"retention":{"maxAge":"3s"}},"updateMask":"retention"}`, &parleyv1.UpdateTopicRequest{}, ""},
		{"a field of a change", `{"confirm":"dl","deadLetterId":["x"]}`, &parleyv1.PurgeDeadLettersRequest{}, "deadLetterId: unknown field"},
		{"a field that is null", `{"isAdmin":null}`, &parleyv1.SendMessageRequest{}, "isAdmin: unknown field"},
		{"another case of letters", `{"Content":"x"}`, &parleyv1.SendMessageRequest{}, "Content: unknown field"},
		{"a field inside", `{"topic":{"name":"a","retention":{"max_ages":1}}}`, &parleyv1.CreateTopicRequest{}, "topic.retention.max_ages: unknown field"},
		{"a field in a list", `{"messages":[{"content":"x"},{"contents":"x"}]}`, &parleyv1.SendMessagesRequest{}, "messages[1].contents: unknown field"},
		{"a field of a stream's request", `{"requestId":1,"nack":{"items":[{"token":"t","retry":{"delays":"1s"}}]}}`, &parleyv1.StreamingConsumeRequest{}, "nack.items[0].retry.delays: unknown field"},
		{"a field of Consume", `{"topic":"a"}`, &parleyv1.ConsumeRequest{}, "topic: unknown field"},
		{"a field of Subscribe", `{"channel":"a"}`, &parleyv1.SubscribeRequest{}, ""},
		{"a field of a read", `{"topic":"a","topics":["b"]}`, &parleyv1.GetTopicRequest{}, ""},
		{"a long name", `{"` + long + `":1}`, &parleyv1.SendMessageRequest{}, strings.Repeat("ü", 32) + "…: unknown field"},
		{"a long name of a value", `{"state":"` + long + `"}`, &parleyv1.ListJobsRequest{}, `state: JobState has no value "` + strings.Repeat("ü", 32) + `…"`},
		{"a field that is not one of the JSON form's", `{"updateMask":{"paths":["retry"]}}`, &parleyv1.UpdateTopicRequest{}, "malformed JSON: line 1, column 15: syntax error"},
		{"in a map", `{"levels":{"value":"LOW","a":"HIGH"}}`, mappedMessage(t), `levels["a"]: Level has no value "HIGH"`},
		{"in what may be anything", `{"any":{"nullValue":"X","structValue":{"a":1}},"new":1}`, mappedMessage(t), ""},
		{"the keys of a map", `{"metadata":{"order":"X","status":"Y"}}`, &parleyv1.SendMessageRequest{}, ""},
	} {
		got := ""
		f := decodeJSON([]byte(row.json), row.into)
		if f != nil {
			got = f.Msg
			field, says, _ := strings.Cut(f.Msg, ": ")
			want := fault.InvalidField
			if says == "unknown field" || field == "malformed JSON" {
				want = fault.MalformedRequest
			}
			if field == "malformed JSON" {
				field = ""
			}
			if f.Kind != fault.InvalidArgument || f.Reason != want || f.Field != field {
				t.Errorf("%s: got %+v", row.name, f)
			}
		}
		if got != row.want {
			t.Errorf("%s: got %q, want %q", row.name, got, row.want)
		}
	}
}

// JSON requests must not have unknown fields if the schema does not declare their calls free of
// side effects. Subscribe is the one exception.
func TestStrictRequests(t *testing.T) {
	t.Parallel()
	reads := map[string]bool{"Subscribe": true, "GetServerInfo": true}
	for _, m := range api.all {
		name := string(m.descriptor.Name())
		read := reads[name] || strings.HasPrefix(name, "List") || strings.HasPrefix(name, "Get")
		if m.strict() == read {
			t.Errorf("%s: strict is %v", name, !read)
		}
	}
}
