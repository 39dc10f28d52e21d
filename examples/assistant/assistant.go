package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// assistant answers the prompts of sessions.
type assistant struct {
	client *parley.Client
	log    *slog.Logger
	pause  time.Duration // between two tokens
}

// run answers prompts until ctx ends. Answers that are not complete then stay open: the next start
// begins them again, and without one the server closes them as failed after a minute.
func (a *assistant) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel(nil)
	sub := a.client.Subscribe(ctx)
	defer sub.Close()
	work.Go(func() { cancel(a.discover(ctx, sub)) })
	sessions := make(map[string]*conversation)
	events, finished := make(chan parley.Event), make(chan string)
	work.Go(func() {
		for event, err := range sub.Events() {
			if err != nil {
				cancel(err)
				return
			}
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		var channel string
		select {
		case event := <-events:
			channel = event.ChannelID
			if event.Kind == parley.EventLost { // the session was deleted
				delete(sessions, channel)
				continue
			}
			if sessions[channel] == nil {
				sessions[channel] = newConversation()
			}
			sessions[channel].apply(event)
		case channel = <-finished:
			if sessions[channel] != nil {
				sessions[channel].answering = false
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s := sessions[channel]
		if s == nil {
			continue
		}
		prompt := s.next()
		if prompt == nil {
			continue
		}
		work.Go(func() {
			if err := a.answer(ctx, prompt); err != nil && ctx.Err() == nil {
				a.log.Warn("no answer", "session", prompt.GetChannelId(), "prompt", prompt.GetMsgId(), "error", err)
			}
			select {
			case finished <- channel:
			case <-ctx.Done():
			}
		})
	}
}

// answer streams the answer to a prompt. The client_msg_id makes it one answer, however often it is
// begun: the text begins anew, and an instance that wrote it before learns so from Done.
func (a *assistant) answer(ctx context.Context, prompt *parley.Message) error {
	session := a.client.Session(prompt.GetChannelId()[1:]) // without the ~
	answer, err := session.Open(ctx, parley.SessionRoleAssistant, parley.WithClientMsgID(answerID(prompt)),
		parley.WithMetadata(map[string]string{"reply_to": prompt.GetMsgId()}))
	if err != nil {
		return fmt.Errorf("open the answer: %w", err)
	}
	ticker := time.NewTicker(a.pause)
	defer ticker.Stop()
	tokens, failure := generate(prompt.GetContent())
	for _, token := range tokens {
		select {
		case <-ticker.C:
		case <-answer.Done(): // a user cancelled or recalled it, or another instance writes it
			return nil
		}
		if _, err := answer.Write([]byte(token)); err != nil {
			return nil // as with Done
		}
	}
	if failure {
		_, err = answer.Fail(ctx, answer.Text())
	} else {
		_, err = answer.Complete(ctx, answer.Text())
	}
	if errors.Is(err, parley.ErrMessageClosed) || errors.Is(err, parley.ErrMessageRecalled) {
		return nil // in the last moment
	}
	return err
}

// answerID returns the client_msg_id of the answer to a prompt. An edit of the prompt has another
// answer.
func answerID(prompt *parley.Message) string {
	return fmt.Sprintf("answer-%s-%d", prompt.GetMsgId(), prompt.GetChangedSeq())
}

// conversation is what is known of a session.
type conversation struct {
	prompts   map[string]*parley.Message // by their ids; without those that were recalled
	answers   map[string]bool            // the client_msg_ids of answers, and whether they are open
	mine      map[string]bool            // the client_msg_ids of answers that this process has begun
	replies   map[string]int64           // the highest seq of other assistants' answers, by the id of their prompt
	answering bool

	head     int64 // of the log when its replay began
	replayed bool
}

func newConversation() *conversation {
	return &conversation{
		prompts: make(map[string]*parley.Message), answers: make(map[string]bool), mine: make(map[string]bool), replies: make(map[string]int64),
	}
}

func (c *conversation) apply(event parley.Event) {
	m := event.Message
	if event.Kind == parley.EventChannelState && !c.replayed {
		c.head = event.Channel.GetHeadSeq()
	}
	switch {
	case m == nil:
	case m.GetMsgType() == string(parley.SessionRoleAssistant):
		// Once the log is replayed, an open answer is one that another instance writes.
		c.answers[m.GetClientMsgId()] = m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN && !c.replayed
		if prompt := m.GetMetadata()["reply_to"]; !strings.HasPrefix(m.GetClientMsgId(), "answer-"+prompt) {
			c.replies[prompt] = max(c.replies[prompt], m.GetSeq())
		}
	case m.GetMsgType() != string(parley.SessionRoleUser):
	case m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED:
		delete(c.prompts, m.GetMsgId())
	case m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN:
		c.prompts[m.GetMsgId()] = m
	}
	if event.Kind != parley.EventDelta && event.Kind != parley.EventTyping && event.Seq >= c.head {
		c.replayed = true
	}
}

// next returns the oldest prompt without an answer, or nil. An answer that was open when the
// process started, such as one of a process that was killed, is no answer.
func (c *conversation) next() *parley.Message {
	if !c.replayed || c.answering {
		return nil
	}
	var oldest *parley.Message
	for _, prompt := range c.prompts {
		id := answerID(prompt)
		open, exists := c.answers[id]
		answered := c.mine[id] || exists && !open || c.replies[prompt.GetMsgId()] > prompt.GetChangedSeq()
		if !answered && (oldest == nil || prompt.GetSeq() < oldest.GetSeq()) {
			oldest = prompt
		}
	}
	if oldest != nil {
		c.mine[answerID(oldest)], c.answering = true, true
	}
	return oldest
}

const (
	// discoverEvery is the time between two lists of the sessions.
	discoverEvery = time.Second
	// maxFollowed is how many sessions are followed: those with the latest activity. One stream
	// carries up to 500.
	maxFollowed = 400
	// overlap is how much activity two lists have in common, as lists can be late.
	overlap = 10 * time.Second
)

// discover follows sessions until ctx ends. A list of all sessions is made only once: the sessions
// with the latest activity come first.
func (a *assistant) discover(ctx context.Context, sub *parley.Subscription) error {
	followed := make(map[string]time.Time) // the channels, with their last activity
	var latest time.Time
	ticker := time.NewTicker(discoverEvery)
	defer ticker.Stop()
	for {
		until, n := latest.Add(-overlap), 0
		for info, err := range a.client.AllSessions(ctx) {
			if err != nil {
				return fmt.Errorf("list the sessions: %w", err)
			}
			channel, active := a.client.Session(info.GetSessionId()).ChannelID(), info.GetActiveTime().AsTime()
			if n++; n > maxFollowed || active.Before(until) {
				break
			}
			if active.After(latest) {
				latest = active
			}
			if _, ok := followed[channel]; !ok {
				if err := sub.Add(ctx, parley.FromStart(channel)); errors.Is(err, parley.ErrChannelNotFound) {
					continue // it was deleted meanwhile
				} else if err != nil {
					return fmt.Errorf("follow %s: %w", channel, err)
				}
			}
			followed[channel] = active
		}
		if err := forget(ctx, sub, followed); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forget stops following the sessions without activity for the longest time, beyond maxFollowed.
func forget(ctx context.Context, sub *parley.Subscription, followed map[string]time.Time) error {
	if len(followed) <= maxFollowed {
		return nil
	}
	channels := make([]string, 0, len(followed))
	for channel := range followed {
		channels = append(channels, channel)
	}
	slices.SortFunc(channels, func(a, b string) int { return cmp.Or(followed[b].Compare(followed[a]), cmp.Compare(a, b)) })
	for _, channel := range channels[maxFollowed:] {
		delete(followed, channel)
	}
	if err := sub.Remove(ctx, channels[maxFollowed:]...); err != nil {
		return fmt.Errorf("stop following: %w", err)
	}
	return nil
}
