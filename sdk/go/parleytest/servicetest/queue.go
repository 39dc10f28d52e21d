package servicetest

import (
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

var (
	noTopic     = refusal{connect.CodeNotFound, "TOPIC_NOT_FOUND", "topic", 0}
	noGroup     = refusal{connect.CodeNotFound, "GROUP_NOT_FOUND", "group", 0}
	noScheduled = refusal{connect.CodeNotFound, "SCHEDULED_NOT_FOUND", "message_id", 0}
	noConfirm   = refusal{connect.CodeFailedPrecondition, "CONFIRMATION_REQUIRED", "confirm", 0}
	paused      = refusal{connect.CodeFailedPrecondition, "TOPIC_PAUSED", "", 0}
)

// topic creates a topic with groups that start at its beginning. It sets the topic's name in
// settings and returns that name.
func (e *env) topic(settings *parleyv1.Topic, groups ...string) string {
	e.Helper()
	settings.Name = e.name("jobs")
	e.no(errOf(e.ann.admin.CreateTopic(e.ctx, &parleyv1.CreateTopicRequest{Topic: settings})))
	for _, g := range groups {
		e.no(errOf(e.ann.admin.CreateGroup(e.ctx, &parleyv1.CreateGroupRequest{Topic: settings.GetName(), Group: g})))
	}
	return settings.GetName()
}

// put produces messages with these payloads and without keys, and returns their receipts.
func (e *env) put(topic string, payloads ...string) []*parleyv1.ProducedMessage {
	e.Helper()
	var messages []*parleyv1.QueueMessage
	for _, p := range payloads {
		messages = append(messages, &parleyv1.QueueMessage{Payload: []byte(p)})
	}
	return e.produce(topic, messages...)
}

func (e *env) produce(topic string, messages ...*parleyv1.QueueMessage) []*parleyv1.ProducedMessage {
	e.Helper()
	r, err := e.ann.queues.Produce(e.ctx, &parleyv1.ProduceRequest{Topic: topic, Messages: messages})
	e.no(err)
	var receipts []*parleyv1.ProducedMessage
	for _, one := range r.GetResults() {
		if one.GetError() != nil {
			e.Fatalf("produce: %v", one.GetError())
		}
		receipts = append(receipts, one.GetProduced())
	}
	return receipts
}

// stats waits until the group has the wanted counts, formatted as
// "unread 0 pending 0 retrying 0 acked 0 dead 0".
func (e *env) stats(topic, group, want string) {
	e.Helper()
	e.eventually(func() string {
		r, err := e.ann.admin.GetTopicStats(e.ctx, &parleyv1.GetTopicStatsRequest{Topic: topic})
		e.no(err)
		for _, g := range r.GetTotal().GetGroups() {
			got := fmt.Sprintf("unread %d pending %d retrying %d acked %d dead %d",
				g.GetUnread(), g.GetPending(), g.GetRetrying(), g.GetAcked(), g.GetDead())
			if g.GetGroup() == group && got == want {
				return ""
			}
			if g.GetGroup() == group {
				return fmt.Sprintf("stats: got %s, want %s", got, want)
			}
		}
		return "no stats of the group"
	})
}

func topics(e *env) {
	admin, name := e.ann.admin, e.name("jobs")
	created, err := admin.CreateTopic(e.ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: name, Partitions: 3}})
	e.no(err)
	got, err := admin.GetTopic(e.ctx, &parleyv1.GetTopicRequest{Topic: name})
	e.no(err)
	for _, t := range []*parleyv1.Topic{created.GetTopic(), got.GetTopic()} {
		if t.GetName() != name || t.GetPartitions() != 3 || t.GetCreateTime() == nil || t.GetRetry().GetMaxAttempts() != 16 ||
			t.GetPartitioner() != parleyv1.Partitioner_PARTITIONER_CONSISTENT_HASH || t.GetProducePaused() || t.GetConsumePaused() {
			e.Errorf("topic %v", t)
		}
	}
	preset, err := admin.CreateTopic(e.ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: name + "-2"}})
	e.no(err)
	equal(e, "the default number of partitions", preset.GetTopic().GetPartitions(), 8)
	_, err = admin.CreateTopic(e.ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: name}})
	e.refused("the same name", err, refusal{connect.CodeAlreadyExists, "TOPIC_EXISTS", "topic.name", 0})
	_, err = admin.CreateTopic(e.ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "__x"}})
	e.refused("a reserved name", err, invalid("topic.name", 0))
	e.eventually(func() string {
		r, err := admin.ListTopics(e.ctx, &parleyv1.ListTopicsRequest{})
		e.no(err)
		var mine []string
		for _, t := range r.GetTopics() {
			if strings.HasPrefix(t.GetName(), name) {
				mine = append(mine, t.GetName())
			}
		}
		if len(mine) != 2 || mine[0] != name || mine[1] != name+"-2" {
			return fmt.Sprintf("topics %v", mine)
		}
		return ""
	})
	_, err = admin.DeleteTopic(e.ctx, &parleyv1.DeleteTopicRequest{Topic: name, Confirm: "other"})
	e.refused("unconfirmed", err, noConfirm)
	e.no(errOf(admin.DeleteTopic(e.ctx, &parleyv1.DeleteTopicRequest{Topic: name, Confirm: name})))
	_, err = admin.GetTopic(e.ctx, &parleyv1.GetTopicRequest{Topic: name})
	e.refused("deleted", err, noTopic)
	_, err = e.ann.queues.Produce(e.ctx, &parleyv1.ProduceRequest{
		Topic: e.name("none"), Messages: []*parleyv1.QueueMessage{{Payload: []byte("x")}},
	})
	e.refused("produce to nothing", err, noTopic)
}

func groups(e *env) {
	admin, name := e.ann.admin, e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	e.put(name, "1", "2")
	atEnd := &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_END}}
	atStart := &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_BEGINNING}}
	e.no(errOf(admin.CreateGroup(e.ctx, &parleyv1.CreateGroupRequest{Topic: name, Group: "end", Start: atEnd})))
	e.no(errOf(admin.CreateGroup(e.ctx, &parleyv1.CreateGroupRequest{Topic: name, Group: "all"})))
	e.stats(name, "g", "unread 2 pending 0 retrying 0 acked 0 dead 0")
	e.stats(name, "end", "unread 0 pending 0 retrying 0 acked 0 dead 0")
	e.stats(name, "all", "unread 2 pending 0 retrying 0 acked 0 dead 0")
	got, err := admin.GetTopic(e.ctx, &parleyv1.GetTopicRequest{Topic: name})
	e.no(err)
	equal(e, "groups", strings.Join(got.GetTopic().GetGroups(), " "), "all end g")
	e.refused("the same group", errOf(admin.CreateGroup(e.ctx, &parleyv1.CreateGroupRequest{Topic: name, Group: "g"})),
		refusal{connect.CodeAlreadyExists, "GROUP_EXISTS", "group", 0})
	e.refused("no topic", errOf(admin.CreateGroup(e.ctx, &parleyv1.CreateGroupRequest{Topic: e.name("none"), Group: "g"})), noTopic)
	seek := func(group string, start *parleyv1.GroupStart) error {
		return errOf(admin.SeekGroup(e.ctx, &parleyv1.SeekGroupRequest{Topic: name, Group: group, Start: start}))
	}
	e.no(seek("end", atStart))
	e.stats(name, "end", "unread 2 pending 0 retrying 0 acked 0 dead 0")
	e.no(seek("g", atEnd))
	e.stats(name, "g", "unread 0 pending 0 retrying 0 acked 0 dead 0")
	e.no(seek("g", &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Time{Time: timestamppb.New(time.Now().Add(-time.Hour))}}))
	e.stats(name, "g", "unread 2 pending 0 retrying 0 acked 0 dead 0")
	e.refused("seek no group", seek("none", atEnd), noGroup)
	e.refused("seek without a start", seek("g", nil), invalid("start", 0))
	s := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 1})
	s.next()
	e.refused("seek a group in use", seek("g", atEnd), refusal{connect.CodeFailedPrecondition, "GROUP_IN_USE", "group", 0})
}

func produce(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 4}, "g")
	request := func(key, idempotencyKey, payload string) *parleyv1.QueueMessage {
		return &parleyv1.QueueMessage{Key: key, IdempotencyKey: idempotencyKey, Payload: []byte(payload)}
	}
	first := e.produce(name, request("k", "", "1"), request("k", "once", "2"), request("k", "once", "2"))
	for i, r := range first {
		if !strings.HasPrefix(r.GetMessageId(), fmt.Sprintf("%d-", r.GetPartition())) || r.GetPartition() != first[0].GetPartition() {
			e.Errorf("receipt %d: %v", i, r)
		}
		equal(e, fmt.Sprintf("message %d is a duplicate", i), r.GetDuplicate(), i == 2)
	}
	equal(e, "the id of the duplicate", first[2].GetMessageId(), first[1].GetMessageId())
	r, err := e.ann.queues.Produce(e.ctx, &parleyv1.ProduceRequest{Topic: name, Messages: []*parleyv1.QueueMessage{
		request("k", "once", "other"), request("k", "", "3"),
		{Key: strings.Repeat("x", 257)},
		{Headers: map[string]string{"webhook-x": ""}},
		{Headers: map[string]string{"h": "a\r\nb"}},
	}})
	e.no(err)
	results := r.GetResults()
	e.refusedItem("a used key", results[0].GetError(),
		refusal{connect.CodeAlreadyExists, "IDEMPOTENCY_KEY_REUSED", "messages[0].idempotency_key", 0})
	if results[1].GetProduced() == nil {
		e.Errorf("the one after it: %v", results[1])
	}
	e.refusedItem("a long key", results[2].GetError(), invalid("messages[2].key", 256))
	e.refusedItem("a reserved header", results[3].GetError(), invalid("messages[3].headers[\"webhook-x\"]", 0))
	e.refusedItem("a header with a line break", results[4].GetError(), invalid("messages[4].headers[\"h\"]", 0))
	_, err = e.ann.queues.Produce(e.ctx, &parleyv1.ProduceRequest{Topic: name})
	e.refused("nothing", err, invalid("messages", 1))
	_, err = e.ann.queues.Produce(e.ctx, &parleyv1.ProduceRequest{Topic: "a b", Messages: []*parleyv1.QueueMessage{{}}})
	e.refused("a topic's name", err, invalid("topic", 0))
	e.stats(name, "g", "unread 3 pending 0 retrying 0 acked 0 dead 0")
}

// partitionsOfKeys checks the partitions of fixed keys. All implementations must choose the same
// partitions, because programs can choose partitions on their own.
func partitionsOfKeys(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 16})
	var messages []*parleyv1.QueueMessage
	for _, key := range []string{"a", "b", "ann", "room-1", "é"} {
		messages = append(messages, &parleyv1.QueueMessage{Key: key})
	}
	messages = append(messages, &parleyv1.QueueMessage{IdempotencyKey: "once"})
	var got []int32
	for _, r := range e.produce(name, messages...) {
		got = append(got, r.GetPartition())
	}
	equal(e, "partitions", fmt.Sprint(got), "[8 2 7 9 15 8]")
}

func pausedTopic(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	pause := func(operations ...parleyv1.TopicOperation) (*parleyv1.Topic, error) {
		r, err := e.ann.admin.PauseTopic(e.ctx, &parleyv1.PauseTopicRequest{Topic: name, Operations: operations})
		return r.GetTopic(), err
	}
	produceOp, consumeOp := parleyv1.TopicOperation_TOPIC_OPERATION_PRODUCE, parleyv1.TopicOperation_TOPIC_OPERATION_CONSUME
	e.put(name, "1")
	t, err := pause(produceOp)
	e.no(err)
	if !t.GetProducePaused() || t.GetConsumePaused() {
		e.Errorf("paused %v", t)
	}
	_, err = e.ann.queues.Produce(e.ctx, &parleyv1.ProduceRequest{Topic: name, Messages: []*parleyv1.QueueMessage{{}}})
	e.refused("produce", err, paused)
	_, err = pause()
	e.refused("pause nothing", err, invalid("operations", 1))
	t, err = pause(consumeOp)
	e.no(err)
	if !t.GetProducePaused() || !t.GetConsumePaused() {
		e.Errorf("paused %v", t)
	}
	r, err := e.ann.admin.ResumeTopic(e.ctx, &parleyv1.ResumeTopicRequest{
		Topic: name, Operations: []parleyv1.TopicOperation{produceOp, consumeOp},
	})
	e.no(err)
	if r.GetTopic().GetProducePaused() || r.GetTopic().GetConsumePaused() {
		e.Errorf("resumed %v", r)
	}
	e.put(name, "2")
	s := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 10})
	equal(e, "payloads", string(s.next().GetPayload())+string(s.next().GetPayload()), "12")
}

func schedule(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	delayed := func(payload, key string, delay time.Duration) *parleyv1.ScheduledMessage {
		return &parleyv1.ScheduledMessage{
			Message: &parleyv1.QueueMessage{Payload: []byte(payload), IdempotencyKey: key},
			Due:     &parleyv1.ScheduledMessage_Delay{Delay: durationpb.New(delay)},
		}
	}
	call := func(messages ...*parleyv1.ScheduledMessage) []*parleyv1.ScheduleResult {
		r, err := e.ann.queues.Schedule(e.ctx, &parleyv1.ScheduleRequest{Topic: name, Messages: messages})
		e.no(err)
		return r.GetResults()
	}
	began := time.Now()
	results := call(delayed("late", "", time.Hour), delayed("cancelled", "once", time.Hour), delayed("now", "", 0), &parleyv1.ScheduledMessage{})
	late, cancelled := results[0].GetScheduled(), results[1].GetScheduled()
	if due := late.GetDueTime().AsTime(); due.Before(began.Add(time.Hour-time.Second)) || due.After(time.Now().Add(time.Hour+time.Second)) {
		e.Errorf("due at %v", due)
	}
	e.refusedItem("no message", results[3].GetError(), invalid("messages[3].due", 0))
	cancel := func(id string) error {
		return errOf(e.ann.queues.CancelScheduled(e.ctx, &parleyv1.CancelScheduledRequest{Topic: name, MessageId: id}))
	}
	e.no(cancel(cancelled.GetMessageId()))
	e.refused("cancel again", cancel(cancelled.GetMessageId()), noScheduled)
	again := call(delayed("cancelled", "once", time.Hour))[0].GetScheduled()
	if !again.GetDuplicate() || again.GetMessageId() != cancelled.GetMessageId() {
		e.Errorf("a repeat of what was cancelled: %v", again)
	}
	e.refusedItem("another payload", call(delayed("other", "once", time.Hour))[0].GetError(),
		refusal{connect.CodeAlreadyExists, "IDEMPOTENCY_KEY_REUSED", "messages[0].message.idempotency_key", 0})
	_, err := e.ann.queues.RescheduleScheduled(e.ctx, &parleyv1.RescheduleScheduledRequest{Topic: name, MessageId: late.GetMessageId()})
	e.refused("reschedule without a time", err, invalid("due", 0))
	s := e.consume(&parleyv1.ConsumeRequest{Topic: name, Group: "g", MaxMessages: 10})
	equal(e, "due at once", string(s.next().GetPayload()), "now")
	moved, err := e.ann.queues.RescheduleScheduled(e.ctx, &parleyv1.RescheduleScheduledRequest{
		Topic: name, MessageId: late.GetMessageId(),
		Due: &parleyv1.RescheduleScheduledRequest_Delay{Delay: durationpb.New(10 * time.Millisecond)},
	})
	e.no(err)
	d := s.next()
	if string(d.GetPayload()) != "late" || d.GetMessageId() != late.GetMessageId() || moved.GetDueTime().AsTime().After(time.Now()) {
		e.Errorf("delivered %v, due %v", d, moved)
	}
	e.refused("cancel what has come", cancel(late.GetMessageId()), noScheduled)
	_, err = e.ann.queues.RescheduleScheduled(e.ctx, &parleyv1.RescheduleScheduledRequest{
		Topic: name, MessageId: late.GetMessageId(), Due: &parleyv1.RescheduleScheduledRequest_Delay{Delay: durationpb.New(0)},
	})
	e.refused("reschedule what has come", err, noScheduled)
}
