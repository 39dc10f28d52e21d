package rpc

import (
	"context"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/queue/inspect"
	"github.com/parleyhq/parley/server/internal/queue/produce"
)

// ListDeadLetters implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ListDeadLetters(
	ctx context.Context, req *parleyv1.ListDeadLettersRequest,
) (*parleyv1.ListDeadLettersResponse, error) {
	page, err := s.page(ctx, "dead letters", []any{req.GetTopic(), req.GetGroup(), req.GetCode(), req.GetFull()})
	if err != nil {
		return nil, err
	}
	cursor, err := page.open(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	letters, next, err := s.deps.Inspector.Letters(ctx, inspect.LetterQuery{
		Topic: req.GetTopic(), Group: req.GetGroup(), Code: req.GetCode(), Full: req.GetFull(), Cursor: cursor,
		N: orDefault(req.GetPageSize(), defaultPage),
	})
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListDeadLettersResponse{NextPageToken: page.seal(next)}
	for i := range letters {
		resp.DeadLetters = append(resp.DeadLetters, wireLetter(&letters[i]))
	}
	return resp, nil
}

// wireLetter converts a dead letter. It has a payload and headers if the letter has its body.
func wireLetter(l *inspect.Letter) *parleyv1.DeadLetter {
	body := bodyFields(l.Body)
	return &parleyv1.DeadLetter{
		DeadLetterId: l.ID, MessageId: l.MessageID, Partition: int32(l.Partition), Group: l.Group, Key: l.Key, //nolint:gosec // below 256
		Payload: body.GetPayload(), Headers: body.GetHeaders(), Reason: l.Reason, Code: l.Code,
		Attempts:    int32(l.Attempts), //nolint:gosec // a count
		ProduceTime: timeToWire(l.ProducedAt), DeadLetterTime: timeToWire(l.Letter.ID.Time()),
		PayloadBytes: int32(l.PayloadBytes), //nolint:gosec // the store's records are small
	}
}

func selectionOf(w *parleyv1.DeadLetterSelection) inspect.Selection {
	return inspect.Selection{IDs: w.GetIds().GetDeadLetterIds(), Group: w.GetGroup()}
}

// inLetters maps the fields of a fault about a selection to their paths in the request.
func inLetters(err error) error {
	return movedTo(movedTo(err, "group", "selection.group"), "selection.ids", "selection.ids.dead_letter_ids")
}

// ReplayDeadLetters implements parleyv1connect.AdminServiceHandler.
func (s *adminService) ReplayDeadLetters(
	ctx context.Context, req *parleyv1.ReplayDeadLettersRequest,
) (*parleyv1.ReplayDeadLettersResponse, error) {
	replayed, more, err := s.deps.Inspector.Replay(
		ctx, req.GetTopic(), selectionOf(req.GetSelection()), orDefault(req.GetLimit(), defaultReplay), req.GetToTopic())
	if err != nil {
		return nil, inLetters(err)
	}
	return &parleyv1.ReplayDeadLettersResponse{Replayed: int64(replayed), More: more}, nil
}

// PurgeDeadLetters implements parleyv1connect.AdminServiceHandler.
func (s *adminService) PurgeDeadLetters(
	ctx context.Context, req *parleyv1.PurgeDeadLettersRequest,
) (*parleyv1.PurgeDeadLettersResponse, error) {
	purged, err := s.deps.Inspector.Purge(ctx, req.GetTopic(), selectionOf(req.GetSelection()), req.GetConfirm())
	if err != nil {
		return nil, inLetters(err)
	}
	return &parleyv1.PurgeDeadLettersResponse{Purged: int64(purged)}, nil
}

// LetterProducer produces dead letters to other topics. It implements inspect.Producer.
type LetterProducer struct{ Producers Producers }

var _ inspect.Producer = LetterProducer{}

// ProduceLetters implements inspect.Producer. The new messages keep key, payload, headers (that of
// the trace too), attempts, timeout and time to live of the letters, but not their unique keys: to
// replay a message is not to schedule it once more.
func (p LetterProducer) ProduceLetters(ctx context.Context, topic string, letters []inspect.KeyedLetter) ([]error, error) {
	r := produce.Request{Topic: topic, Messages: make([]produce.Message, len(letters))}
	for i := range letters {
		l := &letters[i]
		body := bodyFields(l.Body)
		r.Messages[i] = produce.Message{
			Key: body.GetKey(), Payload: body.GetPayload(), Headers: body.GetHeaders(), IdempotencyKey: l.Key,
			MaxAttempts: l.MaxAttempts, Timeout: l.Timeout, TTL: l.TTL,
		}
	}
	answer, err := p.Producers.Produce(ctx, r)
	if err != nil {
		return nil, movedTo(err, "topic", "to_topic")
	}
	errs := make([]error, len(letters))
	for i := range answer.Results {
		errs[i] = answer.Results[i].Err
	}
	return errs, nil
}
