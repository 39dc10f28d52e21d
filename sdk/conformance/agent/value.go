package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// arguments contains the arguments of all commands. Each command uses some of them: see
// PROTOCOL.md.
type arguments struct {
	outgoing

	Client           string     `json:"client"`
	Sub              string     `json:"sub"`
	Presence         string     `json:"presence"`
	Platform         string     `json:"platform"`
	DeviceID         string     `json:"deviceId"`
	LoginToken       string     `json:"loginToken"`
	Background       bool       `json:"background"`
	Invisible        bool       `json:"invisible"`
	UserID           string     `json:"userId"`
	SessionID        string     `json:"sessionId"`
	Role             string     `json:"role"`
	Title            string     `json:"title"`
	Message          string     `json:"message"`
	Call             int64      `json:"call"`
	Addresses        []string   `json:"addresses"`
	Token            string     `json:"token"`
	Tokens           []sourced  `json:"tokens"`
	AttemptTimeoutMs float64    `json:"attemptTimeoutMs"`
	CallTimeoutMs    *float64   `json:"callTimeoutMs"`
	DeadlineMs       float64    `json:"deadlineMs"`
	Backoff          *backoff   `json:"backoff"`
	Protocol         string     `json:"protocol"`
	Messages         []outgoing `json:"messages"`
	MsgID            string     `json:"msgId"`
	AfterSeq         *int64     `json:"afterSeq"`
	BeforeSeq        *int64     `json:"beforeSeq"`
	PageSize         int        `json:"pageSize"`
	Limit            int        `json:"limit"`
	MembersOnly      bool       `json:"membersOnly"`
	Members          []string   `json:"members"`
	IdempotencyKey   string     `json:"idempotencyKey"`
	UserIDs          []string   `json:"userIds"`
	Seq              int64      `json:"seq"`
	Starts           []start    `json:"starts"`
	ChannelIDs       []string   `json:"channelIds"`
	Count            int        `json:"count"`
	TimeoutMs        float64    `json:"timeoutMs"`
}

// sourced is one answer of a token source: a token, or an error, which is final if Final is set.
type sourced struct {
	Token   string  `json:"token"`
	Error   string  `json:"error"`
	Final   bool    `json:"final"`
	DelayMs float64 `json:"delayMs"`
}

type backoff struct {
	BaseMs float64 `json:"baseMs"`
	MaxMs  float64 `json:"maxMs"`
}

// start is a Start of PROTOCOL.md: either From is set, to live or start, or Seq and Epoch are.
type start struct {
	ChannelID string `json:"channelId"`
	From      string `json:"from"`
	Seq       int64  `json:"seq"`
	Epoch     string `json:"epoch"`
}

// outgoing is a message to send.
type outgoing struct {
	ChannelID   string            `json:"channelId"`
	Content     string            `json:"content"`
	ClientMsgID string            `json:"clientMsgId"`
	Type        string            `json:"type"`
	Metadata    map[string]string `json:"metadata"`
	Sender      string            `json:"sender"`
	Malformed   bool              `json:"malformed"`
}

func (o outgoing) toSDK() parley.Outgoing {
	if o.Malformed {
		o.Content = "\xff"
	}
	return parley.Outgoing{
		ChannelID: o.ChannelID, Content: o.Content, ClientMsgID: o.ClientMsgID, Type: o.Type, Metadata: o.Metadata, Sender: o.Sender,
	}
}

func toStarts(starts []start) []parley.Start {
	all := make([]parley.Start, len(starts))
	for i, s := range starts {
		switch s.From {
		case "live":
			all[i] = parley.Live(s.ChannelID)
		case "start":
			all[i] = parley.FromStart(s.ChannelID)
		default:
			all[i] = parley.After(parley.Position{ChannelID: s.ChannelID, Seq: s.Seq, Epoch: s.Epoch})
		}
	}
	return all
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func inMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// failure is an Error of PROTOCOL.md.
type failure struct {
	Kind         string   `json:"kind"`
	Message      string   `json:"message"`
	Last         *failure `json:"last,omitempty"`
	Code         string   `json:"code,omitempty"`
	Reason       string   `json:"reason,omitempty"`
	Retryable    bool     `json:"retryable,omitempty"`
	Field        string   `json:"field,omitempty"`
	Limit        int64    `json:"limit,omitempty"`
	RetryAfterMs float64  `json:"retryAfterMs,omitempty"`
	RequestID    string   `json:"requestId,omitempty"`
	Positions    []any    `json:"positions,omitempty"`
	UserIDs      []string `json:"userIds,omitempty"`
	Kick         any      `json:"kick,omitempty"`
}

func ownFailure(err error) *failure { return &failure{Kind: "agent", Message: err.Error()} }

// toFailure converts the error of a command. ctx is the command's context.
func toFailure(ctx context.Context, err error) *failure {
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return interrupted("canceled", err)
	case endedByDeadline(err):
		return interrupted("deadline", err)
	default:
		return fromAny(err)
	}
}

// endedByDeadline reports whether a call's deadline ended it: the error is context.DeadlineExceeded
// itself, or wraps it together with the last failure. If err itself is an *Error, it comes from the
// server or from a single attempt.
func endedByDeadline(err error) bool {
	_, failed := err.(*parley.Error) //nolint:errorlint // only the outermost error tells
	return !failed && errors.Is(err, context.DeadlineExceeded)
}

// interrupted converts the error of a call that its context ended, with the last failure before
// that.
func interrupted(kind string, err error) *failure {
	f := &failure{Kind: kind, Message: err.Error()}
	if e, ok := errors.AsType[*parley.Error](err); ok {
		f.Last = fromError(e)
	}
	return f
}

// fromAny converts an error that was not caused by the end of a context.
func fromAny(err error) *failure {
	e, typed := errors.AsType[*parley.Error](err)
	switch {
	case errors.Is(err, errAgent):
		return ownFailure(err)
	case errors.Is(err, parley.ErrClosed):
		return &failure{Kind: "closed", Message: err.Error()}
	case typed:
		return fromError(e)
	default:
		return &failure{Kind: "other", Message: err.Error()}
	}
}

func fromError(e *parley.Error) *failure {
	f := &failure{
		Kind: "parley", Message: e.Error(), Code: e.Code.String(), Retryable: e.Retryable, Field: e.Field, Limit: e.Limit,
		RetryAfterMs: inMillis(e.RetryAfter), RequestID: e.RequestID, UserIDs: e.UserIDs,
	}
	if k := e.Kick; k != nil {
		f.Kick = map[string]any{
			"cause": nameOf(k.GetCause().String(), "KICK_CAUSE_"), "deviceId": k.GetDeviceId(),
			"platform": nameOf(k.GetPlatform().String(), "PLATFORM_"), "connectionId": k.GetConnectionId(),
		}
	}
	if name, known := parleyv1.ErrorReason_name[int32(e.Reason)]; !known {
		f.Reason = fmt.Sprintf("REASON_%d", e.Reason)
	} else if e.Reason != 0 {
		f.Reason = strings.TrimPrefix(name, "ERROR_REASON_")
	}
	for _, p := range e.Positions {
		f.Positions = append(f.Positions, fromPosition(p))
	}
	return f
}

func fromPosition(p parley.Position) any {
	return map[string]any{"channelId": p.ChannelID, "seq": p.Seq, "epoch": p.Epoch}
}

func receiptOf(r *parley.Receipt, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return fromReceipt(r), nil
}

func fromReceipt(r *parley.Receipt) any {
	return map[string]any{
		"channelId": r.ChannelID, "msgId": r.MsgID, "seq": r.Seq, "count": r.Count, "time": r.Time,
		"clientMsgId": r.ClientMsgID, "epoch": r.Epoch, "duplicate": r.Duplicate,
	}
}

// changeOf returns the result of an edit or a recall.
func changeOf(r *parley.Receipt, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"message": fromMessage(r.Message), "seq": r.Seq, "time": r.Time, "clientMsgId": r.ClientMsgID, "epoch": r.Epoch,
		"duplicate": r.Duplicate,
	}, nil
}

func fromMessage(m *parley.Message) any {
	return map[string]any{
		"msgId": m.GetMsgId(), "channelId": m.GetChannelId(), "seq": m.GetSeq(), "count": m.GetCount(), "fromId": m.GetFromId(),
		"type": m.GetMsgType(), "content": m.GetContent(), "metadata": m.GetMetadata(), "clientMsgId": m.GetClientMsgId(),
		"time": timeOf(m.GetMsgTime()), "changedSeq": m.GetChangedSeq(),
		"status": strings.ToLower(strings.TrimPrefix(m.GetStatus().String(), "MESSAGE_STATUS_")),
	}
}

func timeOf(t *timestamppb.Timestamp) any {
	if t == nil {
		return nil
	}
	return t.AsTime()
}

func fromChannel(c *parley.Channel) any {
	return map[string]any{
		"channelId": c.GetChannelId(), "membersOnly": c.GetMembersOnly(), "createdBy": c.GetCreatedBy(),
		"createTime": timeOf(c.GetCreateTime()), "headSeq": c.GetHeadSeq(), "count": c.GetCount(),
		"oldestSeq": c.GetOldestSeq(), "expiredCount": c.GetExpiredCount(), "epoch": c.GetEpoch(), "etag": c.GetEtag(),
	}
}

func fromUserChannel(c *parley.UserChannel) any {
	told := map[string]any{"channel": fromChannel(c.GetChannel()), "readSeq": c.GetReadSeq(), "unread": c.GetUnread()}
	if c.GetLastMessage() != nil {
		told["lastMessage"] = fromMessage(c.GetLastMessage())
	}
	return told
}

func fromMember(m *parley.Member) any {
	return map[string]any{
		"userId": m.GetUserId(), "role": nameOf(m.GetRole().String(), "MEMBER_ROLE_"), "joinTime": timeOf(m.GetJoinTime()),
		"readSeq": m.GetReadSeq(),
	}
}

func fromEvent(e parley.Event) any {
	told := map[string]any{"kind": e.Kind.String(), "channelId": e.ChannelID, "seq": e.Seq, "epoch": e.Epoch}
	switch e.Kind {
	case parley.EventSent, parley.EventEdited, parley.EventRecalled, parley.EventClosed:
		told["fromSeq"], told["message"] = e.FromSeq, fromMessage(e.Message)
	case parley.EventChannelState:
		s := e.Channel
		told["state"] = map[string]any{
			"epoch": s.GetEpoch(), "oldestSeq": s.GetOldestSeq(), "headSeq": s.GetHeadSeq(), "count": s.GetCount(),
			"expiredCount": s.GetExpiredCount(), "recovered": s.GetRecovered(),
		}
	case parley.EventGap:
		told["gap"] = map[string]any{
			"afterSeq": e.Gap.GetAfterSeq(), "toSeq": e.Gap.GetToSeq(), "epoch": e.Gap.GetEpoch(),
			"reason": nameOf(e.Gap.GetReason().String(), "GAP_REASON_"),
		}
	case parley.EventLost:
		told["reason"] = nameOf(e.Lost.GetReason().String(), "LOST_REASON_")
	case parley.EventTyping:
		told["userId"] = e.Typing.GetUserId()
	case parley.EventDelta:
		told["msgId"], told["offset"], told["text"] = e.Delta.GetMsgId(), e.Delta.GetOffset(), e.Delta.GetText()
	}
	return told
}

// nameOf returns an enum value's name without its prefix. It is empty for unspecified.
func nameOf(name, prefix string) string {
	name = strings.TrimPrefix(name, prefix)
	if name == "UNSPECIFIED" {
		return ""
	}
	return name
}
