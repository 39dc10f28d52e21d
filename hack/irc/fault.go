package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/hack/internal/verdict"
	"github.com/parleyhq/parley/internal/rig"
)

// fastNode is the node whose clock is ahead, and killedNode the one that is killed.
const fastNode, killedNode = 2, 1

// ahead is by how much the clock of a node is ahead.
const ahead = 10 * time.Second

// outage stops Redis and NATS, kills a node, which starts again without them, and starts them after
// a while.
func (j *job) outage(ctx context.Context) error {
	j.fleet.Redis.Kill()
	j.fleet.NATS.KillAll()
	j.sayf("Redis and NATS are away for %s", j.Outage)
	began := time.Now()
	if err := verdict.Sleep(ctx, j.Outage/3); err != nil {
		return err
	}
	node := j.fleet.Node(killedNode)
	node.Kill()
	if err := node.Start(); err != nil {
		return err
	}
	if err := j.serves(ctx, killedNode); err != nil {
		return fmt.Errorf("node %d does not start without Redis and NATS: %w", killedNode, err)
	}
	j.sayf("killed node %d, which serves again without Redis and NATS", killedNode)
	if err := verdict.Sleep(ctx, j.Outage-time.Since(began)); err != nil {
		return err
	}
	if err := errors.Join(j.fleet.Redis.Restart(ctx), j.fleet.NATS.StartAll(ctx)); err != nil {
		return err
	}
	for _, n := range j.fleet.Nodes() {
		if err := n.Ready(ctx); err != nil {
			return err
		}
	}
	j.sayf("Redis and NATS are back after %.0f s; %d edits and %d complete lines", time.Since(began).Seconds(), j.Total("edits"),
		j.importer.done.Load())
	return nil
}

// serves waits until a node lists messages.
func (j *job) serves(ctx context.Context, node int) error {
	_, err := j.clients.oldest(ctx, node, j.days.channels[0])
	return err
}

// killPrimary kills the primary of MongoDB and starts it again.
func (j *job) killPrimary(ctx context.Context) error {
	primary, err := j.fleet.Mongo.Primary(ctx)
	if err != nil {
		return err
	}
	j.fleet.Mongo.Kill(primary)
	if j.fleet.Mongo.Size() > 1 {
		if _, err := j.fleet.Mongo.Primary(ctx); err != nil {
			return err
		}
	}
	if err := j.fleet.Mongo.Restart(ctx, primary); err != nil {
		return err
	}
	j.sayf("killed the primary of MongoDB, which is back; %d lines are complete", j.importer.done.Load())
	return limitMongo(ctx, j.fleet)
}

// checkClocks checks that the clock of one node is ahead, as the nodes measure it.
func (j *job) checkClocks(ctx context.Context) error {
	for i, n := range j.fleet.Nodes() {
		offset, err := clockOffset(ctx, n)
		if err != nil {
			return err
		}
		want := 0.0
		if i == fastNode && !j.InTime {
			want = -ahead.Seconds()
		}
		if offset < want-2 || offset > want+2 {
			return fmt.Errorf("node %d corrects its clock by %.1f s, not by %.0f s", i, offset, want)
		}
	}
	if !j.InTime {
		j.sayf("the clock of node %d is %s ahead", fastNode, ahead)
	}
	return nil
}

// clockOffset returns by how many seconds a node corrects its clock.
func clockOffset(ctx context.Context, n *rig.Node) (float64, error) {
	text, err := page(ctx, "http://"+n.OpsAddr()+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && strings.HasPrefix(name, "parley_clock_offset") {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("node %d has no metric of its clock", n.Index())
}

// page returns a page of an ops address.
func page(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(text), err
}
