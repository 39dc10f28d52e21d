package server_test

import (
	"fmt"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// largestAnswer is the largest content of a message of a session.
var largestAnswer = largestText + largestText

// largestTitle is the largest title of a session.
var largestTitle = largestText[:256]

// sessionBudgets returns the rows of sessions: largest texts, and the list of a user with many
// sessions.
func sessionBudgets(r *budgetRig) []budgetRow {
	ctx := r.t.Context()
	var appended, opened []string
	var token string // of the last open message
	for range 20 {
		res, err := r.c.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: "listed", Content: largestAnswer})
		r.must(err)
		appended = append(appended, res.GetMsgId())
		res, err = r.c.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: "listed", Role: "assistant", Open: true})
		r.must(err)
		opened, token = append(opened, res.GetMsgId()), res.GetAppendToken()
		for at := 0; len(opened) > 6 && len(opened) <= 12 && at < 112<<10; at += 16 << 10 {
			_, err = r.c.AppendSessionDelta(ctx, &parleyv1.AppendSessionDeltaRequest{
				SessionId: "listed", MsgId: res.GetMsgId(), AppendToken: token, Offset: int64(at), Text: largestText[:16<<10],
			})
			r.must(err)
		}
	}
	var talking errgroup.Group
	talking.SetLimit(16)
	begin := func(id string, n int, text string) {
		talking.Go(func() error {
			for range n {
				if _, err := r.c.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{SessionId: id, Content: text, UserId: "talker", Title: largestTitle}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for i := range 300 {
		begin(fmt.Sprint("talk-", i), 1, "x")
	}
	for i := range 6 {
		begin(fmt.Sprint("doomed-", i), 20, largestAnswer)
	}
	r.must(talking.Wait())
	return []budgetRow{
		{name: "AppendSessionMessage, 128 KiB, the first of a session", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{
				SessionId: fmt.Sprint("new-", i), Content: largestAnswer,
			}))
		}},
		{name: "AppendSessionMessage, 128 KiB", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.c.AppendSessionMessage(ctx, &parleyv1.AppendSessionMessageRequest{
				SessionId: "listed", Role: "assistant", Content: largestAnswer,
			}))
		}},
		{name: "ListSessionMessages, a page of 1 MiB", n: 3, call: func(int) (proto.Message, error) {
			return answered(r.c.ListSessionMessages(ctx, &parleyv1.ListSessionMessagesRequest{SessionId: "listed", PageSize: 1000}))
		}},
		{name: "EditSessionMessage, 128 KiB", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.EditSessionMessage(ctx, &parleyv1.EditSessionMessageRequest{
				SessionId: "listed", MsgId: appended[0], Content: fmt.Sprint(i, largestAnswer[:120<<10]),
			}))
		}},
		{name: "CloseSessionMessage, 128 KiB", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.CloseSessionMessage(ctx, &parleyv1.CloseSessionMessageRequest{
				SessionId: "listed", MsgId: opened[i], Outcome: parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE, Content: largestAnswer,
			}))
		}},
		{name: "AppendSessionDelta, 16 KiB", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.AppendSessionDelta(ctx, &parleyv1.AppendSessionDeltaRequest{
				SessionId: "listed", MsgId: opened[19], AppendToken: token, Offset: int64(i) << 14, Text: largestText[:16<<10],
			}))
		}},
		{name: "CancelSessionMessage, 112 KiB", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.CancelSessionMessage(ctx, &parleyv1.CancelSessionMessageRequest{SessionId: "listed", MsgId: opened[6+i]}))
		}},
		{name: "ListSessions, 200 of 300", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.c.ListSessions(ctx, &parleyv1.ListSessionsRequest{UserId: "talker", PageSize: 200}))
		}},
		{name: "ListSessions, 200 of all users'", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.c.ListSessions(ctx, &parleyv1.ListSessionsRequest{AllUsers: true, PageSize: 200}))
		}},
		{name: "RenameSession, 256 bytes", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.RenameSession(ctx, &parleyv1.RenameSessionRequest{
				SessionId: fmt.Sprint("talk-", i), Title: fmt.Sprint(i, largestTitle[1:]),
			}))
		}},
		{name: "DeleteSession, 20 messages of 128 KiB", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.DeleteSession(ctx, &parleyv1.DeleteSessionRequest{SessionId: fmt.Sprint("doomed-", i)}))
		}},
		{name: "MarkSessionRead", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.MarkSessionRead(ctx, &parleyv1.MarkSessionReadRequest{SessionId: "listed", Seq: int64(i%10 + 1)}))
		}},
		{name: "RecallSessionMessage, 128 KiB", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.c.RecallSessionMessage(ctx, &parleyv1.RecallSessionMessageRequest{SessionId: "listed", MsgId: appended[i+1]}))
		}},
	}
}
