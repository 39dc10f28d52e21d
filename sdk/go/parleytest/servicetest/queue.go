package servicetest

import (
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

var (
	noTopic     = refusal{connect.CodeNotFound, "TOPIC_NOT_FOUND", "topic", 0}
	noGroup     = refusal{connect.CodeNotFound, "GROUP_NOT_FOUND", "group", 0}
	noScheduled = refusal{connect.CodeNotFound, "SCHEDULED_NOT_FOUND", "message_ids[0]", 0}
	noneWaits   = refusal{connect.CodeNotFound, "MESSAGE_NOT_FOUND", "message_ids[0]", 0}
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
		e.group(settings.GetName(), &parleyv1.Group{Name: g})
	}
	return settings.GetName()
}

func (e *env) group(topic string, settings *parleyv1.Group) {
	e.Helper()
	e.no(errOf(e.ann.admin.CreateGroup(e.ctx, &parleyv1.CreateGroupRequest{Topic: topic, Group: settings})))
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
// "waiting 0 running 0 retrying 0 acked 0 dead 0".
func (e *env) stats(topic, group, want string) {
	e.Helper()
	e.eventually(func() string {
		r, err := e.ann.admin.GetTopicStats(e.ctx, &parleyv1.GetTopicStatsRequest{Topic: topic})
		e.no(err)
		for _, g := range r.GetTotal().GetGroups() {
			got := fmt.Sprintf("waiting %d running %d retrying %d acked %d dead %d",
				g.GetWaiting(), g.GetRunning(), g.GetRetrying(), g.GetAcked(), g.GetDead())
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
		if t.GetName() != name || t.GetPartitions() != 3 || t.GetCreateTime() == nil || t.GetIdempotencyWindow().AsDuration() != 10*time.Minute ||
			t.GetPartitioner() != parleyv1.Partitioner_PARTITIONER_CONSISTENT_HASH || t.GetPaused() {
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
	e.group(name, &parleyv1.Group{Name: "end", Start: atEnd})
	created, err := admin.CreateGroup(e.ctx, &parleyv1.CreateGroupRequest{Topic: name, Group: &parleyv1.Group{Name: "all"}})
	e.no(err)
	read, err := admin.GetGroup(e.ctx, &parleyv1.GetGroupRequest{Topic: name, Group: "all"})
	e.no(err)
	for _, g := range []*parleyv1.Group{created.GetGroup(), read.GetGroup()} {
		if g.GetName() != "all" || g.GetMode() != parleyv1.GroupMode_GROUP_MODE_SHARED || g.GetOrder() != parleyv1.DeliveryOrder_DELIVERY_ORDER_KEY ||
			g.GetRetry().GetMaxAttempts() != 16 || g.GetAckTimeout().AsDuration() != 30*time.Second ||
			g.GetResumeGrace().AsDuration() != 10*time.Second || g.GetPaused() {
			e.Errorf("group %v", g)
		}
	}
	e.stats(name, "g", "waiting 2 running 0 retrying 0 acked 0 dead 0")
	e.stats(name, "end", "waiting 0 running 0 retrying 0 acked 0 dead 0")
	e.stats(name, "all", "waiting 2 running 0 retrying 0 acked 0 dead 0")
	got, err := admin.GetTopic(e.ctx, &parleyv1.GetTopicRequest{Topic: name})
	e.no(err)
	equal(e, "groups", strings.Join(got.GetTopic().GetGroups(), " "), "all end g")
	again := &parleyv1.Group{Name: "g"}
	e.refused("the same group", errOf(admin.CreateGroup(e.ctx, &parleyv1.CreateGroupRequest{Topic: name, Group: again})),
		refusal{connect.CodeAlreadyExists, "GROUP_EXISTS", "group.name", 0})
	e.refused("no topic", errOf(admin.CreateGroup(e.ctx, &parleyv1.CreateGroupRequest{Topic: e.name("none"), Group: again})), noTopic)
	seek := func(group string, start *parleyv1.GroupStart) error {
		return errOf(admin.SeekGroup(e.ctx, &parleyv1.SeekGroupRequest{Topic: name, Group: group, Start: start}))
	}
	e.no(seek("end", atStart))
	e.stats(name, "end", "waiting 2 running 0 retrying 0 acked 0 dead 0")
	e.no(seek("g", atEnd))
	e.stats(name, "g", "waiting 0 running 0 retrying 0 acked 0 dead 0")
	e.no(seek("g", &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Time{Time: timestamppb.New(time.Now().Add(-time.Hour))}}))
	e.stats(name, "g", "waiting 2 running 0 retrying 0 acked 0 dead 0")
	e.refused("seek no group", seek("none", atEnd), noGroup)
	e.refused("seek without a start", seek("g", nil), invalid("start", 0))
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g"})
	held := s.next()
	e.no(seek("g", atEnd))
	s.wantLost(parleyv1.LostDeliveries_CAUSE_UNSPECIFIED, held)
	e.changeGroups(name)
}

// changeGroups changes and deletes groups.
func (e *env) changeGroups(name string) {
	e.Helper()
	admin := e.ann.admin
	update := func(g *parleyv1.Group, paths ...string) (*parleyv1.Group, error) {
		r, err := admin.UpdateGroup(e.ctx, &parleyv1.UpdateGroupRequest{Topic: name, Group: g, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return r.GetGroup(), err
	}
	changed, err := update(&parleyv1.Group{Name: "all", AckTimeout: durationpb.New(5 * time.Second)}, "ack_timeout")
	e.no(err)
	if changed.GetAckTimeout().AsDuration() != 5*time.Second || changed.GetRetry().GetMaxAttempts() != 16 {
		e.Errorf("changed %v", changed)
	}
	_, err = update(&parleyv1.Group{Name: "all"}, "mode")
	e.refused("change the mode", err, invalid("update_mask", 0))
	_, err = update(&parleyv1.Group{Name: "none"}, "order")
	e.refused("change no group", err, noGroup)
	_, err = admin.DeleteGroup(e.ctx, &parleyv1.DeleteGroupRequest{Topic: name, Group: "all", Confirm: "g"})
	e.refused("delete unconfirmed", err, noConfirm)
	e.no(errOf(admin.DeleteGroup(e.ctx, &parleyv1.DeleteGroupRequest{Topic: name, Group: "all", Confirm: "all"})))
	_, err = admin.GetGroup(e.ctx, &parleyv1.GetGroupRequest{Topic: name, Group: "all"})
	e.refused("deleted", err, noGroup)
	left, err := admin.ListGroups(e.ctx, &parleyv1.ListGroupsRequest{Topic: name})
	e.no(err)
	if all := left.GetGroups(); len(all) != 2 || all[0].GetName() != "end" || all[1].GetName() != "g" {
		e.Errorf("groups %v", all)
	}
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
	e.stats(name, "g", "waiting 3 running 0 retrying 0 acked 0 dead 0")
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
	e.put(name, "1")
	pause := func(on bool) {
		r, err := e.ann.admin.SetTopicPaused(e.ctx, &parleyv1.SetTopicPausedRequest{Topic: name, Paused: on})
		e.no(err)
		equal(e, "the topic is paused", r.GetTopic().GetPaused(), on)
	}
	pauseGroup := func(on bool) {
		r, err := e.ann.admin.SetGroupPaused(e.ctx, &parleyv1.SetGroupPausedRequest{Topic: name, Group: "g", Paused: on})
		e.no(err)
		equal(e, "the group is paused", r.GetGroup().GetPaused(), on)
	}
	pause(true)
	e.eventually(func() string { // every node applies it within two seconds
		_, err := e.ann.queues.Produce(e.ctx, &parleyv1.ProduceRequest{Topic: name, Messages: []*parleyv1.QueueMessage{{Payload: []byte("0")}}})
		if err == nil {
			return "a message was stored"
		}
		e.refused("produce", err, paused)
		return ""
	})
	pauseGroup(true)
	pause(false)
	pauseGroup(false)
	_, err := e.ann.admin.SetGroupPaused(e.ctx, &parleyv1.SetGroupPausedRequest{Topic: name, Group: "none", Paused: true})
	e.refused("pause no group", err, noGroup)
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 10})
	equal(e, "payload", string(s.next().GetPayload()), "1")
}

func schedule(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	delayed := func(payload, key string, delay time.Duration) *parleyv1.QueueMessage {
		return &parleyv1.QueueMessage{
			Payload: []byte(payload), IdempotencyKey: key, Due: &parleyv1.QueueMessage_Delay{Delay: durationpb.New(delay)},
		}
	}
	began := time.Now()
	at := began.Add(2 * time.Hour)
	all := e.produce(name, delayed("late", "", time.Hour), delayed("cancelled", "once", time.Hour), delayed("now", "", 0),
		&parleyv1.QueueMessage{Payload: []byte("at"), Due: &parleyv1.QueueMessage_DeliverAt{DeliverAt: timestamppb.New(at)}})
	late, cancelled := all[0], all[1]
	if due := late.GetDueTime().AsTime(); due.Before(began.Add(time.Hour-time.Second)) || due.After(time.Now().Add(time.Hour+time.Second)) {
		e.Errorf("due at %v", due)
	}
	if due := all[3].GetDueTime().AsTime(); due.Sub(at).Abs() > time.Millisecond || all[2].GetDueTime() != nil {
		e.Errorf("due at %v, and at %v", due, all[2].GetDueTime())
	}
	cancel := func(id string) *parleyv1.ItemError {
		r, err := e.ann.queues.CancelMessages(e.ctx, &parleyv1.CancelMessagesRequest{Topic: name, MessageIds: []string{id}})
		e.no(err)
		return r.GetResults()[0].GetError()
	}
	e.done(cancel(cancelled.GetMessageId()))
	e.refusedItem("cancel again", cancel(cancelled.GetMessageId()), noneWaits)
	e.refusedItem("cancel nothing", cancel("x"), noneWaits)
	again := e.produce(name, delayed("cancelled", "once", time.Hour))[0]
	if !again.GetDuplicate() || again.GetMessageId() != cancelled.GetMessageId() {
		e.Errorf("a repeat of what was cancelled: %v", again)
	}
	reschedule := func(id string, delay time.Duration) *parleyv1.RescheduleResult {
		r, err := e.ann.queues.RescheduleMessages(e.ctx, &parleyv1.RescheduleMessagesRequest{
			Topic: name, MessageIds: []string{id}, Due: &parleyv1.RescheduleMessagesRequest_Delay{Delay: durationpb.New(delay)},
		})
		e.no(err)
		return r.GetResults()[0]
	}
	_, err := e.ann.queues.RescheduleMessages(e.ctx, &parleyv1.RescheduleMessagesRequest{Topic: name, MessageIds: []string{late.GetMessageId()}})
	e.refused("reschedule without a time", err, invalid("due", 0))
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 10})
	d := s.next()
	equal(e, "due at once", string(d.GetPayload()), "now")
	e.refusedItem("cancel what is being handled", cancel(d.GetMessageId()), refusal{connect.CodeFailedPrecondition, "MESSAGE_RUNNING", "", 0})
	moved := reschedule(late.GetMessageId(), 10*time.Millisecond)
	d = s.next()
	if string(d.GetPayload()) != "late" || d.GetMessageId() != late.GetMessageId() || moved.GetDueTime().AsTime().After(time.Now()) {
		e.Errorf("delivered %v, due %v", d, moved)
	}
	e.refusedItem("reschedule what has come", reschedule(late.GetMessageId(), 0).GetError(), noScheduled)
}

// cancelWaiting cancels a message that a session holds and no handler has begun.
func cancelWaiting(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	id := e.put(name, "1")[0].GetMessageId()
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", ReportsBegun: true})
	d := s.want("1", 1)
	r, err := e.ann.queues.CancelMessages(e.ctx, &parleyv1.CancelMessagesRequest{Topic: name, MessageIds: []string{id}})
	e.no(err)
	e.done(r.GetResults()[0].GetError())
	s.wantLost(parleyv1.LostDeliveries_CAUSE_CANCELLED, d)
	e.stats(name, "g", "waiting 0 running 0 retrying 0 acked 0 dead 0")
}

// uniqueKeys produces messages with a unique key that another message has, in each of the ways.
func uniqueKeys(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 2}, "g")
	with := func(payload string, on parleyv1.Unique_OnConflict) *parleyv1.ProduceResult {
		r, err := e.ann.queues.Produce(e.ctx, &parleyv1.ProduceRequest{Topic: name, Messages: []*parleyv1.QueueMessage{{
			Payload: []byte(payload), Unique: &parleyv1.Unique{Key: "u", OnConflict: on, WhileRunning: true},
		}}})
		e.no(err)
		return r.GetResults()[0]
	}
	used := refusal{connect.CodeAlreadyExists, "UNIQUE_KEY_IN_USE", "messages[0].unique.key", 0}
	first := with("1", parleyv1.Unique_ON_CONFLICT_REJECT).GetProduced()
	e.refusedItem("reject", with("2", parleyv1.Unique_ON_CONFLICT_UNSPECIFIED).GetError(), used)
	kept := with("3", parleyv1.Unique_ON_CONFLICT_KEEP).GetProduced()
	if first.GetMessageId() == "" || kept.GetMessageId() != first.GetMessageId() || !kept.GetDuplicate() || first.GetDuplicate() {
		e.Errorf("first %v, kept %v", first, kept)
	}
	if replacing := with("4", parleyv1.Unique_ON_CONFLICT_REPLACE).GetProduced(); replacing.GetDuplicate() || replacing.GetMessageId() == "" {
		e.Errorf("replacing %v", replacing)
	}
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", Concurrency: 10})
	d := s.want("4", 1)
	e.refusedItem("reject while it is handled", with("6", parleyv1.Unique_ON_CONFLICT_REJECT).GetError(), used)
	e.done(s.ack(d))
	e.eventually(func() string {
		if r := with("5", parleyv1.Unique_ON_CONFLICT_REJECT); r.GetError() != nil {
			return fmt.Sprint(r)
		}
		return ""
	})
	e.done(s.ack(s.want("5", 1)))
	e.stats(name, "g", "waiting 0 running 0 retrying 0 acked 2 dead 0")
}

// sequences repeats requests of a producer.
func sequences(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 2}, "g")
	id := []byte("producer-" + e.id)[:16]
	request := func(n int64, payloads ...string) *parleyv1.ProduceRequest {
		r := &parleyv1.ProduceRequest{Topic: name, ProducerId: id, Sequence: n}
		for _, p := range payloads {
			r.Messages = append(r.Messages, &parleyv1.QueueMessage{Payload: []byte(p)})
		}
		return r
	}
	first, err := e.ann.queues.Produce(e.ctx, request(1, "1", "2"))
	e.no(err)
	again, err := e.ann.queues.Produce(e.ctx, request(1, "1", "2"))
	e.no(err)
	for i, r := range again.GetResults() {
		if got := r.GetProduced(); !got.GetDuplicate() || got.GetMessageId() != first.GetResults()[i].GetProduced().GetMessageId() {
			e.Errorf("message %d: %v", i, r)
		}
	}
	e.no(errOf(e.ann.queues.Produce(e.ctx, request(2, "3"))))
	e.stats(name, "g", "waiting 3 running 0 retrying 0 acked 0 dead 0")
	_, err = e.ann.queues.Produce(e.ctx, request(0, "4"))
	e.refused("no sequence", err, invalid("sequence", 1))
	_, err = e.ann.queues.Produce(e.ctx, &parleyv1.ProduceRequest{
		Topic: name, ProducerId: []byte("short"), Sequence: 1, Messages: []*parleyv1.QueueMessage{{}},
	})
	e.refused("a short id", err, invalid("producer_id", 0))
}

// timeToLive produces a message that expires while it waits for a consumer with a free handler.
func timeToLive(e *env) {
	name := e.topic(&parleyv1.Topic{Partitions: 1}, "g")
	s := e.consume(&parleyv1.ConsumeRequest{Topics: []string{name}, Group: "g", MaxInFlight: 1})
	e.put(name, "1")
	d := s.want("1", 1)
	e.produce(name, &parleyv1.QueueMessage{Payload: []byte("2"), Ttl: durationpb.New(time.Millisecond)})
	e.put(name, "3")
	stored := time.Now()
	e.eventually(func() string {
		if time.Since(stored) < 5*time.Millisecond {
			return "the message has not expired"
		}
		return ""
	})
	e.done(s.ack(d))
	e.done(s.ack(s.want("3", 1)))
	e.stats(name, "g", "waiting 0 running 0 retrying 0 acked 2 dead 0")
}
