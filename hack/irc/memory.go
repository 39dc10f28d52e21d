package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/parleyhq/parley/hack/internal/verdict"
	"github.com/parleyhq/parley/internal/rig"
)

const mib = 1 << 20

// mongoCache is the size of the cache of each mongod, which is small enough to be full before the
// memory is measured.
const mongoCache = "cache_size=64MB"

// gauge is a memory that must be flat.
type gauge struct {
	name string
	// slack is what it may grow in MiB, besides a share of it.
	slack float64
	read  func(ctx context.Context) (float64, error) // MiB
	// middle and end are the samples of the two windows.
	middle, end []float64
}

// The windows, as shares of the lines that are complete. The median of the end may exceed that of
// the middle by growth, and by the gauge's slack.
const (
	middleFrom, middleTo = 0.4, 0.6
	endFrom              = 0.8
	growth               = 0.2
)

// memory is the gauges of a fleet.
type memory struct {
	gauges []*gauge
	mongo  []*mongo.Client // of each member
	missed int
}

// limitMongo limits the caches of all members.
func limitMongo(ctx context.Context, fleet *rig.Fleet) error {
	for i := range fleet.Mongo.Size() {
		client, err := connect1(fleet.Mongo.Addr(i))
		if err != nil {
			return err
		}
		err = client.Database("admin").RunCommand(ctx, bson.D{
			{Key: "setParameter", Value: 1}, {Key: "wiredTigerEngineRuntimeConfig", Value: mongoCache},
		}).Err()
		if err = errors.Join(err, client.Disconnect(context.WithoutCancel(ctx))); err != nil {
			return fmt.Errorf("limit the cache of member %d: %w", i, err)
		}
	}
	return nil
}

// connect1 connects to one member.
func connect1(addr string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().SetHosts([]string{addr}).SetDirect(true))
}

func newMemory(fleet *rig.Fleet) (*memory, error) {
	m := &memory{}
	for i, n := range fleet.Nodes() {
		url := "http://" + n.OpsAddr() + "/debug/pprof/heap?gc=1&debug=1"
		m.gauges = append(m.gauges, &gauge{name: fmt.Sprintf("heap of node %d", i), slack: 8, read: func(ctx context.Context) (float64, error) {
			text, err := page(ctx, url)
			if err != nil {
				return 0, err
			}
			_, rest, _ := strings.Cut(text, "# HeapAlloc = ")
			value, _, _ := strings.Cut(rest, "\n")
			bytes, err := strconv.ParseFloat(value, 64)
			return bytes / mib, err
		}})
	}
	m.gauges = append(m.gauges, &gauge{name: "Redis", slack: 2, read: func(ctx context.Context) (float64, error) {
		client := fleet.Redis.Client()
		defer client.Close()
		info, err := client.InfoMap(ctx, "memory").Result()
		if err != nil {
			return 0, err
		}
		bytes, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
		return bytes / mib, err
	}})
	for i := range fleet.Mongo.Size() {
		client, err := connect1(fleet.Mongo.Addr(i))
		if err != nil {
			return nil, err
		}
		m.mongo = append(m.mongo, client)
		m.gauges = append(m.gauges, &gauge{name: fmt.Sprintf("mongod %d", i), slack: 32, read: func(ctx context.Context) (float64, error) {
			status, err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Raw()
			if err != nil {
				return 0, err
			}
			allocated, ok := status.Lookup("tcmalloc", "generic", "current_allocated_bytes").AsInt64OK()
			if !ok {
				return 0, errors.New("mongod does not report what it has allocated")
			}
			return float64(allocated) / mib, nil
		}})
	}
	return m, nil
}

func (m *memory) close(ctx context.Context) {
	for _, client := range m.mongo {
		_ = client.Disconnect(ctx)
	}
}

// watch samples all gauges until ctx ends. progress returns the share of the work that is complete.
func (m *memory) watch(ctx context.Context, every time.Duration, progress func() float64) {
	for verdict.Sleep(ctx, every) == nil {
		at := progress()
		if at < middleFrom || at > middleTo && at < endFrom {
			continue
		}
		for _, g := range m.gauges {
			value, err := g.read(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				m.missed++
			case at <= middleTo:
				g.middle = append(g.middle, value)
			default:
				g.end = append(g.end, value)
			}
		}
	}
}

// judge returns what each gauge was, and an error that names those that grew.
func (m *memory) judge() (text string, err error) {
	var all, grew []string
	for _, g := range m.gauges {
		if len(g.middle) == 0 || len(g.end) == 0 {
			return "", fmt.Errorf("the memory of %s was not sampled (%d reads failed)", g.name, m.missed)
		}
		middle, end := median(g.middle), median(g.end)
		one := fmt.Sprintf("%s %.1f to %.1f MiB", g.name, middle, end)
		all = append(all, one)
		if end > middle*(1+growth)+g.slack {
			grew = append(grew, one)
		}
	}
	if len(grew) > 0 {
		err = fmt.Errorf("the memory is not flat: %s", strings.Join(grew, ", "))
	}
	return strings.Join(all, ", "), err
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
