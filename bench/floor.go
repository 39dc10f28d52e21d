package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// floorFunc runs a floor, the minimal program that a figure is compared with. It writes JSON values
// for the bench to out, and returns when ctx ends or it is done.
type floorFunc func(ctx context.Context, args []string, out *json.Encoder) error

// floors are the floors by name.
func floors() map[string]floorFunc {
	return map[string]floorFunc{
		"fanout":        floorFanout,
		"jetstream":     floorJetStream,
		"nats":          floorNATS,
		"commits":       floorCommits,
		"inserts":       floorInserts,
		"reads":         floorReads,
		"presence":      floorPresence,
		"queue":         floorQueue,
		"queue-latency": floorQueueLatency,
		"queue-delayed": floorQueueDelayed,
		"queue-worker":  floorQueueWorker,
		"redis":         floorRedis,
	}
}

// FloorCommand is the first argument with which a measuring program starts itself to run a floor.
// The program must pass the arguments after it to RunFloor.
const FloorCommand = "bench-floor"

// RunFloor runs one floor in this process, so that its CPU time is not part of the load's. args are
// the floor's name and its arguments. It writes JSON values to out. It blocks until the floor is
// done, ctx ends, or in ends, as it does with the process that started this one. It returns an
// error if the floor does not exist or fails.
func RunFloor(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 || floors()[args[0]] == nil {
		return fmt.Errorf("unknown floor %q", args)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	return floors()[args[0]](ctx, args[1:], json.NewEncoder(out))
}

// floorAddrs is the first output of a floor that is a server: the base URLs of its API and metrics.
type floorAddrs struct {
	Addr string `json:"addr"`
	Ops  string `json:"ops"`
}

// serveFloor serves a floor's API and, on another address, its process metrics, until ctx ends. It
// first writes both URLs to out.
func serveFloor(ctx context.Context, api http.Handler, out *json.Encoder) error {
	ops, err := metricsHandler()
	if err != nil {
		return err
	}
	apiURL, apiServer, err := listen(ctx, api)
	if err != nil {
		return err
	}
	opsURL, opsServer, err := listen(ctx, ops)
	if err != nil {
		return errors.Join(err, apiServer.Close())
	}
	if err := out.Encode(floorAddrs{Addr: apiURL, Ops: opsURL}); err != nil {
		return errors.Join(err, apiServer.Close(), opsServer.Close())
	}
	<-ctx.Done()
	return errors.Join(apiServer.Close(), opsServer.Close())
}

// metricsHandler returns the handler of a floor's ops address. It serves the metrics of this
// process.
func metricsHandler() (http.Handler, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return nil, err
	}
	ops := http.NewServeMux()
	ops.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return ops, nil
}

// listen serves h on a free loopback port, with HTTP/1 and unencrypted HTTP/2, until server.Close.
func listen(ctx context.Context, h http.Handler) (url string, server *http.Server, err error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server = &http.Server{Handler: h, Protocols: &protocols, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(ln) }() // ends with Close
	return "http://" + ln.Addr().String(), server, nil
}
