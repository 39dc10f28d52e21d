package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/server/internal/message"
)

// Apply changes the target of an edit or a recall, if the target is older than the change, and then
// marks the change as applied. A target that was stripped or deleted matches nothing. The steps are
// one ordered command, and the mark is its last step, so
// a change that was interrupted stays pending and is applied again.
func (s *Store) Apply(ctx context.Context, change *message.Entry) error {
	var update bson.D
	set := bson.D{{Key: "changed_seq", Value: change.Seq}}
	switch change.Kind {
	case message.KindSend, message.KindAccess, message.KindExpired:
		return nil
	case message.KindEdit:
		set = append(set, bson.E{Key: "content", Value: change.Content}, bson.E{Key: "status", Value: message.StatusEdited})
		update = bson.D{{Key: "$set", Value: set}}
	case message.KindRecall:
		set = append(set, bson.E{Key: "content", Value: ""}, bson.E{Key: "status", Value: message.StatusRecalled})
		update = bson.D{
			{Key: "$set", Value: set},
			{Key: "$unset", Value: bson.D{{Key: "metadata", Value: ""}, {Key: "digest", Value: ""}}},
		}
		if change.FromID == message.ErasedUser {
			update = erasing(set, change.TargetSeq)
		}
	}
	earlier, err := s.pendingBefore(ctx, change)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if change.Rev > 0 {
		update = append(update, bson.E{Key: "$max", Value: bson.D{{Key: "rev", Value: change.Rev}}})
	}
	err = s.run(ctx, func(ctx context.Context) error {
		steps := []mongo.WriteModel{mongo.NewUpdateOneModel().SetUpdate(update).SetFilter(bson.D{
			{Key: "channel_id", Value: change.ChannelID},
			{Key: "seq", Value: change.TargetSeq},
			{Key: "kind", Value: message.KindSend},
			{Key: "changed_seq", Value: bson.D{{Key: "$lt", Value: change.Seq}}},
		})}
		blank := bson.E{Key: "$set", Value: bson.D{{Key: "content", Value: ""}}}
		for i := range earlier {
			steps = append(steps, updateEntry(&earlier[i], bson.D{blank}))
		}
		steps = append(steps, updateEntry(change, bson.D{blank, {Key: "$unset", Value: bson.D{{Key: "pending", Value: ""}}}}))
		// Each step updates one document, so the driver retries the command.
		_, err := s.of(change.ChannelID).BulkWrite(ctx, steps, options.BulkWrite().SetOrdered(true))
		return err
	})
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

// pendingBefore returns the pending edits of a recall's target from before the recall: at most
// those in flight. The texts of other edits are gone. The Apply of each of them finds the newer
// recall and does not change the message. It returns none for an edit.
func (s *Store) pendingBefore(ctx context.Context, change *message.Entry) (edits []message.Entry, err error) {
	if change.Kind != message.KindRecall {
		return nil, nil
	}
	err = s.read(ctx, func(ctx context.Context) error {
		edits, err = pendingIn(ctx, s.of(change.ChannelID), []string{change.ChannelID})
		return err
	})
	return slices.DeleteFunc(edits, func(e message.Entry) bool {
		return e.TargetSeq != change.TargetSeq || e.Seq >= change.Seq
	}), err
}

func updateEntry(e *message.Entry, update bson.D) *mongo.UpdateOneModel {
	return mongo.NewUpdateOneModel().SetUpdate(update).SetFilter(bson.D{
		{Key: "channel_id", Value: e.ChannelID}, {Key: "seq", Value: e.Seq},
	})
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
