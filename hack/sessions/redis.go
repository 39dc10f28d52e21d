package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/hack/internal/verdict"
	parley "github.com/parleyhq/parley/sdk/go"
)

// cached is a value of a session's list in Redis: a message, or the list's state. Redis is read
// without the server's code, because a check must not trust what it checks.
type cached struct {
	Seq     int64  `json:"seq"`
	MsgID   string `json:"msg_id"`
	Count   int64  `json:"count"`
	From    string `json:"from_id"`
	Content string `json:"content"`
	ID      string `json:"client_msg_id"`
	Status  int    `json:"status"`
	Changed int64  `json:"changed_seq"`
}

// mostCached is the maximum number of messages in a list.
const mostCached = 200

// cacheWait is how long a list may take to reach the end of its log.
const cacheWait = 10 * time.Second

// checkRedis checks that the list of each session is absent or the end of its log, and that no text
// of an open message is left.
func (j *job) checkRedis(ctx context.Context) error {
	client := j.fleet.Redis.Client()
	defer client.Close()
	waiting := slices.Sorted(maps.Keys(j.finals))
	for until := time.Now().Add(cacheWait); ; {
		problems := make(map[string]string)
		for _, id := range waiting {
			problem, err := j.checkList(ctx, client, id)
			if err != nil {
				return err
			}
			if problem != "" {
				problems[id] = problem
			}
		}
		waiting = slices.Sorted(maps.Keys(problems))
		if len(waiting) == 0 {
			break
		}
		if time.Now().After(until) {
			for _, id := range waiting {
				j.Wrongf("the list of %s in Redis %s", id, problems[id])
			}
			break
		}
		if err := verdict.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	left := 0
	for keys := client.Scan(ctx, 0, "chat:session:*:open", 1000).Iterator(); keys.Next(ctx); {
		left++
	}
	if left > 0 {
		j.Wrongf("the texts of open messages of %d sessions are left in Redis", left)
	}
	j.sayf("%d of %d sessions have a list in Redis, with %d messages", j.Total("lists in Redis"), len(j.finals), j.Total("messages in Redis"))
	return nil
}

// checkList compares the list of a session with its messages. It returns what is wrong.
func (j *job) checkList(ctx context.Context, client *redis.Client, id string) (string, error) {
	values, err := client.LRange(ctx, "chat:session:"+id+":messages", 0, -1).Result()
	if err != nil || len(values) == 0 {
		return "", err
	}
	list := j.finals[id]
	head := int64(0)
	for _, m := range list {
		head = max(head, m.GetChangedSeq())
	}
	got := make([]cached, len(values))
	for i, v := range values {
		if err := json.Unmarshal([]byte(v), &got[i]); err != nil {
			return "", fmt.Errorf("the list of %s: %w", id, err)
		}
	}
	if got[0].MsgID != "" || got[0].Seq != head {
		return fmt.Sprintf("is up to %d, and the log is up to %d", got[0].Seq, head), nil
	}
	got = got[1:]
	if len(got) == 0 || len(got) > min(mostCached, len(list)) {
		return fmt.Sprintf("has %d messages, and the log %d", len(got), len(list)), nil
	}
	for k, m := range list[len(list)-len(got):] {
		if want := cachedOf(m); got[k] != want {
			return fmt.Sprintf("has %+v, not %+v", got[k], want), nil
		}
	}
	j.Add("lists in Redis", 1)
	j.Add("messages in Redis", len(got))
	return "", nil
}

// cachedOf returns how Redis has a message. Its status is a number of the store.
func cachedOf(m *parley.Message) cached {
	status := 0
	switch m.GetStatus() { //nolint:exhaustive // no message is edited, recalled or open
	case parleyv1.MessageStatus_MESSAGE_STATUS_SENT:
		if m.GetChangedSeq() != m.GetSeq() {
			status = 3 // sent after it was open
		}
	case parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED:
		status = 4
	case parleyv1.MessageStatus_MESSAGE_STATUS_FAILED:
		status = 5
	}
	return cached{
		m.GetSeq(), m.GetMsgId(), m.GetCount(), m.GetFromId(), m.GetContent(), m.GetClientMsgId(), status, m.GetChangedSeq(),
	}
}
