package rpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/erasure"
)

// Erasures starts erasures of users and reports on them. *erasure.Service implements it and
// documents the methods. The caller's capability has been checked.
type Erasures interface {
	Erase(ctx context.Context, userID, id string) (erasure.Job, error)
	Get(ctx context.Context, id string) (erasure.Job, error)
	List(ctx context.Context, after string, n int) (jobs []erasure.Job, more bool, err error)
}

// EraseUser implements parleyv1connect.AdminServiceHandler.
func (s *adminService) EraseUser(ctx context.Context, req *parleyv1.EraseUserRequest) (*parleyv1.EraseUserResponse, error) {
	job, err := s.deps.Erasures.Erase(ctx, req.GetUserId(), req.GetRequestId())
	if err != nil {
		return nil, err
	}
	return &parleyv1.EraseUserResponse{Erasure: erasureToWire(&job)}, nil
}

// GetErasure implements parleyv1connect.AdminServiceHandler.
func (s *adminService) GetErasure(ctx context.Context, req *parleyv1.GetErasureRequest) (*parleyv1.GetErasureResponse, error) {
	job, err := s.deps.Erasures.Get(ctx, req.GetRequestId())
	if err != nil {
		return nil, err
	}
	return &parleyv1.GetErasureResponse{Erasure: erasureToWire(&job)}, nil
}

// ListErasures implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ListErasures(ctx context.Context, req *parleyv1.ListErasuresRequest) (*parleyv1.ListErasuresResponse, error) {
	page, err := s.page(ctx, "erasures", nil)
	if err != nil {
		return nil, err
	}
	after, err := page.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	jobs, more, err := s.deps.Erasures.List(ctx, after, orDefault(req.GetPageSize(), defaultPage))
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListErasuresResponse{}
	for i := range jobs {
		resp.Erasures = append(resp.Erasures, erasureToWire(&jobs[i]))
	}
	if more && len(jobs) > 0 {
		resp.NextPageToken = page.seal(jobs[len(jobs)-1].ID)
	}
	return resp, nil
}

func erasureToWire(job *erasure.Job) *parleyv1.Erasure {
	at := func(t time.Time) *timestamppb.Timestamp {
		if t.IsZero() {
			return nil
		}
		return timestamppb.New(t)
	}
	return &parleyv1.Erasure{
		RequestId: job.ID, UserId: job.UserID, State: parleyv1.ErasureState(job.State), CreateTime: at(job.CreatedAt),
		EraseTime: at(job.ErasedAt), FinishTime: at(job.FinishedAt), MessageCount: job.Messages, ChangeCount: job.Changes,
		MembershipCount: job.Memberships,
	}
}
