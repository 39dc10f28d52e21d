package rpc

import (
	"context"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
)

// fakeQueues is a Queues whose methods call the functions that the test sets. A nil function
// panics; the panic must not reach a client.
type fakeQueues struct {
	produce    func(ctx context.Context, topic string, drafts []queue.Draft) ([]queue.Outcome, error)
	schedule   func(ctx context.Context, topic string, drafts []queue.Draft) ([]queue.Outcome, error)
	cancel     func(topic, messageID string) error
	reschedule func(topic, messageID string, delay time.Duration, at time.Time) (time.Time, error)
}

func (f *fakeQueues) Produce(ctx context.Context, topic string, drafts []queue.Draft) ([]queue.Outcome, error) {
	return f.produce(ctx, topic, drafts)
}

func (f *fakeQueues) Schedule(ctx context.Context, topic string, drafts []queue.Draft) ([]queue.Outcome, error) {
	return f.schedule(ctx, topic, drafts)
}

func (f *fakeQueues) Cancel(_ context.Context, topic, messageID string) error {
	return f.cancel(topic, messageID)
}

func (f *fakeQueues) Reschedule(
	_ context.Context, topic, messageID string, delay time.Duration, at time.Time,
) (time.Time, error) {
	return f.reschedule(topic, messageID, delay, at)
}

// fakeConsumer is a ConsumerStream whose frames the test sends to the channel frames. Close closes
// the channel closed.
type fakeConsumer struct {
	id     string
	frames chan queue.Frame
	fail   chan error
	closed chan struct{}
}

func newFakeConsumer(id string) *fakeConsumer {
	return &fakeConsumer{id: id, frames: make(chan queue.Frame, 16), fail: make(chan error, 1), closed: make(chan struct{})}
}

func (f *fakeConsumer) ID() string { return f.id }

func (f *fakeConsumer) Next(ctx context.Context) (queue.Frame, error) {
	select {
	case frame := <-f.frames:
		return frame, nil
	case err := <-f.fail:
		return queue.Frame{}, err
	case <-ctx.Done():
		return queue.Frame{}, ctx.Err()
	}
}

func (f *fakeConsumer) Close() { close(f.closed) }

// fakeConsumers is a Consumers that opens the session that the test sets, and a ConsumerCalls that
// records its calls. do returns their results; nil means success.
type fakeConsumers struct {
	mu    sync.Mutex
	open  func(r queue.OpenRequest) (ConsumerStream, error)
	do    func(c *queueCall) ([]error, error)
	calls []queueCall
}

func (f *fakeConsumers) Open(_ context.Context, r queue.OpenRequest) (ConsumerStream, error) {
	f.mu.Lock()
	open := f.open
	f.mu.Unlock()
	return open(r)
}

// queueCall is a call of ConsumerCalls that fakeConsumers recorded.
type queueCall struct {
	Method                    string
	Ref                       queue.StreamRef
	Items                     []queue.Nack
	AckTimeout                time.Duration
	TotalMessages, TotalBytes int64
}

func (f *fakeConsumers) call(c *queueCall) ([]error, error) {
	f.mu.Lock()
	f.calls = append(f.calls, *c)
	do := f.do
	f.mu.Unlock()
	if do == nil {
		return make([]error, len(c.Items)), nil
	}
	return do(c)
}

func nacksOf(tokens []string) (items []queue.Nack) {
	for _, token := range tokens {
		items = append(items, queue.Nack{Token: token})
	}
	return items
}

func (f *fakeConsumers) Ack(_ context.Context, ref queue.StreamRef, tokens []string) ([]error, error) {
	return f.call(&queueCall{Method: "ack", Ref: ref, Items: nacksOf(tokens)})
}

func (f *fakeConsumers) Nack(_ context.Context, ref queue.StreamRef, items []queue.Nack) ([]error, error) {
	return f.call(&queueCall{Method: "nack", Ref: ref, Items: items})
}

func (f *fakeConsumers) Extend(_ context.Context, ref queue.StreamRef, tokens []string, timeout time.Duration) ([]error, error) {
	return f.call(&queueCall{Method: "extend", Ref: ref, Items: nacksOf(tokens), AckTimeout: timeout})
}

func (f *fakeConsumers) Grant(_ context.Context, ref queue.StreamRef, totalMessages, totalBytes int64) error {
	_, err := f.call(&queueCall{Method: "grant", Ref: ref, TotalMessages: totalMessages, TotalBytes: totalBytes})
	return err
}

func (f *fakeConsumers) Leave(_ context.Context, ref queue.StreamRef) error {
	_, err := f.call(&queueCall{Method: "leave", Ref: ref})
	return err
}

// taken returns the recorded calls since the last call of taken.
func (f *fakeConsumers) taken() []queueCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// fakeAdmin is an Admin whose methods call the functions that the test sets. A nil function panics.
type fakeAdmin struct {
	Admin

	create func(t queue.Topic) (*queue.Topic, error)
	update func(name string, change func(*queue.Topic) error) (*queue.Topic, error)
	topic  func(name string) (*queue.Topic, error)
	topics func(after string, n int) ([]*queue.Topic, bool, error)
	// pause implements Pause, resume implements Resume. The other functions implement the methods of
	// similar names; group implements CreateGroup and SeekGroup.
	pause   func(name string, produce, consume bool) (*queue.Topic, error)
	resume  func(name string, produce, consume bool) (*queue.Topic, error)
	group   func(topic string, g queue.Group) error
	stats   func(topic string) (queue.TopicStats, error)
	owners  func(topic, group string) ([]queue.Owner, error)
	pending func(topic, group string, byAttempts bool, offset, n int) ([]queue.PendingEntry, int, error)
	trim    func(topic string, c queue.Cut) (int64, int64, error)
	letters func(topic, group, cursor string, n int) ([]queue.DeadLetter, string, error)
	replay  func(topic, group string, ids []string, limit int, to *int) (int64, bool, error)
	// remove implements DeleteTopic, DeleteGroup and Purge; call is the name of the method.
	remove func(call, topic, group, confirm string, ids []string) error
}

func (f *fakeAdmin) DeleteTopic(_ context.Context, name, confirm string) error {
	return f.remove("DeleteTopic", name, "", confirm, nil)
}

func (f *fakeAdmin) DeleteGroup(_ context.Context, topic, group, confirm string) error {
	return f.remove("DeleteGroup", topic, group, confirm, nil)
}

func (f *fakeAdmin) Purge(_ context.Context, topic, group string, ids []string, confirm string) (int64, error) {
	return int64(len(ids)), f.remove("Purge", topic, group, confirm, ids)
}

func (f *fakeAdmin) Resume(_ context.Context, name string, produce, consume bool) (*queue.Topic, error) {
	return f.resume(name, produce, consume)
}

func (f *fakeAdmin) CreateTopic(_ context.Context, t queue.Topic) (*queue.Topic, error) {
	return f.create(t)
}

func (f *fakeAdmin) UpdateTopic(_ context.Context, name string, change func(*queue.Topic) error) (*queue.Topic, error) {
	return f.update(name, change)
}

func (f *fakeAdmin) Topic(_ context.Context, name string) (*queue.Topic, error) { return f.topic(name) }

func (f *fakeAdmin) Topics(_ context.Context, after string, n int) ([]*queue.Topic, bool, error) {
	return f.topics(after, n)
}

func (f *fakeAdmin) Pause(_ context.Context, name string, produce, consume bool) (*queue.Topic, error) {
	return f.pause(name, produce, consume)
}

func (f *fakeAdmin) CreateGroup(_ context.Context, topic string, g queue.Group) error {
	return f.group(topic, g)
}

func (f *fakeAdmin) SeekGroup(_ context.Context, topic string, g queue.Group) error {
	return f.group(topic, g)
}

func (f *fakeAdmin) Stats(_ context.Context, topic string) (queue.TopicStats, error) {
	return f.stats(topic)
}

func (f *fakeAdmin) Partitions(_ context.Context, topic, group string) ([]queue.Owner, error) {
	return f.owners(topic, group)
}

func (f *fakeAdmin) Pending(
	_ context.Context, topic, group string, byAttempts bool, offset, n int,
) ([]queue.PendingEntry, int, error) {
	return f.pending(topic, group, byAttempts, offset, n)
}

func (f *fakeAdmin) Trim(_ context.Context, topic string, c queue.Cut) (int64, int64, error) {
	return f.trim(topic, c)
}

func (f *fakeAdmin) DeadLetters(
	_ context.Context, topic, group, cursor string, n int,
) ([]queue.DeadLetter, string, error) {
	return f.letters(topic, group, cursor, n)
}

func (f *fakeAdmin) Replay(
	_ context.Context, topic, group string, ids []string, limit int, to *int,
) (int64, bool, error) {
	return f.replay(topic, group, ids, limit, to)
}

// operator returns a principal with all actions on all queues and the capability admin.
func operator(subject string) *ident.Principal {
	return &ident.Principal{
		Subject: subject, Admin: ident.AdminActions,
		Queues: []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Produce, ident.Consume}}},
	}
}

func (b *bundle) mintAs(p *ident.Principal) string {
	b.t.Helper()
	token, err := authn.Mint(secret, p, time.Hour)
	if err != nil {
		b.t.Fatal(err)
	}
	return token
}

// over returns the arguments of a generated client's constructor, for a client with this protocol
// and token. protocol is an index into protocols.
func (b *bundle) over(protocol int, token string) (connect.HTTPClient, string, []connect.ClientOption) {
	p := protocols[protocol]
	hc := b.h1
	if p.h2 {
		hc = b.h2
	}
	opts := append([]connect.ClientOption{}, p.opts...)
	if token != "" {
		opts = append(opts, connect.WithInterceptors(bearer{token}))
	}
	return hc, b.url(), opts
}

func (b *bundle) queueClient(protocol int, token string) parleyv1connect.QueueServiceClient {
	hc, url, opts := b.over(protocol, token)
	return parleyv1connect.NewQueueServiceClient(hc, url, opts...)
}

func (b *bundle) adminClient(protocol int, token string, more ...connect.ClientOption) parleyv1connect.AdminServiceClient {
	hc, url, opts := b.over(protocol, token)
	return parleyv1connect.NewAdminServiceClient(hc, url, append(opts, more...)...)
}

// eachAdmin runs a subtest for every protocol, with a client that has all actions of the capability
// admin.
func (b *bundle) eachAdmin(f func(t *testing.T, c parleyv1connect.AdminServiceClient)) {
	token := b.mintAs(operator("ada"))
	for i, p := range protocols {
		b.t.Run(p.name, func(t *testing.T) { f(t, b.adminClient(i, token)) })
	}
}

// eachQueue runs a subtest for every protocol, with a client that may do everything with queues.
func (b *bundle) eachQueue(f func(t *testing.T, c parleyv1connect.QueueServiceClient)) {
	token := b.mintAs(operator("ada"))
	for i, p := range protocols {
		b.t.Run(p.name, func(t *testing.T) { f(t, b.queueClient(i, token)) })
	}
}
