package chaos

import (
	"context"
	"time"
)

// MovedClock are the edits by which the clock of a node, for the times of messages, can be moved
// from outside (see rig.Node.SetClock). A Go program reads the time without a call that a library
// could replace. So these edits cover what WithClock of the server covers, and not the expiry of
// tokens, time limits, or the times of logs. A limit of a duration is measured by a clock that does
// not jump with the wall clock.
var MovedClock = []Edit{
	{File: "server/server.go", Old: "o := options{now: time.Now}", New: "o := options{now: movedClock}"},
	{File: "server/clock.go", Old: "	\"log/slog\"\n", New: "	\"encoding/binary\"\n	\"log/slog\"\n	\"os\"\n"},
	{
		File: "server/clock.go", Old: "// clockStore is a store on other machines",
		New: `// movedClock returns the time, moved by the offset in the file that RIG_CLOCK names.
func movedClock() time.Time {
	offset, err := os.ReadFile(os.Getenv("RIG_CLOCK"))
	if err != nil || len(offset) != 8 {
		return time.Now()
	}
	return time.Now().Add(time.Duration(binary.NativeEndian.Uint64(offset)) * time.Microsecond)
}

// clockStore is a store on other machines`,
	},
}

// ClockOffset is how far NodeClock moves a node's clock.
const ClockOffset = 10 * time.Second

// breakClock moves the clock of a node by ClockOffset, forward and back in turns.
func (n *fleetFaults) breakClock(_ context.Context, p Planned) (target string, mend Mend, err error) {
	node, offset := n.fleet.Node(p.Node), ClockOffset
	if n.clocks.Add(1)%2 == 0 {
		offset = -offset
	}
	was := node.Clock()
	return node.Addr(), func(context.Context) error { return node.SetClock(was) }, node.SetClock(was + offset)
}
