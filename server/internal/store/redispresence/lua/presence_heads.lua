-- Reads the end of a shard's log.
--
-- KEYS[1] meta  HASH of the shard
-- RETURNS now ms, epoch, seq, opened ms, settled.
local meta = KEYS[1]

return head(meta, now_ms())
