package redislog

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// memoryShare is the percentage of maxmemory above which Put is refused. What is left is for
	// everything that must go on: settling, retrying, moving scheduled messages.
	memoryShare = 95
	// memoryAge is how old a reading of a server's memory may be.
	memoryAge = time.Second
)

// memoryGuard knows which servers have no memory left for new messages. It asks a server at most
// once in memoryAge, and one caller at a time waits for the answer; the others use the reading
// before.
type memoryGuard struct {
	mu      sync.Mutex
	servers map[string]*memoryReading
}

// memoryReading is what a server said last.
type memoryReading struct {
	at   time.Time
	full bool
}

// full reports whether the server of a key has no memory left for new messages. Without an answer
// it has: then the call itself fails.
func (g *memoryGuard) full(ctx context.Context, client redis.UniversalClient, key string) bool {
	server := client
	addr := ""
	if cluster, ok := client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return false
		}
		server, addr = master, master.Options().Addr
	}
	g.mu.Lock()
	reading := g.servers[addr]
	if reading == nil {
		if g.servers == nil {
			g.servers = map[string]*memoryReading{}
		}
		reading = &memoryReading{}
		g.servers[addr] = reading
	}
	full, old := reading.full, time.Since(reading.at) >= memoryAge
	if old {
		reading.at = time.Now()
	}
	g.mu.Unlock()
	if !old {
		return full
	}
	info, err := server.Info(ctx, "memory").Result()
	if err != nil {
		return false
	}
	full = memoryFull(info)
	g.mu.Lock()
	reading.full = full
	g.mu.Unlock()
	return full
}

// memoryFull reads the answer to INFO memory.
func memoryFull(info string) bool {
	var used, most int64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "used_memory":
			used, _ = strconv.ParseInt(value, 10, 64)
		case "maxmemory":
			most, _ = strconv.ParseInt(value, 10, 64)
		default:
		}
	}
	return most > 0 && used >= most/100*memoryShare
}
