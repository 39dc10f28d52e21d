package parleytest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// group is a consumer group.
type group struct {
	settings *parleyv1.Group
	topic    *topic
	// jobs are the messages that the group has not settled, ordered by seq.
	jobs []*job
	// verdicts are the last verdicts that counted, by the seq of the message.
	verdicts map[int]verdict
	// counted are the totals by partition. Only what is not current is set.
	counted map[int32]*parleyv1.GroupStats
}

// job is a message that a group has not settled.
type job struct {
	message *message
	group   *group
	// seq is the position of the message, or that of its last replay.
	seq        int
	attempts   int32
	deliveries int32
	// retry is when it is delivered again after an attempt that failed, or zero.
	retry time.Time
	since time.Time
	// reason and code are those of the last failure.
	reason, code string

	// holder is the session that has it, or nil, and token identifies the delivery. Without a verdict
	// or an extension it is lost at until, and at limit in any case.
	holder       *session
	token        string
	begun        bool
	until, limit time.Time
}

// verdict is what a session decided about a delivery.
type verdict struct {
	token   string
	session string
	what    string
}

// addGroup creates a group with the settings, completed with the defaults, and returns it.
func (t *topic) addGroup(settings *parleyv1.Group) *group {
	completeGroup(settings)
	settings.Paused = false
	g := &group{settings: settings, topic: t}
	g.seek(settings.GetStart())
	t.groups[settings.GetName()] = g
	t.settings.Groups = slices.Sorted(maps.Keys(t.groups))
	return g
}

func completeGroup(g *parleyv1.Group) {
	g.Mode = cmp.Or(g.GetMode(), parleyv1.GroupMode_GROUP_MODE_SHARED)
	g.Order = cmp.Or(g.GetOrder(), parleyv1.DeliveryOrder_DELIVERY_ORDER_KEY)
	if g.GetRetry() == nil {
		g.Retry = &parleyv1.RetryPolicy{}
	}
	if g.GetRetry().MaxAttempts == nil {
		g.Retry.MaxAttempts = proto.Int32(16)
	}
	orDuration(&g.Retry.MinBackoff, time.Second)
	orDuration(&g.Retry.MaxBackoff, 10*time.Minute)
	orDuration(&g.AckTimeout, 30*time.Second)
	orDuration(&g.HandlerTimeout, 15*time.Minute)
	orDuration(&g.MaxRunTime, max(time.Hour, g.GetHandlerTimeout().AsDuration()+time.Minute))
	orDuration(&g.ResumeGrace, 10*time.Second)
	if g.GetStart() == nil {
		g.Start = &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_BEGINNING}}
	}
}

// seek makes the messages from a position on wait for delivery, with no attempts made, and no
// others. The counts begin anew.
func (g *group) seek(start *parleyv1.GroupStart) {
	g.jobs, g.verdicts, g.counted = nil, make(map[int]verdict), make(map[int32]*parleyv1.GroupStats)
	if start.GetPosition() == parleyv1.StartPosition_START_POSITION_END {
		return
	}
	for _, m := range g.topic.log {
		if start.GetTime() == nil || !m.at.Before(start.GetTime().AsTime()) {
			g.jobs = append(g.jobs, g.newJob(m))
		}
	}
}

func (g *group) newJob(m *message) *job {
	return &job{message: m, group: g, seq: m.seq, since: time.Now()}
}

// count returns the totals of the partition of a message.
func (g *group) count(m *message) *parleyv1.GroupStats {
	if g.counted[m.partition] == nil {
		g.counted[m.partition] = &parleyv1.GroupStats{Group: g.settings.GetName()}
	}
	return g.counted[m.partition]
}

// find returns the job with a seq, or nil.
func (g *group) find(seq int) *job {
	at, ok := slices.BinarySearchFunc(g.jobs, seq, func(j *job, seq int) int { return j.seq - seq })
	if !ok {
		return nil
	}
	return g.jobs[at]
}

// settled removes a job, and frees its unique key if no other group has it.
func (g *group) settled(j *job) {
	j.drop()
	if at := slices.Index(g.jobs, j); at >= 0 {
		g.jobs = slices.Delete(g.jobs, at, at+1)
	}
	if len(g.topic.unsettled(j.message)) == 0 {
		g.topic.freeUnique(j.message)
	}
}

// drop takes a job from the session that holds it. The session is not told.
func (j *job) drop() {
	if j.holder != nil {
		delete(j.holder.held, j.token)
	}
	j.holder, j.token, j.begun = nil, "", false
	j.since = time.Now()
}

// lose takes a job from its session, which is told. If a handler had begun it, the attempt has
// failed.
func (j *job) lose(cause parleyv1.LostDeliveries_Cause) {
	begun, holder, token := j.begun, j.holder, j.token
	j.drop()
	holder.tellLost(cause, token)
	if begun {
		j.failed(time.Time{}, lostReasons[cause], "")
		return
	}
	j.group.count(j.message).Redelivered++
}

var lostReasons = map[parleyv1.LostDeliveries_Cause]string{
	parleyv1.LostDeliveries_CAUSE_ACK_TIMEOUT:  "the ack timeout passed",
	parleyv1.LostDeliveries_CAUSE_MAX_RUN_TIME: "the longest run time passed",
	parleyv1.LostDeliveries_CAUSE_NO_CONTACT:   "the consumer was lost",
}

// begin records that a handler has begun a job.
func (j *job) begin(now time.Time) {
	if j.begun {
		return
	}
	j.begun, j.since = true, now
	j.limit = now.Add(max(j.group.settings.GetMaxRunTime().AsDuration(), j.timeout()))
	if !j.message.wire.GetUnique().GetWhileRunning() {
		j.group.topic.freeUnique(j.message)
	}
}

// timeout is the longest time that a handler may take.
func (j *job) timeout() time.Duration {
	if t := j.message.wire.GetTimeout(); t != nil {
		return t.AsDuration()
	}
	return j.group.settings.GetHandlerTimeout().AsDuration()
}

// failed charges an attempt and schedules another one, at once if retry is zero. Without attempts
// left it makes a dead letter.
func (j *job) failed(retry time.Time, reason, code string) {
	j.attempts++
	j.reason, j.code = reason, code
	limit := j.group.settings.GetRetry().GetMaxAttempts()
	if j.message.wire.MaxAttempts != nil {
		limit = j.message.wire.GetMaxAttempts()
	}
	if j.attempts >= limit || code != "" && slices.Contains(j.group.settings.GetRetry().GetNonRetryableCodes(), code) {
		j.bury()
		return
	}
	j.retry = retry
	j.group.count(j.message).Retried++
}

// bury turns a job into a dead letter.
func (j *job) bury() {
	t, m := j.group.topic, j.message
	j.group.settled(j)
	j.group.count(m).Dead++
	t.dead = append(t.dead, &deadLetter{message: m, DeadLetter: &parleyv1.DeadLetter{
		DeadLetterId: fmt.Sprintf("%d-%d-%d", m.partition, time.Now().UnixMilli(), j.seq), MessageId: m.id,
		Partition: m.partition, Group: j.group.settings.GetName(), Key: m.wire.GetKey(), Payload: m.wire.GetPayload(),
		Headers: m.wire.GetHeaders(), Attempts: j.attempts, Reason: j.reason, Code: j.code, ProduceTime: timestamppb.New(m.at),
		DeadLetterTime: timestamppb.Now(), PayloadBytes: int32(len(m.wire.GetPayload())),
	}})
}

// expired reports whether the message's time to live has passed before a handler began it.
func (j *job) expired(now time.Time) bool {
	ttl := j.message.wire.GetTtl()
	return ttl != nil && !j.begun && j.attempts == 0 && !now.Before(j.message.at.Add(ttl.AsDuration()))
}

// expire removes the jobs whose time to live has passed. It returns when to look again: when
// another one passes, or a retry is due. It returns the zero time if there is no such time.
func (g *group) expire(now time.Time) (next time.Time) {
	var gone []*job
	for _, j := range g.jobs {
		switch {
		case j.expired(now) && j.holder == nil:
			gone = append(gone, j)
		case j.message.wire.GetTtl() != nil && j.attempts == 0 && j.holder == nil:
			next = sooner(next, j.message.at.Add(j.message.wire.GetTtl().AsDuration()))
		case j.retry.After(now):
			next = sooner(next, j.retry)
		default:
		}
	}
	for _, j := range gone {
		g.settled(j)
		g.count(j.message).Expired++
	}
	return next
}

// sooner returns the earlier of two times that is not zero.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ready returns the jobs that may be delivered to a session now, in order, at most as many as it
// may still hold.
func (g *group) ready(s *session, now time.Time, room, bytes int64) (ready []*job) {
	if g.settings.GetPaused() {
		return nil
	}
	strict := g.settings.GetOrder() == parleyv1.DeliveryOrder_DELIVERY_ORDER_STRICT
	ordered := g.settings.GetOrder() != parleyv1.DeliveryOrder_DELIVERY_ORDER_NONE
	blocked := make(map[string]bool) // keys with an earlier message that must come first
	for _, j := range g.jobs {
		if int64(len(ready)) >= room || bytes <= 0 && len(ready) > 0 {
			break
		}
		key := j.message.wire.GetKey()
		retrying := j.retry.After(now)
		switch {
		case j.holder != nil:
			blocked[key] = blocked[key] || strict || j.holder != s
			continue
		case retrying:
			blocked[key] = blocked[key] || strict
			continue
		case ordered && key != "" && blocked[key]:
			continue
		case !g.mine(s, j.message.partition):
			blocked[key] = true
			continue
		}
		size := j.size()
		if size > bytes && (len(ready) > 0 || len(s.held) > 0) {
			break
		}
		bytes -= size
		ready = append(ready, j)
		blocked[key] = blocked[key] || strict
	}
	return ready
}

// mine reports whether a session may get messages of a partition. In an exclusive group that is one
// session, once no other one holds a message of it.
func (g *group) mine(s *session, partition int32) bool {
	if g.settings.GetMode() != parleyv1.GroupMode_GROUP_MODE_EXCLUSIVE {
		return true
	}
	if !slices.Contains(s.assigned[g.topic.settings.GetName()], partition) {
		return false
	}
	return !slices.ContainsFunc(g.jobs, func(j *job) bool {
		return j.message.partition == partition && j.holder != nil && j.holder != s
	})
}

// size is the size of a delivery as the limits of a session count it.
func (j *job) size() int64 {
	w := j.message.wire
	n := len(w.GetKey()) + len(w.GetPayload())
	for k, v := range w.GetHeaders() {
		n += len(k) + len(v)
	}
	return int64(n)
}

// deliver passes a job to a session, and returns the delivery.
func (j *job) deliver(s *session, now time.Time) *parleyv1.Delivery {
	j.deliveries++
	m := j.message
	j.holder, j.token = s, fmt.Sprintf("%s.%d.%d.%d", j.group.topic.settings.GetName(), m.partition, j.seq, j.deliveries)
	j.retry, j.since = time.Time{}, now
	j.until, j.limit = now.Add(s.timeoutOf(j.group)), time.Time{}
	s.held[j.token] = j
	if !s.reportsBegun {
		j.begin(now)
	}
	d := &parleyv1.Delivery{
		Token: j.token, MessageId: m.id, Partition: m.partition, Key: m.wire.GetKey(), Payload: m.wire.GetPayload(),
		Headers: m.wire.GetHeaders(), Attempt: j.attempts + 1, ProduceTime: timestamppb.New(m.at), Topic: j.group.topic.settings.GetName(),
		Delivery: j.deliveries,
	}
	d.Timeout = m.wire.GetTimeout()
	if d.GetTimeout() == nil {
		d.Timeout = j.group.settings.GetHandlerTimeout()
	}
	return d
}

// parseToken returns the topic and the seq that a delivery token names, and whether it is one.
func parseToken(token string) (topicName string, seq int, ok bool) {
	var partition, delivery int
	topicName, rest, found := strings.Cut(token, ".")
	n, err := fmt.Sscanf(rest, "%d.%d.%d", &partition, &seq, &delivery)
	return topicName, seq, found && topicName != "" && err == nil && n == 3
}

// shareLocked assigns each partition of an exclusive group to one of its sessions, in turn.
func (s *shared) shareLocked(g *group) {
	if g.settings.GetMode() != parleyv1.GroupMode_GROUP_MODE_EXCLUSIVE {
		return
	}
	name := g.topic.settings.GetName()
	all := slices.DeleteFunc(s.sessionsLocked(name, g.settings.GetName()), func(one *session) bool { return one.leaving || one.loose })
	for n, one := range all {
		var parts []int32
		for p := range g.topic.settings.GetPartitions() {
			if int(p)%len(all) == n {
				parts = append(parts, p)
			}
		}
		before, told := one.assigned[name]
		if !told || !slices.Equal(parts, before) {
			one.assigned[name] = parts
			one.tellAssigned(g)
		}
	}
	s.wakeLocked()
}
