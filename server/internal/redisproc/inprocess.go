package redisproc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// clockStep bounds how late an in-process server expires a key.
const clockStep = 50 * time.Millisecond

// innerPeer is the client name under which streamInfo sends commands to miniredis; adapt leaves
// those alone.
const innerPeer = "parley-inner"

// InProcess is a Redis server within this process (miniredis), for machines without redis-server.
// It keeps everything in memory, so a restart loses all keys. It runs scripts in an interpreter
// written in Go, several times slower than redis-server. Its methods may be called concurrently. It
// is a lifecycle.Service.
type InProcess struct {
	mini *miniredis.Miniredis
	life lifecycle.Base

	mu    sync.Mutex
	added map[string]int // stream -> entries ever added to it
}

// NewInProcess creates an empty server.
func NewInProcess() *InProcess {
	return &InProcess{mini: miniredis.NewMiniRedis(), added: map[string]int{}}
}

// Start starts the server on a loopback port that the operating system chooses. See
// lifecycle.Service.
func (p *InProcess) Start(ctx context.Context) error {
	return p.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		if err := p.mini.Start(); err != nil {
			return fmt.Errorf("start the in-process Redis: %w", err)
		}
		run.OnEnd(func(context.Context) error { p.mini.Close(); return nil })
		p.mini.Server().SetPreHook(p.adapt)
		run.Go(p.expire)
		return nil
	})
}

// Stop ends the server and its connections.
func (p *InProcess) Stop(ctx context.Context) error { return p.life.Stop(ctx) }

// expire advances the clock for key expiry, which miniredis does not advance on its own.
func (p *InProcess) expire(ctx context.Context) {
	ticker := time.NewTicker(clockStep)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case now := <-ticker.C:
			p.mini.FastForward(now.Sub(last))
			last = now
		case <-ctx.Done():
			return
		}
	}
}

// adapt runs before each command. It adds features that queues and presence use and miniredis
// lacks; the comments below name them. It reports whether it has replied; if not, miniredis runs
// the command.
func (p *InProcess) adapt(peer *server.Peer, command string, args ...string) bool {
	switch {
	case command == "XADD" && len(args) > 0:
		p.mu.Lock()
		p.added[args[0]]++
		p.mu.Unlock()
	case command == "DEL" || command == "UNLINK":
		p.mu.Lock()
		for _, key := range args {
			delete(p.added, key)
		}
		p.mu.Unlock()
	case command == "XTRIM" && slices.Contains(args, "~"):
		// miniredis ignores LIMIT and would remove more. Removing nothing is a correct
		// approximation.
		peer.WriteInt(0)
		return true
	case command == "XINFO" && len(args) == 2 && strings.EqualFold(args[0], "STREAM") && peer.ClientName != innerPeer:
		return p.streamInfo(peer, args[1])
	case command == "XGROUP" && len(args) > 3 && args[3] == "0":
		// miniredis would keep the group's position in this short form.
		args = slices.Concat([]string{command}, args[:3], []string{"0-0"}, args[4:])
		p.mini.Server().Dispatch(peer, args)
		return true
	case command == "SSCAN" && len(args) == 4:
		// The cursor of miniredis is an index, so a member would be skipped after one below it was
		// removed. All members in one reply are correct.
		p.mini.Server().Dispatch(peer, []string{command, args[0], "0"})
		return true
	case command == "ZRANGEBYLEX" && len(args) > 2 && (args[1] == "(+" || args[1] == "(-"):
		// miniredis takes these for infinity, but they are members. The same range begins with the
		// successor of the member.
		p.mini.Server().Dispatch(peer, slices.Concat([]string{command, args[0], "[" + args[1][1:] + "\x00"}, args[2:]))
		return true
	case command == "XPENDING" && len(args) > 2 && strings.HasPrefix(args[2], "("):
		// miniredis supports exclusive ranges only in XRANGE.
		next, ok := successor(args[2][1:])
		if !ok {
			return false
		}
		p.mini.Server().Dispatch(peer, slices.Concat([]string{command}, args[:2], []string{next}, args[3:]))
		return true
	}
	return false
}

// successor returns the entry ID that follows id; false if id is malformed or the last of all.
func successor(id string) (string, bool) {
	left, right, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseUint(left, 10, 64)
	if err != nil {
		return "", false
	}
	seq, err := strconv.ParseUint(right, 10, 64)
	switch {
	case err != nil:
		return "", false
	case seq < math.MaxUint64:
		seq++
	case ms < math.MaxUint64:
		ms, seq = ms+1, 0
	default:
		return "", false
	}
	return fmt.Sprintf("%d-%d", ms, seq), true
}

// streamInfo replies to XINFO STREAM. It adds entries-added, which Redis has since version 7 and
// miniredis lacks, and the last-generated-id of a stream without entries. The count is exact while
// every XADD succeeds and no stream expires, which holds for the streams of queues. It leaves
// errors to miniredis and then returns false.
func (p *InProcess) streamInfo(peer *server.Peer, key string) bool {
	p.mu.Lock()
	added := p.added[key]
	p.mu.Unlock()
	var reply bytes.Buffer
	w := bufio.NewWriter(&reply)
	inner := server.NewPeer(w)
	inner.Ctx, inner.ClientName = peer.Ctx, innerPeer
	p.mini.Server().Dispatch(inner, []string{"XINFO", "STREAM", key})
	_ = w.Flush() // writing to a buffer does not fail
	fields, err := server.ParseReply(bufio.NewReader(&reply))
	info, ok := fields.([]any)
	if err != nil || !ok {
		return false
	}
	peer.WriteMapLen(len(info)/2 + 1)
	for _, v := range info {
		switch v := v.(type) {
		case int:
			peer.WriteInt(v)
		case string:
			if v == "" {
				v = "0-0"
			}
			peer.WriteBulk(v)
		}
	}
	peer.WriteBulk("entries-added")
	peer.WriteInt(added)
	return true
}

// Addr returns the address that the server listens on, as host:port. Call it after Start.
func (p *InProcess) Addr() string { return p.mini.Addr() }
