package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// settle is the run's end: all is mended, every channel gets one more message, and everybody comes level.
func (r *run) settle(ctx context.Context) error {
	for _, node := range r.fleet.Nodes() {
		if err := node.Ready(ctx); err != nil {
			return fmt.Errorf("node %d does not come back: %w", node.Index(), err)
		}
	}
	r.rec.Mark("healed")
	heads := r.touch(ctx)
	r.rec.Mark("touched")
	r.c.Logger.InfoContext(ctx, "healed; every channel has its last message")
	ctx, cancel := context.WithTimeout(ctx, levelLimit)
	defer cancel()
	began := time.Now()
	for {
		name, channel, at := r.behind(heads)
		if name == "" {
			r.c.Logger.InfoContext(ctx, "all are level", "took", time.Since(began).Round(time.Millisecond))
			break
		}
		if !sleep(ctx, 20*time.Millisecond) {
			r.c.Logger.WarnContext(ctx, "not level", "subscriber", name, "channel", channel, "at", at, "head", heads[channel])
			break
		}
	}
	r.rec.Mark("ended")
	return r.readBack(context.WithoutCancel(ctx), heads)
}

// behind gives a subscriber that is not level yet.
func (r *run) behind(heads map[string]int64) (name, channel string, at int64) {
	for _, f := range r.followers {
		if channel, at, ok := f.behind(heads); ok {
			return f.String(), channel, at
		}
	}
	return "", "", 0
}

// touch sends one message to every channel, after which all caches must be level too, and gives the logs' ends.
func (r *run) touch(ctx context.Context) map[string]int64 {
	heads := make(map[string]int64)
	w, err := r.newWriter(r.c.Seed, "toucher", r.allAddrs(0), "toucher")
	if err != nil {
		return heads
	}
	defer w.client.Close()
	for _, channel := range r.all() {
		op := w.message(channel)
		op.Final, op.Limit = true, int64(10*time.Second)
		w.resend(ctx, &op)
		heads[channel] = op.Seq
	}
	return heads
}

// readBack reads every channel whole on every node: as pages, up and down, and as a stream from its beginning.
func (r *run) readBack(ctx context.Context, heads map[string]int64) error {
	var g errgroup.Group
	for i, addr := range r.addrs {
		g.Go(func() error {
			reader := r.newReader(r.c.Seed, fmt.Sprintf("last-reader-%d", i), addr)
			defer reader.client.close()
			for k, channel := range r.all() {
				op := reader.op(channel)
				op.Final = true
				if k%2 == i%2 {
					op.After = 0
				}
				if !reader.list(ctx, op, 500, 1<<20) {
					return fmt.Errorf("%s: %s can't be read to its end", reader.name, channel)
				}
			}
			return nil
		})
		g.Go(func() error { return r.replay(ctx, i, addr, heads) })
	}
	// What fails here is in the history, as an op that failed though nothing was broken, and is judged there.
	r.fail("reading back", g.Wait())
	return nil
}

// replay follows every channel from its beginning until it is level.
func (r *run) replay(ctx context.Context, i int, addr string, heads map[string]int64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*levelLimit)
	defer cancel()
	s, err := r.newSubscriber(ctx, r.c.Seed, fmt.Sprintf("last-replay-%d", i), addr)
	if err != nil {
		return err
	}
	for _, channel := range r.all() {
		if err := s.follow(ctx, channel, 0, true); err != nil {
			return err
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	for {
		if _, _, ok := s.places.behind(heads); !ok || !sleep(ctx, 10*time.Millisecond) {
			break
		}
	}
	s.sub.Close()
	if err := <-done; err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// judge reads the stores and checks the history.
func (r *run) judge(ctx context.Context) (*Result, error) {
	cache := r.fleet.Redis.Client()
	defer cache.Close()
	t, err := readTruth(ctx, r.fleet.Mongo.URI(), r.c.Database, cache)
	if err != nil {
		return nil, err
	}
	h, err := r.rec.Close()
	if err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(r.c.Dir, "truth.json"), t); err != nil {
		return nil, err
	}
	res := &Result{History: h, Truth: t, Lost: r.nemesis.lost(), Violations: Check(h, t, r.c.Settings)}
	for _, text := range r.nemesis.panics() {
		res.Violations = append(res.Violations, Violation{Name: Crash, Detail: text})
	}
	for _, err := range r.errs {
		res.Violations = append(res.Violations, Violation{Name: Liveness, Detail: "a client ended: " + err.Error()})
	}
	return res, writeJSON(filepath.Join(r.c.Dir, "violations.json"), res.Violations)
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// ReadTruth reads what Run left of the stores in its directory.
func ReadTruth(path string) (*Truth, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("truth: %w", err)
	}
	t := new(Truth)
	if err := json.Unmarshal(data, t); err != nil {
		return nil, fmt.Errorf("truth: %w", err)
	}
	return t, nil
}
