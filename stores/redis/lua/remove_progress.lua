-- Removes the progress of dispatches, with their index members, under an ownership.
-- One that began elsewhere, or was seen behind the offset given, stays.
--
-- KEYS[1] shard (hash)
-- KEYS[2] progress index of the shard (zset)
-- KEYS[3..] dispatches (hash), each once
-- ARGV[1] epoch
-- ARGV[2] token (hex)
-- then    of each dispatch: seq (16 hex), highest offset, index member
-- Answers how many were there.
local _, bad = owned(KEYS[1], ARGV[1], ARGV[2])
if bad then return bad end
_, bad = read('progress index', 'ZCARD', KEYS[2])
if bad then return bad end
local gone = {}
for k = 3, #KEYS do
  local at = 3 * (k - 2)
  local r
  r, bad = read('dispatch progress', 'HMGET', KEYS[k], 'begun', 'max_offset')
  if bad then return bad end
  if r[2] and not whole(r[2]) then
    return corrupt('dispatch progress')
  end
  if r[1] and string.sub(r[1], 1, 16) == ARGV[at] and (not r[2] or tonumber(r[2]) <= tonumber(ARGV[at + 1])) then
    gone[#gone + 1] = k
  end
end
for _, k in ipairs(gone) do
  redis.call('ZREM', KEYS[2], ARGV[3 * (k - 2) + 2])
  redis.call('UNLINK', KEYS[k])
end
return #gone
