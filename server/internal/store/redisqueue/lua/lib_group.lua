-- Shared by the scripts on a group's work (group_*.lua) and on what operators look into (look_*.lua).

-- entry_at gives the fields of a stream's entry; nil if it is not there any more.
local function entry_at(stream, id)
  local found = redis.call('XRANGE', stream, id, id)[1]
  return found and fields_of(found[2])
end

-- message_of gives a message's id for good.
local function message_of(partition, id, fields)
  return fields.i or (partition .. '-' .. id)
end

-- item_of gives the item of an entry.
local function item_of(attempts, message, fields)
  return pack_item(attempts, message, fields.t or '0', fields.k or '', fields.d)
end

-- parked_head is what the parked messages of a key, and of no other, begin with. A key may hold any byte.
local function parked_head(key)
  return #key .. ':' .. key
end

-- parked_member orders a key's parked messages by the ids of the entries that they came as. own says that it was one of the
-- group's own stream: entries of the two streams may have the same id.
local function parked_member(key, id, own)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return parked_head(key) .. string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #seq) .. seq .. (own and '1' or '0')
end

-- hold_key gives a key to a message, which lies as an entry in the partition's stream or (own) in the group's. The entry is
-- noted because it may be trimmed away while it is pending, and then tells neither key nor message.
local function hold_key(keys, key, message, id, own)
  redis.call('HSET', keys, key, message .. ' ' .. (own and 'r' or 'm') .. id)
end

-- holder_of gives the message that has a key, and its entry as "m<id>" or "r<id>"; nil if the key is free.
local function holder_of(keys, key)
  local held = redis.call('HGET', keys, key)
  if held then
    return string.match(held, '^(%S+) (%S+)$')
  end
  return nil
end

-- free_key lets a key go that the message holds: to the next message that waits for it, which becomes fetchable, or to none.
local function free_key(keys, parked, parked_data, retry, key, message)
  if key == '' or holder_of(keys, key) ~= message then
    return
  end
  local head = parked_head(key)
  repeat
    local member = redis.call('ZRANGEBYLEX', parked, '[' .. head .. '0', '(' .. head .. ':', 'LIMIT', 0, 1)[1]
    if not member then
      redis.call('HDEL', keys, key)
      return
    end
    local item = redis.call('HGET', parked_data, member) or ''
    local _, next_message = unpack_item(item)
    local id = append_item(retry, item)
    redis.call('ZREM', parked, member)
    redis.call('HDEL', parked_data, member)
    -- What is no item says no message that could hold the key, so it goes on to the next.
    if next_message then
      hold_key(keys, key, next_message, id, true)
    end
  until next_message
end

-- ack takes an entry off what the group has pending, and out of the stream if that is the group's own. It tells how many it took.
local function ack(stream, group, own, id)
  local n = redis.call('XACK', stream, group, id)
  if own and n == 1 then
    redis.call('XDEL', stream, id)
  end
  return n
end
