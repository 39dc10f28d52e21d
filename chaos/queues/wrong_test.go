package queues

import (
	"fmt"
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// wrong is a change of the story that breaks a promise.
type wrong struct {
	want   chaos.Name
	name   string
	change func(s *story)
}

var wrongTaken = []wrong{
	{Loss, "a message that was taken is nowhere", func(s *story) { s.forget("m1") }},
	{Loss, "a message is not in a stream that keeps everything", func(s *story) {
		s.part(jobs).Entries = s.part(jobs).Entries[1:]
	}},
	{Duplicate, "a message is in the stream twice", func(s *story) {
		e := s.part(jobs).Entries[0]
		e.ID, e.MessageID = "1000000000050-7", id(50)
		s.part(jobs).Entries = append(s.part(jobs).Entries, e)
	}},
	{Duplicate, "a repeat was answered with another id", func(s *story) {
		op := *s.asked("m1")
		op.ID, op.MessageID, op.Idem = "p/again", id(51), "key"
		s.h.Ops = append(s.h.Ops, op)
	}},
	{Unsent, "a message that nobody produced was delivered", func(s *story) {
		d := *s.given("m1", 1)
		d.Mark, d.MessageID = "other", id(52)
		s.h.Deliveries = append(s.h.Deliveries, d)
	}},
	{Unsent, "a message came with another key", func(s *story) { s.given("m1", 1).Key = "other" }},
	{StoredAfterError, "a produce that failed is stored", func(s *story) {
		s.asked("m1").Outcome, s.asked("m1").MessageID = chaos.Failed, ""
	}},
	{StoredAfterError, "a cancelled message appeared", func(s *story) {
		s.h.Ops = append(s.h.Ops, Op{ID: "c", Kind: Cancel, Topic: jobs, Mark: "late", Begin: at(2), End: at(3), Outcome: chaos.OK, DelayMS: none})
	}},
	{Early, "a scheduled message came before its time", func(s *story) { s.given("late", 1).At = at(20) - 1 }},
	{Early, "one of unknown outcome came before it could be due", func(s *story) {
		op := s.asked("late")
		op.Outcome, op.MessageID, op.DueMS, op.AtMS, op.DelayMS = chaos.Unknown, "", 0, 0, 19_001
	}},
	{Early, "a retry came before its delay was over", func(s *story) { s.ended("m4", 1).DelayMS = 5000 }},
	{Early, "a message came before the time that it was given anew", func(s *story) {
		s.asked("late").DueMS = at(30) / 1e6
		s.h.Ops = append(s.h.Ops, Op{
			ID: "r", Kind: Reschedule, Topic: jobs, Mark: "late", Begin: at(2), End: at(3), Outcome: chaos.OK, DelayMS: none, DueMS: at(25) / 1e6,
		})
	}},
}

var wrongGroups = []wrong{
	{Stuck, "a message waits though all was mended", func(s *story) {
		s.forget("m3")
		s.unsettle(3)
	}},
	{Stuck, "not all was done in time", func(s *story) { s.h.Undrained = "something" }},
	{Redelivered, "a message is pending after its ack", func(s *story) { s.unsettle(1) }},
	{Redelivered, "a later delivery came though the first was acknowledged", func(s *story) { s.deliver(12, jobs, "s2", "m1", 2) }},
	{Attempts, "an attempt number went back", func(s *story) { s.given("m4", 3).Attempt = 1; s.given("m4", 1).Attempt = 2 }},
	{Attempts, "there were more attempts than allowed", func(s *story) {
		s.ended("m4", 3).Attempt = 4
		d := s.given("m4", 3)
		d.Attempt = 4
	}},
	{Attempts, "a retry was not counted", func(s *story) {
		s.given("m4", 3).Attempt = 2
	}},
	{DeadLetters, "what was given up is no dead letter", func(s *story) { s.part(jobs).Dead = nil }},
	{DeadLetters, "what failed as often as it may is no dead letter", func(s *story) { s.ended("m4", 3).Kind = Nack }},
	{DeadLetters, "what nobody gave up is a dead letter", func(s *story) { s.ended("m5", 1).Dead = false }},
	{DeadLetters, "what was acknowledged is a dead letter", func(s *story) { s.ended("m5", 1).Kind = Ack }},
	{DeadLetters, "a letter had more attempts than allowed", func(s *story) { s.part(jobs).Dead[0].Attempts = 5 }},
	{Duplicate, "a message is two dead letters", func(s *story) {
		d := s.part(jobs).Dead[0]
		d.ID = "1000000000060-0"
		s.part(jobs).Dead = append(s.part(jobs).Dead, d)
	}},
	{Order, "a later message overtook one that was not delivered", func(s *story) {
		s.given("m1", 1).At = at(2) + sec/2
	}},
	{Order, "a later message overtook one to another session", func(s *story) {
		d := s.given("m2", 1)
		d.Session, d.Stream, d.Client, d.At = "s2", "s2", "c2", at(2)-sec/2
	}},
	{StrictOrder, "the next came while the first was not settled", func(s *story) { s.given("n2", 1).At = at(4) }},
	{StrictOrder, "the first came again after the next was out", func(s *story) {
		s.deliver(8, steps, "s3", "n1", 3)
	}},
}

var wrongSessions = []wrong{
	{Epoch, "an epoch went back", func(s *story) { s.h.Leases[2].Epoch = 9 }},
	{Epoch, "two nodes had one epoch", func(s *story) { s.h.Leases[2].Epoch = 10 }},
	{Gen, "an ack of an older delivery was accepted", func(s *story) { s.settle(14, Ack, "s1", "m3", 1) }},
	{Gen, "two deliveries were settled for good", func(s *story) { s.settle(11, Ack, "s1", "m3", 1) }},
	{Gen, "one delivery was made twice", func(s *story) { s.deliver(2, jobs, "s1", "m2", 1).Token = "another" }},
	{Kept, "a delivery of a session with contact was given to another", func(s *story) { s.given("m3", 2).At = at(7) }},
	{Kept, "a delivery was given to another before its deadline, which was extended", func(s *story) {
		s.h.Streams[0].AckTimeout = 3 * time.Second
		s.h.Ops = append(s.h.Ops, Op{ID: "e", Kind: Extend, Session: "s1", Begin: at(6), End: at(6) + 1, Outcome: chaos.OK})
		s.given("m3", 2).At = at(7) + sec/2
	}},
	{OneKey, "two sessions had messages of a key", func(s *story) {
		s.produce(jobs, "m6", "k", 6)
		s.deliver(5, jobs, "s2", "m6", 1)
	}},
	{Charged, "a delivery that nobody began was counted", func(s *story) { s.h.Streams[0].Reports = true }},
	{Charged, "a dead letter has more attempts than deliveries", func(s *story) { s.part(jobs).Dead[0].Attempts = 3 }},
	{Idle, "a message waited though there was an idle handler", func(s *story) {
		s.given("late", 1).At = at(25)
	}},
	{Full, "an ack was refused because Redis was full", func(s *story) {
		s.h.Faults = []chaos.Fault{{Name: string(chaos.RedisMemory), Target: "redis", Begin: at(2), End: at(9)}}
		s.ended("m1", 1).Outcome = chaos.Unknown
	}},
}

var wrongCounts = []wrong{
	{chaos.Unobserved, "no lease was seen", func(s *story) { s.h.Leases = nil }},
	{chaos.Unobserved, "AdminService was never asked", func(s *story) { s.h.Counts = nil }},
	{Conservation, "a message lies in two places", func(s *story) {
		s.unsettle(3)
		s.part(jobs).Delayed = []Stored{s.part(jobs).Entries[2]}
	}},
	{Conservation, "a dead letter is unsettled", func(s *story) { s.unsettle(5) }},
	{Conservation, "an ack was counted twice", func(s *story) { s.group(jobs).Stats["acked"]++ }},
	{Conservation, "an ack was not counted", func(s *story) { s.group(jobs).Stats["acked"]-- }},
	{Conservation, "a dead letter was not counted", func(s *story) { s.group(jobs).Stats["dead"]-- }},
	{Conservation, "too many were counted as taken", func(s *story) {
		s.grow()
		s.group(steps).Stats["trimmed"]++
	}},
	{Conservation, "a message that was refused was counted as taken", func(s *story) {
		op := s.produce(steps, "n9", "k", 9)
		op.Outcome, op.MessageID = chaos.Failed, ""
		s.grow()
		s.group(steps).Stats["trimmed"]++
	}},
	{Conservation, "a message that may be in one topic was counted in another", func(s *story) {
		op := s.produce(jobs, "m9", "k", 9)
		op.Outcome, op.MessageID = chaos.Unknown, ""
		s.grow()
		s.group(steps).Stats["trimmed"]++
	}},
	{Conservation, "at some moment the counters did not add up", func(s *story) { s.h.Counts[0].Running++ }},
	{AdminMismatch, "AdminService counts other than there is", func(s *story) { s.t.Counts[0].Retrying++; s.t.Counts[0].Waiting-- }},
	{AdminMismatch, "a dead letter is not listed", func(s *story) { s.t.Letters = nil }},
	{AdminMismatch, "a dead letter is listed that is not there", func(s *story) {
		s.t.Letters = append(s.t.Letters, Stored{Topic: jobs, Group: "a", MessageID: id(3)})
	}},
	{AdminMismatch, "a dead letter is listed otherwise", func(s *story) { s.t.Letters[0].Attempts = 2 }},
	{chaos.Liveness, "a call did not end", func(s *story) { s.ended("m1", 1).End += 20 * sec }},
	{chaos.Crash, "a node ended on its own", func(s *story) { s.h.Exits = []chaos.Exit{{Node: "n1", At: at(5)}} }},
}

// wrongHandlers are changes of the story after which the SDK's worker disagrees with its handler.
// They concern attempts 1 and 2 of n1, and n2.
var wrongHandlers = []wrong{
	{Handling, "a message was acknowledged though its handler had failed", func(s *story) { s.h.Handled[1].Kind = Nack }},
	{Handling, "a message was acknowledged before its handler had ended", func(s *story) { s.h.Handled[2].End = s.ended("n2", 1).Begin + 1 }},
	{Handling, "a message was acknowledged that was not handled", func(s *story) { s.h.Handled = s.h.Handled[:2] }},
	{Handling, "a message was given back with another delay", func(s *story) { s.h.Handled[0].DelayMS = 20 }},
	{Handling, "a message was given back and should be a dead letter", func(s *story) { s.h.Handled[0].Dead = true }},
	{Handling, "a message was released that had been handled", func(s *story) { s.ended("n1", 1).Kind = Release }},
	{Handling, "two messages of a key were handled at a time", func(s *story) { s.h.Handled[2].Begin = s.h.Handled[1].End - 1 }},
	{Handling, "messages of a key were handled in another order", func(s *story) { s.given("n1", 2).At = at(6) + sec/2 }},
	{Handling, "a message was handled that was not given", func(s *story) {
		r := s.h.Handled[2]
		r.Begin, r.End, r.MessageID = at(30), at(31), id(30)
		s.h.Handled = append(s.h.Handled, r)
	}},
	{Handling, "a worker gave up", func(s *story) {
		s.h.Failures = []Failure{{Who: Working, Addr: "w-1", Begin: at(5), End: at(5), Err: "final"}}
	}},
	{chaos.Unobserved, "a worker handled nothing", func(s *story) { s.h.Workers = append(s.h.Workers, "v") }},
	{chaos.Unobserved, "a worker of a like name handled nothing", func(s *story) { s.h.Workers = append(s.h.Workers, "w-") }},
}

// unseen returns a change that adds a fault and a failure of the observer or the auditor.
func unseen(who, addr, fault, target string, after int64) func(s *story) {
	return func(s *story) {
		s.h.Faults = append(s.h.Faults, chaos.Fault{Name: fault, Target: target, Begin: at(5), End: at(7)})
		s.h.Failures = append(s.h.Failures, Failure{
			Who: who, Addr: addr, Begin: at(7) + after, End: at(7) + after + sec/2, Try: auditTries, Err: "refused",
		})
	}
}

var wrongLooks = []wrong{
	{chaos.Unobserved, "the observer fails though nothing is broken", unseen(Observing, "redis", string(chaos.LostReplies), "all", -sec)},
	{chaos.Unobserved, "the observer fails though only a node is broken", unseen(Observing, "redis", string(chaos.NodeKill), "n1", -sec)},
	{chaos.Unobserved, "the observer fails though only nodes are restarted", unseen(Observing, "redis", string(chaos.Roll), "all", -sec)},
	{chaos.Unobserved, "the observer fails long after the fault", unseen(Observing, "redis", string(chaos.RedisKill), "redis", recovery+1)},
	{chaos.Unobserved, "the observer fails before the fault", unseen(Observing, "redis", string(chaos.RedisKill), "redis", -3*sec)},
	{chaos.Unobserved, "the auditor fails though another node is broken", unseen(Auditing, "n1", string(chaos.NodeKill), "n2", -sec)},
	{chaos.Unobserved, "the auditor fails though no more than replies are lost", unseen(Auditing, "n1", string(chaos.LostReplies), "all", -sec)},
	{chaos.Unobserved, "the auditor fails long after the fault", unseen(Auditing, "n1", string(chaos.NodeKill), "n1", recovery+1)},
}

// grow counts one more message in topic steps, which has left the log.
func (s *story) grow() {
	s.part(steps).Ord++
	s.group(steps).Sent = fmt.Sprintf("1000000000009-%d", s.part(steps).Ord)
}

// right are changes of the story that break no promise.
var right = []struct {
	name   string
	change func(s *story)
}{
	{"an ack of unknown outcome was done", func(s *story) { s.ended("m1", 1).Outcome = chaos.Unknown }},
	{"an ack of unknown outcome was not done, and the message came again", func(s *story) {
		op := s.settle(4, Ack, "s1", "m3", 1)
		op.Outcome, op.End = chaos.Unknown, forever
	}},
	{"an ack without an answer was done, and its repeat is answered after another delivery had come", func(s *story) {
		first := s.settle(11, Nack, "s1", "m3", 1)
		again := *first
		first.Outcome, first.End = chaos.Unknown, at(11)+sec/2
		again.ID, again.Begin, again.End, again.Repeat = "again", at(12)+sec/2, at(12)+sec/2+1, true
		s.h.Ops = append(s.h.Ops, again)
	}},
	{"a delivery was given to another after its deadline", func(s *story) {
		s.h.Streams[0].AckTimeout = 3 * time.Second
		s.given("m3", 2).At = at(7)
	}},
	{"a delivery was given to another because its client did not present it", func(s *story) {
		s.h.Streams = append(s.h.Streams, Stream{
			ID: "s1b", Session: "s1", Client: "c1", Addr: "n2", Topic: jobs, Group: "a", Asked: at(5), Begin: at(5) + 1, Resumes: 1, Held: []string{"other"},
			Concurrency: 20, AckTimeout: 30 * time.Second, Grace: 4 * time.Second,
		})
		s.given("m3", 2).At = at(7)
	}},
	{"a nack without an answer was done, and its repeat is answered after the message came again", func(s *story) {
		first := s.ended("m4", 1)
		again := *first
		again.ID, again.Begin, again.End = "again", s.given("m4", 2).At+1, s.given("m4", 2).At+2
		first.Outcome, first.End = chaos.Unknown, again.Begin-1
		first.DelayMS, again.DelayMS = 1, 1
		s.h.Ops = append(s.h.Ops, again)
	}},
	{"a produce of unknown outcome is not there", func(s *story) {
		op := s.produce(jobs, "m7", "k", 7)
		op.Outcome, op.MessageID, op.End = chaos.Unknown, "", forever
	}},
	{"a produce of unknown outcome is counted, and was trimmed", func(s *story) {
		op := s.produce(steps, "n9", "k", 9)
		op.Outcome, op.MessageID, op.End = chaos.Unknown, "", forever
		s.grow()
		s.group(steps).Stats["trimmed"]++
		s.recount()
	}},
	{"what was released comes again", func(s *story) {
		s.produce(steps, "n3", "other", 3)
		s.deliver(8, steps, "s3", "n3", 1)
		s.settle(8, Release, "s3", "n3", 1)
		d := s.deliver(9, steps, "s3", "n3", 2)
		d.Attempt = 1
		s.settle(10, Ack, "s3", "n3", 2).Attempt = 1
		s.h.Handled[len(s.h.Handled)-1].Attempt = 1
		s.grow()
		s.group(steps).Stats["acked"]++
		s.recount()
	}},
	{"a message was lost with its consumers as often as it may", func(s *story) {
		s.h.Streams[1].AckTimeout = 20 * time.Second
		s.deliver(40, jobs, "s2", "m3", 3)
		s.lose("m3")
	}},
	{"the observer fails as Redis is away", unseen(Observing, "redis", string(chaos.RedisKill), "redis", -sec)},
	{"the observer fails right after Redis was away", unseen(Observing, "redis", string(chaos.RedisKill), "redis", recovery)},
	{"the auditor fails as a reply is lost", func(s *story) {
		unseen(Auditing, "n1", string(chaos.LostReplies), "all", -sec)(s)
		s.h.Failures[0].Try--
	}},
	{"the auditor fails as its node is away", unseen(Auditing, "n1", string(chaos.NodeKill), "n1", -sec)},
	{"the auditor fails as Redis is away", unseen(Auditing, "n1", string(chaos.RedisKill), "redis", -sec)},
	{"the auditor fails as nodes are restarted", unseen(Auditing, "n1", string(chaos.Roll), "all", -sec)},
	{"a worker that stops gives back what it has not begun", func(s *story) {
		s.produce(steps, "n3", "other", 3)
		s.deliver(8, steps, "s3", "n3", 1)
		s.settle(8, Release, "s3", "n3", 1)
		s.h.Handled = s.h.Handled[:3]
		d := s.deliver(9, steps, "s3", "n3", 2)
		d.Attempt = 1
		s.settle(10, Ack, "s3", "n3", 2).Attempt = 1
		s.h.Handled[len(s.h.Handled)-1].Attempt = 1
		s.grow()
		s.group(steps).Stats["acked"]++
		s.recount()
	}},
	{"what was scheduled may have been cancelled", func(s *story) {
		s.h.Deliveries = slices.DeleteFunc(s.h.Deliveries, func(d Delivery) bool { return d.Mark == "late" })
		s.forget("late")
		s.part(jobs).Entries = s.part(jobs).Entries[:5]
		s.part(jobs).Unscheduled++
		s.part(jobs).Ord--
		s.group(jobs).Sent = "1000000000005-5"
		s.h.Ops = append(s.h.Ops, Op{
			ID: "c", Kind: Cancel, Topic: jobs, Mark: "late", Begin: at(2), End: at(2) + int64(time.Second), Outcome: chaos.Unknown, DelayMS: none,
		})
		s.recount()
	}},
}

// lose changes the story so that a message is a dead letter instead of acked, as if its consumers
// had been lost as often as allowed.
func (s *story) lose(mark string) {
	op := *s.asked(mark)
	topic := op.Topic
	s.forget(mark)
	dead := Stored{
		ID: op.MessageID[2:15] + "-0", MessageID: op.MessageID, Mark: mark, Key: op.Key, Group: "a", Attempts: 3, Topic: topic,
	}
	s.part(topic).Dead = append(s.part(topic).Dead, dead)
	s.t.Letters = append(s.t.Letters, dead)
	s.group(topic).Stats["dead"]++
	s.recount()
}

// recount sets AdminService's counts to match Redis.
func (s *story) recount() {
	s.t.Counts = nil
	for _, n := range s.t.spots() {
		s.t.Counts = append(s.t.Counts, n)
	}
}
