-- Returns a page of the rows of a group that are in certain states. It is no snapshot.
--
-- KEYS[1] S:g:<group>:rows  HASH µs -> row
-- ARGV[1] cursor  of HSCAN
-- ARGV[2] n       how many rows to look at, about
-- ARGV[3...] the words of the states
-- RETURNS {the cursor of the next page or 0, and of each row its µs and the row}.
local rows, cursor, n, args = KEYS[1], ARGV[1], ARGV[2], ARGV

local wanted = {}
for at = 3, #args do
  wanted[args[at]] = true
end
local page = redis.call('HSCAN', rows, cursor, 'COUNT', n)
local answer, found = {page[1]}, page[2]
for at = 1, #found, 2 do
  if wanted[string.match(found[at + 1], '^%S+')] then
    answer[#answer + 1] = found[at]
    answer[#answer + 1] = found[at + 1]
  end
end
return answer
