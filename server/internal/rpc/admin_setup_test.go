package rpc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/queue/inspect"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
)

// otherTopics has another name than its method Topics.
type otherTopics = Topics

// fakeTopics calls functions in place of a store. Its other methods must not be called.
type fakeTopics struct {
	otherTopics

	list   func(n int) ([]*qlog.Topic, bool, error)
	get    func(name string) (*qlog.Topic, error)
	remove func(name string) error
}

func (f *fakeTopics) Topics(_ context.Context, _ string, n int) ([]*qlog.Topic, bool, error) {
	return f.list(n)
}

func (f *fakeTopics) Topic(_ context.Context, name string) (*qlog.Topic, error) { return f.get(name) }

func (f *fakeTopics) DeleteTopic(_ context.Context, name, _ string) error { return f.remove(name) }

// fakeInspector calls functions in place of a store. Its other methods must not be called.
type fakeInspector struct {
	Inspector

	jobs      func(n int) ([]inspect.Job, string, error)
	letters   func(n int) ([]inspect.Letter, string, error)
	consumers func(n int) ([]inspect.Consumer, string, []string, error)
}

func (f *fakeInspector) Jobs(_ context.Context, q inspect.JobQuery) ([]inspect.Job, string, error) {
	return f.jobs(q.N)
}

func (f *fakeInspector) Letters(_ context.Context, q inspect.LetterQuery) ([]inspect.Letter, string, error) {
	return f.letters(q.N)
}

func (f *fakeInspector) Consumers(_ context.Context, _, _, _ string, n int) ([]inspect.Consumer, string, []string, error) {
	return f.consumers(n)
}

// refusedAs returns the code, reason, field and limit of a call's error; "ok" for nil.
func refusedAs(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return "ok"
	}
	d, _ := details(t, err)
	return fmt.Sprintf("%v %s %q %d", connect.CodeOf(err), d.GetReason().String()[len(reasonPrefix):], d.GetField(), d.GetLimit())
}

// told returns the code, reason and field of an item's error; "ok" if there is none.
func told(e *parleyv1.ItemError) string {
	if e == nil {
		return "ok"
	}
	code := strings.ToLower(strings.TrimPrefix(e.GetCode().String(), "STATUS_CODE_"))
	return strings.TrimSpace(code + " " + strings.TrimPrefix(e.GetDetail().GetReason().String(), reasonPrefix) + " " + e.GetDetail().GetField())
}

// second returns the error of a call and drops its response.
func second[T any](_ *T, err error) error { return err }

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

func (b *bundle) adminClient(protocol int, token string, more ...connect.ClientOption) parleyv1connect.AdminServiceClient {
	hc, url, opts := b.over(protocol, token)
	return parleyv1connect.NewAdminServiceClient(hc, url, append(opts, more...)...)
}
