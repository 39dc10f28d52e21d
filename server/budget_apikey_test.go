package server_test

import (
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// manyAPIKeys is how many API keys there are at first: a page of them, and more.
const manyAPIKeys = 1200

// apiKeyBudgets returns the rows about API keys, with the largest capabilities.
func apiKeyBudgets(r *budgetRig) []budgetRow {
	ctx := r.t.Context()
	grants, capabilities := bson.D{}, []*parleyv1.Capability(nil)
	for i := range 25 {
		name := fmt.Sprintf("channel:%0128d", i)
		grants = append(grants, bson.E{Key: name, Value: bson.A{"send", "history"}})
		capabilities = append(capabilities, &parleyv1.Capability{Name: name, Actions: []string{"send", "history"}})
	}
	var docs []any
	for i := range manyAPIKeys {
		docs = append(docs, bson.D{
			{Key: "_id", Value: fmt.Sprintf("%024d", i)},
			{Key: "name", Value: strings.Repeat("n", 128)},
			{Key: "subject", Value: strings.Repeat("s", 128)},
			{Key: "grants", Value: grants},
			{Key: "created", Value: time.Now()},
			{Key: "created_by", Value: strings.Repeat("c", 128)},
			{Key: "expires", Value: time.Now().Add(time.Hour)},
			{Key: "secrets", Value: bson.A{bson.D{{Key: "digest", Value: make([]byte, 32)}}}},
		})
	}
	db := testkit.MongoClient(r.t, testkit.MongoURI(r.t)).Database(r.database)
	_, err := db.Collection("api_keys").InsertMany(ctx, docs)
	r.must(err)
	create := func() (*parleyv1.CreateApiKeyResponse, error) {
		return r.admin.CreateApiKey(ctx, &parleyv1.CreateApiKeyRequest{
			Name: strings.Repeat("n", 128), Subject: strings.Repeat("s", 128), Capabilities: capabilities,
		})
	}
	made, err := create()
	r.must(err)
	id := made.GetApiKey().GetKeyId()
	return []budgetRow{
		{name: "CreateApiKey, among 1,200", n: 5, call: func(int) (proto.Message, error) { return answered(create()) }},
		{name: "ListApiKeys, 100 of 1,200", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.admin.ListApiKeys(ctx, &parleyv1.ListApiKeysRequest{}))
		}},
		{name: "RotateApiKey, among 1,200", n: 3, call: func(int) (proto.Message, error) {
			return answered(r.admin.RotateApiKey(ctx, &parleyv1.RotateApiKeyRequest{KeyId: id}))
		}},
		{name: "RevokeApiKey, among 1,200", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.admin.RevokeApiKey(ctx, &parleyv1.RevokeApiKeyRequest{KeyId: id, Reason: strings.Repeat("r", 256)}))
		}},
	}
}
