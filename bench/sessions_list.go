package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
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
	floor, process, err := env.StartFloorServer(ctx, "reads", env.Dir,
		strconv.Itoa(env.Payload), strconv.Itoa(pageBytes), strconv.Itoa(listMessages), "list")
	if err != nil {
		return nil, err
	}
	list := &work{
		callers: readers, procedure: parleyv1connect.MessageServiceListSessionMessagesProcedure, timed: true,
		request: func(caller, n int) proto.Message { return listOf(name + strconv.Itoa((caller+n)%listedSessions)) },
	}
	echo := &work{
		callers: readers, procedure: echoProcedure, timed: true,
		request: func(int, int) proto.Message { return &parleyv1.ListMessagesRequest{} },
	}
	var values, floors, rates, floorRates, p99, floorP99 []float64
	before, err := target.Metrics(ctx)
	if err == nil {
		err = env.Each(ctx,
			func(ctx context.Context) error {
				got, err := list.run(ctx, target, env.Duration)
				if err == nil {
					values, rates = append(values, got.cpu), append(rates, got.rate)
					p99 = append(p99, float64(Quantile(got.took, 0.99))/1000)
				}
				return err
			},
			func(ctx context.Context) error {
				got, err := echo.run(ctx, floor, env.Duration)
				if err == nil {
					floors, floorRates = append(floors, got.cpu), append(floorRates, got.rate)
					floorP99 = append(floorP99, float64(Quantile(got.took, 0.99))/1000)
				}
				return err
			})
	}
	var after Metrics
	if err == nil {
		after, err = target.Metrics(ctx)
	}
	if err := errors.Join(err, process.Close()); err != nil {
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
	}.WithFloor(bare, values, floors)
	cpu.Notes = []string{fmt.Sprintf("%.0f pages came from the cache, %.0f from the store",
		pages(after, "hit")-pages(before, "hit"), pages(after, "miss")-pages(before, "miss"))}
	return []Figure{
		cpu.WithRatioBar("at most 2 times the floor", atMost(2)),
		Figure{ID: "sessions-list/rate", Name: name, Unit: "1/s", Setup: setup}.WithFloor(bare, rates, floorRates),
		Figure{ID: "sessions-list/p99", Name: name + ", p99", Unit: "ms", Setup: setup}.WithFloor(bare, p99, floorP99),
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
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i := range listedSessions {
		for cached := false; !cached; {
			call, info := connect.NewClientContext(ctx)
			page, err := client.ListSessionMessages(call, listOf(name+strconv.Itoa(i)))
			if err != nil {
				return 0, fmt.Errorf("wait for the cache: %w", err)
			}
			pageBytes = proto.Size(page)
			if cached = info.ResponseHeader().Get("Parley-Source") == "cache"; !cached {
				pause(ctx, 20*time.Millisecond)
			}
		}
	}
	return pageBytes, nil
}
