-- Shared by the scripts of lease holders.

-- largest_after returns the sizes of the largest records in the four runs of 256 ordinals from the one
-- that contains the ordinal after a position; '0' where all are up to 4 KiB.
local function largest_after(sizes, pos)
  local ord = tonumber(string.match(pos, '%-(%d+)$')) + 1
  local found = redis.call('HMGET', sizes, size_field(ord), size_field(ord + 256), size_field(ord + 512), size_field(ord + 768))
  for i = 1, 4 do
    found[i] = found[i] or '0'
  end
  return found
end
