package server_test

import (
	"fmt"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

const (
	// manyGroups is how many consumer groups the topic wide has.
	manyGroups = 10
	// manyTopics is how many topics there are: a page of them, and more.
	manyTopics = 1200
)

// wideBudgets returns the rows of AdminService about the topic wide, which has 256 partitions, 10
// groups and about 5,000 messages.
func (r *budgetRig) wideBudgets() []budgetRow {
	ctx := r.t.Context()
	pause := func(int) (proto.Message, error) {
		return answered(r.admin.PauseTopic(ctx, &parleyv1.PauseTopicRequest{Topic: "wide", Operations: bothOperations}))
	}
	resume := func(int) (proto.Message, error) {
		return answered(r.admin.ResumeTopic(ctx, &parleyv1.ResumeTopicRequest{Topic: "wide", Operations: bothOperations}))
	}
	settings := &parleyv1.Topic{Name: "wide", Retry: &parleyv1.RetryPolicy{NonRetryableCodes: codes(32)}}
	return []budgetRow{
		{name: "GetTopic, 10 groups", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.admin.GetTopic(ctx, &parleyv1.GetTopicRequest{Topic: "wide"}))
		}},
		{name: "GetTopicStats, 256 partitions, 10 groups", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.admin.GetTopicStats(ctx, &parleyv1.GetTopicStatsRequest{Topic: "wide"}))
		}},
		{name: "ListPartitions, 256", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.admin.ListPartitions(ctx, &parleyv1.ListPartitionsRequest{Topic: "wide", Group: "group-00"}))
		}},
		{name: "UpdateTopic, 256 partitions, 10 groups", n: 5, call: func(i int) (proto.Message, error) {
			settings.DropOldest = i%2 == 0
			return answered(r.admin.UpdateTopic(ctx, &parleyv1.UpdateTopicRequest{
				Topic: settings, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"drop_oldest", "retry"}},
			}))
		}},
		{name: "PauseTopic, 256 partitions", n: 3, call: pause, prepare: func(i int) error { return lastErr(resume(i)) }},
		{name: "ResumeTopic, 256 partitions", n: 3, call: resume, prepare: func(i int) error { return lastErr(pause(i)) }},
		{name: "CreateGroup, 256 partitions", n: 3, call: func(i int) (proto.Message, error) {
			return answered(r.admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: "wide", Group: fmt.Sprint("new-", i)}))
		}},
		{name: "SeekGroup, 256 partitions", n: 3, call: func(i int) (proto.Message, error) {
			return answered(r.admin.SeekGroup(ctx, &parleyv1.SeekGroupRequest{Topic: "wide", Group: fmt.Sprint("new-", i), Start: &parleyv1.GroupStart{
				Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_END},
			}}))
		}},
		{name: "DeleteGroup, 256 partitions", n: 3, call: func(i int) (proto.Message, error) {
			name := fmt.Sprint("new-", i)
			return answered(r.admin.DeleteGroup(ctx, &parleyv1.DeleteGroupRequest{Topic: "wide", Group: name, Confirm: name}))
		}},
		{name: "TrimTopic, 256 partitions, 10 groups, 1,000 messages", n: 3, call: func(i int) (proto.Message, error) {
			return answered(r.admin.TrimTopic(ctx, &parleyv1.TrimTopicRequest{
				Topic: "wide", Keep: &parleyv1.TrimTopicRequest_MaxMessages{MaxMessages: int64(4000-1000*i) / mostPartitions}, Force: true,
			}))
		}},
		{name: "CreateTopic, 256 partitions", n: 3, call: func(i int) (proto.Message, error) {
			return answered(r.admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: fmt.Sprint("new-", i), Partitions: mostPartitions}}))
		}},
		{name: "DeleteTopic, 256 partitions, 1,000 messages", n: 3, call: func(i int) (proto.Message, error) {
			name := fmt.Sprint("new-", i)
			return answered(r.admin.DeleteTopic(ctx, &parleyv1.DeleteTopicRequest{Topic: name, Confirm: name}))
		}, prepare: func(i int) error { return callErr(r.produce(fmt.Sprint("new-", i), 1000, 100, true)) }},
	}
}

// topicBudgets returns the row of ListTopics: 1,200 topics with the longest names and codes.
func topicBudgets(r *budgetRig) []budgetRow {
	var creating errgroup.Group
	creating.SetLimit(16)
	for k := range manyTopics {
		creating.Go(func() error {
			return callErr(r.admin.CreateTopic(r.t.Context(), &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{
				Name: fmt.Sprintf("topic-%058d", k), Partitions: 1, Retry: &parleyv1.RetryPolicy{NonRetryableCodes: codes(32)},
			}}))
		})
	}
	r.must(creating.Wait())
	return []budgetRow{{name: "ListTopics, 1,000 of 1,200", n: 3, call: func(int) (proto.Message, error) {
		return answered(r.admin.ListTopics(r.t.Context(), &parleyv1.ListTopicsRequest{PageSize: 1000}))
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
// ones with the longest reasons. Larger ones would exceed what Redis answers in time.
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
	list := func(topic string, size int32) func(int) (proto.Message, error) {
		return func(int) (proto.Message, error) {
			return answered(r.admin.ListDeadLetters(ctx, &parleyv1.ListDeadLettersRequest{Topic: topic, PageSize: size}))
		}
	}
	var ids []string
	return []budgetRow{
		{name: "ListDeadLetters, 1 of 160 with 64 KiB", n: 3, call: list("large", 1)},
		{name: "ListDeadLetters, a page of 1 MiB", n: 3, call: list("large", 1000)},
		{name: "ListDeadLetters, 1 MiB of 10,000 small ones", n: 3, call: func(i int) (proto.Message, error) {
			res, err := r.admin.ListDeadLetters(ctx, &parleyv1.ListDeadLettersRequest{Topic: "small", PageSize: 1000})
			if i == 0 {
				for _, letter := range res.GetDeadLetters() {
					ids = append(ids, letter.GetDeadLetterId())
				}
			}
			return res, err
		}},
		{name: "PurgeDeadLetters, 200 ids", n: 3, call: func(i int) (proto.Message, error) {
			return answered(r.admin.PurgeDeadLetters(ctx, &parleyv1.PurgeDeadLettersRequest{
				Topic: "small", Confirm: "small", Selection: lettersBy(ids[200*i : 200*(i+1)]...),
			}))
		}},
		{name: "ReplayDeadLetters, 1,000 of 10,000", n: 3, call: func(int) (proto.Message, error) {
			return answered(r.admin.ReplayDeadLetters(ctx, &parleyv1.ReplayDeadLettersRequest{Topic: "small", Selection: lettersOf("g"), Limit: 1000}))
		}},
		{name: "PurgeDeadLetters, all of a topic", n: 1, call: func(i int) (proto.Message, error) {
			topic := []string{"large", "small"}[i]
			return answered(r.admin.PurgeDeadLetters(ctx, &parleyv1.PurgeDeadLettersRequest{Topic: topic, Confirm: topic, Selection: allLetters()}))
		}},
	}
}

// serverBudgets returns the row of GetServerInfo.
func serverBudgets(r *budgetRig) []budgetRow {
	return []budgetRow{{name: "GetServerInfo", n: 5, call: func(int) (proto.Message, error) {
		return answered(r.info.GetServerInfo(r.t.Context(), &parleyv1.GetServerInfoRequest{}))
	}}}
}
