// Package redistext keeps the texts of open messages of sessions in Redis, where all nodes find
// them. They may be lost: only the close of a message stores its text.
package redistext

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/session"
	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

// life is how long a text is kept after its last piece. By then its message is closed.
const life = 15 * time.Minute

// A text is kept in chunks of chunkBytes, so that the cost of a piece does not grow with the text.
// maxChunks is the number of chunks of the largest text.
const (
	chunkBytes = 4096
	maxChunks  = (128 << 10) / chunkBytes
)

//go:embed lua/text_put.lua
var putSource string

//go:embed lua/text_list.lua
var listSource string

var (
	textPut  = redisscript.New("text_put", 1, putSource)
	textList = redisscript.New("text_list", 1, listSource)
)

// Texts keeps the texts of open messages. It is safe for concurrent use.
type Texts struct {
	client redis.UniversalClient
	prefix string
}

var _ session.Mirror = (*Texts)(nil)

// New returns a Texts over a client that never repeats a command on its own, see
// redisstore.NewClient. Every key begins with the prefix. The caller closes the client.
func New(client redis.UniversalClient, prefix string) *Texts {
	return &Texts{client: client, prefix: prefix}
}

// key returns the key of a session's open texts.
//
// HASH <msg_id> -> "<attempt> <seq> <ms of the last piece> <bytes of the text>", <msg_id>:<n> ->
// the n-th 4 KiB of the text, from 0; expires 15 minutes after the last piece of all.
func (t *Texts) key(channelID string) string {
	id, _ := ident.SessionOf(channelID)
	return t.prefix + "chat:session:" + id + ":open"
}

// Put implements session.Mirror.
func (t *Texts) Put(ctx context.Context, pieces []session.Piece) ([]int, error) {
	calls := make([]redisscript.Call, len(pieces))
	for i := range pieces {
		p := &pieces[i]
		calls[i] = redisscript.Call{
			Keys: []string{t.key(p.ChannelID)},
			Args: []any{p.MsgID, p.Attempt, p.Seq, p.Offset, p.Text, life.Milliseconds(), message.MaxOpenTexts, chunkBytes},
		}
	}
	lengths := make([]int, len(pieces))
	for i, r := range textPut.Run(ctx, t.client, calls) {
		n, err := r.Int()
		if err != nil {
			return nil, fmt.Errorf("write open texts: %w", err)
		}
		lengths[i] = n
	}
	return lengths, nil
}

// Texts implements session.Mirror.
func (t *Texts) Texts(ctx context.Context, channelID string) ([]message.OpenText, error) {
	texts, err := t.list(ctx, []redisscript.Call{{Keys: []string{t.key(channelID)}, Args: []any{"", chunkBytes}}})
	if err != nil {
		return nil, err
	}
	return texts[0], nil
}

// Ages implements session.Mirror.
func (t *Texts) Ages(ctx context.Context, of []session.Piece) ([]time.Duration, error) {
	calls := make([]redisscript.Call, len(of))
	for i := range of {
		calls[i] = redisscript.Call{Keys: []string{t.key(of[i].ChannelID)}, Args: []any{of[i].MsgID, chunkBytes}}
	}
	found, err := t.list(ctx, calls)
	if err != nil {
		return nil, err
	}
	ages := make([]time.Duration, len(of))
	for i := range ages {
		if ages[i] = -1; len(found[i]) > 0 {
			ages[i] = found[i][0].Age
		}
	}
	return ages, nil
}

// fields is the number of values that text_list returns for a text.
const fields = 5

func (t *Texts) list(ctx context.Context, calls []redisscript.Call) ([][]message.OpenText, error) {
	lists := make([][]message.OpenText, len(calls))
	for i, r := range textList.Run(ctx, t.client, calls) {
		values, err := r.StringSlice()
		if err != nil {
			return nil, fmt.Errorf("read open texts: %w", err)
		}
		for ; len(values) >= fields; values = values[fields:] {
			attempt, err1 := strconv.ParseInt(values[1], 10, 64)
			seq, err2 := strconv.ParseInt(values[2], 10, 64)
			age, err3 := strconv.ParseInt(values[3], 10, 64)
			if err := errors.Join(err1, err2, err3); err != nil {
				return nil, fmt.Errorf("read open texts: %w", err)
			}
			lists[i] = append(lists[i], message.OpenText{
				MsgID: values[0], Attempt: attempt, Seq: seq, Age: time.Duration(age) * time.Millisecond, Text: values[4],
			})
		}
	}
	return lists, nil
}

// Drop implements session.Mirror and redisstore.Texts.
func (t *Texts) Drop(ctx context.Context, channelID string, msgIDs ...string) error {
	fields := make([]string, 0, (1+maxChunks)*len(msgIDs))
	for _, id := range msgIDs {
		fields = append(fields, id)
		for n := range maxChunks {
			fields = append(fields, id+":"+strconv.Itoa(n))
		}
	}
	if err := t.client.HDel(ctx, t.key(channelID), fields...).Err(); err != nil {
		return fmt.Errorf("drop open texts: %w", err)
	}
	return nil
}

// DropAll implements session.Mirror.
func (t *Texts) DropAll(ctx context.Context, channelID string) error {
	if err := t.client.Unlink(ctx, t.key(channelID)).Err(); err != nil {
		return fmt.Errorf("drop open texts: %w", err)
	}
	return nil
}
