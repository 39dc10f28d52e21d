package rpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/erasure"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// fakeErasures has jobs 0 to 4.
type fakeErasures struct{}

func jobOf(n int) erasure.Job {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	return erasure.Job{
		ID: fmt.Sprint(n), UserID: "ann", State: erasure.Erased, CreatedAt: at, ErasedAt: at.Add(time.Minute), Messages: 1, Changes: 2,
		Memberships: 3,
	}
}

func (fakeErasures) Erase(_ context.Context, userID, id string) (erasure.Job, error) {
	return erasure.Job{ID: id, UserID: userID, State: erasure.Running, CreatedAt: time.UnixMilli(1_700_000_000_123)}, nil
}

func (fakeErasures) Get(_ context.Context, id string) (erasure.Job, error) {
	if id != "1" {
		return erasure.Job{}, fault.New(fault.NotFound, fault.ErasureNotFound, "request_id: there is no erasure with this id")
	}
	return jobOf(1), nil
}

func (fakeErasures) List(_ context.Context, after string, n int) (jobs []erasure.Job, more bool, err error) {
	for i := range 5 {
		if fmt.Sprint(i) > after {
			jobs = append(jobs, jobOf(i))
		}
	}
	return jobs[:min(n, len(jobs))], len(jobs) > n, nil
}

// TestErasures checks the calls about erasures: what they require, what they return, and that pages
// connect.
func TestErasures(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	read := b.mintAs(&ident.Principal{Subject: "ada", Admin: []ident.Action{ident.Read}})
	write := b.mintAs(&ident.Principal{Subject: "ada", Admin: []ident.Action{ident.Write}})
	as := func(token string) parleyv1connect.AdminServiceClient { return b.adminClient(0, token) }
	ctx := t.Context()
	if _, err := as(read).EraseUser(ctx, &parleyv1.EraseUserRequest{UserId: "ann"}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("erase with the action read: %v", err)
	}
	started, err := as(write).EraseUser(ctx, &parleyv1.EraseUserRequest{UserId: "ann", RequestId: "7"})
	if e := started.GetErasure(); err != nil || e.GetUserId() != "ann" || e.GetRequestId() != "7" ||
		e.GetState() != parleyv1.ErasureState_ERASURE_STATE_RUNNING || e.GetEraseTime() != nil {
		t.Errorf("erase: %v, %v", started, err)
	}
	for _, id := range []string{"~erased", "", "a b"} {
		if _, err := as(write).EraseUser(ctx, &parleyv1.EraseUserRequest{UserId: id}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("erase %q: %v", id, err)
		}
	}
	got, err := as(read).GetErasure(ctx, &parleyv1.GetErasureRequest{RequestId: "1"})
	if e := got.GetErasure(); err != nil || e.GetState() != parleyv1.ErasureState_ERASURE_STATE_ERASED || e.GetMessageCount() != 1 ||
		e.GetChangeCount() != 2 || e.GetMembershipCount() != 3 || e.GetEraseTime().AsTime().Sub(e.GetCreateTime().AsTime()) != time.Minute {
		t.Errorf("get: %v, %v", got, err)
	}
	if _, err := as(read).GetErasure(ctx, &parleyv1.GetErasureRequest{RequestId: "9"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("get a missing one: %v", err)
	}
	var ids []string
	for token := ""; len(ids) < 10; {
		page, err := as(read).ListErasures(ctx, &parleyv1.ListErasuresRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.GetErasures() {
			ids = append(ids, e.GetRequestId())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if fmt.Sprint(ids) != "[0 1 2 3 4]" {
		t.Errorf("listed %v", ids)
	}
}
