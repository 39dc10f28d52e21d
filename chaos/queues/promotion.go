package queues

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/internal/rig"
)

// Promotion returns the harness of queues whose Redis has a replica. The replica falls behind, the
// primary dies, the replica takes its place as Sentinel would arrange it, and the old primary
// returns as a replica. Exactly the messages that the replica lacked must be lost, and no epoch may
// decrease.
func Promotion() *chaos.Harness {
	s := spec((*run).promote, func(chaos.Size) int { return 0 })
	s.Name, s.Short, s.Long = "promotion", promotionPlan, promotionPlan
	return chaos.New(s)
}

// The TCP ports of a promotion besides that of the fleet's Redis: the replica's, that of the old
// primary once it is a replica, and that of the proxy between replica and primary.
const (
	replicaPort  = "6380"
	returnedPort = "6381"
	betweenPort  = "7379"
)

// promotion is the state of the servers during a promotion of Redis' replica to primary.
type promotion struct {
	// primary and replica are the contents of each server when the primary died.
	primary, replica *Truth
	// at is when the replica took the primary's place.
	at int64
	// returned is the old primary, as a replica.
	returned *rig.Redis
}

// lag is how long the replica receives nothing before the primary dies.
const lag = 3 * time.Second

func (r *run) promote(ctx context.Context) error {
	host, _, err := net.SplitHostPort(r.Fleet.Redis.Addr())
	if err != nil {
		return err
	}
	between := rig.NewProxy()
	r.Cleanup(between.Close)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, betweenPort))
	if err != nil {
		return err
	}
	between.Serve(listener, rig.DialTo("tcp", r.Fleet.Redis.Addr()))
	replica, err := r.startReplica(ctx, filepath.Join(r.Fleet.Dir, "replica"), net.JoinHostPort(host, replicaPort), host, betweenPort)
	if err != nil {
		return err
	}
	chaos.Sleep(ctx, 6*time.Second)

	r.Logger.InfoContext(ctx, "the replica falls behind")
	f := chaos.Fault{Name: "promotion", Target: "redis"}
	r.rec.BeginFault(&f)
	past := Window{From: now() - int64(500*time.Millisecond)} // recent answers may still be in flight
	between.Stall()
	chaos.Sleep(ctx, lag)
	p := new(promotion)
	r.promotion = p
	for i := range r.Fleet.Nodes() {
		r.Fleet.Link(i, rig.EngineRedis).Stall()
	}
	chaos.Sleep(ctx, 100*time.Millisecond) // until Redis has processed all requests it received
	client := r.Fleet.Redis.Client()
	p.primary, err = readTruth(ctx, client, r.topics)
	_ = client.Close()
	r.Fleet.Redis.Kill()
	between.Cut()
	if err != nil {
		return err
	}
	if err := r.takeOver(ctx, p, replica); err != nil {
		return err
	}
	past.To = p.at
	r.rec.write(line{Past: &past})
	r.rec.EndFault(&f)
	chaos.Sleep(ctx, 3*time.Second)
	p.returned, err = r.startReplica(ctx, r.Fleet.Redis.Dir(), net.JoinHostPort(host, returnedPort), host, replicaPort)
	if err != nil {
		return fmt.Errorf("the old primary: %w", err)
	}
	chaos.Sleep(ctx, 3*time.Second)
	return r.nemesis.Healed(ctx)
}

// takeOver promotes the replica to primary, at the old primary's address.
func (r *run) takeOver(ctx context.Context, p *promotion, replica *rig.Redis) error {
	client := replica.Client()
	defer client.Close()
	var err error
	if p.replica, err = readTruth(ctx, client, r.topics); err != nil {
		return err
	}
	if err := client.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		return err
	}
	proxy := rig.NewProxy()
	r.Cleanup(proxy.Close)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", r.Fleet.Redis.Addr())
	if err != nil {
		return err
	}
	proxy.Serve(listener, rig.DialTo("tcp", replica.Addr()))
	p.at = now()
	for i := range r.Fleet.Nodes() {
		link := r.Fleet.Link(i, rig.EngineRedis)
		link.Cut() // no data for the old primary may reach the new one
		link.Restore()
	}
	r.Logger.InfoContext(ctx, "the replica is the primary")
	return nil
}

// startReplica starts a Redis server at addr as a replica of host:port. It waits until the replica
// has synchronized with its primary, for up to 20 seconds.
func (r *run) startReplica(ctx context.Context, dir, addr, host, port string) (*rig.Redis, error) {
	server, err := rig.StartRedis(ctx, rig.RedisConfig{
		Dir: dir, Addr: addr, AppendOnly: true, Args: []string{"--replicaof", host, port, "--repl-diskless-sync-delay", "0"},
	})
	if err != nil {
		return nil, err
	}
	r.Cleanup(server.Kill)
	client := server.Client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		info, err := client.Info(ctx, "replication").Result()
		if err == nil && strings.Contains(info, "master_link_status:up") {
			return server, nil
		}
		if !chaos.Sleep(ctx, 50*time.Millisecond) {
			return nil, errors.Join(errors.New("the replica did not catch up"), err)
		}
	}
}

// checkPromoted checks which messages the promotion lost, in the topic that keeps everything.
func (r *run) checkPromoted(ctx context.Context, h *History, t *Truth) error {
	p := r.promotion
	if p == nil {
		return nil
	}
	client := p.returned.Client()
	defer client.Close()
	returned, err := r.readUntilCaughtUp(ctx, client, t)
	if err != nil {
		return err
	}
	had, kept, final, back := p.primary.marks(), p.replica.marks(), t.marks(), returned.marks()
	again := make(map[string]bool)
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind.produces() && op.End > p.at {
			again[op.Mark] = true
		}
	}
	lost := 0
	for mark := range had {
		switch {
		case kept[mark] && !final[mark]:
			r.foundf(Loss, "%s was in the replica, and is not there in the end", mark)
		case !kept[mark] && final[mark] && !again[mark]:
			r.foundf(Duplicate, "%s was not in the replica, and is there in the end", mark)
		case !kept[mark]:
			lost++
		}
	}
	for mark := range final {
		if !back[mark] {
			r.foundf(Loss, "%s is not in the old primary, which is a replica now", mark)
		}
	}
	for mark := range back {
		if !final[mark] {
			r.foundf(Duplicate, "%s is in the old primary, which is a replica now, and not in the new one", mark)
		}
	}
	if lost == 0 {
		return errors.New("the replica had every message, so the run tested nothing")
	}
	r.Logger.InfoContext(ctx, "the replica lacked", "messages", lost, "of", len(had))
	return nil
}

// readUntilCaughtUp reads a replica until it has as many messages as the truth, for up to 10
// seconds. It returns the last read.
func (r *run) readUntilCaughtUp(ctx context.Context, client *redis.Client, t *Truth) (*Truth, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		got, err := readTruth(ctx, client, r.topics)
		if err != nil || len(got.marks()) == len(t.marks()) || !chaos.Sleep(ctx, 100*time.Millisecond) {
			return got, err
		}
	}
}

func (r *run) foundf(name chaos.Name, format string, args ...any) {
	r.Found(chaos.Violation{Name: name, Object: jobs, Detail: fmt.Sprintf(format, args...)})
}

// marks returns the marks of all messages of the topic jobs, due or not.
func (t *Truth) marks() map[string]bool {
	all := make(map[string]bool)
	for i := range t.Partitions {
		if p := &t.Partitions[i]; p.Topic == jobs {
			for _, list := range [][]Stored{p.Entries, p.Delayed} {
				for k := range list {
					all[list[k].Mark] = true
				}
			}
		}
	}
	return all
}
