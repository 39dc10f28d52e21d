package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

// cachedState is the state of a set, which lib_state.lua describes.
type cachedState struct {
	Epoch   string `json:"epoch"`
	Seq     int64  `json:"seq"`
	Count   int64  `json:"count"`
	Unknown int64  `json:"unknown"`
}

// Page implements message.Cache. A set that is damaged is counted, logged, and treated as absent.
func (c *Cache) Page(ctx context.Context, channelID string, r message.Range) (message.CachedPage, error) {
	flag := func(set bool) int {
		if set {
			return 1
		}
		return 0
	}
	calls := []redisscript.Call{{
		Keys: []string{c.layout.key(channelID)},
		Args: []any{r.After, r.Before, flag(r.Desc), r.Limit, r.MaxBytes, flag(!r.MessagesOnly)},
	}}
	values, err := c.layout.page.Run(ctx, c.client, calls)[0].StringSlice()
	if err != nil {
		return message.CachedPage{}, fmt.Errorf("read the cache: %w", err)
	}
	if len(values) == 0 {
		return message.CachedPage{}, nil
	}
	page, err := c.decodePage(channelID, values)
	if err != nil {
		c.broken.Add(ctx, 1)
		c.log.WarnContext(ctx, "cached set ignored", "channel_id", channelID, "error", err)
		return message.CachedPage{}, nil
	}
	return page, nil
}

// decodePage decodes the result of the scripts cache_page and list_page.
func (c *Cache) decodePage(channelID string, values []string) (message.CachedPage, error) {
	var state cachedState
	if err := json.Unmarshal([]byte(values[0]), &state); err != nil {
		return message.CachedPage{}, fmt.Errorf("decode state %q: %w", values[0], err)
	}
	var numbers [2]int64
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.ParseInt(values[1+i], 10, 64); err != nil {
			return message.CachedPage{}, fmt.Errorf("decode the oldest message: %w", err)
		}
	}
	page := message.CachedPage{
		Epoch: state.Epoch, Newest: state.Seq, Count: state.Count, Unknown: state.Unknown, Oldest: numbers[0],
		Events: make([]message.Event, 0, len(values)/2),
	}
	if numbers[1] == 1 {
		page.Oldest = 1 // the log's first message is cached
	}
	if state.Seq == 0 || state.Count == 0 {
		return message.CachedPage{}, fmt.Errorf("no valid state: %q", values[0])
	}
	var last int64 // the count of the last message
	page.Cut = values[3] == "1"
	for pair := values[4:]; len(pair) > 1; pair = pair[2:] {
		e, err := c.event(channelID, state.Epoch, pair[0], pair[1])
		if err != nil {
			return message.CachedPage{}, err
		}
		if n := e.Message.Count; e.Kind == message.KindSend {
			if last != 0 && n != last+1 && n != last-1 {
				return message.CachedPage{}, fmt.Errorf("message %d beside message %d of the log", n, last)
			}
			last = n
		}
		page.Events = append(page.Events, e)
	}
	return page, nil
}

var errForeign = errors.New("it has another place or epoch")

// event returns the event at a place of the log of a message, which value encodes.
func (c *Cache) event(channelID, epoch, place, value string) (e message.Event, err error) {
	m, ok := c.decoded.GetIfPresent(value)
	if !ok {
		if err := m.UnmarshalJSON([]byte(value)); err != nil {
			return e, fmt.Errorf("decode value: %w", err)
		}
		c.decoded.Set(value, m)
	}
	m.Message.ChannelID = channelID
	seq, err := strconv.ParseInt(place, 10, 64)
	if err != nil {
		return e, fmt.Errorf("decode the place of message %d: %w", m.Message.Seq, err)
	}
	if m.Epoch != epoch {
		return e, fmt.Errorf("message %d: %w", m.Message.Seq, errForeign)
	}
	e = message.Event{Epoch: m.Epoch, Seq: seq, Message: m.Message}
	switch seq {
	case m.Message.Seq:
	case m.Message.ChangedSeq:
		e.Kind = m.Message.LastChange()
	default:
		return e, fmt.Errorf("message %d: %w", m.Message.Seq, errForeign)
	}
	return e, nil
}
