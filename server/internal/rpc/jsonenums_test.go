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
)

// mapped has what no message of the schema has: a map of enums, and a value whose JSON has members as it likes.
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

func TestUnknownEnumNames(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, json string
		into       proto.Message
		// want is what the error says; empty if there is none.
		want string
	}{
		{"a member", `{"topic":"jobs","order":"OLDEST"}`, &parleyv1.ListPendingRequest{}, `order: PendingOrder has no value "OLDEST"`},
		{"inside", `{"topic":{"name":"a","partitioner":"HASH"}}`, &parleyv1.CreateTopicRequest{}, `topic.partitioner: Partitioner has no value "HASH"`},
		{"behind an unknown field", `{"a":{},"topic":{"b":1,"partitioner":""}}`, &parleyv1.CreateTopicRequest{}, `topic.partitioner: `},
		{
			"in a list of messages, by the schema's name", `{"events":[{"seq":"1"},{"channel_id":"a","gap":{"reason":"NEW"}}]}`,
			&parleyv1.SubscribeResponse{}, `events[1].gap.reason: GapReason has no value "NEW"`,
		},
		{
			"in a list", `{"targets":["TARGET_TYPE_FILE","TARGET_TYPE_DOG"]}`, &descriptorpb.FieldOptions{},
			`targets[1]: OptionTargetType has no value "TARGET_TYPE_DOG"`,
		},
		{"known", `{"topic":{"partitioner":"PARTITIONER_ROUND_ROBIN"},"new":[{"x":"y"}]}`, &parleyv1.CreateTopicRequest{}, ""},
		{"a number", `{"topic":{"partitioner":9},"new":1}`, &parleyv1.CreateTopicRequest{}, ""}, // the schema's rules judge it
		{"null", `{"topic":{"partitioner":null},"order":"X"}`, &parleyv1.CreateTopicRequest{}, ""},
		{
			"what has a form of its own", `{"topic":{"retention":{"maxAge":"3s"}},"updateMask":"retry","new":"X"}`,
			&parleyv1.UpdateTopicRequest{}, "",
		},
		{"in a map", `{"levels":{"value":"LOW","a":"HIGH"}}`, mappedMessage(t), `levels["a"]: Level has no value "HIGH"`},
		{"in what may be anything", `{"any":{"nullValue":"X","structValue":{"a":1}},"new":1}`, mappedMessage(t), ""},
		{"the keys of a map", `{"metadata":{"order":"X","status":"Y"},"new":"X"}`, &parleyv1.Message{}, ""},
	} {
		err := jsonCodec{"json", newJSONEvents()}.Unmarshal([]byte(row.json), row.into)
		if (err == nil) != (row.want == "") || err != nil && !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("%s: got error %v, want %q", row.name, err, row.want)
		}
	}
}
