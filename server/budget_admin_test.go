package server_test

import (
	"fmt"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

const (
	// manyGroups is how many consumer groups the topic wide has.
	manyGroups = 10
	// manyTopics is how many topics there are: a page of them, and more.
	manyTopics = 1200
)

// wideBudgets returns the rows of AdminService about the topic wide, which has 256 partitions,
// 10 groups and about 5,000 messages.
func (r *budgetRig) wideBudgets() []budgetRow {
	ctx := r.t.Context()
	pausing := func(paused bool) func(int) (proto.Message, error) {
		return func(int) (proto.Message, error) {
			return answered(r.topics.SetTopicPaused(ctx, &parleyv1.SetTopicPausedRequest{Topic: "wide", Paused: paused}))
		}
	}
	pausingGroup := func(paused bool) func(int) (proto.Message, error) {
		return func(int) (proto.Message, error) {
			return answered(r.topics.SetGroupPaused(ctx, &parleyv1.SetGroupPausedRequest{Topic: "wide", Group: "group-00", Paused: paused}))
		}
	}
	return append([]budgetRow{
		{name: "GetTopic, 10 groups", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.topics.GetTopic(ctx, &parleyv1.GetTopicRequest{Topic: "wide"}))
		}},
		{name: "RepairTopic, 256 partitions, 10 groups", n: 3, call: func(int) (proto.Message, error) {
			return answered(r.topics.RepairTopic(ctx, &parleyv1.RepairTopicRequest{Topic: "wide"}))
		}},
		{name: "GetTopicStats, 256 partitions, 10 groups", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.topics.GetTopicStats(ctx, &parleyv1.GetTopicStatsRequest{Topic: "wide", History: true}))
		}},
		{name: "ListPartitions, 256", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.topics.ListPartitions(ctx, &parleyv1.ListPartitionsRequest{Topic: "wide", Group: "group-00"}))
		}},
		{name: "UpdateTopic, 256 partitions, 10 groups", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.topics.UpdateTopic(ctx, &parleyv1.UpdateTopicRequest{Topic: &parleyv1.Topic{Name: "wide", DropOldest: i%2 == 0}, UpdateMask: maskOf("drop_oldest")}))
		}},
		{name: "SetTopicPaused, 256 partitions", n: 3, call: pausing(true), prepare: func(i int) error { return lastErr(pausing(false)(i)) }},
		{name: "SetTopicPaused, 256 partitions resumed", n: 3, call: pausing(false), prepare: func(i int) error { return lastErr(pausing(true)(i)) }},
		{name: "SetGroupPaused, 256 partitions", n: 3, call: pausingGroup(true), prepare: func(i int) error { return lastErr(pausingGroup(false)(i)) }},
		{name: "SetGroupPaused, 256 partitions resumed", n: 3, call: pausingGroup(false), prepare: func(i int) error { return lastErr(pausingGroup(true)(i)) }},
		{name: "TrimTopic, 256 partitions, 10 groups, 1,000 messages", n: 3, call: func(i int) (proto.Message, error) {
			return answered(r.topics.TrimTopic(ctx, &parleyv1.TrimTopicRequest{
				Topic: "wide", Keep: &parleyv1.TrimTopicRequest_MaxMessages{MaxMessages: int64(4000-1000*i) / mostPartitions}, Force: true,
			}))
		}},
		{name: "CreateTopic, 256 partitions", n: 3, call: func(i int) (proto.Message, error) {
			return answered(r.topics.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: fmt.Sprint("new-", i), Partitions: mostPartitions}}))
		}},
		{name: "DeleteTopic, 256 partitions, 1,000 messages", n: 3, call: func(i int) (proto.Message, error) {
			name := fmt.Sprint("new-", i)
			return answered(r.topics.DeleteTopic(ctx, &parleyv1.DeleteTopicRequest{Topic: name, Confirm: name}))
		}, prepare: func(i int) error { return callErr(r.produce(fmt.Sprint("new-", i), 1000, 100, true)) }},
	}, r.groupBudgets()...)
}

// groupBudgets returns the rows about the groups of the topic wide.
func (r *budgetRig) groupBudgets() []budgetRow {
	ctx := r.t.Context()
	made := func(i int) *parleyv1.Group {
		return &parleyv1.Group{Name: fmt.Sprint("new-", i), Retry: &parleyv1.RetryPolicy{NonRetryableCodes: codes(32)}}
	}
	return []budgetRow{
		{name: "CreateGroup, 256 partitions", n: 3, call: func(i int) (proto.Message, error) {
			return answered(r.topics.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: "wide", Group: made(i)}))
		}},
		{name: "UpdateGroup, 256 partitions", n: 3, call: func(i int) (proto.Message, error) {
			g := made(i)
			g.Order = parleyv1.DeliveryOrder_DELIVERY_ORDER_NONE
			return answered(r.topics.UpdateGroup(ctx, &parleyv1.UpdateGroupRequest{Topic: "wide", Group: g, UpdateMask: maskOf("order", "retry")}))
		}},
		{name: "GetGroup, 14 groups", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.topics.GetGroup(ctx, &parleyv1.GetGroupRequest{Topic: "wide", Group: "new-0"}))
		}},
		{name: "ListGroups, 14 groups", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.topics.ListGroups(ctx, &parleyv1.ListGroupsRequest{Topic: "wide"}))
		}},
		{name: "SeekGroup, 256 partitions", n: 3, call: func(i int) (proto.Message, error) {
			return answered(r.topics.SeekGroup(ctx, &parleyv1.SeekGroupRequest{Topic: "wide", Group: fmt.Sprint("new-", i), Start: &parleyv1.GroupStart{
				Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_END},
			}}))
		}},
		{name: "DeleteGroup, 256 partitions", n: 3, call: func(i int) (proto.Message, error) {
			name := fmt.Sprint("new-", i)
			return answered(r.topics.DeleteGroup(ctx, &parleyv1.DeleteGroupRequest{Topic: "wide", Group: name, Confirm: name}))
		}},
	}
}

// topicBudgets returns the row of ListTopics: 1,200 topics with the longest names.
func topicBudgets(r *budgetRig) []budgetRow {
	var creating errgroup.Group
	creating.SetLimit(16)
	for k := range manyTopics {
		creating.Go(func() error {
			name := fmt.Sprintf("topic-%058d", k)
			if err := callErr(r.topics.CreateTopic(r.t.Context(), &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: name, Partitions: 1}})); err != nil {
				return err
			}
			group := &parleyv1.Group{Name: fmt.Sprintf("group-%058d", k), Retry: &parleyv1.RetryPolicy{NonRetryableCodes: codes(32)}}
			return callErr(r.topics.CreateGroup(r.t.Context(), &parleyv1.CreateGroupRequest{Topic: name, Group: group}))
		})
	}
	r.must(creating.Wait())
	return []budgetRow{{name: "ListTopics, 1,000 of 1,200", n: 3, call: func(int) (proto.Message, error) {
		return answered(r.topics.ListTopics(r.t.Context(), &parleyv1.ListTopicsRequest{PageSize: 1000}))
	}}}
}

// lastErr returns the error of a call.
func lastErr(_ proto.Message, err error) error { return err }

// codes returns n of the longest codes for a RetryPolicy.
func codes(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("code-%059d", i)
	}
	return all
}

// letterBudgets returns the rows of dead letters: 160 of 64 KiB in 4 partitions, and 10,000 small
// ones with the longest reasons.
func letterBudgets(r *budgetRig) []budgetRow {
	ctx := r.t.Context()
	r.topic("large", 4, "g")
	for range 8 {
		r.must(callErr(r.produce("large", 20, 64<<10, true)))
	}
	large := r.consumer("large", "g", 1000)
	_, err := large.read(160)
	r.must(err)
	_, err = large.nack(160, dead)
	r.must(err)
	small := r.holding("small", 10_000)
	for range 10 {
		_, err := small.nack(1000, dead)
		r.must(err)
	}
	r.topic("aside", 4)
	list := func(topic string, full bool, size int32) func(int) (proto.Message, error) {
		return func(int) (proto.Message, error) {
			return answered(r.topics.ListDeadLetters(ctx, &parleyv1.ListDeadLettersRequest{Topic: topic, PageSize: size, Full: full}))
		}
	}
	var ids []string
	return []budgetRow{
		{name: "ListDeadLetters, 1 of 160 with 64 KiB", n: 3, call: list("large", true, 1)},
		{name: "ListDeadLetters, a page of 1 MiB", n: 3, call: list("large", true, 1000)},
		{name: "ListDeadLetters, 160 with 64 KiB without payloads", n: 3, call: list("large", false, 1000)},
		{name: "ListDeadLetters, 1,000 of 10,000 small ones", n: 3, call: func(i int) (proto.Message, error) {
			res, err := r.topics.ListDeadLetters(ctx, &parleyv1.ListDeadLettersRequest{Topic: "small", PageSize: 1000})
			if i == 0 {
				for _, letter := range res.GetDeadLetters() {
					ids = append(ids, letter.GetDeadLetterId())
				}
			}
			return res, err
		}},
		{name: "PurgeDeadLetters, 200 ids", n: 3, call: func(i int) (proto.Message, error) {
			return answered(r.topics.PurgeDeadLetters(ctx, &parleyv1.PurgeDeadLettersRequest{
				Topic: "small", Confirm: "small", Selection: lettersBy(ids[200*i : 200*(i+1)]...),
			}))
		}},
		{name: "ReplayDeadLetters, 1,000 of 10,000", n: 3, call: func(int) (proto.Message, error) {
			return answered(r.topics.ReplayDeadLetters(ctx, &parleyv1.ReplayDeadLettersRequest{Topic: "small", Selection: lettersOf("g"), Limit: 1000}))
		}},
		{name: "ReplayDeadLetters, 20 with 64 KiB to another topic", n: 3, call: func(int) (proto.Message, error) {
			return answered(r.topics.ReplayDeadLetters(ctx, &parleyv1.ReplayDeadLettersRequest{Topic: "large", Selection: lettersOf("g"), Limit: 20, ToTopic: "aside"}))
		}},
		{name: "PurgeDeadLetters, all of a topic", n: 1, call: func(i int) (proto.Message, error) {
			topic := []string{"large", "small"}[i]
			return answered(r.topics.PurgeDeadLetters(ctx, &parleyv1.PurgeDeadLettersRequest{Topic: topic, Confirm: topic, Selection: allLetters()}))
		}},
	}
}

// serverBudgets returns the row of GetServerInfo.
func serverBudgets(r *budgetRig) []budgetRow {
	return []budgetRow{{name: "GetServerInfo", n: 5, call: func(int) (proto.Message, error) {
		return answered(r.info.GetServerInfo(r.t.Context(), &parleyv1.GetServerInfoRequest{}))
	}}}
}
