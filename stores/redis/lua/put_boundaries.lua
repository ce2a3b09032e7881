-- Replaces the cached boundaries of a shard if they are still what the caller
-- computed the new ones from.
--
-- KEYS[1] shard (hash)
-- ARGV[1] epoch
-- ARGV[2] token (hex)
-- ARGV[3] boundaries that the caller read, '' for none
-- ARGV[4] boundaries to be
--
-- Returns 1, or 0 when they are not what the caller read.
local _, bad = owned(KEYS[1], ARGV[1], ARGV[2])
if bad then return bad end
if (redis.call('HGET', KEYS[1], 'boundaries') or '') ~= ARGV[3] then
  return 0
end
if ARGV[3] ~= ARGV[4] then
  redis.call('HSET', KEYS[1], 'boundaries', ARGV[4])
end
return 1
