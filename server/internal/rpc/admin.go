package rpc

import (
	"context"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/pagetoken"
)

// adminService implements parley.v1.AdminService. Interceptors have validated the requests, and
// checked that the caller has the capability admin.
type adminService struct {
	deps  Deps
	pages pagetoken.Sealer
}

var _ parleyv1connect.AdminServiceHandler = (*adminService)(nil)

const (
	defaultPage   = 100
	defaultReplay = 1000
	// pageBytes bounds a page of a list in bytes, regardless of its page_size. A single item may be
	// larger.
	pageBytes = 1 << 20
)

func orDefault(n int32, def int) int {
	if n == 0 {
		return def
	}
	return int(n)
}

// page opens the page token of a list request and seals the token of the next page.
type page struct {
	sealer  pagetoken.Sealer
	binding pagetoken.Binding
}

// page returns a page whose tokens are valid only for this caller, call and query.
func (s *adminService) page(ctx context.Context, call string, query any) (*page, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	return &page{s.pages, pagetoken.Binding{Call: call, Subject: p.Subject, Query: query}}, nil
}

// open returns where the previous page ended, as it was passed to seal; empty for an empty token,
// which requests the first page.
func (p *page) open(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	return p.sealer.Open(token, &p.binding)
}

// seal returns the token of the page after last; empty if last is empty, which means that there are
// no more pages.
func (p *page) seal(last string) string {
	if last == "" {
		return ""
	}
	return p.sealer.Seal(&p.binding, last)
}
