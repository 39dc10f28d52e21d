-- Forgets a topic's settings.
--
-- KEYS[1] streaming:mq:topic:<topic>:meta  HASH uid, version, doc
-- ARGV[1] uid
-- RETURNS 1 if there is no such topic any more, 0 if there is a later one of the name, which is left alone.
--
-- Safe to repeat.
local meta, uid = KEYS[1], ARGV[1]

local stored = redis.call('HGET', meta, 'uid')
if stored == uid then
  redis.call('DEL', meta)
elseif stored then
  return 0
end
return 1
