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
	list := pageLoad{load: env.listing(name), messages: pageMessages, bytes: pageBytes, kept: "set"}
	runs, err := list.measure(ctx, env, target)
	if err != nil {
		return nil, err
	}
	figure := Figure{
		ID: "reads/cpu", Name: fmt.Sprintf("ListMessages of %d from the cache: server CPU per call", pageMessages), Unit: "us",
		Setup: env.Setup(map[string]string{
			"connections": strconv.Itoa(readers) + " (HTTP/1.1, Connect, binary)", "channels": strconv.Itoa(listedChannels),
			"duration": env.Duration.String(), "page": strconv.Itoa(pageBytes) + " bytes",
		}),
	}.WithFloor("a bare Connect handler: a ZRANGE of as many values, and an answer of as many bytes", runs.cpu, runs.floorCPU)
	figure.Notes = []string{fmt.Sprintf("%.0f pages/s; %s", Summarize(runs.rates).Median, runs.sources())}
	return []Figure{figure.WithRatioBar("at most 2 times the floor", atMost(2))}, nil
}

// pageLoad is a load of readers that list pages from the cache.
type pageLoad struct {
	load *work
	// messages and bytes are the size of a page. kept is what Redis keeps the messages in: a set or a
	// list.
	messages, bytes int
	kept            string
}

// pageRuns are the rounds of a pageLoad and of its floor.
type pageRuns struct {
	cpu, rates, p99                []float64
	floorCPU, floorRates, floorP99 []float64
	// hits and misses are the numbers of pages from the cache and from the store.
	hits, misses float64
}

// measure takes the rounds. The floor is a bare handler that reads and answers as much.
func (l *pageLoad) measure(ctx context.Context, env *Env, target *Target) (runs pageRuns, err error) {
	floor, process, err := env.StartFloorServer(ctx, "reads",
		env.Dir, strconv.Itoa(env.Payload), strconv.Itoa(l.bytes), strconv.Itoa(l.messages), l.kept)
	if err != nil {
		return runs, err
	}
	defer func() { err = errors.Join(err, process.Close()) }()
	echo := &work{
		callers: l.load.callers, procedure: echoProcedure,
		request: func(int, int) proto.Message { return &parleyv1.ListMessagesRequest{} },
	}
	take := func(load *work, t *Target, cpu, rates, p99 *[]float64) func(context.Context) error {
		load.times = &stopwatch{}
		return func(ctx context.Context) error {
			got, err := load.run(ctx, t, env.Duration)
			if err != nil {
				return err
			}
			took, err := load.times.delays()
			*cpu, *rates, *p99 = append(*cpu, got.cpu), append(*rates, got.rate), append(*p99, took.P99)
			return err
		}
	}
	before, err := target.Metrics(ctx)
	if err != nil {
		return runs, err
	}
	if err := env.Each(ctx,
		take(l.load, target, &runs.cpu, &runs.rates, &runs.p99),
		take(echo, floor, &runs.floorCPU, &runs.floorRates, &runs.floorP99)); err != nil {
		return runs, err
	}
	after, err := target.Metrics(ctx)
	runs.hits, runs.misses = pages(after, "hit")-pages(before, "hit"), pages(after, "miss")-pages(before, "miss")
	return runs, err
}

func (r *pageRuns) sources() string {
	return fmt.Sprintf("%.0f pages came from the cache, %.0f from the store", r.hits, r.misses)
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
	return untilCached(ctx, listedChannels, func(ctx context.Context, i int) (proto.Message, error) {
		return client.ListMessages(ctx, &parleyv1.ListMessagesRequest{ChannelId: name + strconv.Itoa(i), PageSize: pageMessages})
	})
}

// untilCached lists n pages until each comes from the cache, and returns the size of the last in
// bytes.
func untilCached(ctx context.Context, n int, list func(ctx context.Context, i int) (proto.Message, error)) (pageBytes int, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i := range n {
		for cached := false; !cached; {
			call, info := connect.NewClientContext(ctx)
			page, err := list(call, i)
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
