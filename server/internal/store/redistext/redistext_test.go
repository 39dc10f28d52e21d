package redistext

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/session"
	"github.com/parleyhq/parley/server/internal/store/redisscript"
	"github.com/parleyhq/parley/server/internal/store/redisscript/scripttest"
	"github.com/parleyhq/parley/server/internal/testkit"
)

var all = []*redisscript.Script{textPut, textList}

func TestScripts(t *testing.T) {
	t.Parallel()
	scripttest.MatchHeaders(t, "lua", all)
	scripttest.NoneUnused(t, "lua", all)
}

func piece(msgID string, attempt int64, offset int, text string) session.Piece {
	return session.Piece{ChannelID: "~s", Delta: message.Delta{MsgID: msgID, Seq: 7, Attempt: attempt, Offset: offset, Text: text}}
}

func setup(t *testing.T) *Texts {
	t.Helper()
	return New(testkit.Redis(t).Client(t), "p:")
}

// texts returns the texts of the session by message.
func texts(t *testing.T, s *Texts) map[string]message.OpenText {
	t.Helper()
	list, err := s.Texts(t.Context(), "~s")
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]message.OpenText{}
	for _, text := range list {
		if text.Age < 0 || text.Age > time.Minute {
			t.Errorf("age %v", text.Age)
		}
		byID[text.MsgID] = text
	}
	return byID
}

func TestPut(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const attempt = 1_795_000_000_000_000 // a time in microseconds keeps all its digits
	for _, step := range []struct {
		name string
		put  session.Piece
		want int
	}{
		{"first", piece("a", attempt, 0, "one"), 3},
		{"next", piece("a", attempt, 3, " two"), 7},
		{"repeat", piece("a", attempt, 3, " two"), 7},
		{"overlap", piece("a", attempt, 4, "two three"), 13},
		{"hole", piece("a", attempt, 20, "x"), 13},
		{"nothing new", piece("a", attempt, 13, ""), 13},
		{"lower attempt", piece("a", attempt-1, 0, "zero"), session.MirrorRefused},
		{"another message", piece("b", 1, 0, "b"), 1},
		{"higher attempt, which lacks its beginning", piece("b", 2, 5, "c"), 0},
		{"higher attempt", piece("b", 2, 0, "c"), 1},
	} {
		got, err := s.Put(t.Context(), []session.Piece{step.put})
		if err != nil || got[0] != step.want {
			t.Errorf("%s: %v, %v; want %d", step.name, got, err, step.want)
		}
	}
	want := map[string]message.OpenText{
		"a": {MsgID: "a", Seq: 7, Attempt: attempt, Text: "one two three"},
		"b": {MsgID: "b", Seq: 7, Attempt: 2, Text: "c"},
	}
	if diff := cmp.Diff(want, texts(t, s), cmpopts.IgnoreFields(message.OpenText{}, "Age")); diff != "" {
		t.Error(diff)
	}
	if ttl := s.client.PTTL(t.Context(), "p:chat:session:s:open").Val(); ttl <= 0 || ttl > life {
		t.Errorf("expires in %v", ttl)
	}
	if err := s.Drop(t.Context(), "~s", "a"); err != nil || len(texts(t, s)) != 1 {
		t.Errorf("%v, %v", err, texts(t, s))
	}
	if err := s.DropAll(t.Context(), "~s"); err != nil || len(texts(t, s)) != 0 {
		t.Errorf("%v, %v", err, texts(t, s))
	}
}

func TestAges(t *testing.T) {
	t.Parallel()
	s := setup(t)
	if _, err := s.Put(t.Context(), []session.Piece{piece("a", 1, 0, "")}); err != nil {
		t.Fatal(err)
	}
	ages, err := s.Ages(t.Context(), []session.Piece{piece("a", 0, 0, ""), piece("b", 0, 0, "")})
	if err != nil || ages[0] < 0 || ages[0] > time.Minute || ages[1] >= 0 {
		t.Errorf("%v, %v", ages, err)
	}
}

// TestChunks checks texts that are larger than a chunk, and that nothing is left of them.
func TestChunks(t *testing.T) {
	t.Parallel()
	s := setup(t)
	put := func(attempt int64, offset int, text string, want int) {
		t.Helper()
		if got, err := s.Put(t.Context(), []session.Piece{piece("a", attempt, offset, text)}); err != nil || got[0] != want {
			t.Fatalf("%v, %v; want %d", got, err, want)
		}
	}
	whole := ""
	for i, n := range []int{1, chunkBytes - 2, 1, 1, chunkBytes, 3*chunkBytes + 5, 128<<10 - 5*chunkBytes - 6} {
		text := strings.Repeat(string(rune('a'+i)), n)
		put(1, len(whole), text, len(whole)+n)
		put(1, max(len(whole)-1, 0), (whole + text)[max(len(whole)-1, 0):], len(whole)+n) // a repeat
		whole += text
		if got := texts(t, s)["a"].Text; got != whole {
			t.Fatalf("%d bytes, want %d", len(got), len(whole))
		}
	}
	if n := s.client.HLen(t.Context(), s.key("~s")).Val(); n != 1+maxChunks {
		t.Errorf("%d fields", n)
	}
	put(2, 0, "new", 3)
	if n := s.client.HLen(t.Context(), s.key("~s")).Val(); n != 2 {
		t.Errorf("%d fields after a later attempt", n)
	}
	put(2, 3, whole[3:], len(whole))
	if err := s.Drop(t.Context(), "~s", "a"); err != nil || s.client.Exists(t.Context(), s.key("~s")).Val() != 0 {
		t.Errorf("something is left, %v", err)
	}
}

func TestTooManyTexts(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var pieces []session.Piece
	for i := range message.MaxOpenTexts + 1 {
		pieces = append(pieces, piece(strings.Repeat("m", i+1), 1, 0, "x"))
	}
	lengths, err := s.Put(t.Context(), pieces)
	if err != nil || lengths[message.MaxOpenTexts-1] != 1 || lengths[message.MaxOpenTexts] != session.MirrorRefused {
		t.Fatalf("%v, %v", lengths, err)
	}
	// A text that is as old as texts are kept makes room.
	if err := s.client.HSet(t.Context(), s.key("~s"), "m", "1 7 1000 1").Err(); err != nil {
		t.Fatal(err)
	}
	if lengths, err = s.Put(t.Context(), pieces[message.MaxOpenTexts:]); err != nil || lengths[0] != 1 {
		t.Errorf("%v, %v", lengths, err)
	}
	if _, ok := texts(t, s)["m"]; ok || len(texts(t, s)) != message.MaxOpenTexts {
		t.Errorf("%d texts", len(texts(t, s)))
	}
}
