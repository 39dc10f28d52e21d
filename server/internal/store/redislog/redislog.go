// Package redislog keeps the logs of partitions in Redis 7.0: qlog.Store, on a single server or a
// cluster.
//
// # Keys
//
// Of all topics, and of a topic t, in slots of their own:
//
//	streaming:mq:layout           STRING version of all that follows: 2
//	streaming:mq:topics:registry  SET   names of all topics
//	streaming:mq:topic:<t>:meta   HASH  uid, version, doc; g:<group> -> the group's settings
//	streaming:mq:delayed:{b}      SET   "<t>:<p>" that may have scheduled messages, 16 buckets b
//	streaming:mq:wakeups          channel of due times that became earlier
//
// Of its partition p, all in the slot of {t:p}; S is stream:topic:{t:p}:
//
//	S                STREAM the messages; the ID of an entry is "<µs>-<ord>" (qlog.Pos)
//	S:meta           HASH   uid, version and doc (copies of the topic's), gv (version of the set of
//	                        groups), groups, paused, last (µs) and ord of the newest entry, and the
//	                        counters cancelled (scheduled messages) and replayed (dead letters)
//	S:sizes          HASH   n<ord div 256> -> size of the largest record there, if it is above 4 KiB
//	S:delayed, :data ZSET, HASH  scheduled message -> due ms; -> record
//	S:moved          ZSET   ID of a scheduled message -> µs in the log
//	S:dlq, :dlq:data STREAM, HASH  headers of dead letters; their ID in S:dlq -> record, and
//	                        "<g> <message ID>" -> ID of the latest
//	S:replayed       ZSET   the entries that are for one group only (lib_replayed.lua)
//	S:idem:<uid>:<k> STRING "<digest> <µs> <due>", expires
//	S:uniq:<k>       STRING "<µs> <groups that have not settled it>", expires; and, if it replaced a
//	                        message in the log, that message's µs there
//	S:prod:<uid>:<i> HASH   sequence mod 64 -> "<sequence> <digest> <count> <first µs>", expires
//	S:g:<g>          HASH   uid, holder, unsure, epoch, ver, cursor, sent (qlog.Pos), open, base,
//	                        and the Counters: acked, dead, cancelled, expired, trimmed,
//	                        elsewhere, retried, redelivered; replayed (dead letters)
//	S:g:<g>:open     HASH   n<ord div 1024> -> the open ordinals there, "17,30-44"
//	S:g:<g>:rows     HASH   µs -> "<state> <gen> <attempts> <session> <since ms> <due ms>
//	                        <code> <reason>"
//	S:g:<g>:due      ZSET   µs -> due ms of the rows that are retrying or suspect
//
// Field names that begin with n are those of the normal priority. Other priorities will have
// streams S:h and S:l, fields that begin with h and l, and the marks cursor.h, sent.h and so on.
//
// # Entries
//
// An entry has the fields d (the record) and, where they are needed, i (the message's ID, if it was
// scheduled or is replayed), t (ms when it was due, or first produced) and g. g is the only group
// that the entry is for: it is a replayed dead letter then. A record is the body of the message,
// which consists of fields of parley.v1.Delivery, followed by its options as one more field
// (QueueRecordOptions). So scripts move a record as one value, and never look into it.
//
// A dead letter's header has the fields i (message ID), e (its entry in the log), g (group), a
// (attempts), r (reason), c (code), k (key), s (bytes of the payload), and t if its entry has it.
//
// # Conservation
//
// At any moment, for each group of a partition,
//
//	ord - base = acked + dead + cancelled + expired + trimmed + elsewhere + open + unsent
//
// where unsent is ord less the ordinal of sent.
//
// # Scripts
//
// A script takes every key from KEYS and reads Redis' time itself. All but put and replay are
// allowed if Redis is out of memory, because they free it, or are needed to.
package redislog
