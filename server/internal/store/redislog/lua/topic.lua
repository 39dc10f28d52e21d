-- Stores, changes or removes the settings of a topic and its groups.
--
-- KEYS[1] streaming:mq:topic:<topic>:meta  HASH uid, version, doc, g:<group>
-- ARGV[1] uid
-- ARGV[2] version  that the change was made from; empty to store the settings of a new topic
-- ARGV[3] next     the new version; empty to remove all settings
-- ARGV[4...] fields and their new values; an empty value removes the field
-- RETURNS 1; 0 if another topic of the name is there, to remove. Errors: EXISTS, NOTOPIC, CONFLICT.
--
-- Safe to repeat: what the first call stored is what the repeat wants. A new topic finds itself.
local hash, uid, version, next_version, args = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV

local stored = redis.call('HMGET', hash, 'uid', 'version')
if next_version == '' then
  if stored[1] == uid then
    redis.call('DEL', hash)
  end
  return (stored[1] and stored[1] ~= uid) and 0 or 1
end
if version == '' then
  if stored[1] then
    return redis.error_reply('EXISTS')
  end
elseif stored[1] ~= uid then
  return redis.error_reply('NOTOPIC')
elseif stored[2] ~= version then
  local done = stored[2] == next_version
  for at = 4, #args, 2 do
    done = done and (redis.call('HGET', hash, args[at]) or '') == args[at + 1]
  end
  return done and 1 or redis.error_reply('CONFLICT')
end
redis.call('HSET', hash, 'uid', uid, 'version', next_version)
for at = 4, #args, 2 do
  if args[at + 1] == '' then
    redis.call('HDEL', hash, args[at])
  else
    redis.call('HSET', hash, args[at], args[at + 1])
  end
end
return 1
