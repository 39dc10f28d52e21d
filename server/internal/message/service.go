package message

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/pagetoken"
)

// SendRequest describes a message to append to a channel. The transport has validated the fields.
type SendRequest struct {
	ChannelID string
	Content   string
	// ClientMsgID makes the send idempotent. If it is empty, the service generates one.
	ClientMsgID string
	// MsgType is the type of the message. Empty means `text`.
	MsgType  string
	Metadata map[string]string
	// FromID is the sender. Empty means the principal's subject; another sender requires the
	// capability send_as.
	FromID string
	// Traceparent is the W3C trace context to propagate to delivery; may be empty.
	Traceparent string
}

// EditRequest describes the replacement of a message's content.
type EditRequest struct {
	ChannelID, MsgID, Content, ClientMsgID, Traceparent string
}

// RecallRequest describes the recall of a message.
type RecallRequest struct {
	ChannelID, MsgID, ClientMsgID, Traceparent string
}

// Receipt is the result of a write.
type Receipt struct {
	// MsgID is the id of the message that was sent, edited or recalled.
	MsgID string
	// Seq is the seq of the entry. Count is the number of messages in the log up to and including
	// it.
	Seq, Count int64
	// MsgTime is when the entry was appended.
	MsgTime     time.Time
	ClientMsgID string
	Epoch       string
	// Duplicate is true if an earlier call stored the entry.
	Duplicate bool
}

// SendOutcome is the result of one item of a batch.
type SendOutcome struct {
	Receipt Receipt
	Err     error
}

// ListQuery selects a page of a channel's messages. After and Before are exclusive; nil means
// unset.
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
	// NextPageToken is empty on the last page only.
	NextPageToken string
	// Head is the seq of the log's last entry when the page was read.
	Head  int64
	Epoch string
	// FromCache reports whether the page came from the cache. It helps to diagnose slow reads.
	FromCache bool
}

// Service implements the message use cases. It is safe for concurrent use.
//
// The caller's ident.Principal is in the context; a call without one is refused. The transport has
// checked that the token has the required capability for the channel. Service checks the rest:
// memberships, reserved names, and the capabilities send_as and moderate.
type Service struct {
	writer Appender
	reader *Reader
	access Access
	tokens pagetoken.Sealer
}

// NewService returns a service over a writer and a reader of one store. id is the identity of that
// store; access decides who may use a channel.
func NewService(w Appender, r *Reader, id Identity, access Access) *Service {
	return &Service{writer: w, reader: r, access: access, tokens: pagetoken.New(id.Secret)}
}

// readCaller returns the caller if they have access to the channel.
func (s *Service) readCaller(ctx context.Context, channelID string) (*ident.Principal, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	return p, s.access.ForRead(ctx, p, channelID)
}

// sendDraft returns the draft for a send after checking the caller's token. It does not check
// access to the channel.
func (s *Service) sendDraft(ctx context.Context, r *SendRequest) (Draft, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return Draft{}, err
	}
	from := p.Subject
	if r.FromID != "" && r.FromID != from {
		if !p.Can(ident.SendAs, r.ChannelID) {
			return Draft{}, fault.New(fault.PermissionDenied, fault.SenderMismatch,
				"from_id: differs from the token's subject, which requires the capability %q", ident.SendAs)
		}
		from = r.FromID
	}
	if err := checkReserved(r); err != nil {
		return Draft{}, err
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

// checkReserved refuses the message types and metadata keys that are reserved for the server's own
// messages.
func checkReserved(r *SendRequest) error {
	if strings.HasPrefix(r.MsgType, "parley.") {
		return fault.Invalid("msg_type", 0, "msg_type: the prefix \"parley.\" is reserved")
	}
	for key := range r.Metadata {
		if strings.HasPrefix(key, "parley-") {
			return fault.Invalid("metadata", 0, "metadata: the key prefix \"parley-\" is reserved")
		}
	}
	return nil
}

// Send appends one message. It returns once the message is durable.
func (s *Service) Send(ctx context.Context, r SendRequest) (Receipt, error) {
	d, err := s.sendDraft(ctx, &r)
	if err != nil {
		return Receipt{}, err
	}
	if err := s.access.ForSend(ctx, ident.FromContext(ctx), r.ChannelID); err != nil {
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

// receipt converts an outcome without an error to a Receipt, and passes its seq to the reader's
// ObserveSeq.
func (s *Service) receipt(ctx context.Context, out *Outcome) (Receipt, error) {
	s.reader.ObserveSeq(out.ChannelID, out.Seq)
	if out.MsgTime.IsZero() { // a recall by another call: only its seq is known so far
		e, err := s.reader.entryAt(ctx, out.ChannelID, out.Seq)
		if err != nil {
			return Receipt{}, err
		}
		out.MsgTime, out.Count = e.MsgTime, e.Count
	}
	return Receipt{
		MsgID: out.MsgID, Seq: out.Seq, Count: out.Count, MsgTime: out.MsgTime, ClientMsgID: out.ClientMsgID,
		Epoch: s.reader.epoch, Duplicate: out.Duplicate,
	}, nil
}

// SendBatch appends messages and returns an outcome for each, in order. Within one channel the
// stored messages are a prefix of those requested, except for items that are refused permanently.
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
	refused := s.checkSend(ctx, drafts)
	n := 0
	for j := range drafts {
		if err := refused[drafts[j].ChannelID]; err != nil {
			outs[at[j]].Err = err
			continue
		}
		drafts[n], at[n] = drafts[j], at[j]
		n++
	}
	for j, out := range s.writer.Append(ctx, drafts[:n]) {
		if out.Err != nil {
			outs[at[j]].Err = out.Err
			continue
		}
		outs[at[j]].Receipt, outs[at[j]].Err = s.receipt(ctx, &out)
	}
	return outs
}

// checkSend checks every channel of the drafts once. It returns the errors by channel id for those
// that the caller may not send to.
func (s *Service) checkSend(ctx context.Context, drafts []Draft) map[string]error {
	var mu sync.Mutex
	refused := make(map[string]error)
	checked := make(map[string]bool)
	var calls errgroup.Group
	calls.SetLimit(16)
	for i := range drafts {
		channelID := drafts[i].ChannelID
		if checked[channelID] {
			continue
		}
		checked[channelID] = true
		calls.Go(func() error {
			if err := s.access.ForSend(ctx, ident.FromContext(ctx), channelID); err != nil {
				mu.Lock()
				defer mu.Unlock()
				refused[channelID] = err
			}
			return nil
		})
	}
	_ = calls.Wait() // the errors are in the map
	return refused
}

// Edit replaces the content of one of the caller's own messages. It returns the message in a state
// that includes the edit.
func (s *Service) Edit(ctx context.Context, r EditRequest) (Receipt, Message, error) {
	p, err := s.readCaller(ctx, r.ChannelID)
	if err != nil {
		return Receipt{}, Message{}, err
	}
	return s.change(ctx, Draft{
		Kind: KindEdit, ChannelID: r.ChannelID, MsgID: r.MsgID, FromID: p.Subject, Content: r.Content,
		ClientMsgID: orNewID(r.ClientMsgID), Traceparent: r.Traceparent,
	})
}

// change appends an edit or a recall and reads the message that it changed. If only the read fails,
// the error is that of ctx if ctx has ended, otherwise OUTCOME_UNKNOWN: the change is stored, and a
// repeat with the same client_msg_id returns it as a duplicate.
func (s *Service) change(ctx context.Context, d Draft) (Receipt, Message, error) {
	r, err := s.append(ctx, d)
	if err != nil {
		return Receipt{}, Message{}, err
	}
	m, err := s.reader.message(ctx, d.ChannelID, d.MsgID, r.Seq)
	switch {
	case err == nil:
		return r, m, nil
	case ctx.Err() != nil:
		return Receipt{}, Message{}, ctx.Err()
	default:
		return Receipt{}, Message{}, fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown,
			"the change is stored, but reading the message failed; retry with the same client_msg_id")
	}
}

// Recall permanently removes the content of one of the caller's own messages, or of anyone's with
// the capability moderate. It returns the recalled message without its content.
func (s *Service) Recall(ctx context.Context, r RecallRequest) (Receipt, Message, error) {
	p, err := s.readCaller(ctx, r.ChannelID)
	if err != nil {
		return Receipt{}, Message{}, err
	}
	return s.change(ctx, Draft{
		Kind: KindRecall, ChannelID: r.ChannelID, MsgID: r.MsgID, FromID: p.Subject,
		ClientMsgID: orNewID(r.ClientMsgID), AnySender: p.Can(ident.Moderate, r.ChannelID), Traceparent: r.Traceparent,
	})
}

// List returns a page of messages: ascending from After if it is set, otherwise descending from
// Before or from the end of the log.
func (s *Service) List(ctx context.Context, q ListQuery) (Page, error) {
	p, err := s.readCaller(ctx, q.ChannelID)
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
		last, err := s.openToken(p, &q)
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
		page.NextPageToken = s.tokens.Seal(s.binding(p, &q), strconv.FormatInt(res.last, 10))
	}
	return page, nil
}

// binding returns the parts of a query that must not change between pages. The rest may change:
// MinSeq grows while a client pages, and a page may be smaller than the one before.
func (s *Service) binding(p *ident.Principal, q *ListQuery) *pagetoken.Binding {
	return &pagetoken.Binding{
		Call: "messages", Subject: p.Subject, Epoch: s.reader.epoch,
		Query: struct {
			ChannelID     string
			After, Before *int64
		}{q.ChannelID, q.After, q.Before},
	}
}

func (s *Service) openToken(p *ident.Principal, q *ListQuery) (int64, error) {
	last, err := s.tokens.Open(q.PageToken, s.binding(p, q))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(last, 10, 64)
}

// Get returns one message in its current state.
func (s *Service) Get(ctx context.Context, channelID, msgID string) (Message, error) {
	if _, err := s.readCaller(ctx, channelID); err != nil {
		return Message{}, err
	}
	return s.reader.message(ctx, channelID, msgID, 0)
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
