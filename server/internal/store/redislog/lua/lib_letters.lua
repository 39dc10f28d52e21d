-- Shared by the scripts that handle dead letters.

-- letter_index returns the field of S:dlq:data that names the dead letter of a group's message.
local function letter_index(group, message)
  return group .. ' ' .. message
end

-- remove_letter removes a dead letter, whose header has the fields.
local function remove_letter(dlq, data, id, fields)
  redis.call('XDEL', dlq, id)
  redis.call('HDEL', data, id)
  local index = letter_index(fields.g or '', fields.i or '')
  if redis.call('HGET', data, index) == id then
    redis.call('HDEL', data, index)
  end
end

-- size_of returns the bytes of a header.
local function size_of(fields)
  local n = 0
  for at = 1, #fields do
    n = n + #fields[at]
  end
  return n
end

-- each_letter calls fn with the ID and the header of dead letters of a group, or of all if that is empty:
-- of those whose IDs are in args from `at` on, or else of those after an ID, the oldest first. fn returns
-- how many it did, 0 or 1, or nil to end before this letter. It ends after n that were done, and looks at
-- 1,000 headers and 1 MiB of them at most. It returns how many were done, how many IDs of args were looked
-- at, the last ID, and 1 if there may be more.
local function each_letter(dlq, after, group, n, args, at, fn)
  local looked, bytes, done, last = 0, 0, 0, after
  -- visit returns whether to go on behind the letter.
  local function visit(entry)
    local fields = named(entry[2])
    looked, bytes = looked + 1, bytes + size_of(entry[2])
    if group ~= '' and fields.g ~= group then
      return true
    end
    local did = done < n and fn(entry[1], fields)
    done = done + (did or 0)
    return did and true
  end
  local function spent()
    return looked >= 1000 or bytes >= 1048576
  end
  for i = at, #args do
    local entry = redis.call('XRANGE', dlq, args[i], args[i])[1]
    if spent() or entry and not visit(entry) then
      return done, i - at, last, 1
    end
  end
  if at <= #args then
    return done, #args - at + 1, last, 0
  end
  while true do
    local found = redis.call('XRANGE', dlq, '(' .. last, '+', 'COUNT', 100)
    for _, entry in ipairs(found) do
      if not visit(entry) then
        return done, 0, last, 1
      end
      last = entry[1]
    end
    if #found < 100 then
      return done, 0, last, 0
    end
    if spent() then
      return done, 0, last, 1
    end
  end
end
