package queues

import (
	"context"

	"github.com/parleyhq/parley/chaos"
)

// KeysLost deletes the settings of a topic and what one of its partitions knows about itself, which
// the server must restore.
const KeysLost chaos.FaultName = "keys-lost"

// loseKeys is the fault KeysLost.
func (r *run) loseKeys(ctx context.Context, p chaos.Planned) (target string, mend chaos.Mend, err error) {
	t := r.topics[p.Node%len(r.topics)]
	partition := p.Node / len(r.topics) % t.Partitions
	client := r.Fleet.Redis.Client()
	defer client.Close()
	r.rec.write(line{Lost: &LostKeys{At: now(), Topic: t.Name, Partition: partition}})
	tx := client.TxPipeline()
	tx.Del(ctx, topicKey(t.Name))
	tx.Del(ctx, mainKey(t.Name, partition)+":meta")
	_, err = tx.Exec(ctx)
	return "redis", func(context.Context) error { return nil }, err
}
