-- Stores a topic's settings unless there are some.
--
-- KEYS[1] streaming:mq:topic:<topic>:meta  HASH uid, version, doc
-- ARGV[1] uid
-- ARGV[2] version
-- ARGV[3] doc
-- RETURNS nil, or the doc that is there already.
--
-- Safe to repeat: the repeat finds its own doc.
local meta, uid, version, doc = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local there = redis.call('HGET', meta, 'doc')
if there then
  return there
end
redis.call('HSET', meta, 'uid', uid, 'version', version, 'doc', doc)
return nil
