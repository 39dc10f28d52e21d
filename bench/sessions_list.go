package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

const (
	// listMessages is the number of messages in a page of the figure on lists: all that Redis keeps
	// of a session by default.
	listMessages = 200
	// listedSessions is the number of sessions that each reader lists in turn.
	listedSessions = 8
)

// measureSessionLists measures the server's CPU time for a session's list from the cache.
func measureSessionLists(ctx context.Context, env *Env) ([]Figure, error) {
	target, err := env.Target(ctx)
	if err != nil {
		return nil, err
	}
	name := "bench-" + rand.Text()[:8] + "-"
	pageBytes, err := env.fillSessions(ctx, target, name)
	if err != nil {
		return nil, err
	}
	list := pageLoad{
		load: &work{
			callers: readers, procedure: parleyv1connect.MessageServiceListSessionMessagesProcedure,
			request: func(caller, n int) proto.Message { return listOf(name + strconv.Itoa((caller+n)%listedSessions)) },
		},
		messages: listMessages, bytes: pageBytes, kept: "list",
	}
	runs, err := list.measure(ctx, env, target)
	if err != nil {
		return nil, err
	}
	setup := env.Setup(map[string]string{
		"connections": strconv.Itoa(readers) + " (HTTP/1.1, Connect, binary)", "sessions": strconv.Itoa(listedSessions),
		"duration": env.Duration.String(), "page": strconv.Itoa(pageBytes) + " bytes",
	})
	const bare = "a bare Connect handler: LRANGE 0 -1 of as many values, and an answer of as many bytes"
	name = fmt.Sprintf("ListSessionMessages of %d from the cache", listMessages)
	cpu := Figure{
		ID: "sessions-list/cpu", Name: name + ": server CPU per call", Unit: "us", Setup: setup,
	}.WithFloor(bare, runs.cpu, runs.floorCPU)
	cpu.Notes = []string{runs.sources()}
	return []Figure{
		cpu.WithRatioBar("at most 2 times the floor", atMost(2)),
		Figure{ID: "sessions-list/rate", Name: name, Unit: "1/s", Setup: setup}.WithFloor(bare, runs.rates, runs.floorRates),
		Figure{ID: "sessions-list/p99", Name: name + ", p99", Unit: "ms", Setup: setup}.WithFloor(bare, runs.p99, runs.floorP99),
	}, nil
}

// listOf returns a request for the newest page of a session.
func listOf(session string) *parleyv1.ListSessionMessagesRequest {
	return &parleyv1.ListSessionMessagesRequest{SessionId: session, PageSize: listMessages}
}

// fillSessions appends more than a page to each session, waits until all are cached, and returns
// the size of a page in bytes.
func (e *Env) fillSessions(ctx context.Context, t *Target, name string) (pageBytes int, err error) {
	client, closing := t.Client(0)
	defer closing()
	content := e.text()
	filling, fillCtx := errgroup.WithContext(ctx)
	for i := range listedSessions {
		filling.Go(func() error {
			for range listMessages + 10 {
				if _, err := client.AppendSessionMessage(fillCtx, &parleyv1.AppendSessionMessageRequest{
					SessionId: name + strconv.Itoa(i), Content: content,
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := filling.Wait(); err != nil {
		return 0, err
	}
	return untilCached(ctx, listedSessions, func(ctx context.Context, i int) (proto.Message, error) {
		return client.ListSessionMessages(ctx, listOf(name+strconv.Itoa(i)))
	})
}
