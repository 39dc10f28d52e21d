package server_test

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// lifeBudgets returns the rows of what follows a call in the background: delivery to subscribers,
// checks of subscribers after a channel was closed, expiry, and erasure.
func lifeBudgets(r *budgetRig) []budgetRow {
	ctx := r.t.Context()
	free := r.server.Client(r.server.Token) // its calls are not counted
	db := testkit.MongoClient(r.t, testkit.MongoURI(r.t)).Database(r.database)

	subscribers := r.subscribers(100, []*parleyv1.ChannelPosition{live("live")})
	guests := make([]client, 200)
	join := &parleyv1.AddMembersRequest{ChannelId: "closing"}
	for i := range guests {
		id := longID(i)
		guests[i] = r.server.Client(r.server.TokenOf(id, "subscribe", "history"))
		join.Members = append(join.Members, &parleyv1.ChannelMember{UserId: id})
	}
	r.must(callErr(free.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: "closing"})))
	r.must(callErr(free.AddMembers(ctx, join)))
	members := r.subscribersOf(guests, []*parleyv1.ChannelPosition{live("closing")})
	closing := func(c client, closed bool) (*parleyv1.UpdateChannelResponse, error) {
		return c.UpdateChannel(ctx, &parleyv1.UpdateChannelRequest{
			ChannelId: "closing", MembersOnly: &closed, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"members_only"}},
		})
	}

	policy := &parleyv1.ChannelRetention{MaxMessages: 100}
	r.must(callErr(free.CreateChannel(ctx, &parleyv1.CreateChannelRequest{ChannelId: "trimmed", Retention: policy})))

	return []budgetRow{
		{name: "SendMessage, 64 KiB to 100 subscribers", n: 5, call: func(int) (proto.Message, error) {
			want := subscribers.sent.Load() + 100
			res, err := r.c.SendMessage(ctx, &parleyv1.SendMessageRequest{ChannelId: "live", Content: largestText})
			if err != nil {
				return nil, err
			}
			return res, subscribers.await(&subscribers.sent, want)
		}},
		{
			name: "UpdateChannel, closing before 200 members who subscribe", n: 3,
			prepare: func(int) error {
				_, err := closing(free, false)
				return err
			},
			call: func(int) (proto.Message, error) {
				res, err := closing(r.c, true)
				if err != nil {
					return nil, err
				}
				want := members.sent.Load() + 200
				send(r.t, free, "closing", "closed")
				return res, members.await(&members.sent, want)
			},
		},
		{name: "SendMessages, 500 of 4 KB of which 500 expire", n: 2, call: func(i int) (proto.Message, error) {
			res, err := r.sendBatch(func(int) string { return "trimmed" })
			r.awaitNumber(db.Collection("channels"), bson.D{{Key: "_id", Value: "trimmed"}}, "stripped", int64(500*(i+1)-200))
			return res, err
		}},
		{
			name: "EraseUser, 1,000 messages of 4 KB in 10 channels", n: 2,
			prepare: func(i int) error {
				author := r.server.Client(r.server.TokenOf(longID(i), "send"))
				for k := range 10 {
					batch := &parleyv1.SendMessagesRequest{}
					for range 100 {
						batch.Messages = append(batch.Messages, &parleyv1.SendMessageRequest{
							ChannelId: fmt.Sprint("erased-", k), Content: largestText[:4000],
						})
					}
					if _, err := author.SendMessages(ctx, batch); err != nil {
						return err
					}
				}
				return nil
			},
			call: func(i int) (proto.Message, error) {
				res, err := r.admin.EraseUser(ctx, &parleyv1.EraseUserRequest{UserId: longID(i)})
				r.awaitNumber(db.Collection("erasures"), bson.D{{Key: "user_id", Value: longID(i)}}, "messages", 1000)
				return res, err
			},
		},
	}
}

// awaitNumber waits until a number in the document that the filter finds is at least n. It reads
// past the gauge.
func (r *budgetRig) awaitNumber(of *mongo.Collection, filter bson.D, field string, n int64) {
	r.t.Helper()
	testkit.Eventually(r.t, 90*time.Second, func() error {
		<-time.After(100 * time.Millisecond) // do not allocate much
		var doc map[string]any
		if err := of.FindOne(r.t.Context(), filter).Decode(&doc); err != nil {
			return err
		}
		if got, _ := doc[field].(int64); got < n {
			return fmt.Errorf("%s is %d, want %d", field, got, n)
		}
		return nil
	})
}
