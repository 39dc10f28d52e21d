-- Records that a node lives, and returns all nodes that lived within the last hour.
--
-- KEYS[1] streaming:mq:nodes  HASH  node -> until when it lives, ms by Redis' clock
-- ARGV[1] node
-- ARGV[2] ttl  ms; 0 ends its life now
-- RETURNS the time in ms, then of each node its name and until when it lives.
--
-- Safe to repeat.
local nodes, node, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
local now = math.floor(now_us() / 1000)
redis.call('HSET', nodes, node, text(now + ttl))
local answer = {text(now)}
for name, ends in pairs(named(redis.call('HGETALL', nodes))) do
  if now - tonumber(ends) > 3600000 then
    redis.call('HDEL', nodes, name)
  else
    answer[#answer + 1] = name
    answer[#answer + 1] = ends
  end
end
return answer
