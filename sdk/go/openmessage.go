package parley

import (
	"context"
	"errors"
	"sync"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

const (
	// deltaEvery is the minimum time between two deltas, unless deltaJoined bytes wait. deltaBytes is
	// the maximum size of one.
	deltaEvery  = 25 * time.Millisecond
	deltaJoined = 4 << 10
	deltaBytes  = 16 << 10
	// keepOpenEvery is the maximum time between two deltas. The server closes a message without any
	// for a minute.
	keepOpenEvery = 15 * time.Second
	// deltaAgain is the wait after retries of a delta have failed.
	deltaAgain = time.Second
)

// OpenMessage is an open message of a session. Write streams its text while it is generated.
// Exactly one of Close, Complete, Cancel and Fail closes it, with the whole content; these calls
// are retried like Client.Send, and can be repeated with the same content. With another content, or
// another of these calls after the first, the result is ErrClientMsgIDReused. It is
// ErrMessageClosed if the message was closed by somebody else, such as a user who cancelled it, and
// ErrMessageRecalled if it was recalled. An OpenMessage is safe for concurrent use.
//
// Until then it keeps the message from being closed as abandoned. That ends with the context of
// Open.
type OpenMessage struct {
	session *Session
	receipt Receipt
	token   string
	closeID string // the client_msg_id of the close

	ctx    context.Context //nolint:containedctx // that of Open: the life of the message
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the goroutine has ended
	grown  chan struct{} // holds a token if there is new text

	mu   sync.Mutex // guards text
	text []byte     // what was written; it may end within a character
}

// Open appends a message that is open: its content is still being generated, and is empty until the
// message is closed. It is retried like Client.Send. If ctx ends, the message is no longer kept
// open, and the server closes it as failed after a minute; a repeat of Open with the same
// WithClientMsgID begins its text anew.
func (s *Session) Open(ctx context.Context, role SessionRole, opts ...SendOption) (*OpenMessage, error) {
	return s.open(ctx, role, keepOpenEvery, opts)
}

func (s *Session) open(ctx context.Context, role SessionRole, keepEvery time.Duration, opts []SendOption) (*OpenMessage, error) {
	id, err := orNewID("")
	if err != nil {
		return nil, err
	}
	r, token, err := s.append(ctx, role, "", true, opts)
	if err != nil {
		return nil, err
	}
	m := &OpenMessage{
		session: s, receipt: *r, token: token, closeID: id, done: make(chan struct{}), grown: make(chan struct{}, 1),
	}
	m.ctx, m.cancel = context.WithCancelCause(ctx)
	if token == "" { // a repeat, of a message that was closed since
		m.cancel(errMessageClosed)
	}
	go m.stream(keepEvery)
	return m, nil
}

// Receipt returns the receipt of the call that opened the message.
func (m *OpenMessage) Receipt() *Receipt { return new(m.receipt) }

// Write appends to the text. It does not wait: the text is sent in the background, with what is
// written meanwhile joined. Text must be UTF-8; a piece may end within a character. Once Done is
// closed, Write returns Err.
func (m *OpenMessage) Write(p []byte) (int, error) {
	if err := m.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	checked := len(whole(m.text))
	m.text = append(m.text, p...)
	if !utf8.Valid(whole(m.text)[checked:]) {
		m.text = m.text[:len(m.text)-len(p)]
		return 0, invalid("text", "is not UTF-8")
	}
	select {
	case m.grown <- struct{}{}:
	default:
	}
	return len(p), nil
}

// Text returns what was written.
func (m *OpenMessage) Text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.text)
}

// Done returns a channel that is closed when nothing more can be streamed: the message was closed,
// here or by somebody else, or the context of Open has ended. Stop generating then.
func (m *OpenMessage) Done() <-chan struct{} { return m.ctx.Done() }

// Err returns nil until Done is closed, and then why: ErrMessageClosed if the message was closed or
// cancelled, ErrMessageRecalled, ErrAppendSuperseded if it was opened again by another call,
// another failure of a delta, or the error of the context.
func (m *OpenMessage) Err() error { return context.Cause(m.ctx) }

// Close closes the message as complete, with the text that was written.
func (m *OpenMessage) Close() error {
	_, err := m.Complete(context.WithoutCancel(m.ctx), m.Text())
	return err
}

// Complete closes the message with its complete content, of which what was written need not be a
// part.
func (m *OpenMessage) Complete(ctx context.Context, content string) (*Receipt, error) {
	return m.close(ctx, parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE, content)
}

// Cancel closes the message because a user cancelled the generation.
func (m *OpenMessage) Cancel(ctx context.Context, content string) (*Receipt, error) {
	return m.close(ctx, parleyv1.SessionOutcome_SESSION_OUTCOME_CANCELLED, content)
}

// Fail closes the message because the generation failed.
func (m *OpenMessage) Fail(ctx context.Context, content string) (*Receipt, error) {
	return m.close(ctx, parleyv1.SessionOutcome_SESSION_OUTCOME_FAILED, content)
}

func (m *OpenMessage) close(ctx context.Context, outcome parleyv1.SessionOutcome, content string) (*Receipt, error) {
	if err := checkText("content", content); err != nil {
		return nil, err
	}
	m.cancel(errMessageClosed) // the content need not wait for a delta
	<-m.done
	req := &parleyv1.CloseSessionMessageRequest{
		SessionId: m.session.id, MsgId: m.receipt.MsgID, Outcome: outcome, Content: content, ClientMsgId: m.closeID,
	}
	var res *parleyv1.CloseSessionMessageResponse
	err := m.session.client.do(ctx, "CloseSessionMessage", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.CloseSessionMessage(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m.session.closed(m.receipt.MsgID, m.closeID, res), nil
}

// whole returns text without the incomplete character at its end, if there is one.
func whole(text []byte) []byte {
	for back := 1; back <= min(utf8.UTFMax-1, len(text)); back++ {
		if b := text[len(text)-back]; utf8.RuneStart(b) {
			if !utf8.FullRune(text[len(text)-back:]) {
				return text[:len(text)-back]
			}
			break
		}
	}
	return text
}

// piece returns the next delta after sent bytes, and whether there is more than it.
func (m *OpenMessage) piece(sent int) (text string, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := whole(m.text)[sent:]
	if len(rest) > deltaBytes {
		return string(whole(rest[:deltaBytes])), true
	}
	return string(rest), false
}

// stream sends deltas until the message is closed.
func (m *OpenMessage) stream(keepEvery time.Duration) {
	defer close(m.done)
	keep := time.NewTimer(keepEvery)
	defer keep.Stop()
	sent, last := 0, time.Time{}
	for m.wait(keep) {
		for more := true; more && m.ctx.Err() == nil; {
			if text, _ := m.piece(sent); len(text) < deltaJoined && !m.pause(time.Until(last.Add(deltaEvery))) {
				return
			}
			var text string
			text, more = m.piece(sent) // with what was written meanwhile
			last = time.Now()
			sent = m.send(sent, text)
		}
		keep.Reset(keepEvery)
	}
}

// wait waits until there is text, or the message must be kept open. It returns false once the
// message is closed.
func (m *OpenMessage) wait(keep *time.Timer) bool {
	select {
	case <-m.grown:
	case <-keep.C:
	case <-m.ctx.Done():
	}
	return m.ctx.Err() == nil
}

func (m *OpenMessage) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-m.ctx.Done():
	}
	return m.ctx.Err() == nil
}

// send sends a delta after sent bytes. It returns the number of bytes that the server has then, and
// ends the message after a failure that is final.
func (m *OpenMessage) send(sent int, text string) int {
	req := &parleyv1.AppendSessionDeltaRequest{
		SessionId: m.session.id, MsgId: m.receipt.MsgID, AppendToken: m.token, Offset: int64(sent), Text: text,
	}
	var res *parleyv1.AppendSessionDeltaResponse
	err := m.session.client.do(m.ctx, "AppendSessionDelta", func(ctx context.Context, n *endpoint) (err error) {
		res, err = n.Message.AppendSessionDelta(ctx, req)
		return err
	})
	e, refused := errors.AsType[*Error](err)
	switch {
	case err == nil && res.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED:
		m.cancel(errMessageRecalled)
	case err == nil && res.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN:
		m.cancel(errMessageClosed)
	case err == nil:
		return max(sent+len(text), min(int(res.GetLength()), len(m.Text()))) // the node may have more, from earlier calls
	case m.ctx.Err() != nil:
	case refused && e.Code == connect.CodeOutOfRange && e.Field == "offset":
		m.again()
		return min(int(e.Limit), sent) // another node has less of the text
	case refused && !e.Retryable:
		m.cancel(err)
	default: // nothing answers: the text is kept, and the close has all of it
		m.again()
		m.pause(deltaAgain)
	}
	return sent
}

// again lets the goroutine send once more, although nothing was written.
func (m *OpenMessage) again() {
	select {
	case m.grown <- struct{}{}:
	default:
	}
}

var (
	errMessageClosed = &Error{
		Code: connect.CodeFailedPrecondition, Reason: parleyv1.ErrorReason_ERROR_REASON_MESSAGE_CLOSED, Message: "the message is not open",
	}
	errMessageRecalled = &Error{
		Code: connect.CodeFailedPrecondition, Reason: parleyv1.ErrorReason_ERROR_REASON_MESSAGE_RECALLED, Message: "the message was recalled",
	}
)
