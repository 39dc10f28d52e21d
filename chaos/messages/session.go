package messages

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// sessionPrefix begins the id of a session's channel.
const sessionPrefix = "~"

// sessionOf returns the id of the session whose channel this is. ok is false for other channels.
func sessionOf(channel string) (id string, ok bool) { return strings.CutPrefix(channel, sessionPrefix) }

// owner is the user whose sessions these are.
const owner = "owner"

// openSessions sends the first message to each session, so that it exists and has an owner.
func (r *run) openSessions(ctx context.Context) error {
	g := r.newGenerator(r.Seed, owner, 0)
	defer g.close()
	for i, channel := range r.sessions {
		op := Op{Kind: Send, Channel: channel, From: owner, ClientMsgID: fmt.Sprintf("opener-%d", i)}
		op.Content = text(g.rng, op.ClientMsgID)
		if op, _ = g.repeat(ctx, op, new(int)); op.Outcome != chaos.OK {
			return fmt.Errorf("open %s: %s %s", channel, op.Code, op.Err)
		}
	}
	return nil
}

// callSession makes the call of an op on a session: a send, an edit, a recall, a close or a
// cancellation.
func (w *rawWriter) callSession(ctx context.Context, op *Op) (token string, err error) {
	id, _ := sessionOf(op.Channel)
	switch op.Kind {
	case Edit:
		res, err := w.client.EditSessionMessage(ctx, &parleyv1.EditSessionMessageRequest{
			SessionId: id, MsgId: op.MsgID, Content: op.Content, ClientMsgId: op.ClientMsgID,
		})
		op.Seq, op.Duplicate, op.Epoch = res.GetSeq(), res.GetDuplicate(), res.GetEpoch()
		w.changed(op, res.GetMsgTime(), res.GetMessage())
		return "", err
	case Recall:
		res, err := w.client.RecallSessionMessage(ctx, &parleyv1.RecallSessionMessageRequest{
			SessionId: id, MsgId: op.MsgID, ClientMsgId: op.ClientMsgID,
		})
		op.Seq, op.Duplicate, op.Epoch = res.GetSeq(), res.GetDuplicate(), res.GetEpoch()
		w.changed(op, res.GetMsgTime(), res.GetMessage())
		return "", err
	case CloseMessage:
		res, err := w.client.CloseSessionMessage(ctx, &parleyv1.CloseSessionMessageRequest{
			SessionId: id, MsgId: op.MsgID, Content: op.Content, ClientMsgId: op.ClientMsgID, Outcome: outcomes[op.Status],
		})
		op.Seq, op.Duplicate, op.Epoch = res.GetSeq(), res.GetDuplicate(), res.GetEpoch()
		w.changed(op, res.GetMsgTime(), res.GetMessage())
		return "", err
	case CancelMessage:
		res, err := w.client.CancelSessionMessage(ctx, &parleyv1.CancelSessionMessageRequest{
			SessionId: id, MsgId: op.MsgID, ClientMsgId: op.ClientMsgID,
		})
		op.Seq, op.Duplicate, op.Epoch = res.GetSeq(), res.GetDuplicate(), res.GetEpoch()
		w.changed(op, res.GetMsgTime(), res.GetMessage())
		return "", err
	default:
		role := "user"
		if op.Open {
			role = "assistant"
		}
		res, err := w.client.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{
			SessionId: id, Role: role, Content: op.Content, ClientMsgId: op.ClientMsgID, Metadata: op.Metadata, Open: op.Open,
		})
		if err == nil {
			w.sent(op, res)
		}
		return res.GetAppendToken(), err
	}
}

// outcomes are the outcomes of a close, by the status of the message afterwards.
var outcomes = map[Status]parleyv1.SessionOutcome{
	StatusComplete:  parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE,
	StatusCancelled: parleyv1.SessionOutcome_SESSION_OUTCOME_CANCELLED,
	StatusFailed:    parleyv1.SessionOutcome_SESSION_OUTCOME_FAILED,
}

// page reads one page of a channel or of a session.
func (r *raw) page(ctx context.Context, req *parleyv1.ListMessagesRequest) (*parleyv1.ListMessagesResponse, error) {
	id, ok := sessionOf(req.GetChannelId())
	if !ok {
		return r.ListMessages(ctx, req)
	}
	res, err := r.ListSessionMessages(ctx, &parleyv1.ListSessionMessagesRequest{
		SessionId: id, AfterSeq: req.AfterSeq, BeforeSeq: req.BeforeSeq, MinSeq: req.GetMinSeq(),
		PageSize: req.GetPageSize(), PageToken: req.GetPageToken(),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.ListMessagesResponse{
		Messages: res.GetMessages(), NextPageToken: res.GetNextPageToken(), HeadSeq: res.GetHeadSeq(), Epoch: res.GetEpoch(),
		OldestSeq: res.GetOldestSeq(),
	}, nil
}

const (
	// openTimeout is the time without a delta after which the fleet closes an open message as failed.
	openTimeout = 20 * time.Second
	// closeSlack is how much longer that may take. A message that was abandoned during a fault has
	// closeSlack from the time when everything was mended.
	closeSlack = 15 * time.Second
)

// openMessages is when a generator last died without closing its message. Safe for concurrent use.
type openMessages struct {
	mu   sync.Mutex // guards last
	last time.Time
}

func (o *openMessages) died() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = time.Now()
}

func (o *openMessages) lastDeath() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// awaitClosed waits until no message in the store is open, but no longer than the fleet may take to
// close them. healed is when everything was mended.
func (r *run) awaitClosed(ctx context.Context, healed time.Time) {
	deadline := healed.Add(closeSlack)
	if last := r.open.lastDeath().Add(openTimeout + closeSlack); last.After(deadline) {
		deadline = last
	}
	client, err := mongo.Connect(options.Client().ApplyURI(r.Fleet.Mongo.URI()).SetReadConcern(readconcern.Majority()))
	if err != nil {
		return
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	for {
		open, err := countOpen(ctx, client.Database(database))
		if err == nil && open == 0 || time.Now().After(deadline) || !chaos.Sleep(ctx, 500*time.Millisecond) {
			r.Logger.InfoContext(ctx, "open messages", "left", open, "error", err)
			break
		}
	}
	r.rec.Mark(markWaited)
}

// countOpen returns the number of open messages in the store.
func countOpen(ctx context.Context, db *mongo.Database) (open int64, err error) {
	names, err := db.ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: "^messages_"}}}})
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		n, err := db.Collection(name).CountDocuments(ctx, bson.D{
			{Key: "kind", Value: entrySend}, {Key: "status", Value: StatusOpen},
		})
		if err != nil {
			return 0, err
		}
		open += n
	}
	return open, nil
}
