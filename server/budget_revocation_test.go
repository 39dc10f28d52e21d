package server_test

import (
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// manyRevocations is how many revocations there are: a page of them, and more.
const manyRevocations = 1200

// revocationBudgets returns the rows about revocations, with the longest ids.
func revocationBudgets(r *budgetRig) []budgetRow {
	ctx := r.t.Context()
	long := func(i int) string { return fmt.Sprintf("%0128d", i) }
	var docs []any
	for i := range manyRevocations {
		docs = append(docs, bson.D{
			{Key: "_id", Value: "u:" + long(i)},
			{Key: "until", Value: time.Now().Add(time.Hour)},
			{Key: "before", Value: time.Now()},
			{Key: "at", Value: time.Now()},
			{Key: "by", Value: long(i)},
			{Key: "reason", Value: strings.Repeat("r", 256)},
		})
	}
	db := testkit.MongoClient(r.t, testkit.MongoURI(r.t)).Database(r.database)
	_, err := db.Collection("revocations").InsertMany(ctx, docs)
	r.must(err)
	return []budgetRow{
		{name: "SignOut, among 1,200", n: 5, call: func(i int) (proto.Message, error) {
			leaver := r.server.Presence(r.server.MintAs(&ident.Principal{Subject: long(i), SSID: fmt.Sprintf("%064d", i)}, time.Hour), connect.WithInterceptors(r))
			return answered(leaver.SignOut(ctx, &parleyv1.SignOutRequest{}))
		}},
		{name: "RevokeTokens, among 1,200", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.admin.RevokeTokens(ctx, &parleyv1.RevokeTokensRequest{
				Target: &parleyv1.RevokeTokensRequest_UserId{UserId: long(manyRevocations + i)}, Reason: strings.Repeat("r", 256),
			}))
		}},
		{name: "KickUser, among 1,200", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.admin.KickUser(ctx, &parleyv1.KickUserRequest{UserId: long(i), Reason: strings.Repeat("r", 256)}))
		}},
		{name: "ListRevocations, 1,000 of 1,200", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.admin.ListRevocations(ctx, &parleyv1.ListRevocationsRequest{PageSize: 1000}))
		}},
	}
}
