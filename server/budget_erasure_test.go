package server_test

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// manyErasures is how many finished erasures there are: a page of them, and more.
const manyErasures = 1200

// erasureBudgets returns the rows about erasures, with the longest ids. What the job does in the
// background is not part of a call.
func erasureBudgets(r *budgetRig) []budgetRow {
	ctx := r.t.Context()
	long := func(i int) string { return fmt.Sprintf("%0128d", i) }
	var docs []any
	for i := range manyErasures {
		docs = append(docs, bson.D{
			{Key: "_id", Value: long(i)},
			{Key: "user_id", Value: long(i)},
			{Key: "state", Value: 3},
			{Key: "rev", Value: 1},
			{Key: "created_at", Value: time.Now()},
			{Key: "erased_at", Value: time.Now()},
			{Key: "finished_at", Value: time.Now()},
		})
	}
	db := testkit.MongoClient(r.t, testkit.MongoURI(r.t)).Database(r.database)
	_, err := db.Collection("erasures").InsertMany(ctx, docs)
	r.must(err)
	return []budgetRow{
		{name: "EraseUser, among 1,200", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.admin.EraseUser(ctx, &parleyv1.EraseUserRequest{UserId: "nobody", RequestId: long(manyErasures + i)}))
		}},
		{name: "GetErasure, among 1,200", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.admin.GetErasure(ctx, &parleyv1.GetErasureRequest{RequestId: long(7)}))
		}},
		{name: "ListErasures, 1,000 of 1,200", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.admin.ListErasures(ctx, &parleyv1.ListErasuresRequest{PageSize: 1000}))
		}},
	}
}
