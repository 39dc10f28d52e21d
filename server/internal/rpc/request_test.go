package rpc

import (
	"context"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/queue/inspect"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Every list call lowers a page_size above its maximum and keeps a smaller one. It also keeps a
// negative one, which the schema's rules refuse.
func TestPageSizes(t *testing.T) {
	t.Parallel()
	lists := 0
	for _, method := range api.all {
		fd := method.descriptor.Input().Fields().ByName("page_size")
		if fd == nil {
			continue
		}
		lists++
		largest := int32(1000)
		switch method.descriptor.Name() {
		case "ListChannels", "ListSessions":
			largest = 200
		case "ListApiKeys":
			largest = 100
		}
		g := gate{method: method, cfg: &Config{}}
		typ, err := protoregistry.GlobalTypes.FindMessageByName(method.descriptor.Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		for size, want := range map[int32]int32{
			-1: -1, 0: 0, 1: 1, largest - 1: largest - 1, largest: largest, largest + 1: largest, 1e9: largest, 1<<31 - 1: largest,
		} {
			m := typ.New()
			m.Set(fd, protoreflect.ValueOfInt32(size))
			if err := g.checkLimits(m.Interface()); err != nil {
				t.Error(err)
			}
			if got := int32(m.Get(fd).Int()); got != want {
				t.Errorf("%s: a page of %d became one of %d, want %d", method.procedure, size, got, want)
			}
		}
	}
	if lists != 13 {
		t.Errorf("%d lists have pages", lists)
	}
}

// The domain's list functions are never called with more than the maximum page size.
func TestPageSizeIsLowered(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	sizes := make(chan int, 10)
	b.messages.list = func(_ context.Context, q message.ListQuery) (message.Page, error) {
		sizes <- q.PageSize
		return message.Page{}, nil
	}
	b.channels.members = func(_ context.Context, _ string, n int, _ string) (channel.MemberPage, error) {
		sizes <- n
		return channel.MemberPage{}, nil
	}
	b.channels.mine = func(_ context.Context, n int, _ string) (channel.UserChannelPage, error) {
		sizes <- n
		return channel.UserChannelPage{}, nil
	}
	b.topics.list = func(n int) ([]*qlog.Topic, bool, error) {
		sizes <- n
		return nil, false, nil
	}
	b.inspector.jobs = func(n int) ([]inspect.Job, string, error) {
		sizes <- n
		return nil, "", nil
	}
	b.inspector.letters = func(n int) ([]inspect.Letter, string, error) {
		sizes <- n
		return nil, "", nil
	}
	b.inspector.consumers = func(n int) ([]inspect.Consumer, string, []string, error) {
		sizes <- n
		return nil, "", nil, nil
	}
	token := b.mintAs(operator("ada"))
	const most = 100_000
	for i, p := range protocols {
		messages, admin, ctx := b.client(i, b.token), b.adminClient(i, token), t.Context()
		for name, row := range map[string]struct {
			want int
			call func() error
		}{
			"ListMessages": {1000, func() error {
				return second(messages.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: "a", PageSize: most}))
			}},
			"ListMembers": {1000, func() error {
				return second(messages.ListMembers(ctx, &parleyv1.ListMembersRequest{ChannelId: "a", PageSize: most}))
			}},
			"ListChannels": {200, func() error {
				return second(messages.ListChannels(ctx, &parleyv1.ListChannelsRequest{PageSize: most}))
			}},
			"ListTopics": {1000, func() error {
				return second(admin.ListTopics(ctx, &parleyv1.ListTopicsRequest{PageSize: most}))
			}},
			"ListJobs": {1000, func() error {
				return second(admin.ListJobs(ctx, &parleyv1.ListJobsRequest{
					Topic: "t", Group: "g", State: parleyv1.JobState_JOB_STATE_WAITING, PageSize: most,
				}))
			}},
			"ListConsumers": {1000, func() error {
				return second(admin.ListConsumers(ctx, &parleyv1.ListConsumersRequest{Topic: "t", Group: "g", PageSize: most}))
			}},
			"ListDeadLetters": {1000, func() error {
				return second(admin.ListDeadLetters(ctx, &parleyv1.ListDeadLettersRequest{Topic: "t", PageSize: most}))
			}},
		} {
			if err := row.call(); err != nil {
				t.Fatalf("%s, %s: %v", p.name, name, err)
			}
			if got := <-sizes; got != row.want {
				t.Errorf("%s, %s: a page of %d is asked for, want %d", p.name, name, got, row.want)
			}
		}
	}
}
