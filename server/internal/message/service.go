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
	// Open makes the message StatusOpen, until Close.
	Open bool
	// Traceparent is the W3C trace context to propagate to delivery; may be empty.
	Traceparent string
}

// UserType is the MsgType of the messages that the user of a session writes. A change of any other
// message of a session, except for its recall, requires the capability manage.
const UserType = "user"

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
	// Head is the seq of the log's last entry when the page was read. Oldest is the seq of the first
	// entry that could be read; Head + 1 if there was none.
	Head, Oldest int64
	Epoch        string
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

// readCaller returns the caller, and the access revision at which they were allowed to use the
// channel for the action.
func (s *Service) readCaller(ctx context.Context, action ident.Action, channelID string) (p *ident.Principal, rev int64, err error) {
	if p, err = ident.Caller(ctx); err != nil {
		return nil, 0, err
	}
	rev, err = s.access.ForRead(ctx, p, action, channelID, 0)
	return p, rev, err
}

// checkRead checks a caller of readCaller for the history again if what was read is of a later
// access revision than the one at which they were checked.
func (s *Service) checkRead(ctx context.Context, p *ident.Principal, channelID string, checked, read int64) error {
	if read <= checked {
		return nil
	}
	_, err := s.access.ForRead(ctx, p, ident.History, channelID, read)
	return err
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
		Metadata: r.Metadata, ClientMsgID: orNewID(r.ClientMsgID), Traceparent: r.Traceparent, Open: r.Open,
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
	if err := s.checkSend(ctx, ident.FromContext(ctx), &d, 0); err != nil {
		return Receipt{}, err
	}
	return s.append(ctx, d, s.checkSend)
}

// check checks the sender of a draft at the access revision atLeast or a later one, and sets those
// fields of the draft that depend on it.
type check func(ctx context.Context, p *ident.Principal, d *Draft, atLeast int64) error

// checkSend is the check of a send. A message in the name of another user is appended only to that
// user's own session, so that a backend which passes on a session id and a user need not check that
// they belong together.
func (s *Service) checkSend(ctx context.Context, p *ident.Principal, d *Draft, atLeast int64) (err error) {
	if sessionID, session := ident.SessionOf(d.ChannelID); session && d.FromID != p.Subject {
		p = &ident.Principal{Subject: d.FromID, Sessions: []ident.Capability{{Pattern: sessionID, Actions: []ident.Action{ident.Append}}}}
	}
	d.Rev, err = s.access.ForSend(ctx, p, d.ChannelID, atLeast)
	return err
}

// append appends a draft whose sender was checked. If it is handed back, append checks the sender
// again and tries once more.
func (s *Service) append(ctx context.Context, d Draft, again check) (Receipt, error) {
	out := s.writer.Append(ctx, []Draft{d})[0]
	if out.StaleRev > 0 {
		if err := again(ctx, ident.FromContext(ctx), &d, out.StaleRev); err != nil {
			return Receipt{}, refusedAgain(&out, err)
		}
		out = s.writer.Append(ctx, []Draft{d})[0]
	}
	if out.Err != nil {
		return Receipt{}, out.Err
	}
	return s.receipt(ctx, &out)
}

// refusedAgain returns the error of a draft that was handed back and whose sender was then refused
// with err.
func refusedAgain(out *Outcome, err error) error {
	if f, ok := fault.As(out.Err); ok && f.Reason == fault.OutcomeUnknown {
		return out.Err // it may have been stored before the channel was closed
	}
	return err
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
	items := make([]batchSend, 0, len(rs))
	for i := range rs {
		d, err := s.sendDraft(ctx, &rs[i])
		if err != nil {
			outs[i].Err = err
			continue
		}
		items = append(items, batchSend{d, &outs[i]})
	}
	stale := make(map[string]Outcome)
	if back := s.appendBatch(ctx, items, stale); len(back) > 0 {
		s.appendBatch(ctx, back, stale)
	}
	return outs
}

// batchSend is a draft of a batch, and where its outcome goes.
type batchSend struct {
	draft Draft
	out   *SendOutcome
}

// appendBatch checks the caller and appends the drafts, once. It returns those that were handed
// back, and stores the last outcome of each of their channels in stale, for the next call.
func (s *Service) appendBatch(ctx context.Context, items []batchSend, stale map[string]Outcome) (back []batchSend) {
	checks := s.checkSends(ctx, items, stale)
	var drafts []Draft
	var allowed []batchSend
	for _, it := range items {
		c := checks[it.draft.ChannelID]
		if c.err != nil {
			it.out.Err = c.err
			continue
		}
		it.draft.Rev = c.rev
		drafts, allowed = append(drafts, it.draft), append(allowed, it)
	}
	for i, out := range s.writer.Append(ctx, drafts) {
		it := allowed[i]
		if out.StaleRev > 0 {
			back = append(back, it)
			stale[out.ChannelID] = out
		}
		if out.Err != nil {
			it.out.Err = out.Err
			continue
		}
		it.out.Receipt, it.out.Err = s.receipt(ctx, &out)
	}
	return back
}

// sendCheck is the result of checking the caller for one channel.
type sendCheck struct {
	rev int64
	err error
}

// checkSends checks the caller once for every channel of the drafts. stale holds the outcomes of
// drafts that were handed back, by channel.
func (s *Service) checkSends(ctx context.Context, items []batchSend, stale map[string]Outcome) map[string]sendCheck {
	var mu sync.Mutex
	checks := make(map[string]sendCheck)
	checked := make(map[string]bool)
	var calls errgroup.Group
	calls.SetLimit(16)
	for i := range items {
		channelID := items[i].draft.ChannelID
		if checked[channelID] {
			continue
		}
		checked[channelID] = true
		calls.Go(func() error {
			out := stale[channelID]
			rev, err := s.access.ForSend(ctx, ident.FromContext(ctx), channelID, out.StaleRev)
			if err != nil && out.StaleRev > 0 {
				err = refusedAgain(&out, err)
			}
			mu.Lock()
			defer mu.Unlock()
			checks[channelID] = sendCheck{rev, err}
			return nil
		})
	}
	_ = calls.Wait() // the errors are in the map
	return checks
}

// Edit replaces the content of one of the caller's own messages. It returns the message in a state
// that includes the edit, or a zero one if the message has expired since the edit was stored.
func (s *Service) Edit(ctx context.Context, r EditRequest) (Receipt, Message, error) {
	return s.change(ctx, Draft{
		Kind: KindEdit, ChannelID: r.ChannelID, MsgID: r.MsgID, Content: r.Content,
		ClientMsgID: orNewID(r.ClientMsgID), Traceparent: r.Traceparent,
	}, s.checkEdit)
}

// checkEdit is the check of an edit.
func (s *Service) checkEdit(ctx context.Context, p *ident.Principal, d *Draft, atLeast int64) (err error) {
	d.TargetType = changeable(p, d.ChannelID)
	d.Rev, err = s.access.ForRead(ctx, p, ident.Send, d.ChannelID, atLeast)
	return err
}

// changeable returns the MsgType of the messages whose text p may change in the channel; empty
// means any.
func changeable(p *ident.Principal, channelID string) string {
	if ident.IsSession(channelID) && !p.Can(ident.Manage, channelID) {
		return UserType
	}
	return ""
}

// change checks the caller, appends their change and reads the message that it changed.
// The message is zero if it has expired meanwhile, as it may have when a change is repeated. If
// only the read fails, the error is that of ctx if ctx has ended. Otherwise it is OUTCOME_UNKNOWN:
// the change is stored, and a repeat with the same client_msg_id returns it as a duplicate.
func (s *Service) change(ctx context.Context, d Draft, check check) (Receipt, Message, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return Receipt{}, Message{}, err
	}
	d.FromID = p.Subject
	if err := check(ctx, p, &d, 0); err != nil {
		return Receipt{}, Message{}, err
	}
	r, err := s.append(ctx, d, check)
	if err != nil {
		return Receipt{}, Message{}, err
	}
	read := s.reader.message
	if !r.Duplicate {
		read = s.reader.messageAfterChange
	}
	m, err := read(ctx, d.ChannelID, d.MsgID, r.Seq)
	switch {
	case err == nil:
		return r, m, nil
	case isNotFound(err) && s.reader.targetExpired(ctx, d.ChannelID, r.Seq):
		return r, Message{}, nil
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
	return s.change(ctx, Draft{
		Kind: KindRecall, ChannelID: r.ChannelID, MsgID: r.MsgID,
		ClientMsgID: orNewID(r.ClientMsgID), Traceparent: r.Traceparent,
	}, s.checkRecall)
}

// checkRecall is the check of a recall.
func (s *Service) checkRecall(ctx context.Context, p *ident.Principal, d *Draft, atLeast int64) (err error) {
	d.AnySender, d.Rev, err = s.access.ForRecall(ctx, p, d.ChannelID, atLeast)
	return err
}

// List returns a page of messages: ascending from After if it is set, otherwise descending from
// Before or from the end of the log.
func (s *Service) List(ctx context.Context, q ListQuery) (Page, error) {
	p, rev, err := s.readCaller(ctx, ident.History, q.ChannelID)
	if err != nil {
		return Page{}, err
	}
	r := pageRange{channelID: q.ChannelID, minSeq: q.MinSeq, size: q.PageSize, desc: q.After == nil, afterField: "after_seq"}
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
			r.after, r.afterField = last, "page_token"
		}
	}
	res, err := s.reader.page(ctx, r)
	if err == nil {
		err = s.checkRead(ctx, p, q.ChannelID, rev, res.rev())
	}
	if err != nil {
		return Page{}, err
	}
	page := Page{Messages: res.messages, Head: res.head.Seq, Oldest: res.head.First(), Epoch: s.reader.epoch, FromCache: res.fromCache}
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
	p, rev, err := s.readCaller(ctx, ident.History, channelID)
	if err != nil {
		return Message{}, err
	}
	m, err := s.reader.message(ctx, channelID, msgID, 0)
	if err == nil {
		err = s.checkRead(ctx, p, channelID, rev, m.Rev)
	}
	if err != nil {
		return Message{}, err
	}
	return m, nil
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
