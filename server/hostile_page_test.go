package server_test

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// TestHostilePageSizes checks, on every list and in every dialect, that a page size above the limit
// is accepted. rpc's TestPageSizes checks that the page is then of the largest size.
func TestHostilePageSizes(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	ctx, admin := t.Context(), g.QueueAdmin(g.Token)
	if _, err := admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: "jobs", Group: &parleyv1.Group{Name: "g"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.tester().CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: "room"}); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int32{1 << 30, 1<<31 - 1, 1001, 201} {
		for procedure, request := range map[string]proto.Message{
			listMessages:  &parleyv1.ListMessagesRequest{ChannelId: "room", PageSize: size},
			listMembers:   &parleyv1.ListMembersRequest{ChannelId: "room", PageSize: size},
			listChannels:  &parleyv1.ListChannelsRequest{PageSize: size},
			listTopics:    &parleyv1.ListTopicsRequest{PageSize: size},
			listJobs:      &parleyv1.ListJobsRequest{Topic: "jobs", Group: "g", PageSize: size},
			listConsumers: &parleyv1.ListConsumersRequest{Topic: "jobs", Group: "g", PageSize: size},
			listLetters:   &parleyv1.ListDeadLettersRequest{Topic: "jobs", PageSize: size},
		} {
			l := line{procedure: procedure, message: request}
			for _, d := range l.dialects() {
				if a := g.call(&l, d, g.Token); a.code != "ok" {
					t.Errorf("%s, %s of %d: answered %s, %q", d.name, procedure, size, a.code, a.message)
				}
			}
		}
	}
}

// TestHostileGETResponsesAreNotCached checks that every answer to a GET forbids caches to store it.
func TestHostileGETResponsesAreNotCached(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	for path, status := range map[string]int{
		"ListChannels?connect=v1&encoding=json&message={}":                          http.StatusOK,
		"ListMessages?connect=v1&encoding=json&message={}":                          http.StatusBadRequest,
		"ListMessages?connect=v1&encoding=json&message=%7B":                         http.StatusBadRequest,
		"ListMessages?connect=v1&encoding=json":                                     http.StatusBadRequest,
		"ListMessages?connect=v2&encoding=json&message={}":                          http.StatusBadRequest,
		"SendMessage?connect=v1&encoding=json&message={}":                           http.StatusMethodNotAllowed,
		"DropTables?connect=v1&encoding=json&message={}":                            http.StatusNotFound,
		"ListMessages?connect=v1&encoding=yaml&message={}":                          http.StatusUnsupportedMediaType,
		"GetMessage?connect=v1&encoding=json&message=" + strings.Repeat("x", 2<<10): http.StatusBadRequest,
	} {
		for _, token := range []string{g.Token, ""} {
			l := line{method: http.MethodGet, path: "/parley.v1.MessageService/" + path, message: good()}
			req := g.request(&l, &dialects[0], token)
			resp, err := g.h1.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			want := status
			if token == "" && status != http.StatusNotFound {
				want = http.StatusUnauthorized
			}
			if got := resp.Header.Get("Cache-Control"); got != "no-store" || resp.StatusCode != want {
				t.Errorf("%.60s: %d with %q, want %d", path, resp.StatusCode, got, want)
			}
		}
	}
}
