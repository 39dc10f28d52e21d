package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// floorDatabase is the MongoDB database that floorInserts writes to, and drops at its end.
const floorDatabase = "parley_bench_floor"

// floorInserts inserts one document after another under a unique index, each acknowledged by the
// journals of a majority. Its arguments are a URI, the bytes of a content, and the duration. It
// outputs the inserts per second.
func floorInserts(ctx context.Context, args []string, out *json.Encoder) (err error) {
	if len(args) != 3 {
		return errors.New("requires the arguments URI, bytes, duration")
	}
	size, err1 := strconv.Atoi(args[1])
	duration, err2 := time.ParseDuration(args[2])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(args[0]).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: new(true)}))
	if err != nil {
		return err
	}
	db := client.Database(floorDatabase)
	defer func() {
		ending := context.WithoutCancel(ctx)
		err = errors.Join(err, db.Drop(ending), client.Disconnect(ending))
	}()
	inserts := db.Collection("inserts")
	keys := bson.D{{Key: "channel_id", Value: 1}, {Key: "seq", Value: 1}}
	if _, err := inserts.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: options.Index().SetUnique(true)}); err != nil {
		return err
	}
	content := strings.Repeat("x", size)
	began, n := time.Now(), 0
	for ; time.Since(began) < duration; n++ {
		if _, err := inserts.InsertOne(ctx, bson.D{
			{Key: "channel_id", Value: "hot"}, {Key: "seq", Value: n}, {Key: "content", Value: content},
		}); err != nil {
			return fmt.Errorf("insert: %w", err)
		}
	}
	return out.Encode(float64(n) / time.Since(began).Seconds())
}
