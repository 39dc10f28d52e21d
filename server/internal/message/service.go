package message

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// SendRequest asks for one message to be appended to a channel. The transport has checked the fields' own rules.
type SendRequest struct {
	ChannelID string
	Content   string
	// ClientMsgID makes the send idempotent; one is minted where it is empty.
	ClientMsgID string
	// MsgType is `text` where it is empty.
	MsgType  string
	Metadata map[string]string
	// FromID is the principal's subject where it is empty; another wants the action send_as.
	FromID string
	// Traceparent is the W3C trace context to carry on to delivery; may be empty.
	Traceparent string
}

// EditRequest asks for a message's content to be replaced.
type EditRequest struct {
	ChannelID, MsgID, Content, ClientMsgID, Traceparent string
}

// RecallRequest asks for a message to be taken back.
type RecallRequest struct {
	ChannelID, MsgID, ClientMsgID, Traceparent string
}

// Receipt is what the log made of a write.
type Receipt struct {
	// MsgID is the message that was sent, edited or recalled.
	MsgID string
	// Seq is the entry's own place; Count how many messages the log holds up to and with it.
	Seq, Count int64
	// MsgTime is when the entry was appended.
	MsgTime     time.Time
	ClientMsgID string
	Epoch       string
	// Duplicate is true if an earlier call stored the entry.
	Duplicate bool
}

// SendOutcome is what became of one item of a batch.
type SendOutcome struct {
	Receipt Receipt
	Err     error
}

// ListQuery asks for a page of a channel's messages. After and Before are exclusive; nil is unset.
type ListQuery struct {
	ChannelID     string
	After, Before *int64
	MinSeq        int64
	// PageSize is at most 1000; 0 means 50.
	PageSize  int
	PageToken string
}

// Page is a page of messages.
type Page struct {
	Messages []Message
	// NextPageToken is empty at the end only.
	NextPageToken string
	// Head is the log's last entry as the page was read.
	Head  int64
	Epoch string
	// FromCache tells where the page came from, for those who look into a slow read.
	FromCache bool
}

// Service is the message use-cases: who may do what, and what it means for the log. Safe for concurrent use. The
// caller's ident.Principal travels in the context; without one every call is refused.
type Service struct {
	writer *Writer
	reader *Reader
	tokens pageTokens
}

// NewService joins a writer and a reader of one store. The identity is that store's.
func NewService(w *Writer, r *Reader, id Identity) *Service {
	return &Service{writer: w, reader: r, tokens: pageTokens{secret: id.Secret}}
}

// allow gives the caller if it may do action on the channel. The answer depends on the caller's patterns alone, never
// on whether the channel exists.
func allow(ctx context.Context, action ident.Action, channelID string) (*ident.Principal, error) {
	p := ident.FromContext(ctx)
	if p == nil {
		return nil, fault.New(fault.Unauthenticated, fault.TokenInvalid, "the call carries no valid token")
	}
	if !p.Can(action, channelID) {
		return nil, fault.New(fault.PermissionDenied, fault.CapabilityMissing,
			"the token has no capability %q for this channel", action)
	}
	return p, nil
}

func (s *Service) sendDraft(ctx context.Context, r *SendRequest) (Draft, error) {
	p, err := allow(ctx, ident.Send, r.ChannelID)
	if err != nil {
		return Draft{}, err
	}
	from := p.Subject
	if r.FromID != "" && r.FromID != from {
		if !p.Can(ident.SendAs, r.ChannelID) {
			return Draft{}, fault.New(fault.PermissionDenied, fault.SenderMismatch,
				"from_id names another than the token's subject, which wants the capability %q", ident.SendAs)
		}
		from = r.FromID
	}
	msgType := r.MsgType
	if msgType == "" {
		msgType = "text"
	}
	return Draft{
		Kind: KindSend, ChannelID: r.ChannelID, MsgID: newID(), FromID: from, MsgType: msgType, Content: r.Content,
		Metadata: r.Metadata, ClientMsgID: orNewID(r.ClientMsgID), Traceparent: r.Traceparent,
	}, nil
}

// Send appends one message and answers once it is durable.
func (s *Service) Send(ctx context.Context, r SendRequest) (Receipt, error) {
	d, err := s.sendDraft(ctx, &r)
	if err != nil {
		return Receipt{}, err
	}
	return s.append(ctx, d)
}

func (s *Service) append(ctx context.Context, d Draft) (Receipt, error) {
	out := s.writer.Append(ctx, []Draft{d})[0]
	if out.Err != nil {
		return Receipt{}, out.Err
	}
	return s.receipt(ctx, &out)
}

// receipt also lets the reader know how far the log has come.
func (s *Service) receipt(ctx context.Context, out *Outcome) (Receipt, error) {
	s.reader.Saw(out.ChannelID, out.Seq)
	if out.MsgTime.IsZero() { // a recall that another call made: only its place is known so far
		es, err := s.reader.log.Entries(ctx, out.ChannelID, Range{After: out.Seq - 1, Before: out.Seq + 1, Limit: 1})
		if err != nil {
			return Receipt{}, unavailable(err)
		}
		if len(es) == 1 {
			out.MsgTime, out.Count = es[0].MsgTime, es[0].Count
		}
	}
	return Receipt{
		MsgID: out.MsgID, Seq: out.Seq, Count: out.Count, MsgTime: out.MsgTime, ClientMsgID: out.ClientMsgID,
		Epoch: s.reader.epoch, Duplicate: out.Duplicate,
	}, nil
}

// SendBatch appends messages and answers an outcome for each, in order. Of one channel what is stored is a prefix of
// what was asked, but for items that are refused for good.
func (s *Service) SendBatch(ctx context.Context, rs []SendRequest) []SendOutcome {
	outs := make([]SendOutcome, len(rs))
	drafts := make([]Draft, 0, len(rs))
	at := make([]int, 0, len(rs))
	for i := range rs {
		d, err := s.sendDraft(ctx, &rs[i])
		if err != nil {
			outs[i].Err = err
			continue
		}
		drafts, at = append(drafts, d), append(at, i)
	}
	for j, out := range s.writer.Append(ctx, drafts) {
		if out.Err != nil {
			outs[at[j]].Err = out.Err
			continue
		}
		outs[at[j]].Receipt, outs[at[j]].Err = s.receipt(ctx, &out)
	}
	return outs
}

// Edit replaces the content of one of the caller's own messages.
func (s *Service) Edit(ctx context.Context, r EditRequest) (Receipt, error) {
	p, err := allow(ctx, ident.Send, r.ChannelID)
	if err != nil {
		return Receipt{}, err
	}
	return s.append(ctx, Draft{
		Kind: KindEdit, ChannelID: r.ChannelID, MsgID: r.MsgID, FromID: p.Subject, Content: r.Content,
		ClientMsgID: orNewID(r.ClientMsgID), Traceparent: r.Traceparent,
	})
}

// Recall takes one of the caller's own messages back for good; with the action moderate anyone's.
func (s *Service) Recall(ctx context.Context, r RecallRequest) (Receipt, error) {
	action := ident.Send
	p := ident.FromContext(ctx)
	if p != nil && p.Can(ident.Moderate, r.ChannelID) {
		action = ident.Moderate
	}
	p, err := allow(ctx, action, r.ChannelID)
	if err != nil {
		return Receipt{}, err
	}
	return s.append(ctx, Draft{
		Kind: KindRecall, ChannelID: r.ChannelID, MsgID: r.MsgID, FromID: p.Subject,
		ClientMsgID: orNewID(r.ClientMsgID), AnySender: action == ident.Moderate, Traceparent: r.Traceparent,
	})
}

// List returns a page of messages: ascending from After, else descending from Before or from the log's end.
func (s *Service) List(ctx context.Context, q ListQuery) (Page, error) {
	p, err := allow(ctx, ident.History, q.ChannelID)
	if err != nil {
		return Page{}, err
	}
	r := pageRange{channelID: q.ChannelID, minSeq: q.MinSeq, size: q.PageSize, desc: q.After == nil}
	if r.size == 0 {
		r.size = 50
	}
	if q.After != nil {
		r.after = *q.After
	}
	if q.Before != nil {
		r.before = *q.Before
	}
	if q.PageToken != "" {
		last, err := s.tokens.open(q.PageToken, p.Subject, s.reader.epoch, &q)
		if err != nil {
			return Page{}, err
		}
		if r.desc {
			r.before = last
		} else {
			r.after = last
		}
	}
	res, err := s.reader.page(ctx, r)
	if err != nil {
		return Page{}, err
	}
	page := Page{Messages: res.messages, Head: res.head, Epoch: s.reader.epoch, FromCache: res.fromCache}
	if res.more {
		page.NextPageToken = s.tokens.seal(p.Subject, s.reader.epoch, &q, res.last)
	}
	return page, nil
}

// Get returns one message as it is now.
func (s *Service) Get(ctx context.Context, channelID, msgID string) (Message, error) {
	if _, err := allow(ctx, ident.History, channelID); err != nil {
		return Message{}, err
	}
	return s.reader.message(ctx, channelID, msgID)
}

func newID() string {
	return uuid.Must(uuid.NewV7()).String()
}

func orNewID(id string) string {
	if id == "" {
		return newID()
	}
	return id
}
