package rpc

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/queue"
)

func selectIDs(ids ...string) *parleyv1.DeadLetterSelection {
	return &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_Ids{Ids: &parleyv1.DeadLetterIds{DeadLetterIds: ids}}}
}

func selectGroup(group string) *parleyv1.DeadLetterSelection {
	return &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_Group{Group: group}}
}

func selectAll() *parleyv1.DeadLetterSelection {
	return &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_All{All: &parleyv1.AllDeadLetters{}}}
}

// A request that omits a selection, an operation or a position is refused, and never means all of
// them. The fake Admin panics if it is called.
func TestAdminRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.eachAdmin(func(t *testing.T, c parleyv1connect.AdminServiceClient) {
		ctx := t.Context()
		refused := func(want string, errs ...error) {
			t.Helper()
			for i, err := range errs {
				if got := refusedAs(t, err); got != "invalid_argument INVALID_FIELD "+want {
					t.Errorf("%d: got %s, want %s", i, got, want)
				}
			}
		}
		for want, s := range map[string]*parleyv1.DeadLetterSelection{
			`"selection" 0`:                        nil,
			`"selection.selection" 0`:              {},
			`"selection.ids.dead_letter_ids" 1`:    selectIDs(),
			`"selection.ids.dead_letter_ids" 1000`: selectIDs(make([]string, 1001)...),
			`"selection.ids.dead_letter_ids[1]" 0`: selectIDs("0-1-1", "0-0"),
			`"selection.group" 0`:                  selectGroup("a:b"),
		} {
			refused(want,
				second(c.PurgeDeadLetters(ctx, &parleyv1.PurgeDeadLettersRequest{Topic: "t", Selection: s, Confirm: "t"})),
				second(c.ReplayDeadLetters(ctx, &parleyv1.ReplayDeadLettersRequest{Topic: "t", Selection: s})))
		}
		refused(`"selection.group" 0`,
			second(c.PurgeDeadLetters(ctx, &parleyv1.PurgeDeadLettersRequest{Topic: "t", Selection: selectGroup(""), Confirm: "t"})))
		refused(`"limit" 10000`, second(c.ReplayDeadLetters(ctx, &parleyv1.ReplayDeadLettersRequest{Topic: "t", Selection: selectAll(), Limit: 10_001})))
		refused(`"partition" 255`, second(c.ReplayDeadLetters(ctx, &parleyv1.ReplayDeadLettersRequest{Topic: "t", Selection: selectAll(), Partition: proto.Int32(256)})))
		refused(`"confirm" 64`, second(c.DeleteTopic(ctx, &parleyv1.DeleteTopicRequest{Topic: "t", Confirm: fmt.Sprintf("%065d", 0)})))
		refused(`"keep" 0`, second(c.TrimTopic(ctx, &parleyv1.TrimTopicRequest{Topic: "t"})))

		type op = parleyv1.TopicOperation
		for want, all := range map[string][][]op{
			`"operations" 1`:    {nil, {}},
			`"operations[0]" 0`: {{0}, {9}},
			`"operations[1]" 0`: {{1, 0}},
			`"operations" 0`:    {{1, 1}},
			`"operations" 2`:    {{1, 2, 1}},
		} {
			for _, operations := range all {
				refused(want,
					second(c.PauseTopic(ctx, &parleyv1.PauseTopicRequest{Topic: "t", Operations: operations})),
					second(c.ResumeTopic(ctx, &parleyv1.ResumeTopicRequest{Topic: "t", Operations: operations})))
			}
		}
		for want, start := range map[string]*parleyv1.GroupStart{
			`"start.start" 0`:    {},
			`"start.position" 0`: {Start: &parleyv1.GroupStart_Position{}},
		} {
			refused(want,
				second(c.SeekGroup(ctx, &parleyv1.SeekGroupRequest{Topic: "t", Group: "g", Start: start})),
				second(c.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: "t", Group: "g", Start: start})))
		}
		refused(`"start" 0`, second(c.SeekGroup(ctx, &parleyv1.SeekGroupRequest{Topic: "t", Group: "g"})))
	})
}

// A JSON request with a mistyped name is refused and does nothing.
func TestAdminJSON(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var did []string
	b.admin.remove = func(call, topic, group, _ string, ids []string) error {
		did = append(did, fmt.Sprint(call, " ", topic, group, ids))
		return nil
	}
	b.admin.pause = func(name string, produce, consume bool) (*queue.Topic, error) {
		did = append(did, fmt.Sprint("Pause ", name, produce, consume))
		return &queue.Topic{Name: name}, nil
	}
	token := b.mintAs(operator("ada"))
	post := func(call, body string) (int, string) {
		t.Helper()
		resp, text := b.raw(b.h1, http.MethodPost, "/parley.v1.AdminService/"+call, http.Header{
			"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"},
		}, strings.NewReader(body))
		return resp.StatusCode, text
	}
	for _, tc := range []struct{ call, body, did string }{
		{"PurgeDeadLetters", `{"topic":"t","confirm":"t","selection":{"all":{}}}`, "Purge t[]"},
		{"PurgeDeadLetters", `{"topic":"t","confirm":"t","selection":{"group":"g"}}`, "Purge tg[]"},
		{"PurgeDeadLetters", `{"topic":"t","confirm":"t","selection":{"ids":{"deadLetterIds":["0-1-1"]}}}`, "Purge t[0-1-1]"},
		{"PurgeDeadLetters", `{"topic":"t","confirm":"t","selection":{"ids":{"dead_letter_ids":["0-1-1"]}}}`, "Purge t[0-1-1]"},
		{"PurgeDeadLetters", `{"topic":"t","confirm":"t","selection":{"ids":{"deadLetterId":["0-1-1"]}}}`, ""},
		{"PurgeDeadLetters", `{"topic":"t","confirm":"t","deadLetterIds":["0-1-1"]}`, ""},
		{"PurgeDeadLetters", `{"topic":"t","confirm":"t","selection":{"all":{},"deadLetterIds":["0-1-1"]}}`, ""},
		{"PurgeDeadLetters", `{"topic":"t","confirm":"t","selection":{"all":{}},"groups":"g"}`, ""},
		{"PurgeDeadLetters", `{"topic":"t","confirm":"t","selection":{"all":{"group":"g"}}}`, ""},
		{"PurgeDeadLetters", `{"topic":"t","confirm":"t","selection":{"all":null}}`, ""},
		{"PurgeDeadLetters", `{"topic":"t","confirm":"t","selection":{"all":{},"group":"g"}}`, ""},
		{"PauseTopic", `{"topic":"t","operations":["TOPIC_OPERATION_PRODUCE"]}`, "Pause ttrue false"},
		{"PauseTopic", `{"topic":"t","produce_only":true}`, ""},
		{"PauseTopic", `{"topic":"t","operations":["TOPIC_OPERATION_PRODUCE"],"produce_onli":true}`, ""},
		{"PauseTopic", `{"topic":"t","operations":["TOPIC_OPERATION_PRODUCE","TOPIC_OPERATION_CONSUM"]}`, ""},
	} {
		did = nil
		status, text := post(tc.call, tc.body)
		if tc.did == "" {
			if status != http.StatusBadRequest || len(did) > 0 {
				t.Errorf("%s %s is answered %d %s, and did %q", tc.call, tc.body, status, text, did)
			}
			continue
		}
		if status != http.StatusOK || !slices.Equal(did, []string{tc.did}) {
			t.Errorf("%s %s is answered %d %s, and did %q", tc.call, tc.body, status, text, did)
		}
	}
}
