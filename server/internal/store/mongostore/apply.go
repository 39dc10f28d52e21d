package mongostore

import (
	"context"
	"fmt"

	"github.com/parleyhq/parley/server/internal/message"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Apply changes the target of an edit or a recall, where that is older than the change. A recall also empties the edits
// of its target that came before it, always: it may have been interrupted between the two.
func (s *Store) Apply(ctx context.Context, change *message.Entry) error {
	coll := s.of(change.ChannelID).majority
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
			{Key: "channel_id", Value: change.ChannelID}, {Key: "seq", Value: change.TargetSeq},
			{Key: "changed_seq", Value: bson.D{{Key: "$lt", Value: change.Seq}}},
		}, update); err != nil {
			return err
		}
		if change.Kind != message.KindRecall {
			return nil
		}
		_, err := coll.UpdateMany(ctx, bson.D{
			{Key: "channel_id", Value: change.ChannelID}, {Key: "target_seq", Value: change.TargetSeq},
			{Key: "seq", Value: bson.D{{Key: "$lt", Value: change.Seq}}}, {Key: "kind", Value: message.KindEdit},
		}, bson.D{
			{Key: "$set", Value: bson.D{{Key: "content", Value: ""}}},
			{Key: "$unset", Value: bson.D{{Key: "digest", Value: ""}}},
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}
