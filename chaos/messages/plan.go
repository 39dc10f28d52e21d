package messages

import "github.com/parleyhq/parley/chaos"

// shortPlan returns the plan of a run of about a minute and a half. It has one of each kind of
// fault that differs much from the others, and two node kills.
func shortPlan() chaos.Plan {
	return chaos.Plan{
		Nodes: 3, Scale: 0.16,
		Counts: map[chaos.FaultName]int{
			chaos.NodeKill: 2, chaos.NodeStop: 1, chaos.NodeClock: 1, chaos.Roll: 1, chaos.MongoDisk: 1, chaos.MongoStepDown: 1, chaos.MongoStop: 1,
			chaos.MongoLost: 1, chaos.RedisDisk: 1, chaos.RedisMemory: 1, chaos.RedisPast: 1, chaos.NATSAway: 1, chaos.NATSDisks: 1,
			chaos.NATSBytes: 1, chaos.CutMongo: 1, chaos.CutNATS: 1, chaos.StallNATS: 1,
		},
	}
}

// longPlan returns the plan of `make chaos`: every fault at least once, the worst ones several
// times.
func longPlan() chaos.Plan {
	return chaos.Plan{
		Nodes: 3, Scale: 1,
		Counts: map[chaos.FaultName]int{
			chaos.NodeKill: 10, chaos.NodeStop: 4, chaos.NodeIsolate: 2, chaos.NodeClock: 3, chaos.Roll: 2, chaos.MongoKill: 3,
			chaos.MongoStepDown: 3, chaos.MongoStop: 3, chaos.MongoAlone: 1, chaos.MongoLost: 2, chaos.RedisKill: 2,
			chaos.RedisFlush: 2, chaos.RedisPast: 2, chaos.NATSAway: 3, chaos.NATSKill: 2, chaos.CutMongo: 3, chaos.CutRedis: 3,
			chaos.CutNATS: 3, chaos.StallMongo: 3, chaos.StallRedis: 3, chaos.StallNATS: 3,
			chaos.MongoDisk: 1, chaos.MongoDisks: 1, chaos.RedisDisk: 2, chaos.RedisMemory: 2, chaos.NATSDisk: 1, chaos.NATSDisks: 1,
			chaos.NATSBytes: 2,
		},
	}
}
