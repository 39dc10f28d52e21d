package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// masters is the number of servers in a cluster, the least that Redis allows.
const masters = 3

// RedisCluster is a cluster of three masters without replicas. Its methods may be called
// concurrently.
type RedisCluster struct {
	servers []*Redis
}

// StartRedisCluster starts three servers in directories below c.Dir, joins them, and waits until
// all of them serve. It ignores c.Addr. After an error nothing is left running.
func StartRedisCluster(ctx context.Context, c RedisConfig) (*RedisCluster, error) {
	addrs, err := FreeAddrs(2 * masters) // below the range for outgoing connections, which could take any other
	if err != nil {
		return nil, err
	}
	cluster := new(RedisCluster)
	if err := cluster.start(ctx, c, addrs[:masters], addrs[masters:]); err != nil {
		cluster.Kill()
		return nil, fmt.Errorf("cluster of redis-servers: %w", err)
	}
	return cluster, nil
}

// Addrs returns the masters' addresses.
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, len(c.servers))
	for i, s := range c.servers {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Kill kills all servers. It may be called again.
func (c *RedisCluster) Kill() {
	for _, s := range c.servers {
		s.Kill()
	}
}

// start starts the servers, assigns each its slots, and introduces them to each other.
func (c *RedisCluster) start(ctx context.Context, config RedisConfig, addrs, buses []string) error {
	const slots = 16_384
	dir, args := config.Dir, config.Args
	var first *redis.Client
	for i, addr := range addrs {
		_, bus, err := net.SplitHostPort(buses[i])
		if err != nil {
			return err
		}
		config.Dir, config.Addr = filepath.Join(dir, "master"+strconv.Itoa(i)), addr
		config.Args = append([]string{"--cluster-enabled", "yes", "--cluster-port", bus}, args...)
		s, err := StartRedis(ctx, config)
		if err != nil {
			return err
		}
		c.servers = append(c.servers, s)
		client := s.Client()
		defer client.Close()
		// Each server has its own epoch. Otherwise they would first have to agree on epochs, which
		// takes time.
		err = errors.Join(
			client.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err(),
			client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(),
		)
		if err != nil {
			return err
		}
		if first == nil {
			first = client
			continue
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		if err := first.Do(ctx, "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
			return err
		}
	}
	for _, s := range c.servers {
		if err := s.proc.ready(ctx, s.joined); err != nil {
			return err
		}
	}
	return nil
}

// joined returns an error until the server knows a complete cluster.
func (r *Redis) joined(ctx context.Context) error {
	client := r.Client()
	defer client.Close()
	info, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(masters)) {
		return errors.New(info)
	}
	return nil
}
