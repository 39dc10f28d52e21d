-- Adds a message's line to the index once. The message's id is stored in the same step.
--
-- KEYS[1] done    HASH message id -> line
-- KEYS[2] order   LIST of the nick: "<ms> <line>", in the order in which lines were indexed
-- KEYS[3] words   ZSET word -> how often it occurs
-- KEYS[4] tally   HASH counters: repeated, early, lost
-- KEYS[5...]      for each word of the line: ZSET line -> how often it contains the word
-- ARGV[1] message  the message's id
-- ARGV[2] line
-- ARGV[3] ms       when the message appeared, or was due
-- ARGV[4] early    1 if it was delivered before that, else 0
-- ARGV[5] lost     how many earlier deliveries were lost with a worker
-- ARGV[6...]       for each word: the word; how often the line contains it
-- RETURNS 1 if the line was added; 0 if an earlier delivery, whose ack did not arrive, had added it.
local done, order, words, tally, message, line, ms, early, lost = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if redis.call('HSETNX', done, message, line) == 0 then
  redis.call('HINCRBY', tally, 'repeated', 1)
  return 0
end
redis.call('RPUSH', order, ms .. ' ' .. line)
redis.call('HINCRBY', tally, 'early', early)
redis.call('HINCRBY', tally, 'lost', lost)
for n = 0, #KEYS - 5 do
  local word, times = ARGV[6 + 2 * n], ARGV[7 + 2 * n]
  redis.call('ZINCRBY', words, times, word)
  redis.call('ZINCRBY', KEYS[5 + n], times, line)
end
return 1
