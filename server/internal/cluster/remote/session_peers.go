package remote

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/session"
)

var (
	sessionText = cluster.Method[*clusterv1.SessionTextRequest, *clusterv1.SessionText]{
		Name: "session-text", Timeout: time.Second,
	}
	sessionEnded = cluster.Event[*clusterv1.SessionMessageEnded]{Name: "session-ended"}
)

// peekWait is the maximum time of a Peek. A close that has no answer by then is tried again.
const peekWait = 300 * time.Millisecond

// SessionPeers lets the nodes know of each other's open messages. It is a lifecycle.Service, and
// safe for concurrent use.
type SessionPeers struct {
	endpoint    *cluster.Endpoint
	handlers    *cluster.Handlers
	generations *session.Generations
	log         *slog.Logger
	life        lifecycle.Base
}

var _ session.Peers = (*SessionPeers)(nil)

// NewSessionPeers returns the SessionPeers of a node with its generations. A nil logger means
// slog.Default.
func NewSessionPeers(endpoint *cluster.Endpoint, generations *session.Generations, logger *slog.Logger) *SessionPeers {
	p := &SessionPeers{
		endpoint: endpoint, handlers: endpoint.Handlers(), generations: generations, log: cmp.Or(logger, slog.Default()),
	}
	cluster.Handle(p.handlers, sessionText,
		func(_ context.Context, r *clusterv1.SessionTextRequest) (*clusterv1.SessionText, error) {
			ask := generations.Peek
			if r.GetFreeze() {
				ask = generations.Freeze
			}
			text, _ := ask(r.GetChannelId(), r.GetMsgId())
			return &clusterv1.SessionText{Attempt: text.Attempt, Text: text.Text, AgeMs: text.Age.Milliseconds()}, nil
		})
	return p
}

// Start starts to answer the other nodes. See lifecycle.Service.
func (p *SessionPeers) Start(ctx context.Context) error {
	return p.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		cancel, err := cluster.Subscribe(p.endpoint, sessionEnded, func(e *clusterv1.SessionMessageEnded) {
			p.generations.Ended(e.GetChannelId(), e.GetMsgId(), message.Status(e.GetStatus())) //nolint:gosec // an Ended's
		})
		if err != nil {
			return err
		}
		run.OnEnd(func(context.Context) error { cancel(); return nil })
		run.OnEnd(p.handlers.Stop)
		return p.handlers.Start(ctx)
	})
}

// Stop stops answering. Freeze and Ended continue to work.
func (p *SessionPeers) Stop(ctx context.Context) error { return p.life.Stop(ctx) }

// Freeze implements session.Peers.
func (p *SessionPeers) Freeze(ctx context.Context, channelID, msgID string) (text message.OpenText, ok bool) {
	texts, err := p.texts(ctx, channelID, msgID, true)
	if err != nil {
		p.log.WarnContext(ctx, "not all nodes were asked for an open text", "channel_id", channelID, "error", err)
	}
	for i := range texts {
		if !ok || session.Longer(&texts[i], &text) {
			text, ok = texts[i], true
		}
	}
	return text, ok
}

// Peek implements session.Peers.
func (p *SessionPeers) Peek(ctx context.Context, channelID, msgID string) (text message.OpenText, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, peekWait)
	defer cancel()
	texts, err := p.texts(ctx, channelID, msgID, false)
	for i := range texts {
		if !ok || texts[i].Age < text.Age {
			text, ok = texts[i], true
		}
	}
	return text, ok, err
}

// texts returns what the other nodes have of a message.
func (p *SessionPeers) texts(ctx context.Context, channelID, msgID string, freeze bool) ([]message.OpenText, error) {
	answers, _, err := cluster.CallAll(ctx, p.endpoint, sessionText,
		&clusterv1.SessionTextRequest{ChannelId: channelID, MsgId: msgID, Freeze: freeze})
	var texts []message.OpenText
	for _, a := range answers {
		if a.GetAttempt() > 0 {
			texts = append(texts, message.OpenText{
				MsgID: msgID, Attempt: a.GetAttempt(), Text: a.GetText(), Age: time.Duration(a.GetAgeMs()) * time.Millisecond,
			})
		}
	}
	return texts, err
}

// Ended implements session.Peers.
func (p *SessionPeers) Ended(channelID, msgID string, status message.Status) {
	e := &clusterv1.SessionMessageEnded{ChannelId: channelID, MsgId: msgID, Status: int32(status)}
	if err := cluster.Publish(p.endpoint, sessionEnded, e); err != nil {
		p.log.Warn("the end of an open message was not published", "channel_id", channelID, "error", err)
	}
}
