package rpc

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// maxJSONBytes and maxJSONEvents bound the events whose JSON jsonEvents caches: their bytes and
// their number.
const (
	maxJSONBytes  = 8 << 20
	maxJSONEvents = 4096
)

// jsonEvents converts frames of Subscribe to JSON. All subscribers of a channel share the encoded
// event (the piece) that the hub sends. So jsonEvents caches the JSON of the newest ones by the
// address of the piece, and converts an event once. It is safe for concurrent use.
type jsonEvents struct {
	mu     sync.Mutex // guards the fields below
	byAddr map[*byte]*jsonEvent
	// order holds the addresses in byAddr, oldest first. bytes is the size of the cached JSON.
	order []*byte
	bytes int
}

// jsonEvent is one piece as JSON. The map holds the address of the piece, so the memory is not
// reused for another piece.
type jsonEvent struct {
	once sync.Once
	data []byte
	err  error
	// size is 0 until count has set it to len(data). jsonEvents.mu guards it.
	size int
}

func newJSONEvents() *jsonEvents { return &jsonEvents{byAddr: make(map[*byte]*jsonEvent)} }

// appendFrame appends a frame as a JSON object to dst.
func (j *jsonEvents) appendFrame(dst []byte, f *frame) ([]byte, error) {
	if len(f.pieces) == 0 {
		return appendPlain(dst, f)
	}
	dst = append(dst, `{"events":{"events":[`...)
	for i, p := range f.pieces {
		data, err := j.event(p)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, data...)
	}
	return append(dst, "]}}"...), nil
}

// appendPlain appends the JSON of a frame without events. It decodes the frame first: such frames
// are rare.
func appendPlain(dst []byte, f *frame) ([]byte, error) {
	var m parleyv1.SubscribeResponse
	if err := proto.Unmarshal(f.appendTo(make([]byte, 0, f.size())), &m); err != nil {
		return nil, fmt.Errorf("decode frame: %w", err)
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, &m)
}

// event returns the events of one piece as JSON. The result must not be modified.
func (j *jsonEvents) event(piece []byte) ([]byte, error) {
	if _, rest, err := firstEvent(piece); err != nil || len(rest) > 0 {
		return jsonOf(piece) // of one stream only, such as a replay; not cached
	}
	addr := &piece[0]
	e := j.entry(addr)
	e.once.Do(func() {
		e.data, e.err = jsonOf(piece)
		j.count(addr, e)
	})
	return e.data, e.err
}

func (j *jsonEvents) entry(addr *byte) *jsonEvent {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.byAddr[addr]
	if e == nil {
		e = &jsonEvent{}
		j.byAddr[addr] = e
		j.order = append(j.order, addr)
	}
	return e
}

// count adds the JSON of a piece to the cache's size, unless the piece was removed already. It then
// removes the oldest pieces until the cache is within its bounds.
func (j *jsonEvents) count(addr *byte, e *jsonEvent) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.byAddr[addr] != e {
		return
	}
	e.size = len(e.data)
	j.bytes += e.size
	for j.bytes > maxJSONBytes || len(j.order) > maxJSONEvents {
		oldest := j.order[0]
		j.order = j.order[1:]
		j.bytes -= j.byAddr[oldest].size
		delete(j.byAddr, oldest)
	}
}

// jsonOf returns a piece's events as JSON, separated by commas. A piece of a replay has many
// events.
func jsonOf(piece []byte) ([]byte, error) {
	var out []byte
	for len(piece) > 0 {
		body, rest, err := firstEvent(piece)
		if err != nil {
			return nil, err
		}
		var ev parleyv1.ChannelEvent
		if err := proto.Unmarshal(body, &ev); err != nil {
			return nil, fmt.Errorf("decode event: %w", err)
		}
		if len(out) > 0 {
			out = append(out, ',')
		}
		if out, err = (protojson.MarshalOptions{}).MarshalAppend(out, &ev); err != nil {
			return nil, fmt.Errorf("encode event: %w", err)
		}
		piece = rest
	}
	return out, nil
}

// firstEvent splits the first `events` field off a piece. body is the encoded event, rest the
// remaining fields.
func firstEvent(piece []byte) (body, rest []byte, err error) {
	number, _, n := protowire.ConsumeTag(piece)
	if n < 0 {
		return nil, nil, fmt.Errorf("decode event: %w", protowire.ParseError(n))
	}
	body, m := protowire.ConsumeBytes(piece[n:])
	if m < 0 {
		return nil, nil, fmt.Errorf("decode event: %w", protowire.ParseError(m))
	}
	if number != eventsField {
		return nil, nil, fmt.Errorf("decode event: unexpected field %d", number)
	}
	return body, piece[n+m:], nil
}
