package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/parleyhq/parley/server/internal/message"
)

// Apply changes the target of an edit or a recall, if the target is older than the change. A recall
// always empties the earlier edits of its target as well, because an earlier attempt may have been
// interrupted between the two steps.
func (s *Store) Apply(ctx context.Context, change *message.Entry) error {
	coll := s.of(change.ChannelID)
	err := s.run(ctx, func(ctx context.Context) error {
		set := bson.D{{Key: "changed_seq", Value: change.Seq}}
		var update bson.D
		switch change.Kind {
		case message.KindEdit:
			set = append(set, bson.E{Key: "content", Value: change.Content},
				bson.E{Key: "status", Value: message.StatusEdited})
			update = bson.D{{Key: "$set", Value: set}}
		case message.KindRecall:
			set = append(set, bson.E{Key: "content", Value: ""}, bson.E{Key: "status", Value: message.StatusRecalled})
			update = bson.D{
				{Key: "$set", Value: set},
				{Key: "$unset", Value: bson.D{{Key: "metadata", Value: ""}, {Key: "digest", Value: ""}}},
			}
		case message.KindSend:
			return nil
		}
		if _, err := coll.UpdateOne(ctx, bson.D{
			{Key: "channel_id", Value: change.ChannelID},
			{Key: "seq", Value: change.TargetSeq},
			{Key: "changed_seq", Value: bson.D{{Key: "$lt", Value: change.Seq}}},
		}, update); err != nil {
			return err
		}
		if change.Kind != message.KindRecall {
			return nil
		}
		return s.emptyEdits(ctx, change)
	})
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

// emptyEdits removes the text from the edits that precede a recall. The driver does not retry an
// update of many documents. This one may be retried, because a second run changes nothing.
func (s *Store) emptyEdits(ctx context.Context, recall *message.Entry) error {
	return again(func(ctx context.Context) error {
		_, err := s.of(recall.ChannelID).UpdateMany(ctx, bson.D{
			{Key: "channel_id", Value: recall.ChannelID},
			{Key: "target_seq", Value: recall.TargetSeq},
			{Key: "seq", Value: bson.D{{Key: "$lt", Value: recall.Seq}}},
			{Key: "kind", Value: message.KindEdit},
		}, bson.D{
			{Key: "$set", Value: bson.D{{Key: "content", Value: ""}}},
			{Key: "$unset", Value: bson.D{{Key: "digest", Value: ""}}},
		})
		return err
	})(ctx)
}

// passingCodes are the server errors that only mean that the server is no longer the primary or is
// shutting down.
var passingCodes = []int{
	91,    // ShutdownInProgress
	189,   // PrimarySteppedDown
	10107, // NotWritablePrimary
	11600, // InterruptedAtShutdown
	11602, // InterruptedDueToReplStateChange
	13435, // NotPrimaryNoSecondaryOk
	13436, // NotPrimaryOrSecondary
}

// isTransient reports whether an error is transient: it comes from a connection or a change of
// primary, so that a retry may succeed. The driver waits for a primary before each attempt.
func isTransient(err error) bool {
	if mongo.IsNetworkError(err) {
		return true
	}
	// The error of a pool whose connections were all closed because one of them failed. Nothing was
	// sent.
	var pool interface{ Retryable() bool }
	if errors.As(err, &pool) && pool.Retryable() {
		return true
	}
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(passingCodes, server.HasErrorCode)
}
