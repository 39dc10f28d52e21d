-- Replaces a topic's settings, if nobody else has meanwhile.
--
-- KEYS[1] streaming:mq:topic:<topic>:meta  HASH uid, version, doc
-- ARGV[1] uid
-- ARGV[2] version  that the change was made from
-- ARGV[3] next     the new version
-- ARGV[4] doc      the new one
-- RETURNS 1. Errors: NOTOPIC, CONFLICT.
--
-- Safe to repeat: what the first call stored is what the repeat wants.
local meta, uid, version, next_version, doc = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local stored = redis.call('HMGET', meta, 'uid', 'version', 'doc')
if stored[1] ~= uid then
  return redis.error_reply('NOTOPIC')
end
if stored[2] == next_version and stored[3] == doc then
  return 1
end
if stored[2] ~= version then
  return redis.error_reply('CONFLICT')
end
redis.call('HSET', meta, 'version', next_version, 'doc', doc)
return 1
