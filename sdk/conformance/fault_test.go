package conformance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// fault is a fault of the next calls of a procedure.
type fault struct {
	// Do is the kind of fault. Kinds for calls:
	//   lose    the server executes the call, and its answer is lost with the connection
	//   break   the connection breaks before the server receives the call
	//   answer  the call gets Error; with Applied after the server has executed it
	//   status  the call gets the HTTP status, with ContentType and Body, as from a proxy
	//   delay   the call waits for Ms first
	//   hold    the call waits until `heal` first
	//   late    the server executes the call, and its answer waits until `heal`
	//   partial a SendMessages sends its first Items messages; the next one gets Error, and later
	//           ones an error that they were not sent because of it. Connect only
	// Kinds for the event of the entry Seq of the channel ChannelID, on a Subscribe stream:
	//   skip    it is omitted
	//   twice   it comes twice
	//   strange its kind becomes one that no SDK knows
	//   cover   only FromSeq and OmitFrom apply
	//   end     the stream ends after it, with Error, or with success and without a reason
	//   advise  the stream ends after it with the advice to reconnect within Ms
	// Kinds for a whole Subscribe stream:
	//   strangeFrames every heartbeat becomes a frame of a kind that no SDK knows
	//   withoutPresence frames with presence are omitted, as a server without PresenceService does
	// Kinds for a stream with presence, Subscribe or Connect as Of says:
	//   presence a frame with Update follows the PresenceInfo
	Do string `json:"do"`
	// Of is the procedure that the fault affects. Node is the node that it affects; empty means any.
	Of   string `json:"of"`
	Node string `json:"node"`
	// Times is the number of calls that the fault affects: 0 means 1, negative means all. After is how
	// many calls before those it does not affect.
	Times int `json:"times"`
	After int `json:"after"`

	Applied     bool        `json:"applied"`
	Error       faultyError `json:"error"`
	Status      int         `json:"status"`
	ContentType string      `json:"contentType"`
	Body        string      `json:"body"`
	Ms          float64     `json:"ms"`
	Items       int         `json:"items"`
	ChannelID   string      `json:"channelId"`
	Seq         int64       `json:"seq"`
	// FromSeq replaces the event's from_seq; nil leaves it. The events of the entries from OmitFrom up
	// to but excluding Seq are omitted; if OmitFrom is 0, none are.
	FromSeq  *int64 `json:"fromSeq"`
	OmitFrom int64  `json:"omitFrom"`
	// Update is a PresenceUpdate in JSON.
	Update json.RawMessage `json:"update"`

	released chan struct{}
	// must is how often the fault must happen at least, or else the scenario fails. hits is how often
	// it happened: to calls, or to events and frames of a stream.
	must int64
	hits atomic.Int64
}

// ofStream reports whether the fault changes frames of a stream.
func (f *fault) ofStream() bool {
	switch f.Do {
	case "skip", "twice", "strange", "cover", "end", "advise", "strangeFrames", "withoutPresence", "presence":
		return true
	}
	return false
}

// procedure returns the method of MessageService or of PresenceService with this name, or nil if
// there is none.
func procedure(name string) protoreflect.MethodDescriptor {
	for _, services := range []protoreflect.ServiceDescriptors{
		parleyv1.File_parley_v1_message_proto.Services(), parleyv1.File_parley_v1_presence_proto.Services(),
	} {
		for i := range services.Len() {
			if method := services.Get(i).Methods().ByName(protoreflect.Name(name)); method != nil {
				return method
			}
		}
	}
	return nil
}

// faultyError describes an error that a fault returns in place of the server.
type faultyError struct {
	Code string `json:"code"`
	// Reason is the name of an ErrorReason without its prefix, or a number. Without it the error has
	// no detail.
	Reason       any     `json:"reason"`
	RetryAfterMs float64 `json:"retryAfterMs"`
	Field        string  `json:"field"`
	Limit        int64   `json:"limit"`
	RequestID    string  `json:"requestId"`
	Retryable    bool    `json:"retryable"`
	Positions    []struct {
		ChannelID string `json:"channelId"`
		Seq       int64  `json:"seq"`
		Epoch     string `json:"epoch"`
	} `json:"positions"`
	UserIDs []string `json:"userIds"`
}

func (e *faultyError) toConnect() *connect.Error {
	var code connect.Code
	if err := code.UnmarshalText([]byte(e.Code)); err != nil {
		code = connect.CodeUnknown
	}
	out := connect.NewError(code, fmt.Errorf("a fault of the scenario: %v", e.Reason))
	if e.Reason == nil {
		return out
	}
	d := &parleyv1.ErrorDetail{Retryable: e.Retryable, Field: e.Field, Limit: e.Limit, RequestId: e.RequestID, UserIds: e.UserIDs}
	switch r := e.Reason.(type) {
	case float64:
		d.Reason = parleyv1.ErrorReason(r)
	case string:
		d.Reason = parleyv1.ErrorReason(parleyv1.ErrorReason_value["ERROR_REASON_"+r])
	}
	if e.RetryAfterMs > 0 {
		d.RetryAfter = durationpb.New(time.Duration(e.RetryAfterMs * float64(time.Millisecond)))
	}
	for _, p := range e.Positions {
		d.Positions = append(d.Positions, &parleyv1.LastPosition{ChannelId: p.ChannelID, Seq: p.Seq, Epoch: p.Epoch})
	}
	if detail, err := connect.NewErrorDetail(d); err == nil {
		out.AddDetail(detail)
	}
	return out
}

// faults contains the faults of a scenario, for all its nodes. Safe for concurrent use.
type faults struct {
	mu  sync.Mutex
	set []*fault
	// ever contains all faults that were set, including healed ones.
	ever []*fault
}

// add sets a fault. v is the value of a `fault` step, with the fields of the type fault.
func (f *faults) add(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	one := &fault{released: make(chan struct{})}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(one); err != nil {
		return fmt.Errorf("a fault: %w", err)
	}
	switch one.Do {
	case "lose", "break", "answer", "status", "delay", "hold", "late":
	case "presence":
	case "partial":
		one.Of = "SendMessages"
	default:
		if !one.ofStream() {
			return fmt.Errorf("unknown fault %q", one.Do)
		}
		one.Of = "Subscribe"
	}
	if procedure(one.Of) == nil {
		return fmt.Errorf("fault %q: unknown procedure %q", one.Do, one.Of)
	}
	if one.Times == 0 {
		one.Times = 1
	}
	one.must = int64(max(one.Times, 1))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set, f.ever = append(f.set, one), append(f.ever, one)
	return nil
}

// next returns the fault to apply to a call that reached a node, or nil if there is none. It counts
// the call.
func (f *faults) next(node, procedure string) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.set {
		if one.Of != procedure || one.Node != "" && one.Node != node || one.Times == 0 {
			continue
		}
		if one.After > 0 {
			one.After--
			continue
		}
		if one.Times > 0 {
			one.Times--
		}
		if !one.ofStream() { // those are counted in change
			one.hits.Add(1)
		}
		return one
	}
	return nil
}

// unused returns the errors of all faults that happened less often than they were set to. A
// scenario with such a fault proves nothing.
func (f *faults) unused() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all error
	for _, one := range f.ever {
		if hits := one.hits.Load(); hits < one.must {
			all = errors.Join(all, fmt.Errorf("fault %q of %s happened %d times, and not %d", one.Do, one.Of, hits, one.must))
		}
	}
	return all
}

// heal removes all faults, and lets the calls continue that a `hold` keeps waiting.
func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.set {
		close(one.released)
	}
	f.set = nil
}
