-- Shared by the scripts that take dead letters away.

-- each_letter calls fn(id, fields) for dead letters: those of ids from their `first` on, each once and as far as they are there, or if there
-- are none for the next n from start on. group filters unless it is "". It gives the last id looked at, and 1 if there may be
-- more.
local function each_letter(dlq, start, n, group, ids, first, fn)
  local found, more, seen = {}, 0, {}
  if ids[first] then
    for at = first, #ids do
      if not seen[ids[at]] then
        seen[ids[at]] = true
        found[#found + 1] = redis.call('XRANGE', dlq, ids[at], ids[at])[1]
      end
    end
  else
    found = redis.call('XRANGE', dlq, start, '+', 'COUNT', n)
    more = #found == n and 1 or 0
  end
  for _, entry in ipairs(found) do
    local fields = fields_of(entry[2])
    if group == '' or fields.g == group then
      fn(entry[1], fields)
    end
  end
  return #found > 0 and found[#found][1] or '', more
end
