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

// Apply changes the target of each change, if the target is older than the change, and then
// marks the change as applied. A target that was stripped or deleted matches nothing. All steps are
// ordered, and the mark of a change is its last one, so a change that was interrupted stays pending
// and is applied again. They are one command, unless their texts are larger than a command may be.
func (s *Store) Apply(ctx context.Context, changes ...*message.Entry) error {
	changes = slices.DeleteFunc(slices.Clone(changes), func(e *message.Entry) bool { return !e.Kind.Changes() })
	if len(changes) == 0 {
		return nil
	}
	shard := s.of(changes[0].ChannelID)
	for _, c := range changes {
		if other := s.of(c.ChannelID); other != shard {
			return fmt.Errorf("apply: channel %s is of %s, not %s", c.ChannelID, other.Name(), shard.Name())
		}
	}
	pending, err := s.pendingEdits(ctx, shard, changes)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	var steps []mongo.WriteModel
	for _, c := range changes {
		steps = append(steps, applySteps(c, pending)...)
	}
	err = s.run(ctx, func(ctx context.Context) error {
		// Each step updates one document, so the driver retries the command.
		_, err := shard.BulkWrite(ctx, steps, options.BulkWrite().SetOrdered(true))
		return err
	})
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

// applySteps returns the updates that apply a change. pending contains at least the
// pending edits of a recall's target.
func applySteps(change *message.Entry, pending []message.Entry) []mongo.WriteModel {
	var update bson.D
	set := bson.D{{Key: "changed_seq", Value: change.Seq}, {Key: "status", Value: change.Kind.After()}}
	if change.Kind != message.KindRecall {
		set = append(set, bson.E{Key: "content", Value: change.Content})
		update = bson.D{{Key: "$set", Value: set}}
	} else {
		set = append(set, bson.E{Key: "content", Value: ""})
		update = bson.D{
			{Key: "$set", Value: set},
			{Key: "$unset", Value: bson.D{{Key: "metadata", Value: ""}, {Key: "digest", Value: ""}}},
		}
		if change.Erases() {
			update = erasing(set, change.TargetSeq)
		}
	}
	if change.Rev > 0 {
		update = append(update, bson.E{Key: "$max", Value: bson.D{{Key: "rev", Value: change.Rev}}})
	}
	steps := []mongo.WriteModel{mongo.NewUpdateOneModel().SetUpdate(update).SetFilter(bson.D{
		{Key: "channel_id", Value: change.ChannelID},
		{Key: "seq", Value: change.TargetSeq},
		{Key: "kind", Value: message.KindSend},
		{Key: "changed_seq", Value: bson.D{{Key: "$lt", Value: change.Seq}}},
	})}
	blank := bson.E{Key: "$set", Value: bson.D{{Key: "content", Value: ""}}}
	if change.Kind == message.KindRecall {
		for i := range pending {
			if e := &pending[i]; e.ChannelID == change.ChannelID && e.TargetSeq == change.TargetSeq && e.Seq < change.Seq {
				steps = append(steps, updateEntry(e, bson.D{blank}))
			}
		}
	}
	return append(steps, updateEntry(change, bson.D{blank, {Key: "$unset", Value: bson.D{{Key: "pending", Value: ""}}}}))
}

// pendingEdits returns the places and targets of the pending changes of all channels that have
// recalls among the changes: at most those in flight. They may still have their texts; other edits
// have none. When they are applied, the message has the newer recall, and they do not change it.
func (s *Store) pendingEdits(ctx context.Context, shard *mongo.Collection, changes []*message.Entry) (edits []message.Entry, err error) {
	var channels []string
	for _, c := range changes {
		if c.Kind == message.KindRecall && !slices.Contains(channels, c.ChannelID) {
			channels = append(channels, c.ChannelID)
		}
	}
	if len(channels) == 0 {
		return nil, nil
	}
	err = s.read(ctx, func(ctx context.Context) error {
		edits, err = pendingIn(ctx, shard, channels, "channel_id", "target_seq", "seq")
		return err
	})
	return edits, err
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
