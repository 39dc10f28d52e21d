package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

const (
	// pageMessages is the number of messages in a page of the figure on reads.
	pageMessages = 50
	// readers is the number of concurrent callers of ListMessages.
	readers = 16
	// listedChannels is the number of channels that each reader lists in turn.
	listedChannels = 8
)

// measureReads measures the server's CPU time for a page of messages from the cache.
func measureReads(ctx context.Context, env *Env) ([]Figure, error) {
	target, err := env.Target(ctx)
	if err != nil {
		return nil, err
	}
	name := "bench-reads-" + rand.Text()[:8] + "-"
	pageBytes, err := env.fillChannels(ctx, target, name)
	if err != nil {
		return nil, err
	}
	floor, process, err := env.StartFloorServer(ctx, "reads", env.Dir, strconv.Itoa(env.Payload), strconv.Itoa(pageBytes), strconv.Itoa(pageMessages), "set")
	if err != nil {
		return nil, err
	}
	list := env.listing(name)
	echo := &work{callers: readers, procedure: echoProcedure, request: list.request}
	var values, floors, rates []float64
	var before, after Metrics
	err = env.Each(ctx,
		func(ctx context.Context) (err error) {
			if before == nil {
				if before, err = target.Metrics(ctx); err != nil {
					return err
				}
			}
			got, err := list.run(ctx, target, env.Duration)
			values, rates = append(values, got.cpu), append(rates, got.rate)
			return err
		},
		func(ctx context.Context) error {
			got, err := echo.run(ctx, floor, env.Duration)
			floors = append(floors, got.cpu)
			return err
		})
	if err == nil {
		after, err = target.Metrics(ctx)
	}
	if err := errors.Join(err, process.Close()); err != nil {
		return nil, err
	}
	figure := Figure{
		ID: "reads/cpu", Name: fmt.Sprintf("ListMessages of %d from the cache: server CPU per call", pageMessages), Unit: "us",
		Setup: env.Setup(map[string]string{
			"connections": strconv.Itoa(readers) + " (HTTP/1.1, Connect, binary)", "channels": strconv.Itoa(listedChannels),
			"duration": env.Duration.String(), "page": strconv.Itoa(pageBytes) + " bytes",
		}),
	}.WithFloor("a bare Connect handler: a ZRANGE of as many values, and an answer of as many bytes", values, floors)
	figure.Notes = []string{
		fmt.Sprintf("%.0f pages/s; %.0f pages came from the cache, %.0f from the store", Summarize(rates).Median,
			pages(after, "hit")-pages(before, "hit"), pages(after, "miss")-pages(before, "miss")),
	}
	return []Figure{figure.WithRatioBar("at most 2 times the floor", atMost(2))}, nil
}

// pages returns the number of pages that a target has listed: hits come from the cache, misses from
// the store.
func pages(m Metrics, result string) float64 {
	return m.Sum("parley_cache_pages_total", fmt.Sprintf("result=%q", result))
}

// listing returns a load of readers that list the newest page of the channels whose names begin
// with name.
func (e *Env) listing(name string) *work {
	return &work{
		callers: readers, procedure: parleyv1connect.MessageServiceListMessagesProcedure,
		request: func(caller, n int) proto.Message {
			return &parleyv1.ListMessagesRequest{ChannelId: name + strconv.Itoa((caller+n)%listedChannels), PageSize: pageMessages}
		},
	}
}

// fillChannels sends more than a page to each channel, waits until all channels are cached, and
// returns the size of a page in bytes.
func (e *Env) fillChannels(ctx context.Context, t *Target, name string) (pageBytes int, err error) {
	client, closing := t.Client(0)
	defer closing()
	content := e.text()
	for c := range listedChannels {
		messages := make([]*parleyv1.SendMessageRequest, 4*pageMessages)
		for i := range messages {
			messages[i] = &parleyv1.SendMessageRequest{ChannelId: name + strconv.Itoa(c), Content: content}
		}
		answer, err := client.SendMessages(ctx, &parleyv1.SendMessagesRequest{Messages: messages})
		if err != nil {
			return 0, err
		}
		if err := refusalOf(answer); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for c := range listedChannels {
		for cached := false; !cached; {
			call, info := connect.NewClientContext(ctx)
			page, err := client.ListMessages(call, &parleyv1.ListMessagesRequest{ChannelId: name + strconv.Itoa(c), PageSize: pageMessages})
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
