// Package redisqueue keeps queues in Redis: queue.Store on streams, one server or a cluster.
//
// # What is where
//
// Of all topics, and of a topic t, in slots of their own:
//
//	streaming:mq:layout                       STRING version of all that follows
//	streaming:mq:topics:registry              SET  names of all topics
//	streaming:mq:topic:<t>:meta               HASH uid, version, doc (parley.cluster.v1.QueueTopic)
//	streaming:mq:topic:<t>:group:<g>:members  HASH stream id -> "<expiry ms> <joined µs> <node> <consumer>"
//
// Of its partition p, all in the slot of the tag {t:p}, so that every script stays in one:
//
//	stream:topic:{t:p}                STREAM the messages; all groups read it
//	stream:topic:{t:p}:meta           HASH   uid, produce_paused, consume_paused ("1" or absent), and counters: produced, cancelled, taken (scheduled
//	                                         messages so far: the number in their ids)
//	stream:topic:{t:p}:dlq            STREAM dead letters of all groups
//	stream:topic:{t:p}:dlq:moving     HASH   dead letter -> partition that it is being replayed to
//	stream:topic:{t:p}:dlq:arrived:<from>-<id>  STRING marker in the partition that a dead letter of another one has been replayed to
//	stream:topic:{t:p}:delayed        ZSET   scheduled message -> due ms;  :delayed:data HASH its item
//	stream:topic:{t:p}:idem:<uid>:<k> STRING "<digest> <message id> <due ms>" (0: not scheduled), expires with the window
//
// And of a group g there, behind stream:topic:{t:p}:g:<g>
//
//	:lease    STRING "<holder> <epoch>", expires; :epoch STRING the last epoch
//	:retry    STREAM retries that are due, and replayed dead letters; the group of the same name reads it
//	:retrying ZSET   message -> due ms;  :retrying:data HASH its item
//	:keys     HASH   key -> "<id of its one unsettled message> <m, in the partition's stream, or r, in retry><its entry there>"; strict order only
//	:parked   ZSET   "<length of key>:<key><20 digits ms><20 digits seq><0, or 1 if it came from retry>" all of score 0: the messages that wait for their key;
//	                 :parked:data HASH the same -> its item
//	:stats    HASH   counters: acked, dead, retried, replayed, trimmed, skipped; read: entries of the stream that it has passed;
//	                 fetched: entries of both streams that fetches gave
//
// An entry of a stream has the fields d (parley.cluster.v1.QueueRecord), and where they say something k (key; strict order
// only), i (message id for good, where it is not the partition and the entry's own id), a (attempts so far) and t (ms when it
// was due; of a scheduled message only). An item, which is an entry outside of a stream, is text:
// "<a> <i> <t> <length of k> <k><d>", with t 0 where there is none. A dead letter has d, i, a, t, g (group), r (reason),
// c (code) and k.
//
// What a stream holds that is none of this, because another wrote it or it was damaged, is an entry that can't be read: it
// becomes a dead letter when its turn comes, and holds up nothing. What is no item is moved as an entry with the field x, its
// bytes, which becomes one too. Such a dead letter is listed and purged, but not replayed.
//
// A group that is made or moved has passed over what it will never read. That is counted as skipped, so that at any moment, for each group
//
//	produced - cancelled + replayed = delayed + unread + pending + retrying + parked + acked + dead + trimmed + skipped
//
// A script reads Redis' time itself, and takes every key from KEYS. A session's fence is the value that its lease must have.
package redisqueue
