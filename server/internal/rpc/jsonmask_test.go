package rpc

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// In JSON a field mask and its paths may be in snake case or in camel case.
func TestFieldMasks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{"updateMask":"max_messages_per_partition"}`:           {"max_messages_per_partition"},
		`{"update_mask":"maxMessagesPerPartition"}`:             {"max_messages_per_partition"},
		"{\"update_mask\" :\n \"drop_oldest,retry\"}":           {"drop_oldest", "retry"},
		`{"updateMask":"dropOldest,idempotency_window"}`:        {"drop_oldest", "idempotency_window"},
		`{"updateMask":"retry.max_attempts"}`:                   {"retry.max_attempts"},
		`{"updateMask":""}`:                                     nil,
		`{"topic":{"name":"\"updateMask\":\"drop_oldest\""}}`:   nil,
		`{"topic":{"name":"update_mask"},"updateMask":"a_b_c"}`: {"a_b_c"},
		`{"updateMask":"drop__oldest"}`:                         {"refused"},
		`{"updateMask":"_drop"}`:                                {"_drop"}, // not a setting
		`{"updateMask":"drop_"}`:                                {"refused"},
		`{"updateMask":"drop_Oldest"}`:                          {"refused"},
		`{"updateMask":"drop_oldest","update_mask":"retry"}`:    {"refused"},
		`{"updateMask":["drop_oldest"]}`:                        {"refused"},
	} {
		before := []byte(text)
		var m parleyv1.UpdateTopicRequest
		got := []string{"refused"}
		if decodeJSON(before, &m) == nil {
			got = m.GetUpdateMask().GetPaths()
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
		if string(before) != text {
			t.Errorf("%s: became %s", text, before)
		}
		if m.GetTopic().GetName() == `"updateMask":"dropOldest"` {
			t.Errorf("%s: other text was changed: %v", text, &m)
		}
	}
	// Positions in errors refer to the text that was sent.
	f := decodeJSON([]byte(`{"updateMask":"max_messages_per_partition","topic":5}`), &parleyv1.UpdateTopicRequest{})
	if want := "malformed JSON: line 1, column 52: syntax error"; f == nil || f.Msg != want {
		t.Errorf("got %v, want %s", f, want)
	}
	if data := []byte(`{"content":"x"}`); &camelMasks(data, (&parleyv1.SendMessageRequest{}).ProtoReflect().Descriptor().FullName())[0] != &data[0] {
		t.Error("a request without a mask was copied")
	}
}

// TestRequestsWithFieldMasks checks that masks has every request with a field mask.
func TestRequestsWithFieldMasks(t *testing.T) {
	t.Parallel()
	requests := []proto.Message{
		&parleyv1.UpdateChannelRequest{}, &parleyv1.UpdateTopicRequest{}, &parleyv1.UpdateGroupRequest{},
	}
	for _, m := range requests {
		if masks[m.ProtoReflect().Descriptor().FullName()] == nil {
			t.Errorf("%T has a mask that is not known", m)
		}
	}
	if len(masks) != len(requests) {
		t.Errorf("%d requests have masks", len(masks))
	}
}
