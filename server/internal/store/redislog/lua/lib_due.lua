-- Shared by the scripts that list by due times.

-- rank_after returns the rank of the first member after a place: with a higher score, or the same score
-- and a higher name.
local function rank_after(set, score, name)
  local low, high = 0, redis.call('ZCARD', set)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = redis.call('ZRANGE', set, middle, middle, 'WITHSCORES')
    local its_score = tonumber(found[2])
    if its_score > score or its_score == score and found[1] > name then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- list_after returns {1 if there may be more, and of each member after a place its name, its score in ms
-- and its value}: n at most, whose values, fields of a hash, have up to `budget` bytes unless there is
-- only one.
local function list_after(set, values, due, name, n, budget)
  local rank, answer, bytes = rank_after(set, due, name), {0}, 0
  local found = redis.call('ZRANGE', set, rank, rank + n, 'WITHSCORES')
  for at = 1, #found, 2 do
    bytes = bytes + redis.call('HSTRLEN', values, found[at])
    if at > 2 * n or at > 1 and bytes > budget then
      answer[1] = 1
      return answer
    end
    answer[#answer + 1] = {found[at], text(tonumber(found[at + 1])), redis.call('HGET', values, found[at])}
  end
  return answer
end
