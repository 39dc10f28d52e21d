package message

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// A page token opens only for the subject, the query and the epoch that it was made for, and only letter for letter.
func FuzzPageToken(f *testing.F) {
	tokens := pageTokens{secret: []byte("a secret of the store's own making")}
	query := ListQuery{ChannelID: "room"}
	token := tokens.seal("ada", "e-1", &query, 7)
	for _, seed := range []string{
		token, "", "{}", token[:len(token)-1], token + "A", token + "\n", token[:20] + "\r\n" + token[20:], token + "=", strings.ToUpper(token),
		tokens.seal("ada", "e-2", &query, 7), tokens.seal("bob", "e-1", &query, 7), tokens.seal("ada", "e-1", &ListQuery{ChannelID: "other"}, 7),
		pageTokens{secret: []byte("another")}.seal("ada", "e-1", &query, 7),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		last, err := tokens.open(text, "ada", "e-1", &query)
		if err == nil {
			if text != token || last != 7 {
				t.Fatalf("%q is taken for a token, and opens as %d", text, last)
			}
			return
		}
		e, ok := fault.As(err)
		if !ok || e.Field != "page_token" || last != 0 {
			t.Fatalf("%q: %v, %d", text, err, last)
		}
		switch e.Reason {
		case fault.PageTokenInvalid, fault.PageTokenForeign, fault.Resync:
		default:
			t.Fatalf("%q: reason %s", text, e.Reason)
		}
	})
}

// Every letter of a page token counts.
func TestPageTokenTampered(t *testing.T) {
	t.Parallel()
	tokens := pageTokens{secret: []byte("a secret of the store's own making")}
	for _, subject := range []string{"a", "ad", "ada"} { // so that the last letter has unused bits once at least
		token := tokens.seal(subject, "e", &ListQuery{ChannelID: "room"}, 7)
		for i := range len(token) {
			for _, letter := range "AZaz09-_" {
				text := token[:i] + string(letter) + token[i+1:]
				if _, err := tokens.open(text, subject, "e", &ListQuery{ChannelID: "room"}); text != token && !fault.Is(err, fault.PageTokenInvalid) {
					t.Fatalf("with letter %d changed to %c: %v", i, letter, err)
				}
			}
		}
	}
}

func eventSeeds(f *testing.F) [][]byte {
	f.Helper()
	m := Message{
		MsgID: "m", ChannelID: "room", Seq: 1, Count: 1, FromID: "auth0|42", MsgType: "text", Content: "\u2028\x01é",
		Metadata: map[string]string{"k": "v"}, ClientMsgID: "c", MsgTime: time.UnixMilli(1_700_000_000_123).UTC(), ChangedSeq: 1,
	}
	var seeds [][]byte
	for kind := KindSend; kind <= KindRecall; kind++ {
		for _, v := range []any{
			Event{Kind: kind, Epoch: "e", Seq: 2, Count: 1, Time: m.MsgTime, Message: m, Traceparent: "00-a-b-01"},
			Cached{Epoch: "e", Seq: 2, Count: 1, Kind: kind, TargetSeq: 1, Message: m},
		} {
			data, err := json.Marshal(v)
			if err != nil {
				f.Fatal(err)
			}
			seeds = append(seeds, data, data[:len(data)/2], bytes.Replace(data, []byte("2023"), []byte("20230"), 1))
		}
	}
	return append(seeds, []byte(`{"event_type":"fly"}`), []byte(`{"seq":1e99}`), []byte(`null`), []byte(`[]`), []byte(`{"metadata":{"a":null}}`))
}

// What can be read as an event is written as what reads as the same.
func FuzzEvent(f *testing.F) {
	for _, seed := range eventSeeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) { roundTrip[Event](t, data) })
}

var plainEpoch = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// The same holds for a value of the cache, which also begins as the cache's scripts expect.
func FuzzCached(f *testing.F) {
	for _, seed := range eventSeeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, out := roundTrip[Cached](t, data)
		if out != nil && plainEpoch.MatchString(c.Epoch) && c.Seq == c.Message.Seq && !bytes.HasPrefix(out, []byte(CachedHead(c.Epoch, c.Seq))) {
			t.Fatalf("%s does not begin with %s", out, CachedHead(c.Epoch, c.Seq))
		}
	})
}

// roundTrip reads, writes, reads and writes; it gives nil bytes for what can't be read.
func roundTrip[T any](t *testing.T, data []byte) (T, []byte) {
	t.Helper()
	var first, second T
	if json.Unmarshal(data, &first) != nil {
		return first, nil
	}
	one, err := json.Marshal(first)
	if err != nil {
		t.Fatalf("%s is read as %+v, which can't be written: %v", data, first, err)
	}
	if err := json.Unmarshal(one, &second); err != nil {
		t.Fatalf("%s is written as %s, which can't be read: %v", data, one, err)
	}
	two, err := json.Marshal(second)
	if err != nil || !bytes.Equal(one, two) {
		t.Fatalf("%s is written as %s, then as %s: %v", data, one, two, err)
	}
	return first, one
}
