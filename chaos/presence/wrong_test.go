package presence

import (
	"slices"

	"github.com/parleyhq/parley/chaos"
)

// wrong is a change of the story that breaks a promise.
type wrong struct {
	want   chaos.Name
	name   string
	change func(s *story)
}

var wrongStates = []wrong{
	{FalseOffline, "a watcher is told that a steady user is offline", func(s *story) {
		s.tell("w1", ViaFrame, 50, 3, Seen{User: "ann"})
		s.tell("w1", ViaFrame, 50.1, 4, Seen{User: "ann", State: "8f"})
	}},
	{FalseOffline, "a watcher is told of a brief absence", func(s *story) {
		s.tell("w1", ViaFrame, 20.2, 3, Seen{User: "bob"})
		s.tell("w1", ViaFrame, 20.4, 4, Seen{User: "bob", State: "2f"})
		s.untold(43.1, "bob")
	}},
	{FalseOffline, "GetPresence does not have a steady user", func(s *story) { s.op(GetPresence, 50).Users[0].State = "" }},
	{FalseOffline, "a flush shows a steady user offline", func(s *story) {
		s.fault(chaos.RedisFlush, "redis", 49, 49)
		s.tell("w1", ViaFrame, 50, 3, Seen{User: "ann"})
		s.tell("w1", ViaFrame, 50.1, 4, Seen{User: "ann", State: "8f"})
	}},
	{FalseOffline, "users of a killed node that came back at once are shown offline", func(s *story) {
		s.kill(50, 51.5)
		s.tell("w1", ViaFrame, 59, 3, Seen{User: "ann"})
		s.tell("w1", ViaFrame, 59.1, 4, Seen{User: "ann", State: "8f"})
	}},
	{FalseOffline, "a node that is stopped for less than its lease is declared dead", func(s *story) {
		s.fault(chaos.NodeStop, "n1", 50, 53)
		for _, watch := range []string{"w2"} {
			s.tell(watch, ViaFrame, 52, 3, Seen{User: "ann"})
			s.tell(watch, ViaFrame, 54, 4, Seen{User: "ann", State: "8f"})
		}
	}},
	{Ghost, "a watcher is told that a user is online who left long ago", func(s *story) {
		s.tell("w1", ViaFrame, 53, 4, Seen{User: "bob", State: "2f"})
	}},
	{Ghost, "a watcher is told a platform that the user does not have", func(s *story) {
		s.h.Conns = append(s.h.Conns, Conn{
			ID: "x", Client: "ann", User: "ann", Device: "ann-x", Platform: 6, Addr: "n1", Begin: at(1), First: at(1), Last: at(2), End: at(2), How: Left,
		})
		s.tell("w1", ViaFrame, 50, 3, Seen{User: "ann", State: "6f8f"})
		s.tell("w1", ViaFrame, 50.1, 4, Seen{User: "ann", State: "8f"})
	}},
	{Ghost, "GetPresence has a user who left long ago", func(s *story) { s.op(GetPresence, 50).Users[1].State = "2f" }},
	{Ghost, "GetPresence of a node without Redis has a user who left long ago", func(s *story) {
		s.fault(chaos.CutRedis, "n1", 38, 55)
		s.op(GetPresence, 50).Users[1].State = "2f"
	}},
	{Ghost, "the users of a dead node stay online", func(s *story) {
		s.fault(chaos.NodeKill, "n2", 40, 41)
		c := s.conn("bob", 1)
		c.How, c.Last = Lost, at(39.9)
		s.untold(43.1, "bob")
		s.tell("w1", ViaFrame, 43.1, 3, Seen{User: "bob", State: "2b"})
		s.h.Conns = slices.DeleteFunc(s.h.Conns, func(c Conn) bool { return c.Begin > at(59) })
		s.tell("w1", ViaFrame, 88, 4, Seen{User: "bob", State: "2f"})
	}},
	{Missed, "a watcher is not told that a user left", func(s *story) { s.untold(43.1, "bob") }},
	{Missed, "a watcher is not told of a user whom it watches again", func(s *story) {
		s.watchAgain(61)
		s.tell("w1", ViaFrame, 75, 5, Seen{User: "bob", State: "2b"})
		s.tell("w1", ViaFrame, 93.1, 6, Seen{User: "bob"})
	}},
	{Missed, "a watcher is not told that a user came", func(s *story) { s.untold(60.1, "bob") }},
	{List, "a listing lacks a steady user", func(s *story) {
		op := s.op(ListOnline, 50)
		op.Users = op.Users[1:]
	}},
	{List, "a listing has a user twice", func(s *story) {
		op := s.op(ListOnline, 50)
		op.Users = append(op.Users, op.Users[0])
	}},
}

// watchAgain changes the story so that w1 does not watch bob from 44 s until a time, and is told
// nothing of bob from 60 s on.
func (s *story) watchAgain(again float64) {
	for _, op := range []Op{{Begin: at(44), Remove: []string{"bob"}}, {Begin: at(again), Add: []string{"bob"}}} {
		op.Kind, op.Client, op.Addr, op.Stream, op.End, op.Outcome = UpdateWatch, "w1", "n1", "w1", op.Begin+sec/100, chaos.OK
		s.h.Ops = append(s.h.Ops, op)
	}
	s.untold(60.1, "bob")
}

// kill changes the story so that n1 is killed at a time and ann is at n2 from another time.
func (s *story) kill(killed, back float64) {
	s.fault(chaos.NodeKill, "n1", killed, killed+3)
	c := s.conn("ann", 0)
	c.Last, c.End, c.How = at(killed-0.1), at(killed+0.1), Lost
	s.connect("ann-1", "ann", 8, "n2", back, 90).Fresh = false
}

var wrongStreams = []wrong{
	{Repeat, "a stream carries a state twice", func(s *story) { s.tell("w1", ViaFrame, 50, 3, Seen{User: "ann", State: "8f"}) }},
	{Backwards, "a revision falls", func(s *story) { s.told(60.1, "bob").Revision = 1 }},
	{Backwards, "two states have one revision", func(s *story) { s.told(60.1, "bob").Revision = 3 }},
	{chaos.Liveness, "a call does not end", func(s *story) { s.op(GetPresence, 50).End += 20 * sec }},
	{chaos.Liveness, "a read fails although nothing is broken", func(s *story) {
		s.op(GetPresence, 50).Outcome, s.op(GetPresence, 50).Err = chaos.Failed, "unavailable: no"
	}},
	{chaos.Liveness, "a watcher's stream breaks although nothing is broken", func(s *story) {
		s.h.Watches = append(s.h.Watches, Watch{ID: "w3", Client: "w3", Addr: "n1", Begin: at(1), End: at(2), How: Lost, Err: "reset"})
	}},
	{chaos.Liveness, "a device's stream breaks although nothing is broken", func(s *story) { s.conn("bob", 1).How = Lost }},
	{chaos.Crash, "a node ends on its own", func(s *story) { s.h.Exits = []chaos.Exit{{Node: "n1", At: at(100)}} }},
	{chaos.Unobserved, "a node answers no listing", func(s *story) {
		s.h.Ops = slices.DeleteFunc(s.h.Ops, func(op Op) bool { return op.Kind == ListOnline && op.Addr == "n2" })
	}},
	{chaos.Unobserved, "no watcher is told anything", func(s *story) { s.h.Frames = nil }},
	{chaos.Unobserved, "the end is not read", func(s *story) { s.t.Settled = Snapshot{} }},
}

var wrongLogins = []wrong{
	{TwoWinners, "the older login keeps its stream", func(s *story) {
		c := s.conn("eve", 0)
		c.How, c.Kick, c.Last, c.End = Closed, nil, at(40), at(40.1)
	}},
	{TwoWinners, "the older login keeps its stream after NATS is back", func(s *story) {
		s.fault(chaos.NATSAway, "nats", 25, 32)
		c := s.conn("eve", 0)
		c.How, c.Kick, c.Last, c.End = Closed, nil, at(50), at(50.1)
	}},
	{TwoWinners, "two logins of a class keep their streams", func(s *story) {
		s.h.Policy = policyClass
		s.connect("ann-7", "ann", 1, "n1", 10, 30)
		s.connect("ann-8", "ann", 2, "n1", 11, 30)
	}},
	{KickLoop, "both logins are kicked", func(s *story) {
		c := s.conn("eve", 1)
		c.How, c.Kick = Kicked, &Kick{Cause: byLogin, Device: "eve-1", Platform: 1}
	}},
	{KickLoop, "a login is kicked twice", func(s *story) {
		again := *s.conn("eve", 0)
		again.ID, again.Fresh, again.Begin, again.First, again.Last, again.End = "e", false, at(31), 0, 0, at(31.1)
		s.h.Conns = append(s.h.Conns, again)
	}},
	{WrongWinner, "the older login wins", func(s *story) {
		s.conn("eve", 0).How, s.conn("eve", 0).Kick = Closed, nil
		c := s.connect("eve-3", "eve", 1, "n1", 85, 85.2)
		c.How, c.Kick = Kicked, &Kick{Cause: byLogin, Device: "eve-2", Platform: 1}
	}},
	{WrongWinner, "a login that the client gave up wins long after", func(s *story) {
		c := s.connect("eve-0", "eve", 1, "n1", 21, 23)
		c.First, c.Last, c.How = 0, 0, Lost
		s.conn("eve", 0).Kick.Device = "eve-0"
		s.conn("eve", 0).Begin = at(26)
	}},
	{WrongWinner, "a login of another slot wins", func(s *story) { s.conn("eve", 0).Kick.Device = "ann-1" }},
	{WrongWinner, "the winner is unknown", func(s *story) { s.conn("eve", 0).Kick.Device = "nobody" }},
	{WrongWinner, "the cause is wrong", func(s *story) { s.conn("eve", 0).Kick.Cause = replaced }},
}

var wrongEnds = []wrong{
	{Missed, "the views do not agree in time", func(s *story) { s.h.Unsettled = "something" }},
	{Missed, "a watcher has another flag at the end", func(s *story) { s.told(65.2, "bob").State = "2f" }},
	{Missed, "a watcher never got a user", func(s *story) { s.untold(0, "eve") }},
	{Missed, "a watcher is lagging at the end", func(s *story) { s.tell("w1", ViaFrame, 75, 1).Lagging = new(true) }},
	{Missed, "GetPresence has another flag at the end", func(s *story) { s.op(GetPresence, 81).Users[1].State = "2f" }},
	{Missed, "a listing lacks a user at the end", func(s *story) {
		op := s.op(ListOnline, 81)
		op.Users = op.Users[:2]
	}},
	{Missed, "Redis lacks a user at the end", func(s *story) {
		s.t.Settled.Parts = s.t.Settled.Parts[1:]
	}},
	{Missed, "Redis has a user whose part has expired", func(s *story) { s.t.Settled.Parts[0].UntilMS = ms(80) }},
	{Missed, "Redis does not list a user as online", func(s *story) { s.t.Settled.Online = s.t.Settled.Online[1:] }},
	{Event, "a renewal is logged", func(s *story) {
		log := &s.t.Settled.Logs[0]
		log.Seq++
		log.Entries = append(log.Entries, Entry{Seq: 2, AtMS: ms(20), User: "ann", State: "8f"})
	}},
	{Event, "a state is logged twice", func(s *story) {
		log := &s.t.Settled.Logs[1]
		log.Entries = slices.Insert(log.Entries, 5, Entry{Seq: 6, AtMS: ms(60.5), User: "bob", State: "2f"})
		log.Entries[6].Seq, log.Seq = 7, 7
	}},
	{Event, "an entry has no reason", func(s *story) { s.t.Settled.Logs[0].Entries[0].AtMS = ms(50) }},
	{Event, "an entry has no reason while the clock is moved", func(s *story) {
		s.fault(RedisClock, "-10s", 48, 54)
		s.t.Settled.Logs[0].Entries[0].AtMS = ms(40)
	}},
	{Event, "a position is missing", func(s *story) {
		log := &s.t.Settled.Logs[1]
		log.Entries = slices.Delete(log.Entries, 2, 3)
	}},
	{Event, "the end of the log is missing", func(s *story) { s.t.Settled.Logs[1].Seq = 9 }},
	{Event, "a log is empty", func(s *story) { s.t.Settled.Logs[0].Entries = nil }},
	{Leak, "a part is not in the set of its node", func(s *story) { s.t.Settled.Members = s.t.Settled.Members[1:] }},
	{Leak, "the set of a node has a user without a part", func(s *story) {
		s.t.Settled.Members = append(s.t.Settled.Members, Member{Node: "c.1", User: "ann"})
	}},
	{Leak, "a part is left", func(s *story) { s.t.Left.Parts = []Part{{User: "ann", Node: "a.1"}} }},
	{Leak, "a user is listed as online after all have left", func(s *story) { s.t.Left.Online = []string{"ann"} }},
	{Leak, "a node counts a watched user after all streams have ended", func(s *story) { s.t.Gauges["n2"][gauges[2]] = 1 }},
	{chaos.Unobserved, "a node does not serve its figures", func(s *story) { s.t.Gauges["n2"] = nil }},
	{Leak, "the set of a node is left", func(s *story) { s.t.Left.Members = []Member{{Node: "a.1", User: "ann"}} }},
}

// right are changes of the story that break no promise.
var right = []struct {
	name   string
	change func(s *story)
}{
	{"a part was restored without an entry in between", func(s *story) {
		s.fault(chaos.RedisFlush, "redis", 58, 58)
		log := &s.t.Settled.Logs[1]
		log.Entries = slices.Insert(log.Entries, 5, Entry{Seq: 6, AtMS: ms(60.5), User: "bob", State: "2f"})
		log.Entries[6].Seq, log.Seq = 7, 7
	}},
	{"a user that is watched again is not known for a moment", func(s *story) {
		s.watchAgain(65.4)
		s.tell("w1", ViaFrame, 70, 5, Seen{User: "bob", State: "2b"})
		s.tell("w1", ViaFrame, 93.1, 6, Seen{User: "bob"})
	}},
	{"a login that the client gave up reaches its node late", func(s *story) {
		s.fault(chaos.NodeStop, "n1", 26, 32.5)
		c := s.connect("eve-0", "eve", 1, "n1", 27, 29)
		c.First, c.Last, c.How = 0, 0, Lost
		s.connect("eve-0", "eve", 1, "n2", 33, 90).Fresh = false
		c = s.conn("eve", 1)
		c.Last, c.End, c.How, c.Kick = at(32.6), at(32.7), Kicked, &Kick{Cause: byLogin, Device: "eve-0", Platform: 1}
	}},
	{"entries have the time of a clock that was moved", func(s *story) {
		s.fault(RedisClock, "10s", 64, 70)
		s.t.Settled.Logs[1].Entries[5].AtMS = ms(75.05)
	}},
	{"the user of a killed node is shown offline until she is back, after the lease", func(s *story) {
		s.kill(50, 61)
		for _, watch := range []string{"w1", "w2"} {
			s.tell(watch, ViaFrame, 59, 3, Seen{User: "ann"})
			s.tell(watch, ViaFrame, 61.1, 4, Seen{User: "ann", State: "8f"})
		}
	}},
	{"a node that is stopped for longer than its lease is declared dead", func(s *story) {
		s.fault(chaos.NodeStop, "n1", 50, 64)
		s.tell("w2", ViaFrame, 58, 3, Seen{User: "ann"})
		s.tell("w2", ViaFrame, 65, 4, Seen{User: "ann", State: "8f"})
	}},
	{"a node that is cut off from both is declared dead", func(s *story) {
		s.fault(chaos.CutRedis, "n1", 49, 64)
		s.fault(chaos.CutNATS, "n1", 50, 64)
		s.tell("w2", ViaFrame, 59, 3, Seen{User: "ann"})
		s.tell("w2", ViaFrame, 65, 4, Seen{User: "ann", State: "8f"})
	}},
	{"a node without Redis writes a departure late", func(s *story) {
		s.fault(chaos.CutRedis, "n2", 38, 50)
		for _, watch := range []string{"w1", "w2"} {
			s.retell(watch, 43.1, 52)
		}
		s.t.Settled.Logs[1].Entries[3].AtMS = ms(51.9)
	}},
	{"a watcher on a node that was stopped hears late", func(s *story) {
		s.fault(chaos.NodeStop, "n1", 42, 52)
		s.retell("w1", 43.1, 53)
	}},
	{"an answer of UpdateWatch and a frame overtake each other", func(s *story) {
		s.h.Ops = append(s.h.Ops, Op{
			Kind: UpdateWatch, Client: "w1", Addr: "n1", Begin: at(43), End: at(43.2), Outcome: chaos.OK, Stream: "w1", Add: []string{"bob"},
		})
		s.tell("w1", ViaAnswer, 43.2, 2, Seen{User: "bob", State: "2f"})
	}},
	{"a user who is added again is told again", func(s *story) {
		for _, op := range []Op{{Begin: at(50), End: at(50.1), Remove: []string{"ann"}}, {Begin: at(52), End: at(52.1), Add: []string{"ann"}}} {
			op.Kind, op.Client, op.Addr, op.Outcome, op.Stream = UpdateWatch, "w1", "n2", chaos.OK, "w1"
			s.h.Ops = append(s.h.Ops, op)
		}
		s.tell("w1", ViaFrame, 52.2, 2, Seen{User: "ann", State: "8f"})
	}},
	{"a user who is not watched is not told of", func(s *story) {
		s.h.Ops = append(s.h.Ops,
			Op{
				Kind: UpdateWatch, Client: "w1", Addr: "n2", Begin: at(41), End: at(41.1), Outcome: chaos.OK, Stream: "w1", Remove: []string{"bob"},
			},
			Op{Kind: UpdateWatch, Client: "w1", Addr: "n2", Begin: at(62), End: at(62.1), Outcome: chaos.OK, Stream: "w1", Add: []string{"bob"}})
		s.untold(43.1, "bob")
		s.tell("w1", ViaAnswer, 62.1, 6, Seen{User: "bob", State: "2f"})
		s.tell("w1", ViaFrame, 65.3, 7, Seen{User: "bob", State: "2b"})
		s.tell("w1", ViaFrame, 93.2, 8, Seen{User: "bob"})
	}},
	{"the older login is kicked late without NATS", func(s *story) {
		s.fault(chaos.NATSAway, "nats", 25, 35)
		c := s.conn("eve", 0)
		c.Last, c.End = at(36), at(36.1)
	}},
	{"reads fail while Redis is away", func(s *story) {
		s.fault(chaos.RedisKill, "redis", 45, 50)
		for _, kind := range []Kind{GetPresence, ListOnline} {
			s.op(kind, 50).Outcome, s.op(kind, 50).Err, s.op(kind, 50).Users = chaos.Failed, "unavailable: no", nil
		}
	}},
	{"Redis that is restored from a copy shows old states", func(s *story) {
		s.fault(chaos.RedisPast, "redis", 48, 49)
		s.op(GetPresence, 50).Users[1].State = "2f"
	}},
	{"a call that nobody received has no effect", func(s *story) {
		s.h.Conns = append(s.h.Conns, Conn{
			ID: "x", Client: "ann", User: "ann", Device: "ann-x", Platform: 8, Addr: "n1", Begin: at(95), End: at(119), How: Lost,
			Err: "unavailable: dial tcp: connection refused",
		})
		s.fault(chaos.NodeKill, "n1", 94, 95)
	}},
}

// retell moves the news of bob in a watcher's frame to a later time.
func (s *story) retell(watch string, from, to float64) {
	for i := range s.h.Frames {
		if f := &s.h.Frames[i]; f.Watch == watch && f.At == at(from) {
			f.At = at(to)
		}
	}
}
