-- Records how many messages of a group a node's sessions can have. It is a script because Redis
-- allows a plain HSET no more when it is out of memory, and then no lease would be taken.
--
-- KEYS[1] streaming:mq:capacity:<topic>:<group>  HASH  node -> capacity
-- ARGV[1] node
-- ARGV[2] capacity
-- RETURNS 1.
--
-- Safe to repeat.
local capacities, node, capacity = KEYS[1], ARGV[1], ARGV[2]
redis.call('HSET', capacities, node, capacity)
return 1
