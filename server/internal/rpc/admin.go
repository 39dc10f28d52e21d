package rpc

import (
	"context"
	"strconv"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/pagetoken"
	"github.com/parleyhq/parley/server/internal/queue"
)

// Admin creates, changes and inspects queue topics and groups. *queue.Admin implements it and
// documents the methods. The caller's capability has been checked.
type Admin interface { //nolint:interfacebloat // one method for each call of the service
	CreateTopic(ctx context.Context, t queue.Topic) (*queue.Topic, error)
	// UpdateTopic calls change with a copy of the topic, and again with a newer copy after a conflict.
	UpdateTopic(ctx context.Context, name string, change func(*queue.Topic) error) (*queue.Topic, error)
	DeleteTopic(ctx context.Context, name, confirm string) error
	Topic(ctx context.Context, name string) (*queue.Topic, error)
	Topics(ctx context.Context, after string, n int) (topics []*queue.Topic, more bool, err error)
	Pause(ctx context.Context, name string, produce, consume bool) (*queue.Topic, error)
	Resume(ctx context.Context, name string, produce, consume bool) (*queue.Topic, error)
	CreateGroup(ctx context.Context, topic string, g queue.Group) error
	DeleteGroup(ctx context.Context, topic, group, confirm string) error
	SeekGroup(ctx context.Context, topic string, g queue.Group) error
	Stats(ctx context.Context, topic string) (queue.TopicStats, error)
	Partitions(ctx context.Context, topic, group string) ([]queue.Owner, error)
	Pending(ctx context.Context, topic, group string, byAttempts bool, offset, n int) (entries []queue.PendingEntry, total int, err error)
	Trim(ctx context.Context, topic string, c queue.Cut) (removed, lost int64, err error)
	// DeadLetters returns up to n dead letters after the cursor; empty starts at the newest. The id of
	// a dead letter is a cursor too.
	DeadLetters(ctx context.Context, topic, group, cursor string, n int) (letters []queue.DeadLetter, next string, err error)
	Replay(ctx context.Context, topic, group string, ids []string, limit int, to *int) (replayed int64, more bool, err error)
	Purge(ctx context.Context, topic, group string, ids []string, confirm string) (int64, error)
}

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
	// deadLetterBatch is the maximum number of dead letters that are read from the store at once.
	deadLetterBatch = 50
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

// ListTopics implements parleyv1connect.AdminServiceHandler.
//
//nolint:dupl // that of the second design takes its place
func (s *adminService) ListTopics(ctx context.Context, req *parleyv1.ListTopicsRequest) (*parleyv1.ListTopicsResponse, error) {
	page, err := s.page(ctx, "topics", nil)
	if err != nil {
		return nil, err
	}
	after, err := page.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	topics, more, err := s.deps.Admin.Topics(ctx, after, orDefault(req.GetPageSize(), defaultPage))
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListTopicsResponse{}
	size := 0
	for i, t := range topics {
		w := topicToWire(t)
		if size += proto.Size(w); i > 0 && size > pageBytes {
			topics, more = topics[:i], true
			break
		}
		resp.Topics = append(resp.Topics, w)
	}
	if more && len(topics) > 0 {
		resp.NextPageToken = page.seal(topics[len(topics)-1].Name)
	}
	return resp, nil
}

// GetTopicStats implements parleyv1connect.AdminServiceHandler.
func (s *adminService) GetTopicStats(
	ctx context.Context, req *parleyv1.GetTopicStatsRequest,
) (*parleyv1.GetTopicStatsResponse, error) {
	stats, err := s.deps.Admin.Stats(ctx, req.GetTopic())
	if err != nil {
		return nil, err
	}
	return statsToWire(&stats), nil
}

// ListPartitions implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ListPartitions(
	ctx context.Context, req *parleyv1.ListPartitionsRequest,
) (*parleyv1.ListPartitionsResponse, error) {
	owners, err := s.deps.Admin.Partitions(ctx, req.GetTopic(), req.GetGroup())
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListPartitionsResponse{}
	for i := range owners {
		resp.Partitions = append(resp.Partitions, ownerToWire(&owners[i]))
	}
	return resp, nil
}

// ListPending implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ListPending(
	ctx context.Context, req *parleyv1.ListPendingRequest,
) (*parleyv1.ListPendingResponse, error) {
	byAttempts := req.GetOrder() == parleyv1.PendingOrder_PENDING_ORDER_ATTEMPTS
	page, err := s.page(ctx, "pending", []any{req.GetTopic(), req.GetGroup(), byAttempts})
	if err != nil {
		return nil, err
	}
	last, err := page.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	offset, _ := strconv.Atoi(last) // sealed by this server, or empty
	entries, total, err := s.deps.Admin.Pending(
		ctx, req.GetTopic(), req.GetGroup(), byAttempts, offset, orDefault(req.GetPageSize(), defaultPage))
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListPendingResponse{Total: int64(total)}
	if len(entries) == 0 {
		return resp, nil
	}
	consumers, err := s.consumers(ctx, req.GetTopic(), req.GetGroup())
	if err != nil {
		return nil, err
	}
	for i := range entries {
		resp.Pending = append(resp.Pending, pendingToWire(&entries[i], consumers))
	}
	if next := offset + len(entries); next < total {
		resp.NextPageToken = page.seal(strconv.Itoa(next))
	}
	return resp, nil
}

// consumers maps stream ids to the names of their consumers, for a group's consumers that own
// partitions.
func (s *adminService) consumers(ctx context.Context, topic, group string) (map[string]string, error) {
	owners, err := s.deps.Admin.Partitions(ctx, topic, group)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(owners))
	for _, o := range owners {
		out[o.StreamID] = o.Consumer
	}
	return out, nil
}

// TrimTopic implements parleyv1connect.AdminServiceHandler.
func (s *adminService) TrimTopic(ctx context.Context, req *parleyv1.TrimTopicRequest) (*parleyv1.TrimTopicResponse, error) {
	cut := queue.Cut{Messages: req.GetMaxMessages(), Force: req.GetForce()}
	if req.GetMaxAge() != nil {
		cut.Messages, cut.Age = -1, millis(req.GetMaxAge())
	}
	removed, lost, err := s.deps.Admin.Trim(ctx, req.GetTopic(), cut)
	if err != nil {
		return nil, err
	}
	return &parleyv1.TrimTopicResponse{Removed: removed, Lost: lost}, nil
}

// ListDeadLetters implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ListDeadLetters(
	ctx context.Context, req *parleyv1.ListDeadLettersRequest,
) (*parleyv1.ListDeadLettersResponse, error) {
	page, err := s.page(ctx, "dead letters", []any{req.GetTopic(), req.GetGroup()})
	if err != nil {
		return nil, err
	}
	cursor, err := page.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListDeadLettersResponse{}
	size := 0
	for left := orDefault(req.GetPageSize(), defaultPage); left > 0; {
		letters, next, err := s.deps.Admin.DeadLetters(ctx, req.GetTopic(), req.GetGroup(), cursor, min(left, deadLetterBatch))
		if err != nil {
			return nil, err
		}
		for i := range letters {
			w := letterToWire(&letters[i])
			if size += proto.Size(w); size > pageBytes && len(resp.GetDeadLetters()) > 0 {
				resp.NextPageToken = page.seal(cursor)
				return resp, nil
			}
			resp.DeadLetters, cursor = append(resp.DeadLetters, w), w.GetDeadLetterId()
		}
		left, cursor = left-len(letters), next
		if next == "" {
			break
		}
	}
	resp.NextPageToken = page.seal(cursor)
	return resp, nil
}

// ReplayDeadLetters implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ReplayDeadLetters(
	ctx context.Context, req *parleyv1.ReplayDeadLettersRequest,
) (*parleyv1.ReplayDeadLettersResponse, error) {
	var to *int
	if req.Partition != nil {
		partition := int(req.GetPartition())
		to = &partition
	}
	replayed, more, err := s.deps.Admin.Replay(ctx, req.GetTopic(), req.GetSelection().GetGroup(),
		req.GetSelection().GetIds().GetDeadLetterIds(), orDefault(req.GetLimit(), defaultReplay), to)
	if err != nil {
		return nil, inSelection(err)
	}
	return &parleyv1.ReplayDeadLettersResponse{Replayed: replayed, More: more}, nil
}

// inSelection returns err; if it is a fault about the field `group`, with that field's path in a
// request with a selection.
func inSelection(err error) error {
	f, ok := fault.As(err)
	if !ok || f.Field != "group" {
		return err
	}
	mapped := *f
	mapped.Field = "selection.group"
	return &mapped
}

// PurgeDeadLetters implements parleyv1connect.AdminServiceHandler.
func (s *adminService) PurgeDeadLetters(
	ctx context.Context, req *parleyv1.PurgeDeadLettersRequest,
) (*parleyv1.PurgeDeadLettersResponse, error) {
	purged, err := s.deps.Admin.Purge(ctx, req.GetTopic(), req.GetSelection().GetGroup(),
		req.GetSelection().GetIds().GetDeadLetterIds(), req.GetConfirm())
	if err != nil {
		return nil, inSelection(err)
	}
	return &parleyv1.PurgeDeadLettersResponse{Purged: purged}, nil
}
